//! This process as a node of the cluster: its name there, its time, and how long its leases surely last.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::time::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// What the last heartbeat told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The node's id. A node that was declared dead joins again under another.
    pub(crate) id: NodeId,
    /// Until when, by the monotonic clock, nobody can take its leases.
    pub(crate) valid_until: Instant,
}

/// The node. One clock in a cluster: the store's time at the last heartbeat, and monotonic time since.
#[derive(Debug)]
pub(crate) struct Node {
    standing: watch::Sender<Standing>,
    anchor: watch::Sender<(Timestamp, Instant)>,
    fences: AtomicI64,
    /// The longest hold that a try waits for.
    wanted: watch::Sender<Duration>,
    pub(crate) beat_now: Notify,
}

/// Why a try must not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseGone;

impl Node {
    /// A node that joined: `asked` is when, by the monotonic clock, it began to ask.
    pub(crate) fn joined(id: NodeId, store_time: Timestamp, asked: Instant, hold: Duration) -> Self {
        Self {
            standing: watch::Sender::new(Standing { id, valid_until: asked + hold }),
            anchor: watch::Sender::new((store_time, Instant::now())),
            fences: AtomicI64::new(0),
            wanted: watch::Sender::new(Duration::ZERO),
            beat_now: Notify::new(),
        }
    }

    /// The time of the cluster. The store's answer is dated to when it arrived, so this may lag by that trip and never
    /// runs ahead: nothing is sent before it is due.
    pub(crate) fn now(&self) -> Timestamp {
        let (time, at) = *self.anchor.borrow();
        time.later(at.elapsed())
    }

    /// A lease for the next batch.
    pub(crate) fn grant(&self) -> Lease {
        let fence = self.fences.fetch_add(1, Ordering::Relaxed) + 1;
        Lease { node: self.id(), fence: Fence(fence) }
    }

    pub(crate) fn id(&self) -> NodeId {
        self.standing.borrow().id
    }

    /// How long the leases surely last from now.
    pub(crate) fn left(&self) -> Duration {
        self.standing.borrow().valid_until.saturating_duration_since(Instant::now())
    }

    /// How long a heartbeat should hold: `least`, or longer where a try asked for it. Asked once, granted once.
    pub(crate) fn take_wanted(&self, least: Duration) -> Duration {
        self.wanted.send_replace(Duration::ZERO).max(least)
    }

    /// A heartbeat was answered.
    pub(crate) fn beaten(&self, store_time: Timestamp, asked: Instant, hold: Duration) {
        self.set_time(store_time);
        self.standing.send_modify(|standing| {
            standing.valid_until = standing.valid_until.max(asked + hold);
        });
    }

    /// The node was declared dead and joined again.
    pub(crate) fn rejoined(&self, id: NodeId, store_time: Timestamp, asked: Instant, hold: Duration) {
        self.set_time(store_time);
        self.standing.send_replace(Standing { id, valid_until: asked + hold });
    }

    /// Time never runs backwards on a node, even where the store's does.
    fn set_time(&self, store_time: Timestamp) {
        let time = store_time.max(self.now());
        self.anchor.send_replace((time, Instant::now()));
    }

    /// Law 2: waits until the lease outlasts `need`; refuses once the lease belongs to an earlier life of the node.
    pub(crate) async fn hold(&self, lease: Lease, need: Duration) -> Result<(), LeaseGone> {
        let mut standing = self.standing.subscribe();
        loop {
            let known = *standing.borrow_and_update();
            if known.id != lease.node {
                return Err(LeaseGone);
            }
            if known.valid_until.saturating_duration_since(Instant::now()) > need {
                return Ok(());
            }
            self.wanted.send_if_modified(|wanted| {
                let more = need + MARGIN > *wanted;
                if more {
                    *wanted = need + MARGIN;
                }
                more
            });
            self.beat_now.notify_one();
            if standing.changed().await.is_err() {
                return Err(LeaseGone);
            }
        }
    }
}

/// How much longer than the try a hold is asked for, so that the trip to the store and back does not use it up.
const MARGIN: Duration = Duration::from_secs(5);
