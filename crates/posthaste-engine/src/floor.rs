//! What a node has in its hands: places taken, whose turn it is, and which flow is which.
//!
//! A notification takes a place from its lease to the end of its send. Its outcome then waits to be recorded, without a
//! place: else a slow disk would keep senders waiting. As many outcomes may wait as there are places.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use posthaste_core::flow::{Bucket, Capacity, FlowId, FlowKey, Limits, Quota};
use posthaste_core::notification::Tenant;
use posthaste_core::state::Lane;
use posthaste_core::turns::{InFlight, Turns};
use tokio::sync::Notify;

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
    /// Rings when there is less in hand: an unsent one was given back, or an outcome is recorded.
    pub(crate) freed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    turns: Turns,
    busy: InFlight,
    /// Outcomes that are not recorded yet.
    unrecorded: u32,
    by_flow: HashMap<FlowId, u32>,
    ids: HashMap<FlowKey, FlowId>,
    keys: HashMap<FlowId, FlowKey>,
}

impl Floor {
    pub(crate) fn new(places: u32) -> Self {
        Self {
            inner: Mutex::default(),
            capacity: Capacity { total: places },
            claim: Notify::new(),
            freed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds the floor")
    }

    /// Takes a place for a notification that is sent at once, unless others of its kind already wait.
    pub(crate) fn take(&self, bucket: Bucket) -> Option<Place> {
        let mut inner = self.lock();
        let free = self.capacity.free(bucket.lane, inner.busy.main, inner.busy.retry);
        let behind = inner.unrecorded >= self.capacity.total;
        if behind
            || free == 0
            || inner.turns.has_backlog(bucket)
            || inner.room(bucket.flow, self.capacity) == 0
        {
            return None;
        }
        inner.take(bucket, 1);
        Some(Place { lane: bucket.lane, flow: bucket.flow })
    }

    /// Gives a place back.
    pub(crate) fn free(&self, place: Place) {
        self.lock().give_back(place.lane, place.flow, 1);
        self.freed.notify_one();
        self.claim.notify_one();
    }

    /// Gives a place back whose outcome is still to be recorded.
    pub(crate) fn sent(&self, place: Place) {
        let mut inner = self.lock();
        inner.give_back(place.lane, place.flow, 1);
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

    /// Notes that a bucket may hold due rows.
    pub(crate) fn ready(&self, tenant: &Tenant, bucket: Bucket) {
        self.lock().turns.ready(tenant, bucket);
        self.claim.notify_one();
    }

    /// Deals out up to `most` free places as quotas, and takes those places.
    pub(crate) fn deal(&self, most: u32) -> Vec<Quota> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        if inner.unrecorded >= self.capacity.total {
            return vec![];
        }
        let (capacity, busy, by_flow) = (self.capacity, inner.busy, &inner.by_flow);
        let quotas = inner.turns.deal(capacity, busy, most, |flow| room(by_flow, flow, capacity));
        for quota in &quotas {
            inner.take(quota.bucket, quota.limit);
        }
        quotas
    }

    /// Gives back the places of a quota that the claim did not fill. A full one may have more behind it.
    pub(crate) fn claimed(&self, quota: Quota, filled: u32) {
        let mut inner = self.lock();
        inner.give_back(quota.bucket.lane, quota.bucket.flow, quota.limit.saturating_sub(filled));
        if filled < quota.limit {
            return;
        }
        if let Some(tenant) = inner.keys.get(&quota.bucket.flow).map(|key| key.tenant.clone()) {
            inner.turns.ready(&tenant, quota.bucket);
        }
    }

    /// How many are in hand: on their way out, or with an outcome that is not recorded yet.
    pub(crate) fn busy(&self) -> u32 {
        let inner = self.lock();
        inner.busy.main + inner.busy.retry + inner.unrecorded
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

impl Inner {
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
