//! Taking turns: which bucket gets the next free slot of a node.
//!
//! Lanes share by 2:1 within their reserves, priorities inside a lane by 8:4:2:1, tenants inside a priority and flows
//! inside a tenant one slot each in turn. What has work is remembered here; what has none costs nothing.

mod ring;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use self::ring::{Ring, Rota, weighted};
use crate::flow::{Bucket, FlowId};
use crate::notification::{Priority, Tenant};
use crate::state::Lane;

/// The most buckets of one tenant that are remembered.
pub const MOST_OF_TENANT: usize = 10_000;
/// The most buckets of all tenants that are remembered. Beyond it a tenant may still have `FEW`, up to twice as many in all.
pub const MOST: usize = 100_000;
/// The number of buckets of a tenant that are remembered before those of tenants with more.
const FEW: usize = 16;
/// The most buckets that are remembered while their flows have no room. They are not counted above: a destination may be down for
/// hours, and its tenant's other destinations need their places.
const MOST_PARKED: usize = 200_000;
/// The most tenants that are looked at to see whether a sweep would help.
const LOOKS: usize = 64;

/// The buckets that may hold due rows, in the order of their turns.
#[derive(Debug, Default)]
pub struct Turns {
    lanes: [Rota<Ring, 4>; 2],
    credit: [i64; 2],
    parked: BTreeMap<FlowId, Vec<(Tenant, Bucket)>>,
    parked_count: usize,
    /// Tenants that sit out the rest of a deal.
    held_back: Vec<(Tenant, Bucket)>,
    count: usize,
    of_tenant: HashMap<Tenant, usize>,
    left_out: LeftOut,
}

/// Tenants with more due buckets than are remembered: a sweep finds the rest.
#[derive(Debug, Default)]
struct LeftOut {
    /// Since the last sweep began.
    now: BTreeSet<Tenant>,
    /// Before that, until the sweep has ended.
    before: BTreeSet<Tenant>,
}

impl Turns {
    /// Notes that the bucket may hold due rows. Saying it twice changes nothing. Returns false if the tenant has too many
    /// buckets in line already: then only a later sweep finds this one.
    pub fn ready(&mut self, tenant: &Tenant, bucket: Bucket) -> bool {
        if self.has_backlog(bucket) {
            return true;
        }
        let known = self.of_tenant.get(tenant).copied().unwrap_or(0);
        let crowded = self.count >= MOST && known >= FEW;
        if known >= MOST_OF_TENANT || crowded || self.count >= 2 * MOST {
            self.left_out.now.insert(tenant.clone());
            return false;
        }
        self.push(tenant, bucket);
        true
    }

    /// The same for a bucket of which rows wait in memory, and which are bounded there.
    pub fn push(&mut self, tenant: &Tenant, bucket: Bucket) {
        if !self.has_backlog(bucket) {
            self.line_up(tenant, bucket);
        }
    }

    fn line_up(&mut self, tenant: &Tenant, bucket: Bucket) {
        self.count += 1;
        *self.of_tenant.entry(tenant.clone()).or_default() += 1;
        self.ring(bucket).push(tenant, bucket.flow);
    }

    /// Whether the bucket is known to hold rows that wait for their turn or for room.
    pub fn has_backlog(&self, bucket: Bucket) -> bool {
        let ring = &self.lanes[lane_index(bucket.lane)].parts[priority_index(bucket.priority)];
        let parked = || self.parked.get(&bucket.flow).into_iter().flatten();
        ring.owners.contains_key(&bucket.flow) || parked().any(|(_, known)| *known == bucket)
    }

    /// Lets a flow that had no room take part again.
    pub fn unpark(&mut self, flow: FlowId) {
        for (tenant, bucket) in self.parked.remove(&flow).unwrap_or_default() {
            self.parked_count -= 1;
            self.line_up(&tenant, bucket);
        }
    }

    /// The flows that have work but had no room when their turn came.
    pub fn parked(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.parked.keys().copied()
    }

