//! What a node has in its hands: places taken, whose turn it is, and which flow is which.
//!
//! A notification takes a place from its lease to the end of its send. Its outcome then waits to be recorded, without a
//! place: else a slow disk would keep senders waiting. As many outcomes may wait as there are places.

mod hand;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use posthaste_core::flow::{Bucket, FlowId, FlowKey, Quota};
use posthaste_core::notification::Tenant;
use posthaste_core::recent::Recent;
use posthaste_core::slots::{Dealt, Place, Slots};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::hand::Hand;
use crate::store::Job;

/// The most flows that a node remembers the numbers of.
const MOST_FLOWS: usize = 100_000;

/// The floor, shared by the loops. The lock is never held across an await.
#[derive(Debug)]
pub(crate) struct Floor {
    inner: Mutex<Inner>,
    /// Rings when there may be something to claim.
    pub(crate) claim: Notify,
    /// Rings when there is less in hand: an unsent one was given back, an outcome is recorded, or a claim was answered.
    pub(crate) freed: Notify,
}

#[derive(Debug)]
struct Inner {
    slots: Slots,
    /// Buckets that may hold due rows in the store: what comes to them now has to wait behind those.
    in_store: HashMap<Bucket, Backlog>,
    hand: Hand,
    /// Outcomes that are not recorded yet.
    unrecorded: u32,
    flows: Recent<FlowKey, FlowId>,
}

/// How many rows of a bucket wait in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backlog {
    /// As far as is known no more than the next claim brings. What comes now may wait in memory until they are claimed: if it
    /// were stored behind them, so would be everything after it, and each row would cost a claim for as long as the next
    /// batch comes before the claim of the last one is answered.
    Few,
    /// The last claim was full.
    Many,
}

