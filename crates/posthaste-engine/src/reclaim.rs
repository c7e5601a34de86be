//! The heart: keeps this node alive in the cluster, and takes back the leases of nodes that died.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::lease::NodeId;
use tokio::time::Instant;

use crate::engine::Shared;
use crate::store::{Pulse, Result};

/// How soon a heartbeat that failed is tried again.
const PAUSE: Duration = Duration::from_millis(250);

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let pause = match beat(&shared).await {
            Ok(()) => shared.settings.beat,
            Err(error) => {
                tracing::warn!(%error, "heartbeat failed");
                shared.counts.store_error();
                PAUSE
            }
        };
        let _ = tokio::time::timeout(pause, shared.node.beat_now.notified()).await;
    }
}

async fn beat(shared: &Shared) -> Result<()> {
    let asked = Instant::now();
    let hold = shared.node.take_wanted(shared.settings.hold);
    let pulse = shared.store.heartbeat(shared.node.id(), hold, shared.node.now()).await?;
    match pulse {
        Pulse::Alive { now, dead } => {
            shared.node.beaten(now, asked, hold);
            for node in dead {
                take_back(shared, node).await?;
            }
        }
        Pulse::Lost => rejoin(shared).await?,
    }
    shared.floor.claim.notify_one();
    shared.give_back(shared.floor.stale());
    shared.policies.refresh(&*shared.store).await
}

/// Others took this node for dead and hold its work now. It goes on under a new name; what it still has in memory
/// fails its next look at the lease.
async fn rejoin(shared: &Shared) -> Result<()> {
    let asked = Instant::now();
    let hold = shared.settings.hold;
    let (id, now) = shared.store.join(&shared.settings.name, hold, shared.node.now()).await?;
    tracing::warn!(was = %shared.node.id(), node = %id, "this node was declared dead and joined again");
    shared.node.rejoined(id, now, asked, hold);
    // What the dead node tried to claim was not given to it; that says nothing about what is due.
    shared.alarm.look();
    Ok(())
}

async fn take_back(shared: &Shared, node: NodeId) -> Result<()> {
    let mut taken = 0;
    loop {
        let count = shared.store.reclaim(node, shared.settings.batch, shared.node.now()).await?;
        shared.counts.taken_back(count);
        taken += count;
        if count < shared.settings.batch {
            break;
        }
    }
    if taken > 0 {
        tracing::info!(%node, taken, "took back the leases of a node that died");
        shared.alarm.look();
        shared.herald.anywhere();
    }
    Ok(())
}
