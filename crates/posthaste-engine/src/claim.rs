//! Claiming: free places are dealt out as quotas, and the store leases due rows up to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::flow::{Bucket, Quota};

use crate::engine::Shared;
use crate::planted::Planted;
use crate::settle::Report;
use crate::store::Job;

/// How long to leave a store in peace that could not answer a claim.
const PAUSE: Duration = Duration::from_millis(200);

/// The loop: whenever a place or a row turns up, claim as long as there is something to deal.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        shared.floor.claim.notified().await;
        while let Some(quotas) = quotas(&shared).await {
            claim(&shared, quotas).await;
        }
    }
}

/// What to claim next; waits while outcomes cannot be recorded, for then no new send may start.
async fn quotas(shared: &Shared) -> Option<Vec<Quota>> {
    shared.recording.wait(|on| on.then_some(())).await;
    if !shared.may_take_work() {
        return None;
    }
    let quotas = shared.floor.deal(u32::try_from(shared.settings.batch).unwrap_or(u32::MAX));
    (!quotas.is_empty()).then_some(quotas)
}

async fn claim(shared: &Shared, quotas: Vec<Quota>) {
    let lease = shared.node.grant();
    match shared.store.claim(quotas.clone(), lease, shared.node.now()).await {
        Ok(jobs) => {
            let filled = count(&jobs);
            for quota in quotas {
                shared.floor.claimed(quota, filled.get(&quota.bucket).copied().unwrap_or(0));
            }
            for job in jobs {
                let _ = shared.jobs.send(job);
            }
        }
        Err(error) => {
            tracing::warn!(%error, "claim failed");
            shared.counts.store_error();
            // It may have happened all the same: the grant is given back. The buckets left the turns, so
            // all are looked at again.
            for quota in quotas {
                shared.floor.claimed(quota, 0);
            }
            if !shared.has(Planted::ForgetUnclearClaim) {
                let _ = shared.reports.send(Report::Release { lease, only: None });
            }
            tokio::time::sleep(PAUSE).await;
            shared.alarm.look();
        }
    }
}

fn count(jobs: &[Job]) -> BTreeMap<Bucket, u32> {
    let mut filled = BTreeMap::new();
    for job in jobs {
        *filled.entry(job.bucket()).or_default() += 1;
    }
    filled
}
