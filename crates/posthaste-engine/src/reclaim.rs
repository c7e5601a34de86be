//! What follows a heartbeat and may take time: settings are read again, and leases of dead nodes are taken back.
//!
//! It is a loop of its own, so that neither a slow read nor many dead nodes cost this node its own heartbeat.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::lease::NodeId;
use tokio::sync::Notify;

use crate::engine::Shared;
use crate::journal;
use crate::store::Result;
use crate::vault;

/// The pause after a store error.
const PAUSE: Duration = Duration::from_millis(250);

/// The dead nodes by the last heartbeat.
#[derive(Debug, Default)]
pub(crate) struct DeadNodes {
    nodes: Mutex<Vec<NodeId>>,
    bell: Notify,
}

impl DeadNodes {
    /// A heartbeat was answered, and these nodes are dead.
    pub(crate) fn report(&self, nodes: Vec<NodeId>) {
        *self.nodes.lock().expect("no code panics while it notes dead nodes") = nodes;
        self.bell.notify_one();
    }

    /// Takes out the first node after `last`, or the first of all: one that cannot be taken back does not hold up the
    /// others, though each heartbeat names it again.
    fn next(&self, last: Option<NodeId>) -> Option<NodeId> {
        let mut nodes = self.nodes.lock().expect("no code panics while it notes dead nodes");
        let place = nodes.iter().position(|node| Some(*node) > last).unwrap_or(0);
        (place < nodes.len()).then(|| nodes.remove(place))
    }
}

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut last = None;
    loop {
        shared.dead_nodes.bell.notified().await;
        refresh(&shared).await;
        // A later heartbeat may replace the list meanwhile: then those that are dead by that one are next.
        while let Some(node) = shared.dead_nodes.next(last) {
            last = Some(node);
            if let Err(error) = take_back(&shared, node).await {
                shared.store_failed("reclaim", &error);
                tokio::time::sleep(PAUSE).await;
            }
            // Its operations are adopted.
            shared.operations.notify_one();
            refresh(&shared).await;
        }
    }
}

async fn refresh(shared: &Shared) {
    if let Err(error) = shared.policies.refresh(&*shared.store).await {
        shared.store_failed("read settings", &error);
    }
    if let Err(error) = vault::look(shared).await {
        shared.store_failed("look which nodes know the master key", &error);
    }
}

/// Takes back all leases of a dead node; returns how many.
pub(crate) async fn take_back(shared: &Shared, node: NodeId) -> Result<u64> {
    let mut all = 0;
    loop {
        let taken = shared.store.reclaim(node, shared.settings.batch, shared.node.now()).await?;
        shared.counts.taken_back(taken);
        all += taken as u64;
        if taken > 0 {
            tracing::info!(%node, taken, "took back leases of a node that died");
            journal::gave_up_leases(shared);
            shared.sweep.ask();
            shared.hints.anywhere();
        }
        if taken < shared.settings.batch {
            return Ok(all);
        }
    }
}
