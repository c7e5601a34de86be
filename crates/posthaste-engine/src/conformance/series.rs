//! Figures by the minute and by the hour, and when retries are due.

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
use crate::store::{Prune, Pruned, RetryLoad, SeriesRow};

pub(super) const PROMISES: &[Promise] = list![
    a_row_of_figures_is_replaced_only_by_one_that_has_more,
    figures_are_read_by_tenant_span_and_time,
    retries_are_counted_in_the_points_that_they_are_due_in,
    only_so_many_retries_are_looked_at,
    old_figures_are_removed_the_oldest_first,
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
