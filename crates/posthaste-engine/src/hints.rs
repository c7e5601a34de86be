//! Hints between nodes: a node with free slots claims at once what another has none for.
//!
//! Hints are sent at most ten times a second. They may get lost: the sweep finds the rows, and every heartbeat reads the
//! settings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use posthaste_core::flow::{Bucket, FlowId, FlowKey};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::Shared;
use crate::store::{Notice, Result};

/// Minimum pause between two hints.
const QUIET: Duration = Duration::from_millis(100);
/// The most buckets that one hint names. Beyond it the other nodes look everywhere.
const MOST: usize = 1_000;
/// Minimum pause between two sweeps because of hints.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// The pause before a lost connection is listened to again.
const PAUSE: Duration = Duration::from_secs(1);

/// What the other nodes are to be told.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    untold: Mutex<Option<Untold>>,
    bell: Notify,
}

/// Where rows are due.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Untold {
    In(BTreeSet<Bucket>),
    Anywhere,
}

impl Hints {
    /// Rows of this bucket are due, and this node does not hold them.
    pub(crate) fn due(&self, bucket: Bucket) {
        match &mut *self.lock() {
            Some(Untold::Anywhere) => {}
            Some(Untold::In(buckets)) if buckets.len() < MOST => drop(buckets.insert(bucket)),
            Some(many @ Untold::In(_)) => *many = Untold::Anywhere,
            none => {
                *none = Some(Untold::In(BTreeSet::from([bucket])));
                self.bell.notify_one();
            }
        }
    }

    /// Rows may be due anywhere.
    pub(crate) fn anywhere(&self) {
        *self.lock() = Some(Untold::Anywhere);
        self.bell.notify_one();
    }

    /// Sends the hint, if there is any.
    pub(crate) async fn tell(&self, shared: &Shared) -> Result<()> {
        let untold = self.lock().take();
        let due = match untold {
            None => return Ok(()),
            Some(Untold::In(buckets)) => buckets.into_iter().collect(),
            Some(Untold::Anywhere) => vec![],
        };
        shared.store.tell(shared.node.id(), due).await
    }

    fn lock(&self) -> MutexGuard<'_, Option<Untold>> {
        self.untold.lock().expect("no code panics while it notes a hint")
    }
}

/// The loop that tells.
pub(crate) async fn tell(shared: Arc<Shared>) {
    loop {
        shared.hints.bell.notified().await;
        if let Err(error) = shared.hints.tell(&shared).await {
            // Other nodes find the rows a little later. The fault of the store is reported by the calls that need it.
            tracing::debug!(%error, "the other nodes could not be told what is due");
        }
        tokio::time::sleep(QUIET).await;
    }
}

/// The loop that listens.
pub(crate) async fn listen(shared: Arc<Shared>) {
    let mut ear = shared.store.listen();
    let mut looked = Instant::now();
    let mut look_at = None;
    loop {
        let notice = tokio::select! {
            // In an order, so that a simulated run can be replayed; and a stream of hints does not put off the sweep.
            biased;
            () = at(look_at) => {
                (look_at, looked) = (None, Instant::now());
                shared.sweep.ask();
                continue;
            }
            notice = ear.next() => notice,
        };
        let (look, settings) = match notice {
            Ok(Notice::Due { from, .. }) if from == shared.node.id() => continue,
            Ok(Notice::Due { buckets, .. }) if !buckets.is_empty() => {
                (ready(&shared, buckets).await.is_err(), false)
            }
            Ok(Notice::Due { .. }) => (true, false),
            Ok(Notice::Setting) => (false, true),
            Ok(Notice::Destination) => {
                shared.destinations.ask_to_read();
                continue;
            }
            Ok(Notice::Missed) => {
                shared.destinations.ask_to_read();
                (true, true)
            }
            Err(error) => {
                shared.store_failed("listen to other nodes", &error);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if look {
            look_at.get_or_insert(looked + BETWEEN_LOOKS);
        }
        // If it cannot be read now, the next heartbeat tries again.
        if settings && let Err(error) = shared.policies.refresh(&*shared.store).await {
            shared.store_failed("read settings", &error);
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn ready(shared: &Shared, buckets: Vec<Bucket>) -> Result<()> {
    let flows: BTreeSet<FlowId> = buckets.iter().map(|bucket| bucket.flow).collect();
    let known = shared.store.flows(flows.into_iter().collect()).await?;
    let known: BTreeMap<FlowId, FlowKey> = known.into_iter().map(|flow| (flow.id, flow.key)).collect();
    let named = buckets.iter().filter_map(|bucket| Some((&known.get(&bucket.flow)?.tenant, *bucket)));
    shared.slots.ready(named);
    Ok(())
}