impl Floor {
    pub(crate) fn new(places: u32) -> Self {
        let inner = Inner {
            slots: Slots::new(places),
            in_store: HashMap::new(),
            hand: Hand::new(places),
            unrecorded: 0,
            flows: Recent::new(MOST_FLOWS),
        };
        Self { inner: Mutex::new(inner), claim: Notify::new(), freed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds the floor")
    }

    /// How a notification that comes in is held: it is sent at once or waits in memory, unless others of its kind
    /// already wait in the store.
    pub(crate) fn take(&self, tenant: &Tenant, bucket: Bucket, bytes: usize) -> Hold {
        let mut inner = self.lock();
        if inner.is_behind() || inner.slots.turns().is_left_out(tenant) {
            return Hold::No;
        }
        let reserved = match inner.in_store.get(&bucket) {
            Some(Backlog::Many) => false,
            Some(Backlog::Few) => inner.hand.reserve_behind(bucket.flow, bytes),
            None => {
                if !inner.hand.holds(bucket)
                    && let Some(place) = inner.slots.arrive(tenant, bucket)
                {
                    return Hold::Place(place);
                }
                inner.hand.reserve(bucket.flow, bytes)
            }
        };
        if reserved { Hold::Wait { flow: bucket.flow, bytes } } else { Hold::No }
    }

    /// Gives back what was taken for a notification that is not sent.
    pub(crate) fn let_go(&self, hold: &Hold) {
        match hold {
            Hold::No => {}
            Hold::Place(place) => self.free(place),
            Hold::Wait { flow, bytes } => {
                self.lock().hand.forgo(*flow, *bytes);
                self.freed.notify_one();
            }
        }
    }

    /// Lets a leased notification wait in memory for its place.
    pub(crate) fn wait(&self, job: Job) {
        let mut inner = self.lock();
        let (tenant, bucket) = (job.notification.tenant.clone(), job.bucket());
        if inner.in_store.contains_key(&bucket) {
            inner.hand.push_behind(job);
            return;
        }
        inner.hand.push(job);
        inner.slots.turns_mut().push(&tenant, bucket);
        drop(inner);
        self.claim.notify_one();
    }

    /// Takes out what has waited in memory for too long.
    pub(crate) fn stale(&self) -> Vec<Job> {
        self.lock().hand.stale(Instant::now())
    }

    /// Takes out everything that waits in memory.
    pub(crate) fn empty_hand(&self) -> Vec<Job> {
        self.lock().hand.empty()
    }

    /// Gives a place back.
    pub(crate) fn free(&self, place: &Place) {
        self.lock().slots.give_back(place, 1);
        self.freed.notify_one();
        self.claim.notify_one();
    }

    /// Gives a place back whose outcome is still to be recorded.
    pub(crate) fn sent(&self, place: &Place, bytes: usize) {
        let mut inner = self.lock();
        inner.slots.give_back(place, 1);
        inner.hand.note(place.flow, bytes);
        inner.unrecorded += 1;
        drop(inner);
        self.claim.notify_one();
    }

    /// An outcome is recorded, or never will be.
    pub(crate) fn recorded(&self) {
        let mut inner = self.lock();
        let was_behind = inner.is_behind();
        inner.unrecorded = inner.unrecorded.saturating_sub(1);
        drop(inner);
        self.freed.notify_one();
        if was_behind {
            self.claim.notify_one();
        }
    }

    /// Notes that buckets may hold due rows in the store. Returns the first that was left out because its tenant has too
    /// many in line; a sweep brings it in later.
    pub(crate) fn ready<'b>(
        &self,
        buckets: impl IntoIterator<Item = (&'b Tenant, Bucket)>,
    ) -> Option<Bucket> {
        let mut inner = self.lock();
        let mut left_out = None;
        for (tenant, bucket) in buckets {
            if !inner.ready(tenant, bucket) {
                left_out.get_or_insert(bucket);
            }
        }
        drop(inner);
        self.claim.notify_one();
        left_out
    }

    /// A look at every bucket of the store begins.
    pub(crate) fn sweep_begins(&self) {
        self.lock().slots.turns_mut().sweep_begins();
    }

    /// Every bucket was looked at since the sweep began.
    pub(crate) fn sweep_ended(&self) {
        self.lock().slots.turns_mut().sweep_ended();
    }

    /// Deals out up to `most` free places, and takes them: first to what waits in memory, the rest to what is in the
    /// store. Of that, flows that move get more than their places, to wait in memory.
    pub(crate) fn deal(&self, most: u32) -> Deal {
        let mut guard = self.lock();
        let inner = &mut *guard;
        if inner.is_behind() {
            return Deal::default();
        }
        let mut deal = Deal::default();
        let mut most_ahead = most;
        for Dealt { tenant, quota: Quota { bucket, limit } } in inner.slots.deal(most) {
            let jobs = inner.hand.pop(bucket, limit);
            let places = limit - u32::try_from(jobs.len()).expect("no more than the limit");
            let in_store = inner.in_store.contains_key(&bucket);
            let ahead = if in_store { inner.hand.reserve_ahead(bucket.flow, most_ahead) } else { 0 };
            most_ahead -= ahead;
            let claims = in_store && places + ahead > 0;
            if !claims {
                inner.slots.give_back(&Place::of(&tenant, bucket), places);
            }
            // What is still in memory does not wait for the claim.
            if inner.hand.holds(bucket) || (in_store && !claims) {
                inner.slots.turns_mut().push(&tenant, bucket);
            }
            if claims {
                deal.claims.push(Claim { tenant, bucket, places, ahead });
            }
            deal.jobs.extend(jobs);
            deal.is_any = true;
        }
        deal.wants_sweep = inner.slots.turns().wants_sweep();
        deal
    }

    /// Takes over what a claim brought: some is sent at once, the rest waits in memory as far as there is room for its
    /// size. Gives back what was not filled. A full one may have more behind it; one that is not has emptied its bucket,
    /// unless something was said to be in it since.
    pub(crate) fn claimed(&self, claim: &Claim, mut jobs: Vec<Job>) -> Taken {
        let mut inner = self.lock();
        let (bucket, filled) = (claim.bucket, u32::try_from(jobs.len()).unwrap_or(u32::MAX));
        let later = jobs.split_off(jobs.len().min(claim.places as usize));
        inner.slots.give_back(&Place::of(&claim.tenant, bucket), claim.places.saturating_sub(filled));
        for _ in later.len()..claim.ahead as usize {
            inner.hand.forgo(bucket.flow, 0);
        }
        let full = filled >= claim.limit();
        let too_large = later.into_iter().filter_map(|job| inner.hand.push_ahead(job)).collect();
        if full || inner.slots.turns().has_backlog(bucket) {
            inner.in_store.insert(bucket, if full { Backlog::Many } else { Backlog::Few });
        } else {
            inner.not_in_store(bucket);
        }
        if full {
            inner.ready(&claim.tenant, bucket);
        } else if inner.hand.holds(bucket) {
            inner.slots.turns_mut().push(&claim.tenant, bucket);
        }
        drop(inner);
        self.freed.notify_one();
        Taken { to_send: jobs, too_large }
    }

    /// How many are in hand: waiting in memory, on their way out, or with an outcome that is not recorded yet.
    pub(crate) fn busy(&self) -> u32 {
        let inner = self.lock();
        inner.slots.taken() + inner.unrecorded + inner.hand.len()
    }

    /// The number of a flow, if it is remembered.
    pub(crate) fn flow_id(&self, key: &FlowKey) -> Option<FlowId> {
        self.lock().flows.get(key).copied()
    }

    /// Remembers the number of a flow.
    pub(crate) fn remember(&self, flow: FlowId, key: FlowKey) {
        self.lock().flows.insert(key, flow);
    }
}

impl Job {
    pub(crate) fn place(&self) -> Place {
        Place::of(&self.notification.tenant, self.bucket())
    }
}

/// How a notification that comes in is held.
#[derive(Debug, Clone)]
pub(crate) enum Hold {
    /// Not at all: it is stored for whoever claims it.
    No,
    /// It is sent at once.
    Place(Place),
    /// It waits in memory.
    Wait {
        /// Its flow.
        flow: FlowId,
        /// How much memory it takes.
        bytes: usize,
    },
}

impl Hold {
    /// Whether the row is stored with a lease.
    pub(crate) const fn is_leased(&self) -> bool {
        !matches!(self, Self::No)
    }
}

/// What free places are used for.
#[derive(Debug, Default)]
pub(crate) struct Deal {
    /// What waited in memory.
    pub(crate) jobs: Vec<Job>,
    /// What to claim.
    pub(crate) claims: Vec<Claim>,
    /// Whether any bucket had its turn. One whose rows are gone from memory has neither jobs nor claims.
    pub(crate) is_any: bool,
    /// Whether due buckets were left out for which there is room now.
    pub(crate) wants_sweep: bool,
}

/// What a claim brought, apart from what waits in memory now.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) to_send: Vec<Job>,
    /// What memory has no room for. It goes back to the store.
    pub(crate) too_large: Vec<Job>,
}

