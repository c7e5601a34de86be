//! Notifications that are leased and wait in memory for a slot: they came in while every slot of their flow was taken, or
//! were claimed ahead. Each saves a claim, which is a commit, and most of the writing.
//!
//! Only flows that send have room here, as much as they sent in the last moments. So nothing waits for long, and the rows of
//! a flow that hangs stay in the store, where other nodes can have them. A flow that has not sent lately has room for one, as
//! long as its tenant has fewer waiting than it sent in the last moments: else each row of a tenant with thousands of
//! destinations would cost a claim.

mod pace;

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::notification::Tenant;
use tokio::time::Instant;

use self::pace::Pace;
use crate::store::Claimed;

/// How many may wait for each slot of the node; a flow has half of it at most.
const PER_SLOT: u32 = 16;
/// The most bytes that wait.
const MOST_BYTES: usize = 64 << 20;
/// How long one may wait before it goes back to the store.
const LONGEST: Duration = Duration::from_secs(2);

type Queues = HashMap<Bucket, VecDeque<(Instant, Claimed)>>;

#[derive(Debug)]
pub(crate) struct Prefetched {
    most: u32,
    queues: Queues,
    /// What came while rows of its bucket were in the store; it waits until those are claimed.
    behind: Queues,
    /// How many of those, the first ones, have waited for a claim that was answered since they came.
    waited: HashMap<Bucket, usize>,
    /// Reserved room, filled or not yet.
    total: u32,
    by_flow: HashMap<FlowId, u32>,
    by_tenant: HashMap<Tenant, u32>,
    bytes: usize,
    pace: Pace<FlowId>,
    tenants: Pace<Tenant>,
}

impl Prefetched {
    pub(crate) fn new(slots: u32, now: Instant) -> Self {
        Self {
            most: slots.saturating_mul(PER_SLOT),
            queues: HashMap::new(),
            behind: HashMap::new(),
            waited: HashMap::new(),
            total: 0,
            by_flow: HashMap::new(),
            by_tenant: HashMap::new(),
            bytes: 0,
            pace: Pace::new(now),
            tenants: Pace::new(now),
        }
    }

    /// How many wait, or have room reserved.
    pub(crate) const fn len(&self) -> u32 {
        self.total
    }

    /// Whether any of the bucket can be sent next. What waits behind rows in the store cannot.
    pub(crate) fn has(&self, bucket: Bucket) -> bool {
        self.queues.contains_key(&bucket)
    }

    /// Reserves room for one more, if its flow sends and there is some.
    pub(crate) fn reserve(&mut self, tenant: &Tenant, flow: FlowId, bytes: usize, now: Instant) -> bool {
        let room = self.room(flow, now) > 0 || self.is_newcomer(tenant, flow, now);
        let room = room && self.bytes.saturating_add(bytes) <= MOST_BYTES;
        if room {
            self.keep(tenant, flow, 1);
            self.bytes += bytes;
        }
        room
    }

    /// The same for one that comes while rows of its bucket are in the store: those may be claimed ahead, so most of the room
    /// is theirs.
    pub(crate) fn reserve_behind(
        &mut self,
        tenant: &Tenant,
        flow: FlowId,
        bytes: usize,
        now: Instant,
    ) -> bool {
        self.in_flow(flow) < self.share(flow, now) / 4 && self.reserve(tenant, flow, bytes, now)
    }

    /// Reserves room for rows that are claimed ahead, once the flow has used up half of what it had; returns for how many.
    pub(crate) fn reserve_ahead(&mut self, tenant: &Tenant, flow: FlowId, most: u32, now: Instant) -> u32 {
        let room = self.room(flow, now);
        if room <= self.share(flow, now) / 2 {
            return 0;
        }
        let expected = self.pace.recent(&flow, now).1.max(1);
        let by_bytes = MOST_BYTES.saturating_sub(self.bytes) / expected;
        let count = room.min(most).min(u32::try_from(by_bytes).unwrap_or(u32::MAX));
        self.keep(tenant, flow, count);
        count
    }

    /// Gives reserved room back.
    pub(crate) fn cancel(&mut self, tenant: &Tenant, flow: FlowId, bytes: usize) {
        self.total = self.total.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        lower(&mut self.by_flow, &flow);
        lower(&mut self.by_tenant, tenant);
    }

    /// Fills reserved room.
    pub(crate) fn push(&mut self, claimed: Claimed, now: Instant) {
        self.queues.entry(claimed.bucket()).or_default().push_back((now, claimed));
    }

    /// Fills room that was reserved behind rows in the store.
    pub(crate) fn push_behind(&mut self, claimed: Claimed, now: Instant) {
        self.behind.entry(claimed.bucket()).or_default().push_back((now, claimed));
    }

    /// Fills room that was reserved before the size of the row was known. Returns the row if it is too large: it has to go
    /// back to the store, and as few are claimed ahead from now on as fit if all are like it.
    #[must_use]
    pub(crate) fn push_ahead(&mut self, claimed: Claimed, now: Instant) -> Option<Claimed> {
        let bytes = claimed.bytes();
        if self.bytes.saturating_add(bytes) > MOST_BYTES {
            self.pace.expect_bytes(&claimed.flow, bytes);
            self.cancel(&claimed.notification.tenant, claimed.flow, 0);
            return Some(claimed);
        }
        self.bytes += bytes;
        self.push(claimed, now);
        None
    }

