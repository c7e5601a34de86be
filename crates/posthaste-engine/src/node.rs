//! This process as a node of the cluster: its name there, its time, and how long its leases surely last.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::time::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::signal::Signal;

/// The monotonic clock, put forward by the time that the machine slept. A lease ends while its node sleeps, and due times
/// pass, so everything here goes by this clock; the monotonic clock of the system stands still meanwhile.
pub(crate) fn instant(clock: &dyn Clock) -> Instant {
    Instant::now() + clock.slept()
}

/// What the last heartbeat told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    /// The node's id. A node that was declared dead joins again under another.
    id: NodeId,
    /// Until when, by `instant`, nobody can take its leases.
    valid_until: Instant,
    /// How long the last answer was under way.
    trip: Duration,
    /// What the time was when the answer arrived.
    time: Reading,
}

/// The time at one moment of `instant`: somewhere between `earliest` and `latest`.
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
    fn first(store_time: Timestamp, asked: Instant, taken: Instant) -> Self {
        Self { taken, earliest: store_time, latest: store_time.later(taken - asked), told: store_time }
    }

    /// The next reading keeps what the monotonic clock says as far as the store's answer allows: a clock that runs a
    /// little fast or slow is held to the store's.
    fn next(self, store_time: Timestamp, asked: Instant, taken: Instant) -> Self {
        let (told, fresh) = (self.at(taken), Self::first(store_time, asked, taken));
        Self { earliest: told.clamp(fresh.earliest, fresh.latest), told, ..fresh }
    }

    fn at(&self, instant: Instant) -> Timestamp {
        self.earliest.later(instant - self.taken).max(self.told)
    }

    fn latest_at(&self, instant: Instant) -> Timestamp {
        self.latest.later(instant - self.taken).max(self.told)
    }
}

/// The longest time between two looks at whether the machine slept.
const LOOK: Duration = Duration::from_secs(1);

/// The node. One clock in a cluster: the store's time at the last heartbeat, and monotonic time since.
pub(crate) struct Node {
    clock: Arc<dyn Clock>,
    standing: Signal<Standing>,
    fences: AtomicI64,
    /// The longest hold that a try waits for.
    wanted: Signal<Duration>,
    cluster_level: AtomicU32,
    pub(crate) beat_now: Notify,
}

/// Why a try must not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseGone;

/// How much longer than the try and two trips to the store and back a hold is asked for, so that the trip does not use it
/// up. A longer one would keep others from what a dead node held for longer than they need to wait.
const MARGIN: Duration = Duration::from_secs(2);

impl Node {
    /// A node that joined: `asked` is when, by `instant`, it began to ask.
    pub(crate) fn joined(
        clock: Arc<dyn Clock>,
        id: NodeId,
        store_time: Timestamp,
        asked: Instant,
        hold: Duration,
    ) -> Self {
        let taken = instant(&*clock);
        let time = Reading::first(store_time, asked, taken);
        let standing = Standing { id, valid_until: asked + hold, trip: taken - asked, time };
        Self {
            clock,
            standing: Signal::new(standing),
            fences: AtomicI64::new(0),
            wanted: Signal::new(Duration::ZERO),
            // Not known before the first heartbeat.
            cluster_level: AtomicU32::new(0),
            beat_now: Notify::new(),
        }
    }

    /// The clock that leases go by.
    pub(crate) fn instant(&self) -> Instant {
        instant(&*self.clock)
    }

    /// The time of the cluster, the earliest that it can be: nothing is sent before it is due.
    pub(crate) fn now(&self) -> Timestamp {
        self.standing.get().time.at(self.instant())
    }

    /// The latest that it can be: what is put off from now is put off from this, so that no retry comes early.
    pub(crate) fn latest(&self) -> Timestamp {
        self.standing.get().time.latest_at(self.instant())
    }

    /// A lease for the next batch.
    pub(crate) fn grant(&self) -> Lease {
        let fence = self.fences.fetch_add(1, Ordering::Relaxed) + 1;
        Lease { node: self.id(), fence: Fence(fence) }
    }

    pub(crate) fn id(&self) -> NodeId {
        self.standing.get().id
    }

