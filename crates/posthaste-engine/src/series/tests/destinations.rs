//! The hours of the busiest destinations.

use std::collections::BTreeSet;

use super::super::hours::{MOST_DESTINATIONS, MOST_IN_ALL};
use super::*;

fn to(whose: &str, destination: impl std::fmt::Display) -> FlowKey {
    let destination = format!("https://{destination}.example:443").into();
    FlowKey { tenant: tenant(whose), channel: Channel::Webhook, destination }
}

fn unwritten_hours(rollups: &Rollups) -> Vec<DestinationHour> {
    rollups.folded().hours.unwritten()
}

fn written_hours(rollups: &Rollups, rows: &[DestinationHour]) {
    lock(&rollups.kept).hours.written(rows);
}

/// Start, tenant, place, destination and what was accepted.
fn shown(rows: &[DestinationHour]) -> Vec<(i64, Option<&str>, u16, &str, u64)> {
    rows.iter()
        .map(|row| {
            let (second, whose) = (row.at.as_millis() / 1_000, row.tenant.as_ref().map(Tenant::as_str));
            (second, whose, row.place, &*row.destination, row.figures.accepted)
        })
        .collect()
}

#[test]
fn what_happens_is_in_the_hour_of_its_destination_for_its_tenant_and_for_all() {
    let rollups = Rollups::new(NodeId(3));
    accepted_for(&rollups, at(3_601), &to("a", "x"), 2);
    accepted_for(&rollups, at(3_700), &to("a", "x"), 1);
    accepted_for(&rollups, at(3_700), &to("a", "y"), 1);
    accepted_for(&rollups, at(3_700), &to("b", "x"), 1);
    let (x, y) = ("https://x.example:443", "https://y.example:443");
    let rows = unwritten_hours(&rollups);
    let of_tenants: Vec<_> = shown(&rows).into_iter().filter(|row| row.1.is_some()).collect();
    let wanted = [(3_600, Some("a"), 0, x, 3), (3_600, Some("a"), 1, y, 1), (3_600, Some("b"), 0, x, 1)];
    assert_eq!(of_tenants, wanted);
    let sums: BTreeSet<_> =
        shown(&rows).into_iter().filter(|row| row.1.is_none()).map(|row| (row.3, row.4)).collect();
    assert_eq!(sums, BTreeSet::from([(x, 4), (y, 1)]));
}

#[test]
fn only_places_that_changed_are_written_again_and_whole() {
    let rollups = Rollups::new(NodeId(3));
    accepted_for(&rollups, at(0), &to("a", "x"), 1);
    accepted_for(&rollups, at(0), &to("a", "y"), 1);
    let first = unwritten_hours(&rollups);
    assert_eq!(first.len(), 4);
    // It happened while the rows were being written.
    accepted_for(&rollups, at(1), &to("a", "y"), 1);
    drop(rollups.folded());
    written_hours(&rollups, &first);
    let again = unwritten_hours(&rollups);
    assert_eq!(again.iter().map(|row| row.figures.accepted).collect::<Vec<_>>(), [2, 2]);
    written_hours(&rollups, &again);
    assert_eq!(unwritten_hours(&rollups), []);
}

/// A tenant sends to 50,000 destinations, and every second to one that is busy.
#[test]
fn a_flood_of_destinations_costs_no_more_rows_and_hides_no_busy_one() {
    let rollups = Rollups::new(NodeId(3));
    let busy = to("a", "busy");
    let mut store: BTreeMap<(Option<Tenant>, u16), DestinationHour> = BTreeMap::new();
    for second in 0..50 {
        for number in 0..1_000 {
            accepted_for(&rollups, at(second), &to("a", second * 1_000 + number), 1);
        }
        accepted_for(&rollups, at(second), &busy, 10);
        let rows = unwritten_hours(&rollups);
        assert!(rows.len() <= 2 * MOST_DESTINATIONS, "{} rows in one write", rows.len());
        written_hours(&rollups, &rows);
        store.extend(rows.into_iter().map(|row| ((row.tenant.clone(), row.place), row)));
    }
    assert_eq!(lock(&rollups.kept).hours.len(), 2 * MOST_DESTINATIONS);
    assert_eq!(store.len(), 2 * MOST_DESTINATIONS);
    for whose in [None, Some(tenant("a"))] {
        let theirs =
            store.iter().filter(|((of, _), row)| *of == whose && row.destination == busy.destination);
        let counts: Vec<u64> = theirs.map(|(_, row)| row.figures.accepted).collect();
        assert_eq!(counts, [500], "{whose:?}");
    }
}

