//! What a node has in its hands: places taken, whose turn it is, and which flow is which.
//!
//! A notification takes a place from its lease to the end of its send. Its outcome then waits to be recorded, without a
//! place: else a slow disk would keep senders waiting. As many outcomes may wait as there are places.

mod hand;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use posthaste_core::flow::{Bucket, Capacity, FlowId, FlowKey, Limits, Quota};
use posthaste_core::notification::Tenant;
use posthaste_core::state::Lane;
use posthaste_core::turns::{InFlight, Turns};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::hand::Hand;
use crate::store::Job;

/// The most flows that a node remembers the names of; beyond it all are forgotten and asked for again.
const MOST_FLOWS: usize = 100_000;

/// The floor, shared by the loops. The lock is never held across an await.
#[derive(Debug)]
pub(crate) struct Floor {
    inner: Mutex<Inner>,
    capacity: Capacity,
    /// Rings when there may be something to claim.
    pub(crate) claim: Notify,
    /// Rings when there is less in hand: an unsent one was given back, an outcome is recorded, or a claim was answered.
    pub(crate) freed: Notify,
}

#[derive(Debug)]
struct Inner {
    turns: Turns,
    /// Buckets that may hold due rows in the store: what comes to them now has to wait behind those.
    in_store: HashSet<Bucket>,
    hand: Hand,
    busy: InFlight,
    /// Outcomes that are not recorded yet.
    unrecorded: u32,
    by_flow: HashMap<FlowId, u32>,
    ids: HashMap<FlowKey, FlowId>,
    keys: HashMap<FlowId, FlowKey>,
}

impl Floor {
    pub(crate) fn new(places: u32) -> Self {
        let inner = Inner {
            turns: Turns::default(),
            in_store: HashSet::new(),
            hand: Hand::new(places),
            busy: InFlight::default(),
            unrecorded: 0,
            by_flow: HashMap::new(),
            ids: HashMap::new(),
            keys: HashMap::new(),
        };
        Self {
            inner: Mutex::new(inner),
            capacity: Capacity { total: places },
            claim: Notify::new(),
            freed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds the floor")
    }

    /// How a notification that comes in is held: it is sent at once or waits in memory, unless others of its kind
    /// already wait in the store.
    pub(crate) fn take(&self, bucket: Bucket, bytes: usize) -> Hold {
        let mut inner = self.lock();
        if inner.unrecorded >= self.capacity.total || inner.in_store.contains(&bucket) {
            return Hold::No;
        }
        let free = self.capacity.free(bucket.lane, inner.busy.main, inner.busy.retry);
        if free > 0 && !inner.hand.holds(bucket) && inner.room(bucket.flow, self.capacity) > 0 {
            inner.take(bucket, 1);
            return Hold::Place(Place { lane: bucket.lane, flow: bucket.flow });
        }
        if inner.hand.reserve(bucket.flow, bytes) {
            Hold::Wait { flow: bucket.flow, bytes }
        } else {
            Hold::No
        }
    }

    /// Gives back what was taken for a notification that is not sent.
    pub(crate) fn let_go(&self, hold: Hold) {
        match hold {
            Hold::No => {}
            Hold::Place(place) => self.free(place),
            Hold::Wait { flow, bytes } => {
                self.lock().hand.forgo(flow, bytes);
                self.freed.notify_one();
            }
        }
    }

    /// Lets a leased notification wait in memory for its place.
    pub(crate) fn wait(&self, job: Job) {
        let mut inner = self.lock();
        let (tenant, bucket) = (job.notification.tenant.clone(), job.bucket());
        inner.hand.push(job);
        inner.turns.ready(&tenant, bucket);
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
    pub(crate) fn free(&self, place: Place) {
        self.lock().give_back(place.lane, place.flow, 1);
        self.freed.notify_one();
        self.claim.notify_one();
    }

    /// Gives a place back whose outcome is still to be recorded.
    pub(crate) fn sent(&self, place: Place, bytes: usize) {
        let mut inner = self.lock();
        inner.give_back(place.lane, place.flow, 1);
        inner.hand.note(place.flow, bytes);
        inner.unrecorded += 1;
        drop(inner);
        self.claim.notify_one();
    }

    /// An outcome is recorded, or never will be.
    pub(crate) fn recorded(&self) {
        let mut inner = self.lock();
        let was_behind = inner.unrecorded >= self.capacity.total;
        inner.unrecorded = inner.unrecorded.saturating_sub(1);
        drop(inner);
        self.freed.notify_one();
        if was_behind {
            self.claim.notify_one();
        }
    }

    /// Notes that a bucket may hold due rows in the store.
    pub(crate) fn ready(&self, tenant: &Tenant, bucket: Bucket) {
        self.lock().ready(tenant, bucket);
        self.claim.notify_one();
    }

    /// Deals out up to `most` free places, and takes them: first to what waits in memory, the rest to what is in the
    /// store. Of that, flows that move get more than their places, to wait in memory.
    pub(crate) fn deal(&self, most: u32) -> Deal {
        let mut guard = self.lock();
        let inner = &mut *guard;
        if inner.unrecorded >= self.capacity.total {
            return Deal::default();
        }
        let (capacity, busy, by_flow) = (self.capacity, inner.busy, &inner.by_flow);
        let quotas = inner.turns.deal(capacity, busy, most, |flow| room(by_flow, flow, capacity));
        let mut deal = Deal::default();
        for Quota { bucket, limit } in quotas {
            inner.take(bucket, limit);
            let jobs = inner.hand.pop(bucket, limit);
            let places = limit - u32::try_from(jobs.len()).expect("no more than the limit");
            let in_store = inner.in_store.contains(&bucket);
            let ahead = if in_store { inner.hand.reserve_ahead(bucket.flow, most) } else { 0 };
            if in_store && places + ahead > 0 {
                deal.claims.push(Claim { bucket, places, ahead });
            } else {
                inner.give_back(bucket.lane, bucket.flow, places);
            }
            // What is still in memory does not wait for the claim.
            if inner.hand.holds(bucket) || (in_store && places + ahead == 0) {
                let tenant = jobs.first().map(|job| job.notification.tenant.clone());
                tenant.into_iter().for_each(|tenant| inner.turns.ready(&tenant, bucket));
            }
            deal.jobs.extend(jobs);
        }
        deal
    }

    /// Takes over what a claim brought: answers what is sent at once, the rest waits in memory. Gives back what was not
    /// filled. A full one may have more behind it; one that is not has emptied its bucket, unless something was said to
    /// be in it since.
    pub(crate) fn claimed(&self, claim: Claim, mut jobs: Vec<Job>) -> Vec<Job> {
        let mut inner = self.lock();
        let (bucket, filled) = (claim.bucket, u32::try_from(jobs.len()).unwrap_or(u32::MAX));
        let later = jobs.split_off(jobs.len().min(claim.places as usize));
        inner.give_back(bucket.lane, bucket.flow, claim.places.saturating_sub(filled));
        for _ in later.len()..claim.ahead as usize {
            inner.hand.forgo(bucket.flow, 0);
        }
        let full = filled >= claim.limit();
        if !full && !inner.turns.has_backlog(bucket) {
            inner.in_store.remove(&bucket);
        }
        let known = inner.keys.get(&bucket.flow).map(|key| key.tenant.clone());
        let tenant = later.first().map(|job| job.notification.tenant.clone()).or(known);
        for job in later {
            inner.hand.push_ahead(job);
        }
        match tenant {
            Some(tenant) if full => inner.ready(&tenant, bucket),
            Some(tenant) if inner.hand.holds(bucket) => inner.turns.ready(&tenant, bucket),
            _ => {}
        }
        drop(inner);
        self.freed.notify_one();
        jobs
    }

    /// How many are in hand: waiting in memory, on their way out, or with an outcome that is not recorded yet.
    pub(crate) fn busy(&self) -> u32 {
        let inner = self.lock();
        inner.busy.main + inner.busy.retry + inner.unrecorded + inner.hand.len()
    }

    /// The number of a flow, if it is remembered.
    pub(crate) fn flow_id(&self, key: &FlowKey) -> Option<FlowId> {
        self.lock().ids.get(key).copied()
    }

    /// The tenant of a flow, if it is remembered.
    pub(crate) fn tenant(&self, flow: FlowId) -> Option<Tenant> {
        self.lock().keys.get(&flow).map(|key| key.tenant.clone())
    }

    /// Remembers a flow.
    pub(crate) fn remember(&self, flow: FlowId, key: FlowKey) {
        let mut inner = self.lock();
        if inner.keys.len() >= MOST_FLOWS {
            inner.ids.clear();
            inner.keys.clear();
        }
        inner.ids.insert(key.clone(), flow);
        inner.keys.insert(flow, key);
    }
}

/// A place that a notification takes from its lease to the end of its send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) lane: Lane,
    pub(crate) flow: FlowId,
}

impl Job {
    pub(crate) fn place(&self) -> Place {
        Place { lane: self.lane, flow: self.flow }
    }
}

/// How a notification that comes in is held.
#[derive(Debug, Clone, Copy)]
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
    pub(crate) const fn is_leased(self) -> bool {
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
}

/// How many rows of a bucket to claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) bucket: Bucket,
    /// To be sent at once.
    places: u32,
    /// To wait in memory.
    ahead: u32,
}

