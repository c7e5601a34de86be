//! The slots of this node, shared by the loops: which notification is sent, waits in memory, or is claimed next.
//!
//! A notification takes a slot from its lease to the end of its send. Its outcome then waits to be recorded, without a
//! slot: else a slow disk would keep senders waiting. As many outcomes may wait as there are slots. Between two quick tries
//! an attempt has no slot either.

mod attempts;
mod paused;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use posthaste_core::flow::{Bucket, FlowId, Quota};
use posthaste_core::notification::Tenant;
use posthaste_core::slots::{Bounds, Dealt, Gated, KeyId, Slot, Slots};
use posthaste_core::time::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::attempts::Attempts;
pub(crate) use self::paused::Held;
use self::paused::Paused;
use crate::prefetched::Prefetched;
use crate::store::Claimed;

/// The lock is never held across an await.
#[derive(Debug)]
pub(crate) struct NodeSlots {
    inner: Mutex<Inner>,
    /// Notified when there may be something to deal.
    pub(crate) deal_now: Notify,
    /// Notified when the node has less to do: an unsent one was given back, an outcome is recorded, or a claim was answered.
    pub(crate) freed: Notify,
}

#[derive(Debug)]
struct Inner {
    slots: Slots,
    /// Buckets that may hold due rows in the store: what comes to them now has to wait behind those.
    in_store: HashMap<Bucket, Backlog>,
    prefetched: Prefetched,
    paused: Paused,
    attempts: Attempts,
    /// Outcomes that are not recorded yet.
    unrecorded: u32,
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

/// How a notification that comes in is held.
#[derive(Debug, Clone)]
pub(crate) enum Hold {
    /// Not at all: it is stored without a lease, and claimed later.
    No,
    /// It is sent at once.
    Slot(Slot),
    /// It waits in memory.
    Prefetched { tenant: Tenant, flow: FlowId, bytes: usize },
}

impl Hold {
    /// Whether the row is stored with a lease.
    pub(crate) const fn is_leased(&self) -> bool {
        !matches!(self, Self::No)
    }
}

/// A claimed notification with the slot that it is sent in.
#[derive(Debug)]
pub(crate) struct InSlot {
    pub(crate) claimed: Claimed,
    pub(crate) slot: Slot,
}

/// What free slots are used for.
#[derive(Debug, Default)]
pub(crate) struct Deal {
    /// What waited in memory.
    pub(crate) to_send: Vec<InSlot>,
    pub(crate) claims: Vec<Claim>,
    /// Whether any bucket had its turn. One whose rows are gone from memory has neither sends nor claims.
    pub(crate) is_any: bool,
    /// Whether due buckets were left out for which there is room now.
    pub(crate) wants_sweep: bool,
}

/// How many rows of a bucket to claim.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) bucket: Bucket,
    /// One of the slots that the rows are sent in at once.
    slot: Slot,
    /// The number of those slots.
    slots: u32,
    /// How many more are to wait in memory.
    ahead: u32,
}

impl Claim {
    const fn limit(&self) -> u32 {
        self.slots + self.ahead
    }

    pub(crate) const fn quota(&self) -> Quota {
        Quota { bucket: self.bucket, limit: self.limit() }
    }
}

/// What a claim brought, apart from what waits in memory now.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) to_send: Vec<InSlot>,
    /// What memory has no room for, or what cannot go for a while. It goes back to the store.
    pub(crate) too_large: Vec<Claimed>,
}

