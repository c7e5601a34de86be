//! The places of a node: how many sends run at once, whose they are, and who takes the next one.
//!
//! An arrival and a claim take a place by the same rules. An eighth of each lane is kept for tenants that hold less than
//! an eighth of it, so that a tenant whose destinations hang cannot use up the node, however many destinations it has.

use std::collections::{BTreeMap, HashMap};

use crate::flow::{Bucket, Capacity, FlowId, Limits, Quota};
use crate::notification::Tenant;
use crate::state::Lane;
use crate::time::Timestamp;
use crate::turns::Turns;

/// The places, and the turns of those that wait for one.
#[derive(Debug)]
pub struct Slots {
    capacity: Capacity,
    turns: Turns,
    lanes: [InLane; 2],
    by_flow: HashMap<FlowId, u32>,
}

/// The places that are taken in one lane.
#[derive(Debug, Default)]
struct InLane {
    taken: u32,
    by_tenant: HashMap<Tenant, u32>,
    /// Those of tenants that hold no more than an eighth.
    by_small: u32,
}

impl InLane {
    /// A tenant has another number of places than before.
    fn change(&mut self, tenant: &Tenant, eighth: u32, change: impl FnOnce(u32) -> u32) {
        let before = self.by_tenant.get(tenant).copied().unwrap_or(0);
        let after = change(before);
        let small = |held: u32| if held <= eighth { held } else { 0 };
        self.taken = (self.taken + after).saturating_sub(before);
        self.by_small = (self.by_small + small(after)).saturating_sub(small(before));
        match self.by_tenant.get_mut(tenant) {
            Some(_) if after == 0 => drop(self.by_tenant.remove(tenant)),
            Some(held) => *held = after,
            None if after == 0 => {}
            None => drop(self.by_tenant.insert(tenant.clone(), after)),
        }
    }
}

/// A place that one notification takes for its send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The lane.
    pub lane: Lane,
    /// The flow.
    pub flow: FlowId,
    /// The tenant.
    pub tenant: Tenant,
}

impl Place {
    /// A place for a row of that bucket.
    pub fn of(tenant: &Tenant, bucket: Bucket) -> Self {
        Self { lane: bucket.lane, flow: bucket.flow, tenant: tenant.clone() }
    }
}

/// Places that were dealt to one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dealt {
    /// Whose bucket it is.
    pub tenant: Tenant,
    /// The bucket and the number of its places.
    pub quota: Quota,
}

impl Slots {
    /// A node with so many places.
    pub fn new(total: u32) -> Self {
        Self {
            capacity: Capacity { total },
            turns: Turns::default(),
            lanes: Default::default(),
            by_flow: HashMap::new(),
        }
    }

    /// The number of places.
    pub fn total(&self) -> u32 {
        self.capacity.total
    }

    /// The number of places that are taken.
    pub fn taken(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.taken).sum()
    }

    /// Those that wait for a place.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Those that wait for a place.
    pub fn turns_mut(&mut self) -> &mut Turns {
        &mut self.turns
    }

    /// Takes a place for a notification that arrives, if one is free for it and no waiting bucket could use it.
    pub fn arrive(&mut self, tenant: &Tenant, bucket: Bucket) -> Option<Place> {
        let lane = bucket.lane;
        if !self.may_take(tenant, lane) || self.room(bucket.flow) == 0 {
            return None;
        }
        // Where the other lane has no reserve, its turn is respected too.
        let lanes = if self.capacity.is_shared_by_turns() { &Lane::ALL[..] } else { &[lane] };
        if lanes.iter().any(|lane| self.turns.waiting(*lane).any(|other| self.may_take(other, *lane))) {
            return None;
        }
        self.take(tenant, bucket);
        Some(Place::of(tenant, bucket))
    }

    /// Deals out the free places, at most `most` of them, and takes them.
    ///
    /// A bucket that is given places leaves the turns: it is to be made ready again if its claim came back full. (The other
    /// way round, a row that arrives during the claim would be forgotten.) A bucket whose flow has no room is parked until
    /// a place of the flow is given back.
    pub fn deal(&mut self, most: u32) -> Vec<Dealt> {
        let mut given: BTreeMap<Bucket, (Tenant, u32)> = BTreeMap::new();
        let mut dealt = 0;
        while dealt < most {
            let open = Lane::ALL.map(|lane| self.free(lane) > 0);
            // No draw without a place: it would cost a lane the credit for which it has the next one.
            if open == [false; 2] {
                break;
            }
            let Some((tenant, bucket)) = self.turns.draw(open) else { break };
            if !self.may_take(&tenant, bucket.lane) {
                self.turns.hold_back(tenant, bucket);
                continue;
            }
            if self.room(bucket.flow) == 0 {
                // A bucket with places already leaves the turns with them. Parked, it would come back for more as soon as
                // its claim gave places back, empty or not, and so on without end.
                if given.contains_key(&bucket) {
                    self.turns.remove(bucket);
                } else {
                    self.turns.park(tenant, bucket);
                }
                continue;
            }
            self.take(&tenant, bucket);
            given.entry(bucket).or_insert((tenant, 0)).1 += 1;
            dealt += 1;
        }
        for bucket in given.keys() {
            self.turns.remove(*bucket);
        }
        self.turns.bring_back();
        let dealt = |(bucket, (tenant, limit))| Dealt { tenant, quota: Quota { bucket, limit } };
        given.into_iter().map(dealt).collect()
    }

    /// Gives places back.
    pub fn give_back(&mut self, place: &Place, count: u32) {
        if count == 0 {
            return;
        }
        let eighth = self.capacity.kept_for_small(place.lane);
        self.lanes[place.lane as usize].change(&place.tenant, eighth, |held| held.saturating_sub(count));
        if let Some(taken) = self.by_flow.get_mut(&place.flow) {
            *taken = taken.saturating_sub(count);
            if *taken == 0 {
                self.by_flow.remove(&place.flow);
            }
        }
        self.turns.unpark(place.flow);
    }

    fn take(&mut self, tenant: &Tenant, bucket: Bucket) {
        let eighth = self.capacity.kept_for_small(bucket.lane);
        self.lanes[bucket.lane as usize].change(tenant, eighth, |held| held + 1);
        *self.by_flow.entry(bucket.flow).or_default() += 1;
    }

    /// How many places of the lane are free. What small tenants have not used yet of the other lane's eighth is not among them,
    /// also when that lane has used up its reserve: the small tenants of both lanes have their places at the same time.
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

    /// Whether a place of the lane is free for the tenant: the last eighth is not for those that hold an eighth or more.
    fn may_take(&self, tenant: &Tenant, lane: Lane) -> bool {
        let kept = self.capacity.kept_for_small(lane);
        let held = self.lanes[lane as usize].by_tenant.get(tenant).copied().unwrap_or(0);
        self.free(lane) > if held < kept { 0 } else { kept }
    }

    /// How many more of a flow may be taken.
    fn room(&self, flow: FlowId) -> u32 {
        let in_flight = self.by_flow.get(&flow).copied().unwrap_or(0);
        let limits = Limits { concurrency: Some(self.capacity.per_flow()), in_flight, ..Limits::default() };
        limits.room(Timestamp::EPOCH)
    }
}

#[cfg(test)]
mod few_places;

#[cfg(test)]
mod tests;
