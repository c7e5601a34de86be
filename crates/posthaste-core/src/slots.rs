//! The slots of a node: how many sends run at once, whose they are, and who takes the next one.
//!
//! An arrival and a claim take a slot by the same rules. An eighth of each lane is kept for tenants that hold less than
//! an eighth of it, so that a tenant whose destinations hang cannot use up the node, however many destinations it has.

mod gates;
mod turns;

use std::collections::{BTreeMap, HashMap};

pub(crate) use self::gates::Entry;
use self::gates::Gates;
pub use self::gates::{Bounds, Gated, KeyId};
pub(crate) use self::turns::lane_turn;
pub use self::turns::{MOST, MOST_OF_TENANT, Turns};
use crate::flow::{Bucket, Capacity, FlowId, Quota};
use crate::notification::Tenant;
use crate::state::Lane;
use crate::time::Timestamp;

/// The slots, and the turns of those that wait for one.
#[derive(Debug)]
pub struct Slots {
    capacity: Capacity,
    turns: Turns,
    lanes: [InLane; 2],
    gates: Gates,
}

/// The slots that are taken in one lane.
#[derive(Debug, Default)]
struct InLane {
    taken: u32,
    by_tenant: HashMap<Tenant, u32>,
    /// Those of tenants that hold no more than an eighth.
    by_small: u32,
}

impl InLane {
    fn take(&mut self, tenant: &Tenant, eighth: u32) {
        let before = match self.by_tenant.get_mut(tenant) {
            Some(held) => {
                *held += 1;
                *held - 1
            }
            None => {
                self.by_tenant.insert(tenant.clone(), 1);
                0
            }
        };
        self.changed(before, before + 1, eighth);
    }

    fn give_back(&mut self, tenant: &Tenant, count: u32, eighth: u32) {
        let Some(held) = self.by_tenant.get_mut(tenant) else { return };
        let (before, after) = (*held, held.saturating_sub(count));
        *held = after;
        if after == 0 {
            self.by_tenant.remove(tenant);
        }
        self.changed(before, after, eighth);
    }

    fn changed(&mut self, before: u32, after: u32, eighth: u32) {
        let small = |held: u32| if held <= eighth { held } else { 0 };
        self.taken = self.taken + after - before;
        self.by_small = self.by_small + small(after) - small(before);
    }
}

/// A slot that one notification takes for its send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The lane in which it counts.
    pub lane: Lane,
    /// The flow that it counts for.
    pub flow: FlowId,
    /// The tenant that it counts for.
    pub tenant: Tenant,
    /// The shared breaker key that it counts for, if the flow has any.
    pub key: Option<KeyId>,
    /// Whether the flow or the key was held to anything when it was taken. Else what was said since has not been asked.
    pub is_bounded: bool,
}

/// Slots that were dealt to one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dealt {
    /// One of them; the others are the same.
    pub slot: Slot,
    /// The bucket and the number of its slots.
    pub quota: Quota,
}

impl Slots {
    /// A node with so many slots.
    pub fn new(total: u32) -> Self {
        let capacity = Capacity { total };
        Self {
            capacity,
            turns: Turns::default(),
            lanes: Default::default(),
            gates: Gates::new(capacity.per_flow()),
        }
    }

    /// The number of slots.
    pub fn total(&self) -> u32 {
        self.capacity.total
    }

