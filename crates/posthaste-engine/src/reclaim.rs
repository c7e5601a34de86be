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
    let mut heart = Heart::start(&shared);
    loop {
        let pause = match heart.beat(&shared).await {
            Ok(More::Waits) => Duration::ZERO,
            Ok(More::Nothing) => shared.settings.beat,
            Err(error) => {
                shared.store_failed("heartbeat", &error);
                PAUSE
            }
        };
        let _ = tokio::time::timeout(pause, shared.node.beat_now.notified()).await;
    }
}

/// Whether a dead node may hold more than was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum More {
    Waits,
    Nothing,
}

/// When this node's heart beat, and from when on it judges others. Where the store was away for longer than a hold, everybody
/// looks dead until they have beaten again, so whoever is first must give the others time.
struct Heart {
    beat_at: Instant,
    judges_from: Instant,
}

impl Heart {
    fn start(shared: &Shared) -> Self {
        let now = Instant::now();
        // Whoever starts just when the store is back knows as little of the others.
        let patience = if shared.store.is_shared() { shared.settings.beat * 2 } else { Duration::ZERO };
        Self { beat_at: now, judges_from: now + patience }
    }

    fn beaten(&mut self, shared: &Shared) {
        let (now, patience) = (Instant::now(), shared.settings.hold / 2);
        if now - self.beat_at > patience {
            self.judges_from = now + patience;
        }
        self.beat_at = now;
    }

    async fn beat(&mut self, shared: &Shared) -> Result<More> {
        let asked = Instant::now();
        let hold = shared.node.take_wanted(shared.settings.hold);
        let dead = match shared.store.heartbeat(shared.node.id(), hold, shared.node.now()).await? {
            Pulse::Alive { now, dead } => {
                shared.node.beaten(now, asked, hold);
                dead
            }
            Pulse::Lost => {
                rejoin(shared).await?;
                vec![]
            }
        };
        self.beaten(shared);
        shared.store_served();
        shared.floor.claim.notify_one();
        shared.give_back(shared.floor.stale());
        shared.policies.refresh(&*shared.store).await?;
        if Instant::now() < self.judges_from {
            return Ok(More::Nothing);
        }
        let mut more = More::Nothing;
        for node in dead {
            // A batch of each and then a heartbeat: taking back must not cost this node its own leases.
            match take_back(shared, node).await {
                Ok(More::Waits) => more = More::Waits,
                Ok(More::Nothing) => {}
                Err(error) => {
                    shared.store_failed("reclaim", &error);
                }
            }
        }
        Ok(more)
    }
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

async fn take_back(shared: &Shared, node: NodeId) -> Result<More> {
    let taken = shared.store.reclaim(node, shared.settings.batch, shared.node.now()).await?;
    shared.counts.taken_back(taken);
    if taken > 0 {
        tracing::info!(%node, taken, "took back leases of a node that died");
        shared.alarm.look();
        shared.herald.anywhere();
    }
    Ok(if taken < shared.settings.batch { More::Nothing } else { More::Waits })
}