    /// The tenants with buckets in line in that lane; a tenant may come up more than once.
    pub fn waiting(&self, lane: Lane) -> impl Iterator<Item = &Tenant> + '_ {
        self.lanes[lane_index(lane)].parts.iter().flat_map(|ring| ring.tenants.positions.keys())
    }

    /// The number of buckets that are remembered.
    pub fn count(&self) -> usize {
        self.count + self.parked_count
    }

    /// Whether the tenant may have due buckets that are not remembered.
    pub fn is_left_out(&self, tenant: &Tenant) -> bool {
        self.left_out.now.contains(tenant) || self.left_out.before.contains(tenant)
    }

    /// Whether there is room again for what was left out, so that a sweep would bring it in.
    pub fn wants_sweep(&self) -> bool {
        let has_room = |tenant: &Tenant| {
            let known = self.of_tenant.get(tenant).copied().unwrap_or(0);
            known <= MOST_OF_TENANT / 2 && (self.count <= MOST / 2 || known < FEW)
        };
        self.left_out.now.iter().take(LOOKS).any(has_room)
    }

    /// A look at every bucket begins.
    pub fn sweep_begins(&mut self) {
        self.left_out.before.append(&mut self.left_out.now);
    }

    /// Every bucket was looked at since the sweep began.
    pub fn sweep_ended(&mut self) {
        self.left_out.before.clear();
    }

    /// The bucket whose turn it is in one of the open lanes; it goes to the end of its line.
    pub(crate) fn draw(&mut self, open: [bool; 2]) -> Option<(Tenant, Bucket)> {
        let open = [0, 1].map(|lane: usize| open[lane] && !self.lanes[lane].is_empty());
        let lane = lane_turn(&mut self.credit, open)?;
        let rota = &mut self.lanes[lane_index(lane)];
        let has_work: [bool; 4] = std::array::from_fn(|index| !rota.parts[index].is_empty());
        let turn =
            weighted(&mut rota.credit, Priority::ALL.map(|priority| i64::from(priority.weight())), has_work)?;
        let (tenant, flow) = rota.parts[turn].turn()?;
        Some((tenant, Bucket { flow, lane, priority: Priority::ALL[turn] }))
    }

    /// The bucket leaves the turns until it is said to be ready again.
    pub(crate) fn remove(&mut self, bucket: Bucket) {
        let Some(tenant) = self.ring(bucket).remove(bucket.flow) else { return };
        self.count -= 1;
        let known = self.of_tenant.get_mut(&tenant).expect("a tenant with a bucket is counted");
        *known -= 1;
        if *known == 0 {
            self.of_tenant.remove(&tenant);
        }
    }

    /// The bucket's flow has no room: it waits for `unpark`. If too many wait so, a later sweep finds it.
    pub(crate) fn park(&mut self, tenant: Tenant, bucket: Bucket) {
        self.remove(bucket);
        if self.parked_count >= MOST_PARKED {
            self.left_out.now.insert(tenant);
            return;
        }
        self.parked_count += 1;
        self.parked.entry(bucket.flow).or_default().push((tenant, bucket));
    }

    /// The tenant has no turn in the lane and priority of the bucket until `bring_back`.
    pub(crate) fn hold_back(&mut self, tenant: Tenant, bucket: Bucket) {
        self.ring(bucket).tenants.remove(&tenant);
        self.held_back.push((tenant, bucket));
    }

    /// Lets every tenant take part again.
    pub(crate) fn bring_back(&mut self) {
        for (tenant, bucket) in std::mem::take(&mut self.held_back) {
            let ring = self.ring(bucket);
            if ring.lines.contains_key(&tenant) {
                ring.tenants.push(tenant);
            }
        }
    }

    fn ring(&mut self, bucket: Bucket) -> &mut Ring {
        &mut self.lanes[lane_index(bucket.lane)].parts[priority_index(bucket.priority)]
    }
}

/// The lane whose turn it is among those that are open.
pub(crate) fn lane_turn(credit: &mut [i64; 2], open: [bool; 2]) -> Option<Lane> {
    Some(Lane::ALL[weighted(credit, [2, 1], open)?])
}

const fn lane_index(lane: Lane) -> usize {
    lane as usize
}

const fn priority_index(priority: Priority) -> usize {
    priority as usize
}