impl NodeSlots {
    pub(crate) fn new(slots: u32) -> Self {
        let inner = Inner {
            slots: Slots::new(slots),
            in_store: HashMap::new(),
            prefetched: Prefetched::new(slots, Instant::now()),
            paused: Paused::new(slots),
            attempts: Attempts::default(),
            unrecorded: 0,
        };
        Self { inner: Mutex::new(inner), deal_now: Notify::new(), freed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds the slots")
    }

    /// Decides how a notification that comes in is held: it is sent at once or waits in memory, unless others of its bucket
    /// already wait in the store.
    pub(crate) fn take(&self, tenant: &Tenant, bucket: Bucket, bytes: usize, now: Timestamp) -> Hold {
        let mut inner = self.lock();
        if inner.is_behind() || inner.slots.turns().is_left_out(tenant) {
            return Hold::No;
        }
        let backlog = inner.in_store.get(&bucket).copied();
        if backlog.is_none()
            && !inner.prefetched.has(bucket)
            && let Some(slot) = inner.slots.arrive(tenant, bucket, now)
        {
            return Hold::Slot(slot);
        }
        let (flow, instant) = (bucket.flow, Instant::now());
        let reserved = match backlog {
            _ if inner.slots.is_held_back(flow, now) => false,
            Some(Backlog::Many) => false,
            Some(Backlog::Few) => inner.prefetched.reserve_behind(tenant, flow, bytes, instant),
            None => inner.prefetched.reserve(tenant, flow, bytes, instant),
        };
        if reserved { Hold::Prefetched { tenant: tenant.clone(), flow, bytes } } else { Hold::No }
    }

    /// Gives back what was taken for a notification that is not sent.
    pub(crate) fn let_go(&self, hold: &Hold) {
        match hold {
            Hold::No => {}
            Hold::Slot(slot) => self.free(&Held::Slot(slot.clone())),
            Hold::Prefetched { tenant, flow, bytes } => {
                self.lock().prefetched.cancel(tenant, *flow, *bytes);
                self.freed.notify_one();
            }
        }
    }

    /// Lets a leased notification wait in memory for a slot. Returns it if it has to go back: since room was reserved for it, its
    /// destination was closed.
    #[must_use]
    pub(crate) fn prefetch(&self, claimed: Claimed, now: Timestamp) -> Option<Claimed> {
        let mut inner = self.lock();
        let (tenant, bucket) = (claimed.notification.tenant.clone(), claimed.bucket());
        if inner.slots.is_held_back(bucket.flow, now) {
            inner.prefetched.cancel(&tenant, bucket.flow, claimed.bytes());
            return Some(claimed);
        }
        if inner.in_store.contains_key(&bucket) {
            inner.prefetched.push_behind(claimed, Instant::now());
            return None;
        }
        inner.prefetched.push(claimed, Instant::now());
        inner.slots.turns_mut().push(&tenant, bucket);
        drop(inner);
        self.deal_now.notify_one();
        None
    }

    /// Holds a flow or a key to that from now on. Returns what waits in memory and cannot go for a while.
    #[must_use]
    pub(crate) fn limit(&self, gated: Gated, mut bounds: Bounds, now: Timestamp) -> Vec<Claimed> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        if let Some(budget) = &mut bounds.retries {
            *budget = inner.attempts.traffic(gated, Instant::now(), now).joined(budget);
        }
        inner.slots.limit(gated, bounds, now);
        let slots = &inner.slots;
        let may_be_meant = |flow: FlowId| match gated {
            Gated::Flow(limited) => limited == flow,
            Gated::Key(_) => true,
        };
        let back = inner.prefetched.take_of(|flow| may_be_meant(flow) && slots.is_held_back(flow, now));
        drop(guard);
        self.deal_now.notify_one();
        back
    }

    /// The shared keys of a flow, as far as they are known.
    pub(crate) fn keys(&self, flow: FlowId) -> Vec<KeyId> {
        self.lock().slots.keys(flow).to_vec()
    }

    /// Sets the shared keys of a flow.
    pub(crate) fn set_keys(&self, flow: FlowId, keys: Vec<KeyId>) {
        self.lock().slots.set_keys(flow, keys);
        self.deal_now.notify_one();
    }

    /// When a flow that had no room may have some by time alone.
    pub(crate) fn reopens_at(&self) -> Option<Timestamp> {
        self.lock().slots.reopens_at()
    }

    /// Takes out what has waited in memory for too long.
    pub(crate) fn stale(&self) -> Vec<Claimed> {
        self.lock().prefetched.stale(Instant::now())
    }

    /// Takes out everything that waits in memory.
    pub(crate) fn take_prefetched(&self) -> Vec<Claimed> {
        self.lock().prefetched.take_all()
    }

    /// Gives a slot back that nothing was sent in.
    pub(crate) fn free(&self, held: &Held) {
        self.lock().give_back_unsent(held);
        self.freed.notify_one();
        self.deal_now.notify_one();
    }

    /// Gives a slot back whose outcome is still to be recorded.
    pub(crate) fn sent(&self, held: &Held, bytes: usize) {
        let mut inner = self.lock();
        inner.give_back(held);
        let (Held::Slot(slot) | Held::Paused(slot)) = held;
        let instant = Instant::now();
        inner.prefetched.sent(&slot.tenant, slot.flow, bytes, instant);
        inner.attempts.count(slot.key.map_or(Gated::Flow(slot.flow), Gated::Key), instant);
        inner.unrecorded += 1;
        drop(inner);
        self.deal_now.notify_one();
    }