impl Claim {
    const fn limit(self) -> u32 {
        self.places + self.ahead
    }

    /// As the store is told.
    pub(crate) const fn quota(self) -> Quota {
        Quota { bucket: self.bucket, limit: self.limit() }
    }
}

impl Inner {
    fn ready(&mut self, tenant: &Tenant, bucket: Bucket) {
        self.in_store.insert(bucket);
        self.turns.ready(tenant, bucket);
    }

    fn room(&self, flow: FlowId, capacity: Capacity) -> u32 {
        room(&self.by_flow, flow, capacity)
    }

    fn take(&mut self, bucket: Bucket, count: u32) {
        match bucket.lane {
            Lane::Main => self.busy.main += count,
            Lane::Retry => self.busy.retry += count,
        }
        *self.by_flow.entry(bucket.flow).or_default() += count;
    }

    fn give_back(&mut self, lane: Lane, flow: FlowId, count: u32) {
        let busy = match lane {
            Lane::Main => &mut self.busy.main,
            Lane::Retry => &mut self.busy.retry,
        };
        *busy = busy.saturating_sub(count);
        let in_flight = self.by_flow.entry(flow).or_default();
        *in_flight = in_flight.saturating_sub(count);
        if *in_flight == 0 {
            self.by_flow.remove(&flow);
        }
        if count > 0 {
            self.turns.unpark(flow);
        }
    }
}

/// How many more of a flow may be taken.
fn room(by_flow: &HashMap<FlowId, u32>, flow: FlowId, capacity: Capacity) -> u32 {
    let in_flight = by_flow.get(&flow).copied().unwrap_or(0);
    let limits = Limits { concurrency: Some(capacity.per_flow()), in_flight, ..Limits::default() };
    limits.room(posthaste_core::time::Timestamp::EPOCH)
}
