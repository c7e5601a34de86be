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
    /// How long the last answer was under way.
    trip: Duration,
    /// What the time was when the answer arrived.
    time: Reading,
}

/// The time at one moment of the monotonic clock: somewhere between `earliest` and `latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    taken: Instant,
    earliest: Timestamp,
    latest: Timestamp,
    /// What was already told: time never runs backwards on a node.
    told: Timestamp,
}

impl Reading {
    /// The store told its time in answer to what was asked then: it is that time now, or later by the trip at most.
    fn first(store_time: Timestamp, asked: Instant) -> Self {
        let taken = Instant::now();
        Self { taken, earliest: store_time, latest: store_time.later(taken - asked), told: store_time }
    }

    /// The next reading keeps what the monotonic clock says as far as the store's answer allows: a clock that runs a
    /// little fast or slow is held to the store's.
    fn next(self, store_time: Timestamp, asked: Instant) -> Self {
        let (told, fresh) = (self.now(), Self::first(store_time, asked));
        Self { earliest: told.clamp(fresh.earliest, fresh.latest), told, ..fresh }
    }

    fn now(&self) -> Timestamp {
        self.earliest.later(self.taken.elapsed()).max(self.told)
    }

    fn latest(&self) -> Timestamp {
        self.latest.later(self.taken.elapsed()).max(self.told)
    }
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

/// How much longer than the try and two trips to the store and back a hold is asked for, so that the trip does not use it
/// up. A longer one would keep others from what a dead node held for longer than they need to wait.
const MARGIN: Duration = Duration::from_secs(2);

impl Node {
    /// A node that joined: `asked` is when, by the monotonic clock, it began to ask.
    pub(crate) fn joined(id: NodeId, store_time: Timestamp, asked: Instant, hold: Duration) -> Self {
        let (valid_until, trip) = (asked + hold, asked.elapsed());
        let standing = Standing { id, valid_until, trip, time: Reading::first(store_time, asked) };
        Self {
            standing: Signal::new(standing),
            fences: AtomicI64::new(0),
            wanted: Signal::new(Duration::ZERO),
            beat_now: Notify::new(),
        }
    }

    /// The time of the cluster, the earliest that it can be: nothing is sent before it is due.
    pub(crate) fn now(&self) -> Timestamp {
        self.standing.get().time.now()
    }

    /// The latest that it can be: what is put off from now is put off from this, so that no retry comes early.
    pub(crate) fn latest(&self) -> Timestamp {
        self.standing.get().time.latest()
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
            trip: asked.elapsed(),
            time: known.time.next(store_time, asked),
            ..known
        });
    }

    /// The node was declared dead and joined again.
    pub(crate) fn rejoined(&self, id: NodeId, store_time: Timestamp, asked: Instant, hold: Duration) {
        self.standing.change(|known| Standing {
            id,
            valid_until: asked + hold,
            trip: asked.elapsed(),
            time: known.time.next(store_time, asked),
        });
    }

    /// Waits until the lease does not stand any more. What is sent under it must have ended by then.
    pub(crate) async fn lapsed(&self, lease: Lease) {
        loop {
            let standing = self.standing.get();
            if standing.id != lease.node || standing.left().is_zero() {
                return;
            }
            tokio::time::sleep_until(standing.valid_until).await;
        }
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
                self.wanted.change(|wanted| wanted.max(need + MARGIN + standing.trip * 2));
                self.beat_now.notify_one();
                None
            })
            .await
    }
}

impl Standing {
    fn left(&self) -> Duration {
        self.valid_until.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    async fn pass(millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_long_under_way_puts_the_time_between_two_bounds() {
        let asked = Instant::now();
        pass(300).await;
        let reading = Reading::first(BEGIN, asked);
        assert_eq!((reading.now(), reading.latest()), (BEGIN, BEGIN.later(Duration::from_millis(300))));
        pass(1_000).await;
        assert_eq!(reading.now(), BEGIN.later(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_only_echoes_the_time_does_not_slow_it_down() {
        let begin = Instant::now();
        let mut reading = Reading::first(BEGIN, begin);
        for _ in 0..100 {
            let (asked, told) = (Instant::now(), reading.now());
            pass(20).await;
            reading = reading.next(told, asked);
            pass(980).await;
        }
        assert_eq!(reading.now(), BEGIN.later(begin.elapsed()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_asks_for_no_longer_hold_than_it_needs() {
        let asked = Instant::now();
        pass(10).await;
        let node = Node::joined(NodeId(1), BEGIN, asked, Duration::from_secs(12));
        // The heart is late, and less than ten seconds are left.
        pass(2_500).await;
        let lease = node.grant();
        let waits = node.hold(lease, Duration::from_secs(10));
        assert!(
            tokio::time::timeout(Duration::from_millis(1), waits).await.is_err(),
            "it waits for a heartbeat"
        );
        let asked = node.take_wanted(Duration::from_secs(12));
        assert!(asked <= Duration::from_millis(12_100), "{asked:?}");
        node.beaten(BEGIN, Instant::now(), asked);
        assert_eq!(node.hold(lease, Duration::from_secs(10)).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_runs_fast_is_held_back_and_never_runs_backwards() {
        let reading = Reading::first(BEGIN, Instant::now());
        pass(10_000).await;
        let (before, asked) = (reading.now(), Instant::now());
        pass(10).await;
        // By the store only nine seconds have passed.
        let held = reading.next(BEGIN.later(Duration::from_secs(9)), asked);
        assert!(held.now() >= before);
        pass(1_500).await;
        assert_eq!(held.now(), BEGIN.later(Duration::from_millis(9_010 + 1_500)));
    }
}
