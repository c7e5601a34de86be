//! Figures by the minute and by the hour, those of the busiest destinations, and when retries are due.

use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::filter::AuditFilter;
use posthaste_core::lease::NodeId;
use posthaste_core::reason::Reason;
use posthaste_core::retention::Kind;
use posthaste_core::series::{Figures, Happened, Points, Span};
use posthaste_core::state::{Lane, State};

use super::scene::{Scene, at, audit, retry_at, tenant};
use super::{Broken, Kept, Promise, list, same};
use crate::store::{DestinationHour, Prune, Pruned, RetryLoad, SeriesRow};

pub(super) const PROMISES: &[Promise] = list![
    a_row_of_figures_is_replaced_only_by_one_that_has_more,
    figures_are_read_by_tenant_span_and_time,
    retries_are_counted_in_the_points_that_they_are_due_in,
    only_so_many_retries_are_looked_at,
    old_figures_are_removed_the_oldest_first,
    a_place_of_the_busiest_is_taken_over_only_with_a_greater_count,
    hours_of_a_destination_are_read_by_tenant_and_time,
    old_hours_of_destinations_are_removed_the_oldest_first,
];

/// A row with so many accepted, and one of everything else.
fn row(whose: Option<&str>, span: Span, minute: i64, node: i64, accepted: u64) -> SeriesRow {
    let mut figures = Figures { accepted, ..Figures::default() };
    for happened in [
        Happened::Delivered { first_try: true, took: Duration::from_millis(40) },
        Happened::Delivered { first_try: false, took: Duration::from_secs(4_000) },
        Happened::Retried,
        Happened::DeadLettered(Reason::Suppressed),
        Happened::Failed(Reason::PermanentFailure),
        Happened::Expired,
        Happened::Cancelled,
    ] {
        figures.add(happened);
    }
    let at = span.start(at(minute * 60));
    SeriesRow { tenant: whose.map(tenant), span, at, channel: Channel::Webhook, node: NodeId(node), figures }
}

async fn a_row_of_figures_is_replaced_only_by_one_that_has_more(scene: Scene) -> Kept {
    let store = &scene.store;
    let read = async || store.series(None, Span::Minute, at(-60), at(600)).await;
    let (first, second) = (row(None, Span::Minute, 0, 7, 1), row(None, Span::Minute, 0, 7, 5));
    store.put_series(vec![]).await?;
    same("at first", read().await?, [])?;
    store.put_series(vec![first.clone()]).await?;
    same("one", read().await?, [first.clone()])?;
    store.put_series(vec![second.clone()]).await?;
    same("more", read().await?, [second.clone()])?;
    // A write that was given up happens all the same, later.
    store.put_series(vec![first.clone()]).await?;
    same("a late one", read().await?, [second.clone()])?;
    let other = row(None, Span::Minute, 0, 8, 1);
    let empty = SeriesRow { node: NodeId(9), figures: Figures::default(), ..other.clone() };
    store.put_series(vec![first, other.clone(), second.clone(), other.clone(), empty]).await?;
    same("of two nodes", read().await?, [second, other])
}

async fn figures_are_read_by_tenant_span_and_time(scene: Scene) -> Kept {
    let store = &scene.store;
    let mail = |row: SeriesRow| SeriesRow { channel: Channel::Email, ..row };
    let one = row(Some("acme"), Span::Minute, 1, 1, 1);
    let rows = vec![
        row(Some("acme"), Span::Minute, 2, 1, 2),
        mail(one.clone()),
        one.clone(),
        row(Some("acme"), Span::Minute, 1, 0, 3),
        row(Some("acme"), Span::Hour, 1, 1, 4),
        row(Some("other"), Span::Minute, 1, 1, 5),
        row(None, Span::Minute, 1, 1, 6),
    ];
    store.put_series(rows.clone()).await?;
    let start = |minute: i64| Span::Minute.start(at(minute * 60));
    let read = async |whose: Option<&str>, span, from, until| {
        store.series(whose.map(tenant), span, start(from), start(until)).await
    };
    let wanted = [rows[3].clone(), one.clone(), mail(one.clone()), rows[0].clone()];
    same("by time, channel and node", read(Some("acme"), Span::Minute, 0, 9).await?, wanted)?;
    same("from", read(Some("acme"), Span::Minute, 2, 9).await?, [rows[0].clone()])?;
    same("until", read(Some("acme"), Span::Minute, 0, 2).await?.len(), 3)?;
    same("hours", read(Some("acme"), Span::Hour, 0, 9).await?, [rows[4].clone()])?;
    same("the other", read(Some("other"), Span::Minute, 0, 9).await?, [rows[5].clone()])?;
    same("the sum", read(None, Span::Minute, 0, 9).await?, [rows[6].clone()])?;
    same("nobody", read(Some("nobody"), Span::Minute, 0, 9).await?, [])
}