    /// Lets what waited behind rows in the store wait with the others.
    pub(crate) fn join(&mut self, bucket: Bucket) {
        self.waited.remove(&bucket);
        if let Some(mut more) = self.behind.remove(&bucket) {
            self.queues.entry(bucket).or_default().append(&mut more);
        }
    }

    /// A claim was answered, and the bucket has more rows in the store. What came before the claim was asked for has waited for
    /// the rows that were there before it, and joins the others: in a bucket that never runs empty it would wait for ever.
    pub(crate) fn join_first(&mut self, bucket: Bucket) {
        let first = self.waited.remove(&bucket).unwrap_or(0);
        let mut joining = take_entries(&mut self.behind, bucket, first);
        if !joining.is_empty() {
            self.queues.entry(bucket).or_default().append(&mut joining);
        }
        if let Some(left) = self.behind.get(&bucket) {
            self.waited.insert(bucket, left.len());
        }
    }

    /// Takes out up to `limit` of a bucket, the oldest first.
    pub(crate) fn pop(&mut self, bucket: Bucket, limit: u32) -> Vec<Claimed> {
        let batch = take_out(&mut self.queues, bucket, limit as usize);
        self.cancel_each(&batch);
        batch
    }

    /// Takes out what has waited too long.
    pub(crate) fn stale(&mut self, now: Instant) -> Vec<Claimed> {
        self.take_first(|queue| queue.iter().take_while(|(since, _)| *since + LONGEST <= now).count())
    }

    /// Takes out everything.
    pub(crate) fn take_all(&mut self) -> Vec<Claimed> {
        self.take_first(VecDeque::len)
    }

    /// Takes out everything of these flows.
    pub(crate) fn take_of(&mut self, is_meant: impl Fn(FlowId) -> bool) -> Vec<Claimed> {
        if self.queues.is_empty() && self.behind.is_empty() {
            return vec![];
        }
        let all = |queue: &VecDeque<(Instant, Claimed)>| {
            let first = queue.front().map(|(_, claimed)| claimed.flow);
            if first.is_some_and(&is_meant) { queue.len() } else { 0 }
        };
        self.take_first(all)
    }

    /// A send of the flow ended.
    pub(crate) fn sent(&mut self, tenant: &Tenant, flow: FlowId, bytes: usize, now: Instant) {
        self.pace.sent(&flow, bytes, now);
        self.tenants.sent(tenant, bytes, now);
    }

    /// Takes out the first of each queue, as many as `count` says.
    fn take_first(&mut self, count: impl Fn(&VecDeque<(Instant, Claimed)>) -> usize) -> Vec<Claimed> {
        let mut batch = vec![];
        for queues in [&mut self.queues, &mut self.behind] {
            let mut buckets: Vec<(Bucket, usize)> =
                queues.iter().map(|(bucket, queue)| (*bucket, count(queue))).collect();
            // In their own order, so that a simulated run can be replayed.
            buckets.sort_unstable();
            for (bucket, count) in buckets {
                batch.extend(take_out(queues, bucket, count));
            }
        }
        self.cancel_each(&batch);
        batch
    }

    fn cancel_each(&mut self, batch: &[Claimed]) {
        for claimed in batch {
            self.cancel(&claimed.notification.tenant, claimed.flow, claimed.bytes());
        }
    }

    fn room(&self, flow: FlowId, now: Instant) -> u32 {
        self.share(flow, now).saturating_sub(self.in_flow(flow)).min(self.most.saturating_sub(self.total))
    }

    /// Whether the flow has none here and its tenant sends more than it has waiting. Half of the room is kept for flows that
    /// send.
    fn is_newcomer(&self, tenant: &Tenant, flow: FlowId, now: Instant) -> bool {
        let of_tenant = self.by_tenant.get(tenant).copied().unwrap_or(0);
        self.total < self.most / 2
            && self.in_flow(flow) == 0
            && of_tenant < self.tenants.recent(tenant, now).0
    }

    fn in_flow(&self, flow: FlowId) -> u32 {
        self.by_flow.get(&flow).copied().unwrap_or(0)
    }

    /// How many of a flow may wait: as many as it sent in a short while.
    fn share(&self, flow: FlowId, now: Instant) -> u32 {
        self.pace.recent(&flow, now).0.min(self.most / 2)
    }

    fn keep(&mut self, tenant: &Tenant, flow: FlowId, count: u32) {
        if count > 0 {
            self.total += count;
            *self.by_flow.entry(flow).or_default() += count;
            *self.by_tenant.entry(tenant.clone()).or_default() += count;
        }
    }
}

/// Counts one less; what is not counted any more leaves no entry behind.
fn lower<K: Eq + Hash>(counts: &mut HashMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Takes out the first of a bucket's queue, at most so many.
fn take_out(queues: &mut Queues, bucket: Bucket, limit: usize) -> Vec<Claimed> {
    take_entries(queues, bucket, limit).into_iter().map(|(_, claimed)| claimed).collect()
}

fn take_entries(queues: &mut Queues, bucket: Bucket, limit: usize) -> VecDeque<(Instant, Claimed)> {
    let Some(queue) = queues.get_mut(&bucket) else { return VecDeque::new() };
    let later = queue.split_off(queue.len().min(limit));
    let first = std::mem::replace(queue, later);
    if queue.is_empty() {
        queues.remove(&bucket);
    }
    first
}

impl Claimed {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.notification.bytes()
    }
}

#[cfg(test)]
pub(crate) mod tests;
