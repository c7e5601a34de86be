//! What is gathered, written and forgotten.

mod destinations;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use posthaste_core::channel::Channel;
use posthaste_core::flow::{FlowId, FlowKey};

use super::fresh::MOST_KEYS;
use super::periods::MOST_ROWS;
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1_000)
}

fn tenant(name: &str) -> Tenant {
    name.parse().unwrap()
}

/// So many notifications to a destination were accepted.
fn accepted_for(rollups: &Rollups, now: Timestamp, key: &FlowKey, times: usize) {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let whose = Whose::of_flow(FlowId(hasher.finish().cast_signed()), key);
    rollups.add(now, std::iter::repeat_n((whose, Happened::Accepted), times));
}

fn accepted(rollups: &Rollups, now: Timestamp, whose: &Tenant) {
    let key =
        FlowKey { tenant: whose.clone(), channel: Channel::Webhook, destination: "https://x:443".into() };
    accepted_for(rollups, now, &key, 1);
}

/// The minutes and hours of tenants that are not written.
fn unwritten(rollups: &Rollups) -> Vec<SeriesRow> {
    rollups.folded().periods.unwritten()
}

fn note(rollups: &Rollups, rows: &[SeriesRow], now: Timestamp) {
    lock(&rollups.kept).periods.written(rows, now);
}

fn counts(rows: &[SeriesRow]) -> Vec<(Span, i64, Option<&str>, u64)> {
    let shown = |row: &SeriesRow| row.at.as_millis() / 1_000;
    rows.iter()
        .map(|row| (row.span, shown(row), row.tenant.as_ref().map(Tenant::as_str), row.figures.accepted))
        .collect()
}

#[test]
fn what_happens_is_in_the_minute_and_the_hour_of_its_tenant_and_of_all() {
    let rollups = Rollups::new(NodeId(3));
    let (a, b) = (tenant("a"), tenant("b"));
    accepted(&rollups, at(3_600), &a);
    accepted(&rollups, at(3_661), &a);
    accepted(&rollups, at(3_661), &b);
    let rows = unwritten(&rollups);
    let wanted = [
        (Span::Minute, 3_600, None, 1),
        (Span::Minute, 3_600, Some("a"), 1),
        (Span::Minute, 3_660, None, 2),
        (Span::Minute, 3_660, Some("a"), 1),
        (Span::Minute, 3_660, Some("b"), 1),
        (Span::Hour, 3_600, None, 3),
        (Span::Hour, 3_600, Some("a"), 2),
        (Span::Hour, 3_600, Some("b"), 1),
    ];
    assert_eq!(counts(&rows), wanted);
    assert!(rows.iter().all(|row| row.node == NodeId(3)));
}

#[test]
fn only_what_changed_is_written_again_and_whole() {
    let rollups = Rollups::new(NodeId(3));
    let a = tenant("a");
    accepted(&rollups, at(0), &a);
    let first = unwritten(&rollups);
    // It happened while the rows were being written.
    accepted(&rollups, at(1), &a);
    note(&rollups, &first, at(1));
    let again = unwritten(&rollups);
    assert_eq!(counts(&again).iter().map(|row| row.3).collect::<Vec<_>>(), [2, 2, 2, 2]);
    note(&rollups, &again, at(2));
    assert_eq!(unwritten(&rollups), []);
    // A minute that is over leaves the memory, and the hour stays until it is over too.
    accepted(&rollups, at(200), &a);
    let rows = unwritten(&rollups);
    note(&rollups, &rows, at(200));
    assert_eq!(lock(&rollups.kept).periods.len(), 4, "two minutes and two hours");
    note(&rollups, &[], at(3_600 + 61));
    assert_eq!(lock(&rollups.kept).periods.len(), 0);
}