/// How many rows of a bucket to claim.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) tenant: Tenant,
    pub(crate) bucket: Bucket,
    /// To be sent at once.
    places: u32,
    /// To wait in memory.
    ahead: u32,
}

impl Claim {
    const fn limit(&self) -> u32 {
        self.places + self.ahead
    }

    /// As the store is told.
    pub(crate) const fn quota(&self) -> Quota {
        Quota { bucket: self.bucket, limit: self.limit() }
    }
}

impl Inner {
    /// Returns whether the bucket is in line.
    fn ready(&mut self, tenant: &Tenant, bucket: Bucket) -> bool {
        let in_line = self.slots.turns_mut().ready(tenant, bucket);
        if in_line {
            self.in_store.entry(bucket).or_insert(Backlog::Few);
        } else {
            // The tenant counts as left out, which says the same of all its buckets.
            self.not_in_store(bucket);
            if self.hand.holds(bucket) {
                self.slots.turns_mut().push(tenant, bucket);
            }
        }
        in_line
    }

    /// Whether so many outcomes wait to be recorded that no new send may start.
    fn is_behind(&self) -> bool {
        self.unrecorded >= self.slots.total()
    }

    /// What came while rows of the bucket were in the store has its turn now.
    fn not_in_store(&mut self, bucket: Bucket) {
        self.in_store.remove(&bucket);
        self.hand.join(bucket);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use posthaste_core::channel::Channel;
    use posthaste_core::id::NotificationId;
    use posthaste_core::lease::{Fence, Lease, NodeId};
    use posthaste_core::notification::{Body, Content, Notification, Priority};
    use posthaste_core::state::Lane;
    use posthaste_core::time::Timestamp;

    use super::*;
    use crate::store::Progress;

    const BUCKET: Bucket = Bucket { flow: FlowId(1), lane: Lane::Main, priority: Priority::Normal };

    fn acme() -> Tenant {
        "acme".parse().unwrap()
    }

    fn job(number: u128) -> Job {
        let now = Timestamp::from_micros(0);
        let notification = Notification {
            id: NotificationId::new(now, number),
            tenant: acme(),
            channel: Channel::Webhook,
            destination: "https://example.com:443".into(),
            to: "https://example.com/hook".to_owned(),
            priority: Priority::Normal,
            template: None,
            subject: None,
            event_key: None,
            correlation_id: None,
            not_before: None,
            expires_at: None,
            content: Content::of(Body::Text(String::new())),
        };
        Job {
            notification: Arc::new(notification),
            flow: BUCKET.flow,
            lane: BUCKET.lane,
            due: now,
            progress: Progress::START,
            first_due: now,
            delay: Duration::ZERO,
            interruptions: 0,
            cancel_requested: false,
            lease: Lease { node: NodeId(1), fence: Fence(1) },
        }
    }

    fn numbers(jobs: &[Job]) -> Vec<NotificationId> {
        jobs.iter().map(|job| job.notification.id).collect()
    }

    /// A floor whose flow has just sent a hundred, and has rows in the store.
    fn floor() -> Floor {
        let floor = Floor::new(16);
        for _ in 0..100 {
            let place = floor.lock().slots.arrive(&acme(), BUCKET).unwrap();
            floor.sent(&place, 1);
            floor.recorded();
        }
        floor.ready([(&acme(), BUCKET)]);
        floor
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_while_rows_are_claimed_waits_behind_them_in_memory_and_is_not_stored_too() {
        let floor = floor();
        let Deal { claims, jobs, .. } = floor.deal(16);
        assert!(jobs.is_empty() && claims.len() == 1);
        // More rows come to the store during the claim, and one to memory behind all of them.
        floor.ready([(&acme(), BUCKET)]);
        assert!(matches!(floor.take(&acme(), BUCKET, 1), Hold::Wait { .. }));
        floor.wait(job(9));
        let taken = floor.claimed(&claims[0], vec![job(1), job(2)]);
        assert_eq!(numbers(&taken.to_send), numbers(&[job(1), job(2)]));
        let Deal { claims, jobs, .. } = floor.deal(16);
        assert!(jobs.is_empty() && claims.len() == 1, "the later rows of the store come first");
        let taken = floor.claimed(&claims[0], vec![job(3)]);
        assert_eq!(numbers(&taken.to_send), numbers(&[job(3)]));
        let Deal { claims, jobs, .. } = floor.deal(16);
        assert!(claims.is_empty(), "nothing is left in the store");
        assert_eq!(numbers(&jobs), numbers(&[job(9)]));
        assert!(floor.take(&acme(), BUCKET, 1).is_leased());
    }

    #[tokio::test(start_paused = true)]
    async fn behind_many_rows_nothing_waits_in_memory() {
        let floor = floor();
        let Deal { claims, .. } = floor.deal(16);
        let full = (0..u128::from(claims[0].limit())).map(job).collect();
        floor.claimed(&claims[0], full);
        assert!(!floor.take(&acme(), BUCKET, 1).is_leased());
    }

    #[tokio::test(start_paused = true)]
    async fn most_of_the_room_is_for_what_is_claimed_ahead() {
        let floor = floor();
        let behind = (0..100).filter(|_| floor.take(&acme(), BUCKET, 1).is_leased()).count();
        assert_eq!(behind, 25);
        assert_eq!(floor.deal(100).claims[0].ahead, 75);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_behind_rows_for_too_long_goes_back_to_the_store() {
        let floor = floor();
        assert!(floor.take(&acme(), BUCKET, 1).is_leased());
        floor.wait(job(9));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(numbers(&floor.stale()), numbers(&[job(9)]));
        assert_eq!(floor.busy(), 0);
    }
}