    /// The lowest level among the nodes that lived at the last heartbeat.
    pub(crate) fn cluster_level(&self) -> u32 {
        self.cluster_level.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cluster_level(&self, level: u32) {
        self.cluster_level.store(level, Ordering::Relaxed);
    }

    /// How long the leases surely last from now.
    pub(crate) fn left(&self) -> Duration {
        self.standing.get().left(self.instant())
    }

    /// How long a heartbeat should hold: `least`, or longer where a try asked for it. Asked once, granted once.
    pub(crate) fn take_wanted(&self, least: Duration) -> Duration {
        self.wanted.change(|_| Duration::ZERO).max(least)
    }

    /// A heartbeat was answered.
    pub(crate) fn beaten(&self, store_time: Timestamp, asked: Instant, hold: Duration) {
        let taken = self.instant();
        self.standing.change(|known| Standing {
            valid_until: known.valid_until.max(asked + hold),
            trip: taken - asked,
            time: known.time.next(store_time, asked, taken),
            ..known
        });
    }

    /// The node was declared dead and joined again.
    pub(crate) fn rejoined(&self, id: NodeId, store_time: Timestamp, asked: Instant, hold: Duration) {
        let taken = self.instant();
        self.standing.change(|known| Standing {
            id,
            valid_until: asked + hold,
            trip: taken - asked,
            time: known.time.next(store_time, asked, taken),
        });
    }

    /// Waits until the lease does not stand any more. What is sent under it must have ended by then.
    pub(crate) async fn lapsed(&self, lease: Lease) {
        loop {
            let standing = self.standing.get();
            let left = standing.left(self.instant());
            if standing.id != lease.node || left.is_zero() {
                return;
            }
            // A timer stands still while the machine sleeps.
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }

    /// Waits until the node has another id than this one: it was taken for dead and joined again.
    pub(crate) async fn succeeded(&self, id: NodeId) {
        self.standing.wait(|standing| (standing.id != id).then_some(())).await;
    }

    /// Law 2: waits until the lease outlasts `need`; refuses once the lease belongs to an earlier life of the node.
    pub(crate) async fn hold(&self, lease: Lease, need: Duration) -> Result<(), LeaseGone> {
        self.standing
            .wait(|standing| {
                if standing.id != lease.node {
                    return Some(Err(LeaseGone));
                }
                if standing.left(self.instant()) > need {
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
    fn left(&self, now: Instant) -> Duration {
        self.valid_until.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
    const HOLD: Duration = Duration::from_secs(12);

    async fn pass(millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    /// A machine that sleeps when it is told to.
    #[derive(Default)]
    struct Sleepy(Mutex<Duration>);

    impl Sleepy {
        fn sleep(&self, time: Duration) {
            *self.0.lock().unwrap() += time;
        }
    }

    impl Clock for Sleepy {
        fn now(&self) -> Timestamp {
            BEGIN
        }

        fn slept(&self) -> Duration {
            *self.0.lock().unwrap()
        }
    }

    fn first(asked: Instant) -> Reading {
        Reading::first(BEGIN, asked, Instant::now())
    }

    fn now(reading: &Reading) -> Timestamp {
        reading.at(Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_long_under_way_puts_the_time_between_two_bounds() {
        let asked = Instant::now();
        pass(300).await;
        let reading = first(asked);
        let latest = reading.latest_at(Instant::now());
        assert_eq!((now(&reading), latest), (BEGIN, BEGIN.later(Duration::from_millis(300))));
        pass(1_000).await;
        assert_eq!(now(&reading), BEGIN.later(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_only_echoes_the_time_does_not_slow_it_down() {
        let begin = Instant::now();
        let mut reading = first(begin);
        for _ in 0..100 {
            let (asked, told) = (Instant::now(), now(&reading));
            pass(20).await;
            reading = reading.next(told, asked, Instant::now());
            pass(980).await;
        }
        assert_eq!(now(&reading), BEGIN.later(begin.elapsed()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_asks_for_no_longer_hold_than_it_needs() {
        let asked = Instant::now();
        pass(10).await;
        let node = Node::joined(Arc::new(Sleepy::default()), NodeId(1), BEGIN, asked, HOLD);
        // The heart is late, and less than ten seconds are left.
        pass(2_500).await;
        let lease = node.grant();
        let waits = node.hold(lease, Duration::from_secs(10));
        assert!(
            tokio::time::timeout(Duration::from_millis(1), waits).await.is_err(),
            "it waits for a heartbeat"
        );
        let asked = node.take_wanted(HOLD);
        assert!(asked <= Duration::from_millis(12_100), "{asked:?}");
        node.beaten(BEGIN, Instant::now(), asked);
        assert_eq!(node.hold(lease, Duration::from_secs(10)).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_sleep_the_leases_are_as_old_as_they_are_and_the_time_is_right() {
        let machine = Arc::new(Sleepy::default());
        let node = Node::joined(machine.clone(), NodeId(1), BEGIN, Instant::now(), HOLD);
        let lease = node.grant();
        machine.sleep(Duration::from_secs(5));
        pass(1_000).await;
        assert_eq!((node.left(), node.now()), (Duration::from_secs(6), BEGIN.later(Duration::from_secs(6))));
        machine.sleep(Duration::from_secs(60));
        assert_eq!(node.left(), Duration::ZERO);
        let waits = node.hold(lease, Duration::from_secs(1));
        assert!(
            tokio::time::timeout(Duration::from_secs(1), waits).await.is_err(),
            "a heartbeat comes first"
        );
        node.lapsed(lease).await;
        node.beaten(BEGIN.later(Duration::from_secs(67)), node.instant(), HOLD);
        assert_eq!(node.left(), HOLD);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_send_notices_within_a_second_that_its_lease_ended_in_a_sleep() {
        let machine = Arc::new(Sleepy::default());
        let node = Node::joined(machine.clone(), NodeId(1), BEGIN, Instant::now(), HOLD);
        let (lease, begun) = (node.grant(), Instant::now());
        let lapsed = node.lapsed(lease);
        tokio::pin!(lapsed);
        assert!(tokio::time::timeout(Duration::from_millis(500), &mut lapsed).await.is_err());
        machine.sleep(HOLD);
        lapsed.await;
        assert!(begun.elapsed() <= LOOK, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_runs_fast_is_held_back_and_never_runs_backwards() {
        let reading = first(Instant::now());
        pass(10_000).await;
        let (before, asked) = (now(&reading), Instant::now());
        pass(10).await;
        // By the store only nine seconds have passed.
        let held = reading.next(BEGIN.later(Duration::from_secs(9)), asked, Instant::now());
        assert!(now(&held) >= before);
        pass(1_500).await;
        assert_eq!(now(&held), BEGIN.later(Duration::from_millis(9_010 + 1_500)));
    }
}