/// Retries that are due at these seconds.
async fn retries(scene: &mut Scene, seconds: &[i64]) -> Kept {
    for second in seconds {
        let (notification, lease) = scene.held().await?;
        scene.fail(&notification, lease, retry_at(at(*second))).await?;
    }
    Ok(())
}

fn three_minutes() -> Points {
    let start = Span::Minute.start(at(60));
    let end = start.later(Duration::from_secs(180));
    Points::new(start, end, Span::Minute.length()).expect("three points are not too many")
}

async fn retries_are_counted_in_the_points_that_they_are_due_in(mut scene: Scene) -> Kept {
    retries(&mut scene, &[10, 60, 61, 119, 120, 239, 240, 9_999]).await?;
    scene.waiting().await?;
    let held = scene.in_state(State::Retrying).await?;
    let load =
        async |whose: Option<&str>| scene.store.retry_load(whose.map(tenant), three_minutes(), 100).await;
    // What is overdue is in the first point; what is under way, due at 60, is too.
    let all = RetryLoad { counts: vec![5, 1, 1], complete: true };
    same("all", load(None).await?, all.clone())?;
    same("of the tenant", load(Some("acme")).await?, all)?;
    let none = RetryLoad { counts: vec![0, 0, 0], complete: true };
    same("of another", load(Some("other")).await?, none)?;
    same("its lane", scene.facts(held.id).await?.bucket.lane, Lane::Retry)
}

async fn only_so_many_retries_are_looked_at(mut scene: Scene) -> Kept {
    retries(&mut scene, &[60, 61, 130, 190]).await?;
    let load = async |whose: Option<&str>, limit| {
        scene.store.retry_load(whose.map(tenant), three_minutes(), limit).await
    };
    let soonest = RetryLoad { counts: vec![2, 1, 0], complete: false };
    same("the soonest of all", load(None, 3).await?, soonest)?;
    same("as many as there are", load(None, 4).await?.complete, false)?;
    same("fewer", load(None, 5).await?.complete, true)?;
    let of_tenant = load(Some("acme"), 3).await?;
    same("of a tenant", (of_tenant.counts.iter().sum::<u64>(), of_tenant.complete), (3, false))
}

async fn old_figures_are_removed_the_oldest_first(scene: Scene) -> Kept {
    let store = &scene.store;
    let minutes: Vec<SeriesRow> = (0..4).map(|minute| row(None, Span::Minute, minute, 1, 1)).collect();
    let own = row(Some("acme"), Span::Minute, 1, 1, 1);
    let hour = row(None, Span::Hour, 0, 1, 1);
    store.put_series(minutes.iter().cloned().chain([own, hour.clone()]).collect()).await?;
    let prune = async |minute: i64, limit| {
        let cut_off = Span::Minute.start(at(minute * 60));
        let prune = Prune { kind: Kind::Series, cut_off, limit, now: at(900) };
        Ok::<_, Broken>(store.prune(prune, audit("prune")).await?)
    };
    let left = async || store.series(None, Span::Minute, at(-60), at(900)).await;
    same("none is older", prune(0, 9).await?, Pruned { removed: 0, done: true })?;
    same("as many as may be", prune(2, 2).await?, Pruned { removed: 2, done: false })?;
    same("the oldest", left().await?, minutes[2..].to_vec())?;
    // The hour began before the minute of the cut-off.
    same("the rest", prune(2, 9).await?, Pruned { removed: 2, done: true })?;
    same("those of the cut-off stay", left().await?, minutes[2..].to_vec())?;
    same("hours", store.series(None, Span::Hour, at(-3_600), at(900)).await?, [])?;
    let rows = store.audit(AuditFilter::default(), None, 9).await?.rows;
    same("the audit", rows.iter().map(|row| row.count).collect::<Vec<_>>(), [4])
}

const A: &str = "https://a.example:443";
const B: &str = "https://b.example:443";

/// The hour of a destination that has a place, with that count.
fn hour(whose: Option<&str>, hour: i64, place: u16, destination: &str, count: u64) -> DestinationHour {
    let of_row = row(whose, Span::Hour, hour * 60, 7, count);
    DestinationHour {
        tenant: of_row.tenant,
        at: of_row.at,
        node: of_row.node,
        place,
        channel: Channel::Webhook,
        destination: destination.into(),
        count,
        figures: of_row.figures,
    }
}

/// All hours of a destination.
async fn hours_of(
    scene: &Scene,
    whose: Option<&str>,
    destination: &str,
) -> Result<Vec<DestinationHour>, Broken> {
    let whose = whose.map(tenant);
    Ok(scene.store.destination_hours(whose, destination.into(), at(-3_600), at(90_000)).await?)
}

