//! Figures by the minute and by the hour: gathered in memory where things happen, and written at most once a second.
//!
//! A row of the store is what this node saw in one period; it is written whole, again and again while the period lasts. So a
//! write that is repeated or happens late does no harm, and nothing is written in the transactions of the hot path. What
//! happened in the last second before a crash is missing. Reads use the rows in memory in place of those of this node.

mod fresh;
mod hours;
mod periods;

pub(crate) use self::fresh::Whose;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::lease::NodeId;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::series::{Happened, Span};
use posthaste_core::time::Timestamp;

use self::fresh::Fresh;
use self::hours::Hours;
use self::periods::Periods;
use crate::engine::Shared;
use crate::store::{Claimed, DestinationHour, Ending, Next, Result, SeriesRow, Settlement};

/// The time between two writes.
const INTERVAL: Duration = Duration::from_secs(1);
/// Hours of destinations are written with every so many writes.
const HOURS_EVERY: u64 = 10;
/// How long the last write may delay the stop of the node.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long after its end a row stays in memory: the clock of the cluster may be set back a little.
const GRACE: Duration = Duration::from_secs(60);
/// The most rows in one call to the store.
const ROWS_AT_ONCE: usize = 500;

/// The figures of this node.
pub(crate) struct Rollups {
    /// Locked for as long as something is counted, or taken away.
    fresh: Mutex<Fresh>,
    /// Locked before what is fresh, and never where something happens.
    kept: Mutex<Kept>,
}

/// What is or will be written.
struct Kept {
    periods: Periods,
    hours: Hours,
}

impl Rollups {
    /// Rows are written under this number. It stays the same if the node gets another one.
    pub(crate) fn new(writer: NodeId) -> Self {
        let kept = Kept { periods: Periods::new(writer), hours: Hours::new(writer) };
        Self { fresh: Mutex::default(), kept: Mutex::new(kept) }
    }

    /// Counts what happened, for one lock.
    pub(crate) fn add<'n>(&self, now: Timestamp, happened: impl IntoIterator<Item = (Whose<'n>, Happened)>) {
        let minute = Span::Minute.start(now);
        let mut happened = happened.into_iter().peekable();
        if happened.peek().is_none() {
            return;
        }
        let mut fresh = lock(&self.fresh);
        for (whose, what) in happened {
            fresh.add(minute, whose, what);
        }
    }

    /// Everything up to now. What happens meanwhile does not wait while it is added up.
    fn folded(&self) -> MutexGuard<'_, Kept> {
        let mut kept = lock(&self.kept);
        let fresh = std::mem::take(&mut *lock(&self.fresh));
        kept.hours.fold(fresh.flows());
        kept.periods.fold(fresh.by_tenant());
        kept
    }

    /// Puts what this node has in memory in place of what it has written.
    pub(crate) fn renew(
        &self,
        kept: &mut Vec<SeriesRow>,
        tenant: Option<&Tenant>,
        span: Span,
        time: (Timestamp, Timestamp),
    ) {
        self.folded().periods.renew(kept, tenant, span, time);
    }

    /// The same for the hours of a destination.
    pub(crate) fn renew_hours(
        &self,
        kept: &mut Vec<DestinationHour>,
        tenant: Option<&Tenant>,
        destination: &Arc<str>,
        time: (Timestamp, Timestamp),
    ) {
        self.folded().hours.renew(kept, tenant, destination, time);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    for number in 1_u64.. {
        tokio::time::sleep(INTERVAL).await;
        let written = if number.is_multiple_of(HOURS_EVERY) {
            write(&shared).await
        } else {
            write_periods(&shared).await
        };
        if let Err(error) = written {
            tracing::debug!(error = error.causes(), "figures are written with the next ones");
        }
    }
}

/// Writes everything a last time, when nothing more happens.
pub(crate) async fn end(shared: &Shared) {
    let _ = tokio::time::timeout(LAST_TIMEOUT, write(shared)).await;
}

async fn write(shared: &Shared) -> Result<()> {
    write_periods(shared).await?;
    write_hours(shared).await
}

async fn write_periods(shared: &Shared) -> Result<()> {
    let rows = shared.rollups.folded().periods.unwritten();
    for some in rows.chunks(ROWS_AT_ONCE) {
        shared.store.put_series(some.to_vec()).await?;
        lock(&shared.rollups.kept).periods.written(some, shared.node.now());
    }
    Ok(())
}

async fn write_hours(shared: &Shared) -> Result<()> {
    let rows = shared.rollups.folded().hours.unwritten();
    for some in rows.chunks(ROWS_AT_ONCE) {
        shared.store.put_destination_hours(some.to_vec()).await?;
        lock(&shared.rollups.kept).hours.written(some);
    }
    lock(&shared.rollups.kept).hours.forget(shared.node.now());
    Ok(())
}

/// What an outcome is counted as.
pub(crate) fn settled<'c>(
    claimed: &'c Claimed,
    settlement: &Settlement,
    now: Timestamp,
) -> (Whose<'c>, Happened) {
    let notification = &*claimed.notification;
    let happened = match &settlement.next {
        Next::Retry { .. } => Happened::Retried,
        Next::End(Ending::Delivered) => {
            let first = (claimed.progress.generation, claimed.progress.attempt) == (1, 1);
            let quick = settlement.attempt.as_ref().is_some_and(|attempt| !attempt.quick_tries.is_empty());
            Happened::Delivered { first_try: first && !quick, took: took(notification, now) }
        }
        Next::End(Ending::Cancelled) => Happened::Cancelled,
        Next::End(Ending::Expired) => Happened::Expired,
        Next::End(Ending::Failed { reason, .. }) => Happened::Failed(*reason),
        Next::End(Ending::Buried { reason, .. }) => Happened::DeadLettered(*reason),
    };
    (Whose::of(claimed.flow, notification), happened)
}

/// From its acceptance, or from when it could be sent at first.
fn took(notification: &Notification, now: Timestamp) -> Duration {
    now.since(notification.first_due(notification.created_at()))
}

/// Counts what ended while it waited. Whose it was is looked up, which is rare enough.
pub(crate) async fn ended_waiting(
    shared: &Shared,
    ended: impl IntoIterator<Item = (NotificationId, Happened)>,
) {
    let ended: HashMap<NotificationId, Happened> = ended.into_iter().collect();
    if ended.is_empty() {
        return;
    }
    let found = async {
        let facts = shared.store.facts(ended.keys().copied().collect()).await?;
        let flows = shared.store.flows(facts.iter().map(|facts| facts.bucket.flow).collect()).await?;
        Ok((facts, flows))
    };
    let found: Result<_> = found.await;
    match found {
        Ok((facts, flows)) => {
            let keys: HashMap<_, _> = flows.iter().map(|flow| (flow.id, &flow.key)).collect();
            let happened = facts.iter().filter_map(|facts| {
                let flow = facts.bucket.flow;
                Some((Whose::of_flow(flow, keys.get(&flow)?), *ended.get(&facts.id)?))
            });
            shared.rollups.add(shared.node.now(), happened);
        }
        Err(error) => tracing::debug!(error = error.causes(), "figures lack what ended while it waited"),
    }
}

#[cfg(test)]
mod tests;