    /// So many outcomes are recorded, or never will be.
    pub(crate) fn recorded(&self, count: usize) {
        let mut inner = self.lock();
        let was_behind = inner.is_behind();
        inner.unrecorded = inner.unrecorded.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        drop(inner);
        self.freed.notify_one();
        if was_behind {
            self.deal_now.notify_one();
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
        self.deal_now.notify_one();
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

    /// Deals out up to `most` free slots, and takes them: first to what waits in memory, the rest to what is in the store. Of
    /// that, flows that send get more than their slots, to wait in memory.
    pub(crate) fn deal(&self, most: u32, now: Timestamp) -> Deal {
        let mut guard = self.lock();
        let inner = &mut *guard;
        if inner.is_behind() {
            return Deal::default();
        }
        let instant = Instant::now();
        let mut deal = Deal::default();
        let mut most_ahead = most;
        for Dealt { slot, quota: Quota { bucket, limit } } in inner.slots.deal(most, now) {
            let mut slots = limit;
            while slots > 0 && inner.paused.answer(bucket, &slot) {
                slots -= 1;
            }
            let batch = inner.prefetched.pop(bucket, slots);
            slots -= u32::try_from(batch.len()).expect("no more than the limit");
            let in_store = inner.in_store.contains_key(&bucket);
            let ahead = if in_store && !inner.slots.is_held_back(bucket.flow, now) {
                inner.prefetched.reserve_ahead(&slot.tenant, bucket.flow, most_ahead, instant)
            } else {
                0
            };
            most_ahead -= ahead;
            let claims = in_store && slots + ahead > 0;
            if !claims {
                inner.slots.give_back_unsent(&slot, slots);
            }
            // What is still in memory does not wait for the claim.
            if inner.prefetched.has(bucket) || inner.paused.asks(bucket) || (in_store && !claims) {
                inner.slots.turns_mut().push(&slot.tenant, bucket);
            }
            deal.to_send.extend(batch.into_iter().map(|claimed| InSlot { claimed, slot: slot.clone() }));
            if claims {
                deal.claims.push(Claim { bucket, slot, slots, ahead });
            }
            deal.is_any = true;
        }
        deal.wants_sweep = inner.slots.turns().wants_sweep();
        deal
    }

    /// Takes over what a claim brought: some is sent at once, the rest waits in memory as far as there is room for its
    /// size. Gives back what was not filled. A full one may have more behind it; one that is not has emptied its bucket,
    /// unless something was said to be in it since.
    pub(crate) fn claimed(&self, claim: &Claim, mut batch: Vec<Claimed>, now: Timestamp) -> Taken {
        let mut inner = self.lock();
        let instant = Instant::now();
        let (bucket, filled) = (claim.bucket, u32::try_from(batch.len()).unwrap_or(u32::MAX));
        let later = batch.split_off(batch.len().min(claim.slots as usize));
        inner.slots.give_back_unsent(&claim.slot, claim.slots.saturating_sub(filled));
        for _ in later.len()..claim.ahead as usize {
            inner.prefetched.cancel(&claim.slot.tenant, bucket.flow, 0);
        }
        let full = filled >= claim.limit();
        let is_held_back = inner.slots.is_held_back(bucket.flow, now);
        let too_large = later
            .into_iter()
            .filter_map(|claimed| {
                if is_held_back {
                    inner.prefetched.cancel(&claim.slot.tenant, bucket.flow, 0);
                    return Some(claimed);
                }
                inner.prefetched.push_ahead(claimed, instant)
            })
            .collect();
        if full || inner.slots.turns().has_backlog(bucket) {
            inner.in_store.insert(bucket, if full { Backlog::Many } else { Backlog::Few });
            inner.prefetched.join_first(bucket);
        } else {
            inner.not_in_store(bucket);
        }
        if full {
            inner.ready(&claim.slot.tenant, bucket);
        } else if inner.prefetched.has(bucket) {
            inner.slots.turns_mut().push(&claim.slot.tenant, bucket);
        }
        drop(inner);
        self.freed.notify_one();
        let to_send = batch.into_iter().map(|claimed| InSlot { claimed, slot: claim.slot.clone() }).collect();
        Taken { to_send, too_large }
    }

    /// How many notifications this node has in hand: waiting in memory, on their way out, between two quick tries, or with an
    /// outcome that is not recorded yet.
    pub(crate) fn busy(&self) -> u32 {
        let inner = self.lock();
        inner.slots.taken() + inner.unrecorded + inner.prefetched.len() + inner.paused.len()
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
            if self.prefetched.has(bucket) {
                self.slots.turns_mut().push(tenant, bucket);
            }
        }
        in_line
    }

    fn give_back(&mut self, held: &Held) {
        match held {
            Held::Slot(slot) => self.slots.give_back(slot, 1),
            Held::Paused(slot) => self.paused.remove(&slot.tenant),
        }
    }

    fn give_back_unsent(&mut self, held: &Held) {
        match held {
            Held::Slot(slot) => self.slots.give_back_unsent(slot, 1),
            Held::Paused(slot) => self.paused.remove(&slot.tenant),
        }
    }

    /// Whether so many outcomes wait to be recorded that no new send may start.
    fn is_behind(&self) -> bool {
        self.unrecorded >= self.slots.total()
    }

    /// What came while rows of the bucket were in the store has its turn now.
    fn not_in_store(&mut self, bucket: Bucket) {
        self.in_store.remove(&bucket);
        self.prefetched.join(bucket);
    }
}

#[cfg(test)]
mod tests;
