//! Claiming: free slots are dealt out as quotas, and the store leases due rows up to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::flow::Bucket;

use crate::engine::Shared;
use crate::settle::Report;
use crate::slots::{Claim, Deal};
use crate::store::{ClaimResult, Claimed};

/// How long to leave a store in peace that could not answer a claim.
const PAUSE: Duration = Duration::from_millis(200);

/// The loop: whenever a slot or a row turns up, claim as long as there is something to deal.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        woken(&shared).await;
        while let Some(Deal { to_send, claims, wants_sweep, .. }) = deal(&shared).await {
            if wants_sweep {
                shared.sweep.ask();
            }
            for next in to_send {
                let _ = shared.claimed.send(next);
            }
            if !claims.is_empty() {
                claim(&shared, &claims).await;
            }
        }
    }
}

/// The least wait for what reopens by time: a node that may take no work does not turn on the spot.
const LEAST_WAIT: Duration = Duration::from_millis(10);

/// Waits until there may be something to deal: somebody says so, or a rate or a pause lets a flow go on.
async fn woken(shared: &Shared) {
    let notified = shared.slots.deal_now.notified();
    match shared.slots.reopens_at() {
        Some(at) => {
            let wait = at.since(shared.node.now()).max(LEAST_WAIT);
            let _ = tokio::time::timeout(wait, notified).await;
        }
        None => notified.await,
    }
}

/// What to send and to claim next; waits while outcomes cannot be recorded, for then no new send may start.
async fn deal(shared: &Shared) -> Option<Deal> {
    shared.recording.wait(|on| on.then_some(())).await;
    if !shared.may_take_work() {
        return None;
    }
    let most = u32::try_from(shared.settings.batch).unwrap_or(u32::MAX);
    let deal = shared.slots.deal(most, shared.node.now());
    deal.is_any.then_some(deal)
}

async fn claim(shared: &Shared, claims: &[Claim]) {
    let lease = shared.node.grant();
    let quotas = claims.iter().map(Claim::quota).collect();
    shared.leases.asked(lease);
    match shared.store.claim(quotas, lease, shared.node.now()).await {
        Ok(ClaimResult { claimed: batch, set_aside }) => {
            // A row that cannot be read stays leased to this node, so that no claim meets it again.
            shared
                .leases
                .answered(lease, batch.iter().map(|claimed| claimed.notification.id).chain(set_aside));
            let mut by_bucket = sorted(batch);
            for claim in claims {
                let batch = by_bucket.remove(&claim.bucket).unwrap_or_default();
                let taken = shared.slots.claimed(claim, batch, shared.node.now());
                for next in taken.to_send {
                    let _ = shared.claimed.send(next);
                }
                shared.give_back(taken.too_large);
            }
        }
        Err(error) => {
            shared.store_failed("claim", &error);
            shared.leases.answered(lease, []);
            // The claim may have happened, so the grant is given back. The buckets left the turns, so
            // all are looked at again.
            for claim in claims {
                shared.slots.claimed(claim, vec![], shared.node.now());
            }
            let _ = shared.reports.send(Report::Unclear(lease));
            tokio::time::sleep(PAUSE).await;
            shared.sweep.ask();
        }
    }
}

fn sorted(batch: Vec<Claimed>) -> BTreeMap<Bucket, Vec<Claimed>> {
    let mut by_bucket: BTreeMap<Bucket, Vec<Claimed>> = BTreeMap::new();
    for claimed in batch {
        by_bucket.entry(claimed.bucket()).or_default().push(claimed);
    }
    by_bucket
}