async fn a_place_of_the_busiest_is_taken_over_only_with_a_greater_count(scene: Scene) -> Kept {
    let store = &scene.store;
    let first = hour(Some("acme"), 0, 3, A, 5);
    store.put_destination_hours(vec![]).await?;
    same("at first", hours_of(&scene, Some("acme"), A).await?, [])?;
    let more = DestinationHour { count: 6, ..first.clone() };
    let empty = DestinationHour { place: 9, count: 0, ..first.clone() };
    store.put_destination_hours(vec![first.clone(), more.clone(), first.clone(), empty]).await?;
    same("the greatest count", hours_of(&scene, Some("acme"), A).await?, [more.clone()])?;
    // The place goes to another destination, whose own figures begin anew.
    let other = hour(Some("acme"), 0, 3, B, 7);
    store.put_destination_hours(vec![other.clone()]).await?;
    same("it lost its place", hours_of(&scene, Some("acme"), A).await?, [])?;
    same("the other has it", hours_of(&scene, Some("acme"), B).await?, [other.clone()])?;
    // A write that was given up happens all the same, later.
    store.put_destination_hours(vec![more, first.clone()]).await?;
    same("a late one", hours_of(&scene, Some("acme"), A).await?, [])?;
    let (elsewhere, again) =
        (DestinationHour { node: NodeId(8), ..first.clone() }, hour(Some("acme"), 0, 4, A, 1));
    store.put_destination_hours(vec![elsewhere.clone(), again.clone()]).await?;
    same("of two nodes", hours_of(&scene, Some("acme"), A).await?, [again, elsewhere])?;
    same("it stays", hours_of(&scene, Some("acme"), B).await?, [other])
}

async fn hours_of_a_destination_are_read_by_tenant_and_time(scene: Scene) -> Kept {
    let store = &scene.store;
    let mail = |row: DestinationHour| DestinationHour { channel: Channel::Email, ..row };
    let rows = [
        hour(Some("acme"), 1, 0, A, 1),
        mail(hour(Some("acme"), 1, 1, A, 2)),
        hour(Some("acme"), 2, 0, A, 3),
        hour(Some("acme"), 2, 1, B, 4),
        hour(Some("other"), 1, 0, A, 5),
        hour(None, 1, 0, A, 6),
    ];
    store.put_destination_hours(rows.iter().rev().cloned().collect()).await?;
    let start = |hour: i64| Span::Hour.start(at(hour * 3_600));
    let read = async |whose: Option<&str>, destination: &str, from, until| {
        store.destination_hours(whose.map(tenant), destination.into(), start(from), start(until)).await
    };
    same("by time and place", read(Some("acme"), A, 0, 9).await?, rows[..3].to_vec())?;
    same("from", read(Some("acme"), A, 2, 9).await?, [rows[2].clone()])?;
    same("until", read(Some("acme"), A, 0, 2).await?, rows[..2].to_vec())?;
    same("the other destination", read(Some("acme"), B, 0, 9).await?, [rows[3].clone()])?;
    same("the other tenant", read(Some("other"), A, 0, 9).await?, [rows[4].clone()])?;
    same("the sum", read(None, A, 0, 9).await?, [rows[5].clone()])?;
    same("no such destination", read(Some("acme"), "", 0, 9).await?, [])
}

async fn old_hours_of_destinations_are_removed_the_oldest_first(scene: Scene) -> Kept {
    let store = &scene.store;
    let rows: Vec<DestinationHour> = (0..4).map(|number| hour(None, number, 0, A, 1)).collect();
    let own = hour(Some("acme"), 1, 0, B, 1);
    store.put_destination_hours(rows.iter().cloned().chain([own.clone()]).collect()).await?;
    let prune = async |hours: i64, limit| {
        let cut_off = Span::Hour.start(at(hours * 3_600));
        let prune = Prune { kind: Kind::DestinationHours, cut_off, limit, now: at(90_000) };
        Ok::<_, Broken>(store.prune(prune, audit("prune")).await?)
    };
    same("none is older", prune(0, 9).await?, Pruned { removed: 0, done: true })?;
    same("as many as may be", prune(2, 2).await?, Pruned { removed: 2, done: false })?;
    same("of one hour the sum goes first", hours_of(&scene, Some("acme"), B).await?, [own])?;
    same("the oldest", hours_of(&scene, None, A).await?, rows[2..].to_vec())?;
    same("the rest", prune(2, 9).await?, Pruned { removed: 1, done: true })?;
    same("and the tenant's", hours_of(&scene, Some("acme"), B).await?, [])?;
    same("those of the cut-off stay", hours_of(&scene, None, A).await?, rows[2..].to_vec())?;
    let audited = scene.store.audit(AuditFilter::default(), None, 9).await?.rows;
    same("the audit", audited.iter().map(|row| row.count).collect::<Vec<_>>(), [3])
}