    /// The number of slots that are taken.
    pub fn taken(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.taken).sum()
    }

    /// Those that wait for a slot.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Those that wait for a slot.
    pub fn turns_mut(&mut self) -> &mut Turns {
        &mut self.turns
    }

    /// Sets what a flow or a shared key is held to. What is under way stays as counted here.
    pub fn limit(&mut self, gated: Gated, bounds: Bounds, now: Timestamp) {
        for flow in self.gates.limit(gated, bounds, now) {
            self.turns.unpark(flow);
        }
    }

    /// Sets the shared keys of a flow, in the order of preference; the flow has room while one of them has. Without a key
    /// only its own limits count.
    pub fn set_keys(&mut self, flow: FlowId, keys: Vec<KeyId>) {
        self.gates.set_keys(flow, keys);
        self.turns.unpark(flow);
    }

    /// The shared keys of a flow.
    pub fn keys(&self, flow: FlowId) -> &[KeyId] {
        self.gates.keys(flow)
    }

    /// How many more of a flow may be sent in that lane, as far as the flow and its keys are concerned.
    pub fn room(&self, flow: FlowId, lane: Lane, now: Timestamp) -> u32 {
        self.gates.room(flow, lane, now)
    }

    /// Whether none of the flow may wait in memory for a slot: it could not go for a while.
    pub fn is_held_back(&self, flow: FlowId, now: Timestamp) -> bool {
        self.gates.is_held_back(flow, now)
    }

    /// When a flow that had no room may have some by time alone.
    pub fn reopens_at(&self) -> Option<Timestamp> {
        self.gates.reopens_at()
    }

    /// Takes a slot for a notification that arrives, if one is free for it and no waiting bucket could use it.
    pub fn arrive(&mut self, tenant: &Tenant, bucket: Bucket, now: Timestamp) -> Option<Slot> {
        let lane = bucket.lane;
        if !self.may_take(tenant, lane) {
            return None;
        }
        let key = self.gates.next_key(bucket.flow, lane, now).ok()?;
        // Where the other lane has no reserve, its turn is respected too.
        let lanes = if self.capacity.is_shared_by_turns() { &Lane::ALL[..] } else { &[lane] };
        if lanes.iter().any(|lane| self.turns.waiting(*lane).any(|other| self.may_take(other, *lane))) {
            return None;
        }
        Some(self.take(Slot { lane, flow: bucket.flow, tenant: tenant.clone(), key, is_bounded: false }, now))
    }

    /// Deals out the free slots, at most `most` of them, and takes them.
    ///
    /// A bucket that is given slots leaves the turns: it is to be made ready again if its claim came back full. (The other
    /// way round, a row that arrives during the claim would be forgotten.) A bucket whose flow has no room is parked until
    /// a slot of the flow is given back, or the limits of the flow or of its keys change.
    pub fn deal(&mut self, most: u32, now: Timestamp) -> Vec<Dealt> {
        for flow in self.gates.reopened(now) {
            self.turns.unpark(flow);
        }
        let mut given: BTreeMap<Bucket, (Slot, u32)> = BTreeMap::new();
        let mut dealt = 0;
        while dealt < most {
            let open = Lane::ALL.map(|lane| self.free(lane) > 0);
            // No draw without a slot: it would cost a lane the credit for which it has the next one.
            if open == [false; 2] {
                break;
            }
            let Some((tenant, bucket)) = self.turns.draw(open) else { break };
            if !self.may_take(&tenant, bucket.lane) {
                self.turns.hold_back(tenant, bucket);
                continue;
            }
            match (self.gates.next_key(bucket.flow, bucket.lane, now), given.get_mut(&bucket)) {
                (Ok(key), None) => {
                    let slot = Slot { lane: bucket.lane, flow: bucket.flow, tenant, key, is_bounded: false };
                    given.insert(bucket, (self.take(slot, now), 1));
                    dealt += 1;
                }
                (Ok(key), Some((slot, count))) if slot.key == key => {
                    *count += 1;
                    let slot = slot.clone();
                    self.take(slot, now);
                    dealt += 1;
                }
                // A bucket with slots already leaves the turns with them. Parked, it would come back for more as soon as its
                // claim gave slots back, empty or not, and so on without end.
                (_, Some(_)) => self.turns.remove(bucket),
                (Err(_), None) => {
                    self.gates.wait(bucket.flow, bucket.lane, now);
                    self.turns.park(tenant, bucket);
                }
            }
        }
        for bucket in given.keys() {
            self.turns.remove(*bucket);
        }
        self.turns.bring_back();
        let dealt = |(bucket, (slot, limit))| Dealt { slot, quota: Quota { bucket, limit } };
        given.into_iter().map(dealt).collect()
    }

    /// Gives slots back that are like this one, and that nothing was sent in: rate and budget get back what they took.
    pub fn give_back_unsent(&mut self, slot: &Slot, count: u32) {
        if slot.is_bounded && count > 0 {
            self.gates.unspend(slot.flow, slot.key, slot.lane, count);
        }
        self.give_back(slot, count);
    }

    /// What has the slot is sent once more.
    pub fn sent_again(&mut self, slot: &Slot, now: Timestamp) {
        self.gates.spend(slot.flow, slot.key, now);
    }

    /// Gives slots back that are like this one.
    pub fn give_back(&mut self, slot: &Slot, count: u32) {
        if count == 0 {
            return;
        }
        let eighth = self.capacity.kept_for_small(slot.lane);
        self.lanes[slot.lane as usize].give_back(&slot.tenant, count, eighth);
        for flow in self.gates.give_back(slot.flow, slot.key, count) {
            self.turns.unpark(flow);
        }
        self.turns.unpark(slot.flow);
    }

    fn take(&mut self, slot: Slot, now: Timestamp) -> Slot {
        let eighth = self.capacity.kept_for_small(slot.lane);
        self.lanes[slot.lane as usize].take(&slot.tenant, eighth);
        let is_bounded = self.gates.take(slot.flow, slot.key, slot.lane, now);
        Slot { is_bounded, ..slot }
    }

    /// How many slots of the lane are free. What small tenants have not used yet of the other lane's eighth is not among them,
    /// also when that lane has used up its reserve: the small tenants of both lanes have their slots at the same time.
    fn free(&self, lane: Lane) -> u32 {
        let [main, retry] = [Lane::Main, Lane::Retry].map(|lane| self.lanes[lane as usize].taken);
        let other = match lane {
            Lane::Main => Lane::Retry,
            Lane::Retry => Lane::Main,
        };
        let untaken = self.capacity.total.saturating_sub(main).saturating_sub(retry);
        let kept = self.capacity.kept_for_small(other).saturating_sub(self.lanes[other as usize].by_small);
        let for_lane = untaken.saturating_sub(kept);
        self.capacity.free(lane, main, retry).min(for_lane)
    }

    /// Whether a slot of the lane is free for the tenant: the last eighth is not for those that hold an eighth or more.
    fn may_take(&self, tenant: &Tenant, lane: Lane) -> bool {
        let kept = self.capacity.kept_for_small(lane);
        let free = self.free(lane);
        // The count of the tenant is only looked up where it decides.
        free > kept || (free > 0 && self.held(tenant, lane) < kept)
    }

    fn held(&self, tenant: &Tenant, lane: Lane) -> u32 {
        self.lanes[lane as usize].by_tenant.get(tenant).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod few_slots;

#[cfg(test)]
mod tests;
