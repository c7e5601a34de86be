//! Settling: outcomes are gathered and recorded in batches, and kept until the store has taken them.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::flow::Bucket;
use posthaste_core::id::NotificationId;
use posthaste_core::lease::Lease;
use posthaste_core::notification::Tenant;
use posthaste_core::state::Lane;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::engine::Shared;
use crate::gather::{More, gather};
use crate::outcome::Finished;
use crate::planted::Planted;
use crate::store::{Claimed, Next, Settled, Settlement, StoreError};
use crate::{journal, series};

/// What the senders and the claimers leave to be recorded.
pub(crate) enum Report {
    /// A claimed notification is done.
    Finished(Box<Finished>),
    /// Rows of a grant go back unsent.
    Release {
        /// The grant.
        lease: Lease,
        /// Which rows.
        rows: Vec<Unsent>,
    },
    /// The call that asked for this grant was answered with an error: whatever it leased goes back.
    Unclear(Lease),
}

/// A row that goes back unsent, with where it waits then.
pub(crate) struct Unsent {
    id: NotificationId,
    tenant: Tenant,
    bucket: Bucket,
}

impl From<&Claimed> for Unsent {
    fn from(claimed: &Claimed) -> Self {
        Self {
            id: claimed.notification.id,
            tenant: claimed.notification.tenant.clone(),
            bucket: claimed.bucket(),
        }
    }
}

/// How long after outcomes were recorded the next are gathered where that pays, unless there are many: nobody waits for a
/// record.
const GATHER: Duration = Duration::from_millis(20);
/// How many outcomes are recorded without waiting for more.
const MANY: usize = 128;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The loop: what was reported while the last batch was recorded makes the next one.
pub(crate) async fn run(shared: Arc<Shared>, mut reports: mpsc::UnboundedReceiver<Report>) {
    // Fewer than the slots, or those would wait for the record.
    let many = if shared.store.is_shared() { MANY.min(shared.settings.concurrency as usize / 2) } else { 0 };
    let mut recorded_at = None;
    while let Some(first) = reports.recv().await {
        let (mut count, mut is_waiting) = (0, true);
        let batch = gather(&mut reports, first, |report| {
            count += 1;
            // What goes back unsent is wanted by others.
            is_waiting &= matches!(report, Report::Finished(_)) && count < many;
            match recorded_at {
                _ if count >= shared.settings.batch => More::No,
                Some(last) if is_waiting => More::Until(last + GATHER),
                Some(_) | None => More::IfThere,
            }
        })
        .await;
        recorded_at = Some(Instant::now());
        let mut finished = Vec::with_capacity(batch.len());
        let mut releases = Vec::new();
        for report in batch {
            match report {
                Report::Finished(done) => finished.push(*done),
                Report::Release { lease, rows } => releases.push((lease, Some(rows))),
                Report::Unclear(lease) => releases.push((lease, None)),
            }
        }
        record(&shared, finished).await;
        for (lease, rows) in releases {
            release(&shared, lease, rows).await;
        }
    }
}

/// Records outcomes however often it takes. While it fails, no new send starts: what cannot be remembered must not
/// be done.
async fn record(shared: &Shared, mut open: Vec<Finished>) {
    let mut pause = FIRST_PAUSE;
    while !open.is_empty() {
        let settlements: Vec<Settlement> = open.iter().map(Finished::settlement).collect();
        match shared.store.settle(settlements.clone(), shared.node.now()).await {
            Ok(answers) => {
                shared.set_recording(true);
                open = finish_all(shared, open, &settlements, answers);
            }
            Err(error @ StoreError::Corrupt { .. }) => {
                shared.counts.store_error();
                open = set_aside(shared, open, &error).await;
            }
            Err(error) => pause = back_off(shared, "settle", &error, pause).await,
        }
        if !shared.recording.get() && shared.has(Planted::DropOutcome) {
            shared.slots.recorded(open.drain(..).count());
        }
    }
}