#[test]
fn tenants_with_many_destinations_leave_places_for_others() {
    let rollups = Rollups::new(NodeId(3));
    // More than there are places for.
    let large = MOST_IN_ALL / MOST_DESTINATIONS + 10;
    for number in 0..large {
        (0..MOST_DESTINATIONS)
            .for_each(|to_| accepted_for(&rollups, at(0), &to(&format!("t{number:03}"), to_), 1));
        drop(rollups.folded());
    }
    let counted = |whose: &str| {
        unwritten_hours(&rollups).iter().filter(|row| row.tenant == Some(tenant(whose))).count()
    };
    assert_eq!([counted("t000"), counted("t030")], [MOST_DESTINATIONS; 2]);
    assert!(counted("t059") > 50, "those who come late share what is left");
    (0..5).for_each(|number| accepted_for(&rollups, at(1), &to("late", number), 1));
    assert_eq!(counted("late"), 5);
    assert!(lock(&rollups.kept).hours.len() <= MOST_IN_ALL + MOST_DESTINATIONS);
}

#[test]
fn reads_use_the_places_in_memory_in_place_of_what_this_node_wrote() {
    let rollups = Rollups::new(NodeId(3));
    let key = to("a", "x");
    accepted_for(&rollups, at(0), &key, 1);
    let written = unwritten_hours(&rollups);
    written_hours(&rollups, &written);
    accepted_for(&rollups, at(1), &key, 1);
    let own = written.iter().find(|row| row.tenant.is_some()).unwrap();
    let other = DestinationHour { node: NodeId(4), ..own.clone() };
    let before = DestinationHour { at: at(-3_600), ..own.clone() };
    let mut kept = vec![before.clone(), own.clone(), other.clone()];
    let (a, hour) = (tenant("a"), (at(-3_600), at(3_600)));
    rollups.renew_hours(&mut kept, Some(&a), &key.destination, hour);
    assert_eq!(kept.iter().map(|row| row.figures.accepted).collect::<Vec<_>>(), [1, 1, 2]);
    assert_eq!(kept[..2], [before, other]);
    let mut elsewhere = vec![];
    rollups.renew_hours(&mut elsewhere, Some(&a), &"https://y.example:443".into(), hour);
    rollups.renew_hours(&mut elsewhere, Some(&tenant("b")), &key.destination, hour);
    rollups.renew_hours(&mut elsewhere, Some(&a), &key.destination, (at(3_600), at(7_200)));
    assert_eq!(elsewhere, []);
}

#[test]
fn hours_leave_the_memory_when_they_are_over_and_written() {
    let rollups = Rollups::new(NodeId(3));
    let forget = |second: i64| {
        let mut kept = rollups.folded();
        kept.hours.forget(at(second));
        kept.hours.len()
    };
    accepted_for(&rollups, at(0), &to("a", "x"), 1);
    assert_eq!(forget(9_999), 2, "it is not written");
    let rows = unwritten_hours(&rollups);
    written_hours(&rollups, &rows);
    assert_eq!(forget(3_659), 2, "the clock may be set back");
    assert_eq!(forget(3_660), 0);
    // The store is away: of three hours the earliest is given up.
    for hour in [0, 1, 2] {
        accepted_for(&rollups, at(hour * 3_600), &to("a", "x"), 1);
        drop(rollups.folded());
    }
    let rows = unwritten_hours(&rollups);
    assert_eq!(
        rows.iter().map(|row| row.at).collect::<BTreeSet<_>>(),
        BTreeSet::from([at(3_600), at(7_200)])
    );
}

#[test]
fn flows_that_are_not_told_apart_are_in_the_figures_of_their_tenant() {
    let rollups = Rollups::new(NodeId(3));
    (0..25_000).for_each(|number| accepted_for(&rollups, at(0), &to("a", number), 1));
    let counts = counts(&unwritten(&rollups)).iter().map(|row| row.3).collect::<Vec<_>>();
    assert_eq!(counts, [25_000; 4]);
}
