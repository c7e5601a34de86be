//! Figures by the minute and by the hour: gathered in memory where things happen, and written at most once a second.
//!
//! A row of the store is what this node saw in one period; it is written whole, again and again while the period lasts. So a
//! write that is repeated or happens late does no harm, and nothing is written in the transactions of the hot path. What
//! happened in the last second before a crash is missing. Reads use the rows in memory in place of those of this node.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::id::NotificationId;
use posthaste_core::lease::NodeId;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::series::{Figures, Happened, Span};
use posthaste_core::time::Timestamp;

use crate::engine::Shared;
use crate::store::{Claimed, Ending, Next, Result, SeriesRow, Settlement};

/// The time between two writes.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the last write may delay the stop of the node.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long after its end a row stays in memory: the clock of the cluster may be set back a little.
const GRACE: Duration = Duration::from_secs(60);
/// The most tenants and channels that are told apart between two writes. Beyond them only the sum over all tenants counts.
const MOST_KEYS: usize = 10_000;
/// The most rows in memory: two minutes and two hours of all of these, and their sums. If the store is away for so long that
/// there are more, those of the earliest periods are lost.
const MOST_ROWS: usize = 4 * (MOST_KEYS + Channel::ALL.len());
/// The most rows in one call to the store.
const ROWS_AT_ONCE: usize = 500;

/// Span, start, tenant (none for the sum) and channel of a row.
type RowKey = (Span, Timestamp, Option<Tenant>, Channel);

/// The figures of this node.
pub(crate) struct Rollups {
    /// Whose rows are written. It stays the same if the node gets another number.
    writer: NodeId,
    gathered: Mutex<Gathered>,
}

#[derive(Default)]
struct Gathered {
    /// What happened since the last write, by the minute. The sum is made later.
    fresh: HashMap<(Timestamp, Option<Tenant>, Channel), Figures>,
    /// What is or will be written.
    rows: BTreeMap<RowKey, Row>,
}

#[derive(Default)]
struct Row {
    figures: Figures,
    is_written: bool,
}