/// Asking again cannot help with what makes no sense to the store. Each outcome is recorded alone; the one that cannot
/// be is left to its lease, which the node knows of until it stops, and the others go on.
async fn set_aside(shared: &Shared, open: Vec<Finished>, error: &StoreError) -> Vec<Finished> {
    if let [only] = open.as_slice() {
        tracing::error!(id = %only.claimed.notification.id, %error, "an outcome cannot be recorded and is set aside");
        shared.slots.recorded(1);
        return Vec::new();
    }
    for one in open {
        Box::pin(record(shared, vec![one])).await;
    }
    Vec::new()
}

/// Gives rows of a grant back: these, or all of them.
async fn release(shared: &Shared, lease: Lease, rows: Option<Vec<Unsent>>) {
    let only: Option<Vec<NotificationId>> = rows.as_ref().map(|rows| rows.iter().map(|row| row.id).collect());
    let mut pause = FIRST_PAUSE;
    let count = loop {
        match shared.store.release(lease, only.clone()).await {
            Ok(count) => break count,
            Err(error) => pause = back_off(shared, "release", &error, pause).await,
        }
    };
    shared.set_recording(true);
    match rows {
        Some(rows) => {
            shared.leases.done(rows.iter().map(|row| (lease, row.id)));
            for row in rows {
                shared.ready(&row.tenant, row.bucket);
            }
        }
        // Where they wait is not known.
        None if count > 0 => {
            shared.counts.given_back(count);
            journal::gave_up_leases(shared);
            shared.sweep.ask();
            shared.hints.anywhere();
        }
        None => {}
    }
}

async fn back_off(shared: &Shared, what: &'static str, error: &StoreError, pause: Duration) -> Duration {
    shared.store_failed(what, error);
    shared.set_recording(false);
    // If it happened all the same, the next try finds the lease gone and does not know when the row is due.
    shared.sweep.ask();
    shared.due.ring();
    tokio::time::sleep(pause).await;
    (pause * 2).min(LONGEST_PAUSE)
}

/// Notes what is settled; returns what has to be decided again. Locks are taken once for the batch.
fn finish_all(
    shared: &Shared,
    open: Vec<Finished>,
    settlements: &[Settlement],
    answers: Vec<Settled>,
) -> Vec<Finished> {
    let now = shared.node.now();
    let applied =
        open.iter().zip(settlements).zip(&answers).filter(|(_, answer)| **answer == Settled::Applied);
    let happened = applied.map(|((done, settlement), _)| series::settled(&done.claimed, settlement, now));
    shared.rollups.add(now, happened);
    let again: Vec<Finished> = open
        .into_iter()
        .zip(settlements)
        .zip(&answers)
        .filter_map(|((claimed, settlement), answer)| finish(shared, claimed, settlement, *answer))
        .collect();
    let settled = settlements.iter().zip(&answers).filter(|(_, answer)| **answer != Settled::CancelRequested);
    let count = shared.leases.done(settled.map(|(settlement, _)| (settlement.lease, settlement.id)));
    shared.slots.recorded(count);
    again
}

/// Notes that a claimed notification is settled, or gives it back to be decided again.
fn finish(shared: &Shared, mut done: Finished, settlement: &Settlement, answer: Settled) -> Option<Finished> {
    shared.counts.settled(settlement, answer);
    match answer {
        Settled::CancelRequested => {
            done.claimed.cancel_requested = true;
            return Some(done);
        }
        Settled::LeaseLost => {
            tracing::info!(id = %settlement.id, "lease lost before the outcome was recorded")
        }
        Settled::Applied => {
            journal::settled(shared, &done.claimed, settlement);
            if let Next::Retry { due, .. } = settlement.next {
                let bucket = Bucket { lane: Lane::Retry, ..done.claimed.bucket() };
                shared.announce(&done.claimed.notification, bucket, due);
            }
        }
    }
    None
}

impl Shared {
    fn set_recording(&self, on: bool) {
        let was = self.recording.change(|_| on);
        if on && !was {
            self.slots.deal_now.notify_one();
        }
    }
}
