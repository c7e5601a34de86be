//! Heartbeats: they keep this node alive in the cluster. The loop waits for nothing else.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::Shared;
use crate::store::{Pulse, Result};

/// The pause before a heartbeat that failed is tried again.
const PAUSE: Duration = Duration::from_millis(250);

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut heartbeats = Heartbeats::start(&shared);
    loop {
        let pause = match heartbeats.beat(&shared).await {
            Ok(()) => shared.settings.beat,
            Err(error) => {
                shared.store_failed("heartbeat", &error);
                PAUSE
            }
        };
        let _ = tokio::time::timeout(pause, shared.node.beat_now.notified()).await;
    }
}

/// When the last heartbeat was answered, and from when on this node judges others. Where the store was away for longer than a hold, every
/// node looks dead until it has beaten again, so the first one back gives the others time.
struct Heartbeats {
    beat_at: Instant,
    judges_from: Instant,
}

impl Heartbeats {
    fn start(shared: &Shared) -> Self {
        let now = shared.node.instant();
        // A node that starts just when the store is back knows as little of the others.
        let patience = if shared.store.is_shared() { shared.settings.beat * 2 } else { Duration::ZERO };
        Self { beat_at: now, judges_from: now + patience }
    }

    fn beaten(&mut self, shared: &Shared) {
        let (now, patience) = (shared.node.instant(), shared.settings.hold / 2);
        if now - self.beat_at > patience {
            self.judges_from = now + patience;
        }
        self.beat_at = now;
    }

    async fn beat(&mut self, shared: &Shared) -> Result<()> {
        let asked = shared.node.instant();
        let hold = shared.node.take_wanted(shared.settings.hold);
        let dead = match shared.store.heartbeat(shared.node.id(), hold, shared.node.now()).await? {
            Pulse::Alive { now, dead, level, share, destinations } => {
                shared.node.beaten(now, asked, hold);
                shared.node.set_cluster_level(level);
                shared.destinations.beat(level, share, destinations);
                dead
            }
            Pulse::Lost => {
                rejoin(shared).await?;
                vec![]
            }
        };
        self.beaten(shared);
        shared.store_served();
        shared.slots.deal_now.notify_one();
        shared.give_back(shared.slots.stale());
        let judges = shared.node.instant() >= self.judges_from;
        shared.dead_nodes.report(if judges { dead } else { vec![] });
        Ok(())
    }
}

/// Others took this node for dead and hold its work now. It goes on under a new name; what it still has in memory
/// fails its next look at the lease.
async fn rejoin(shared: &Shared) -> Result<()> {
    let asked = shared.node.instant();
    let hold = shared.settings.hold;
    let joined = shared.store.join(shared.settings.name.clone(), hold, shared.node.now()).await?;
    tracing::warn!(was = %shared.node.id(), node = %joined.node, "this node was declared dead and joined again");
    shared.node.rejoined(joined.node, joined.now, asked, hold);
    // Claims of the dead node came back empty although rows may be due.
    shared.sweep.ask();
    Ok(())
}