impl Rollups {
    pub(crate) fn new(writer: NodeId) -> Self {
        Self { writer, gathered: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what happened, for one lock.
    pub(crate) fn add<'t>(
        &self,
        now: Timestamp,
        happened: impl IntoIterator<Item = (&'t Tenant, Channel, Happened)>,
    ) {
        let minute = Span::Minute.start(now);
        let mut happened = happened.into_iter().peekable();
        if happened.peek().is_none() {
            return;
        }
        let mut gathered = self.lock();
        for (tenant, channel, what) in happened {
            gathered.add(minute, tenant, channel, what);
        }
    }

    /// The rows that are not written yet, in their present form.
    fn unwritten(&self) -> Vec<SeriesRow> {
        let mut gathered = self.lock();
        gathered.fold();
        let open = gathered.rows.iter().filter(|(_, row)| !row.is_written);
        open.map(|(key, row)| self.row(key, row.figures.clone())).collect()
    }

    fn row(&self, (span, at, tenant, channel): &RowKey, figures: Figures) -> SeriesRow {
        let (span, at, channel) = (*span, *at, *channel);
        SeriesRow { tenant: tenant.clone(), span, at, channel, node: self.writer, figures }
    }

    /// These are written. Nobody else changes rows meanwhile, but for making them anew.
    fn written(&self, rows: &[SeriesRow], now: Timestamp) {
        let mut gathered = self.lock();
        for SeriesRow { tenant, span, at, channel, figures, .. } in rows {
            let key = (*span, *at, tenant.clone(), *channel);
            if let Some(row) = gathered.rows.get_mut(&key) {
                row.is_written = row.figures.weight() == figures.weight();
            }
        }
        gathered.rows.retain(|(span, at, ..), row| !row.is_written || at.later(span.length() + GRACE) > now);
    }

    /// Puts what this node has in memory in place of what it has written.
    pub(crate) fn renew(
        &self,
        kept: &mut Vec<SeriesRow>,
        tenant: Option<&Tenant>,
        span: Span,
        (from, until): (Timestamp, Timestamp),
    ) {
        let mut gathered = self.lock();
        gathered.fold();
        let of_span = gathered.rows.range((span, from, None, Channel::ALL[0])..);
        let asked = of_span
            .take_while(|((of, at, ..), _)| *of == span && *at < until)
            .filter(|((_, _, whose, _), _)| whose.as_ref() == tenant);
        let own: Vec<SeriesRow> = asked.map(|(key, row)| self.row(key, row.figures.clone())).collect();
        let is_own = |row: &SeriesRow| {
            row.node == self.writer && own.iter().any(|own| (own.at, own.channel) == (row.at, row.channel))
        };
        kept.retain(|row| !is_own(row));
        kept.extend(own);
    }
}

impl Gathered {
    fn add(&mut self, minute: Timestamp, tenant: &Tenant, channel: Channel, what: Happened) {
        let known = self.fresh.get_mut(&(minute, Some(tenant.clone()), channel));
        let figures = match known {
            Some(figures) => figures,
            None => {
                let whose = (self.fresh.len() < MOST_KEYS).then(|| tenant.clone());
                self.fresh.entry((minute, whose, channel)).or_default()
            }
        };
        figures.add(what);
    }

    /// Adds what is fresh to the rows of its tenant and of all, by the minute and by the hour.
    fn fold(&mut self) {
        self.make_room();
        for ((minute, tenant, channel), figures) in self.fresh.drain() {
            for span in Span::ALL {
                let sum = Some(None);
                for whose in sum.into_iter().chain(tenant.clone().map(Some)) {
                    let key = (span, span.start(minute), whose, channel);
                    // The other rows last: one that left the memory now would be written with too little afterwards.
                    if key.2.is_some() && self.rows.len() >= MOST_ROWS && !self.rows.contains_key(&key) {
                        continue;
                    }
                    let row = self.rows.entry(key).or_default();
                    row.figures.merge(&figures);
                    row.is_written = false;
                }
            }
        }
    }

    /// Drops rows of periods that are over, where what is fresh needs their room: first those that are written.
    fn make_room(&mut self) {
        let Some(latest) = self.fresh.keys().map(|(minute, ..)| *minute).max() else { return };
        // Those of the sums, of which there may be two periods of each span at the most.
        let sums = 2 * Span::ALL.len() * Channel::ALL.len();
        if self.rows.len() + Span::ALL.len() * self.fresh.len() + sums <= MOST_ROWS {
            return;
        }
        let keys = self.fresh.keys().flat_map(|(minute, tenant, channel)| {
            Span::ALL.map(|span| (span, span.start(*minute), tenant.clone(), *channel))
        });
        let new = keys.filter(|key| !self.rows.contains_key(key)).count();
        let beyond = (self.rows.len() + new + sums).saturating_sub(MOST_ROWS);
        let over = self.rows.iter().filter(|((span, at, ..), _)| at.later(span.length()) <= latest);
        let mut dropped: Vec<(bool, Timestamp, RowKey)> =
            over.map(|(key, row)| (!row.is_written, key.1, key.clone())).collect();
        dropped.sort_unstable();
        dropped.truncate(beyond);
        let lost = dropped.iter().filter(|(is_lost, ..)| *is_lost).count();
        for (_, _, key) in dropped {
            self.rows.remove(&key);
        }
        if lost > 0 {
            tracing::warn!(rows = lost, "figures are lost: the store did not take them for too long");
        }
    }
}

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        if let Err(error) = write(&shared).await {
            tracing::debug!(error = error.causes(), "figures are written with the next ones");
        }
    }
}

/// Writes everything a last time, when nothing more happens.
pub(crate) async fn end(shared: &Shared) {
    let _ = tokio::time::timeout(LAST_TIMEOUT, write(shared)).await;
}

async fn write(shared: &Shared) -> Result<()> {
    let rows = shared.rollups.unwritten();
    for some in rows.chunks(ROWS_AT_ONCE) {
        shared.store.put_series(some.to_vec()).await?;
        shared.rollups.written(some, shared.node.now());
    }
    Ok(())
}

/// What an outcome is counted as.
pub(crate) fn settled<'c>(
    claimed: &'c Claimed,
    settlement: &Settlement,
    now: Timestamp,
) -> (&'c Tenant, Channel, Happened) {
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
    (&notification.tenant, notification.channel, happened)
}

/// From its acceptance, or from when it could be sent at first.
fn took(notification: &Notification, now: Timestamp) -> Duration {
    now.since(notification.first_due(notification.created_at()))
}

/// Counts what ended while it waited. Whose it was is looked up, which is rare enough.
pub(crate) async fn ended_waiting(shared: &Shared, ids: Vec<NotificationId>, what: Happened) {
    if ids.is_empty() {
        return;
    }
    let found = async {
        let facts = shared.store.facts(ids).await?;
        let flows = shared.store.flows(facts.iter().map(|facts| facts.bucket.flow).collect()).await?;
        Ok((facts, flows))
    };
    let found: Result<_> = found.await;
    match found {
        Ok((facts, flows)) => {
            let channels: HashMap<_, _> = flows.iter().map(|flow| (flow.id, flow.key.channel)).collect();
            let ended = facts
                .iter()
                .filter_map(|facts| Some((&facts.tenant, *channels.get(&facts.bucket.flow)?, what)));
            shared.rollups.add(shared.node.now(), ended);
        }
        Err(error) => tracing::debug!(error = error.causes(), "figures lack what ended while it waited"),
    }
}

#[cfg(test)]
mod tests;