#[test]
fn reads_use_what_is_in_memory_in_place_of_what_this_node_wrote() {
    let rollups = Rollups::new(NodeId(3));
    let a = tenant("a");
    accepted(&rollups, at(0), &a);
    let written = unwritten(&rollups);
    note(&rollups, &written, at(0));
    accepted(&rollups, at(1), &a);
    let of_a = |rows: &[SeriesRow]| -> Vec<SeriesRow> {
        let theirs = rows.iter().filter(|row| row.tenant == Some(a.clone()) && row.span == Span::Minute);
        theirs.cloned().collect()
    };
    let mut kept = of_a(&written);
    let other = SeriesRow { node: NodeId(4), ..kept[0].clone() };
    kept.push(other.clone());
    rollups.renew(&mut kept, Some(&a), Span::Minute, (at(0), at(60)));
    let total: u64 = kept.iter().map(|row| row.figures.accepted).sum();
    assert_eq!((kept.len(), total), (2, 3), "two of this node and one of the other");
    let mut later = vec![other];
    rollups.renew(&mut later, Some(&a), Span::Minute, (at(60), at(120)));
    assert_eq!(later.len(), 1);
    let mut nobody = vec![];
    rollups.renew(&mut nobody, Some(&tenant("b")), Span::Minute, (at(0), at(60)));
    assert_eq!(nobody, []);
}

#[test]
fn as_many_tenants_as_are_told_apart_lose_nothing_while_the_store_takes_the_rows() {
    let rollups = Rollups::new(NodeId(3));
    let tenants: Vec<Tenant> = (0..MOST_KEYS).map(|number| tenant(&format!("t{number}"))).collect();
    let mut store = BTreeMap::new();
    // Two minutes of one hour and two of the next one, with two writes in each.
    for second in [3_480, 3_500, 3_540, 3_599, 3_600, 3_601, 3_660, 3_661] {
        let now = at(second);
        tenants.iter().for_each(|whose| accepted(&rollups, now, whose));
        let rows = unwritten(&rollups);
        note(&rollups, &rows, now);
        assert!(lock(&rollups.kept).periods.len() <= MOST_ROWS);
        for row in rows {
            store.insert((row.span, row.at, row.tenant, row.channel), row.figures.accepted);
        }
    }
    let count = |span, second: i64| {
        let of_period =
            store.iter().filter(|((of, at, ..), _)| (*of, at.as_millis()) == (span, second * 1_000));
        of_period.map(|(_, count)| *count).sum::<u64>()
    };
    // Once for the tenants, and once in the sum over them.
    let all = 2 * u64::try_from(MOST_KEYS).unwrap();
    for minute in [3_480, 3_540, 3_600, 3_660] {
        assert_eq!(count(Span::Minute, minute), 2 * all, "{minute}");
    }
    assert_eq!([count(Span::Hour, 0), count(Span::Hour, 3_600)], [4 * all, 4 * all]);
}

#[test]
fn memory_is_bounded_by_tenants_and_by_periods() {
    let rollups = Rollups::new(NodeId(3));
    for number in 0..MOST_KEYS + 50 {
        accepted(&rollups, at(0), &tenant(&format!("t{number}")));
    }
    let rows = unwritten(&rollups);
    let sum = rows.iter().find(|row| row.tenant.is_none()).unwrap();
    assert_eq!(sum.figures.accepted, u64::try_from(MOST_KEYS + 50).unwrap(), "the sum has everything");
    assert!(rows.len() <= MOST_ROWS);
    // The store is away: the earliest periods are given up.
    for minute in 0..100 {
        for number in 0..500 {
            accepted(&rollups, at(60 * minute), &tenant(&format!("t{number}")));
        }
        let rows = unwritten(&rollups);
        assert!(rows.len() <= MOST_ROWS);
        // The sum goes on though there were more tenants in the first hour than the bound has room for.
        assert!(rows.iter().any(|row| row.tenant.is_none() && row.at == at(60 * minute)));
    }
    let rows = unwritten(&rollups);
    assert!(rows.iter().any(|row| row.span == Span::Minute && row.at == at(60 * 99)));
}

/// A thread that held one lock and asked for it again would never go on.
#[test]
fn what_happens_does_not_wait_while_figures_are_added_up() {
    let rollups = Rollups::new(NodeId(3));
    let kept = rollups.folded();
    accepted(&rollups, at(0), &tenant("a"));
    assert_eq!(kept.periods.unwritten(), [], "it is counted with the next look");
    drop(kept);
    assert_eq!(unwritten(&rollups).len(), 4);
}
