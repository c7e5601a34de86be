//! This process as a node of the cluster: its name there, its time, and how long its leases surely last.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::time::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::signal::Signal;

/// What the last heartbeat told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    /// The node's id. A node that was declared dead joins again under another.
    id: NodeId,
    /// Until when, by the monotonic clock, nobody can take its leases.
    valid_until: Instant,
    /// The store's time, and when it arrived here.
    time: (Timestamp, Instant),
    /// How long the answer was under way at most: so much later than `time` it may have been.
    doubt: Duration,
}

/// The node. One clock in a cluster: the store's time at the last heartbeat, and monotonic time since.
#[derive(Debug)]
pub(crate) struct Node {
    standing: Signal<Standing>,
    fences: AtomicI64,
    /// The longest hold that a try waits for.
    wanted: Signal<Duration>,
    pub(crate) beat_now: Notify,
}

/// Why a try must not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseGone;

/// How much longer than the try a hold is asked for, so that the trip to the store and back does not use it up.
const MARGIN: Duration = Duration::from_secs(5);

impl Node {
    /// A node that joined: `asked` is when, by the monotonic clock, it began to ask.
    pub(crate) fn joined(id: NodeId, store_time: Timestamp, asked: Instant, hold: Duration) -> Self {
        let arrived = Instant::now();
        let standing =
            Standing { id, valid_until: asked + hold, time: (store_time, arrived), doubt: arrived - asked };
        Self {
            standing: Signal::new(standing),
            fences: AtomicI64::new(0),
            wanted: Signal::new(Duration::ZERO),
            beat_now: Notify::new(),
        }
    }

    /// The time of the cluster. The store's answer is dated to when it arrived, so this may lag by that trip and never
    /// runs ahead: nothing is sent before it is due.
    pub(crate) fn now(&self) -> Timestamp {
        self.standing.get().now()
    }

    /// The latest that it can be: what is put off from now is put off from this, so that no retry comes early.
    pub(crate) fn latest(&self) -> Timestamp {
        let standing = self.standing.get();
        standing.now().later(standing.doubt)
    }

    /// A lease for the next batch.
    pub(crate) fn grant(&self) -> Lease {
        let fence = self.fences.fetch_add(1, Ordering::Relaxed) + 1;
        Lease { node: self.id(), fence: Fence(fence) }
    }

    pub(crate) fn id(&self) -> NodeId {
        self.standing.get().id
    }

    /// How long the leases surely last from now.
    pub(crate) fn left(&self) -> Duration {
        self.standing.get().left()
    }

    /// How long a heartbeat should hold: `least`, or longer where a try asked for it. Asked once, granted once.
    pub(crate) fn take_wanted(&self, least: Duration) -> Duration {
        self.wanted.change(|_| Duration::ZERO).max(least)
    }

    /// A heartbeat was answered.
    pub(crate) fn beaten(&self, store_time: Timestamp, asked: Instant, hold: Duration) {
        self.standing.change(|known| Standing {
            valid_until: known.valid_until.max(asked + hold),
            ..known.at(store_time, asked)
        });
    }

    /// The node was declared dead and joined again.
    pub(crate) fn rejoined(&self, id: NodeId, store_time: Timestamp, asked: Instant, hold: Duration) {
        self.standing.change(|known| Standing {
            id,
            valid_until: asked + hold,
            ..known.at(store_time, asked)
        });
    }

    /// Law 2: waits until the lease outlasts `need`; refuses once the lease belongs to an earlier life of the node.
    pub(crate) async fn hold(&self, lease: Lease, need: Duration) -> Result<(), LeaseGone> {
        self.standing
            .wait(|standing| {
                if standing.id != lease.node {
                    return Some(Err(LeaseGone));
                }
                if standing.left() > need {
                    return Some(Ok(()));
                }
                self.wanted.change(|wanted| wanted.max(need + MARGIN));
                self.beat_now.notify_one();
                None
            })
            .await
    }
}

impl Standing {
    fn now(&self) -> Timestamp {
        let (time, at) = self.time;
        time.later(at.elapsed())
    }

    fn left(&self) -> Duration {
        self.valid_until.saturating_duration_since(Instant::now())
    }

    /// The same with the store's time. Time never runs backwards on a node, even where the store's does.
    fn at(self, store_time: Timestamp, asked: Instant) -> Self {
        let arrived = Instant::now();
        Self { time: (store_time.max(self.now()), arrived), doubt: arrived - asked, ..self }
    }
}
