//! Taking turns: who gets the next free places of a node.
//!
//! Lanes share by 2:1 within their reserves, priorities inside a lane by 8:4:2:1, tenants inside a priority and flows
//! inside a tenant one place each in turn. What has work is remembered here; what has none costs nothing.

use std::collections::BTreeMap;

use crate::flow::{Bucket, Capacity, FlowId, Quota};
use crate::notification::{Priority, Tenant};
use crate::state::Lane;

/// The buckets that may hold due rows, in the order of their turns.
#[derive(Debug, Default)]
pub struct Turns {
    lanes: [Rota<Ring, 4>; 2],
    credit: [i64; 2],
    parked: BTreeMap<FlowId, Vec<(Tenant, Bucket)>>,
}

/// How many notifications a node works on, by lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InFlight {
    /// First attempts.
    pub main: u32,
    /// Retries.
    pub retry: u32,
}

impl Turns {
    /// Notes that the bucket may hold due rows. Saying it twice changes nothing.
    pub fn ready(&mut self, tenant: &Tenant, bucket: Bucket) {
        let parked = self.parked.get(&bucket.flow);
        if parked.is_some_and(|buckets| buckets.iter().any(|(_, known)| *known == bucket)) {
            return;
        }
        self.ring(bucket).push(tenant, bucket.flow);
    }

    /// Whether the bucket is known to hold rows that wait for their turn or for room.
    pub fn has_backlog(&self, bucket: Bucket) -> bool {
        let ring = &self.lanes[lane_index(bucket.lane)].parts[priority_index(bucket.priority)];
        ring.owners.contains_key(&bucket.flow) || self.parked.contains_key(&bucket.flow)
    }

    /// Lets a flow that had no room take part again.
    pub fn unpark(&mut self, flow: FlowId) {
        for (tenant, bucket) in self.parked.remove(&flow).unwrap_or_default() {
            self.ring(bucket).push(&tenant, bucket.flow);
        }
    }

    /// The flows that have work but had no room when their turn came.
    pub fn parked(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.parked.keys().copied()
    }

    /// Deals out the free places of a node, at most `most` of them.
    ///
    /// A bucket that is given a quota leaves the turns: whoever claims says `ready` again if the claim came back full.
    /// (Said the other way round, a row that arrives during the claim would be forgotten.) A bucket whose flow has no
    /// room is parked until `unpark`.
    pub fn deal(
        &mut self,
        capacity: Capacity,
        mut busy: InFlight,
        most: u32,
        room: impl Fn(FlowId) -> u32,
    ) -> Vec<Quota> {
        let mut given: BTreeMap<Bucket, u32> = BTreeMap::new();
        let mut by_flow: BTreeMap<FlowId, u32> = BTreeMap::new();
        let mut dealt = 0;
        while dealt < most {
            let Some((tenant, bucket)) = self.draw(capacity, busy) else { break };
            let taken = by_flow.entry(bucket.flow).or_default();
            if *taken >= room(bucket.flow) {
                // What has a quota already leaves the turns with it. Parked, it would come back for a second quota as
                // soon as its claim gave places back, empty or not, and so on without end.
                if given.contains_key(&bucket) {
                    self.ring(bucket).remove(bucket.flow);
                } else {
                    self.park(tenant, bucket);
                }
                continue;
            }
            *taken += 1;
            *given.entry(bucket).or_default() += 1;
            dealt += 1;
            match bucket.lane {
                Lane::Main => busy.main += 1,
                Lane::Retry => busy.retry += 1,
            }
        }
        for bucket in given.keys() {
            self.ring(*bucket).remove(bucket.flow);
        }
        given.into_iter().map(|(bucket, limit)| Quota { bucket, limit }).collect()
    }

    /// The bucket whose turn it is, which goes to the end of its line.
    fn draw(&mut self, capacity: Capacity, busy: InFlight) -> Option<(Tenant, Bucket)> {
        let open = Lane::ALL.map(|lane| {
            let has_work = !self.lanes[lane_index(lane)].is_empty();
            has_work && capacity.free(lane, busy.main, busy.retry) > 0
        });
        let lane = Lane::ALL[weighted(&mut self.credit, [2, 1], open)?];
        let rota = &mut self.lanes[lane_index(lane)];
        let has_work: [bool; 4] = std::array::from_fn(|index| !rota.parts[index].is_empty());
        let turn =
            weighted(&mut rota.credit, Priority::ALL.map(|priority| i64::from(priority.weight())), has_work)?;
        let (tenant, flow) = rota.parts[turn].turn()?;
        Some((tenant, Bucket { flow, lane, priority: Priority::ALL[turn] }))
    }

    fn park(&mut self, tenant: Tenant, bucket: Bucket) {
        self.ring(bucket).remove(bucket.flow);
        self.parked.entry(bucket.flow).or_default().push((tenant, bucket));
    }

    fn ring(&mut self, bucket: Bucket) -> &mut Ring {
        &mut self.lanes[lane_index(bucket.lane)].parts[priority_index(bucket.priority)]
    }
}

/// Parts that share by weight.
#[derive(Debug)]
struct Rota<T, const N: usize> {
    parts: [T; N],
    credit: [i64; N],
}

impl<T: Default, const N: usize> Default for Rota<T, N> {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| T::default()), credit: [0; N] }
    }
}

impl<const N: usize> Rota<Ring, N> {
    fn is_empty(&self) -> bool {
        self.parts.iter().all(Ring::is_empty)
    }
}

/// Smooth weighted turns: each open part earns its weight, the richest goes and pays for all. Shares are exact over
/// a round and no open part waits longer than one; a part that is not open keeps no credit.
fn weighted<const N: usize>(credit: &mut [i64; N], weights: [i64; N], open: [bool; N]) -> Option<usize> {
    let mut total = 0;
    for index in 0..N {
        if open[index] {
            credit[index] += weights[index];
            total += weights[index];
        } else {
            credit[index] = 0;
        }
    }
    let winner = (0..N).filter(|index| open[*index]).max_by_key(|index| (credit[*index], N - index))?;
    credit[winner] -= total;
    Some(winner)
}

/// Tenants in turn, and the flows of each tenant in turn.
#[derive(Debug, Default)]
struct Ring {
    tenants: Line<Tenant>,
    lines: BTreeMap<Tenant, Line<FlowId>>,
    owners: BTreeMap<FlowId, Tenant>,
}

impl Ring {
    fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    fn push(&mut self, tenant: &Tenant, flow: FlowId) {
        if self.owners.contains_key(&flow) {
            return;
        }
        self.owners.insert(flow, tenant.clone());
        self.lines.entry(tenant.clone()).or_default().push(flow);
        self.tenants.push(tenant.clone());
    }

    fn remove(&mut self, flow: FlowId) {
        let Some(tenant) = self.owners.remove(&flow) else { return };
        let line = self.lines.get_mut(&tenant).expect("the owner of a flow has a line");
        line.remove(&flow);
        if line.is_empty() {
            self.lines.remove(&tenant);
            self.tenants.remove(&tenant);
        }
    }

    fn turn(&mut self) -> Option<(Tenant, FlowId)> {
        let tenant = self.tenants.turn()?;
        let flow = self.lines.get_mut(&tenant)?.turn()?;
        Some((tenant, flow))
    }
}

/// A line in which whoever had a turn goes to the end, and anyone may leave from the middle.
#[derive(Debug)]
struct Line<K> {
    next: u64,
    by_place: BTreeMap<u64, K>,
    places: BTreeMap<K, u64>,
}

impl<K> Default for Line<K> {
    fn default() -> Self {
        Self { next: 0, by_place: BTreeMap::new(), places: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Line<K> {
    fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn push(&mut self, who: K) {
        if self.places.contains_key(&who) {
            return;
        }
        self.by_place.insert(self.next, who.clone());
        self.places.insert(who, self.next);
        self.next += 1;
    }

    fn remove(&mut self, who: &K) {
        if let Some(place) = self.places.remove(who) {
            self.by_place.remove(&place);
        }
    }

    fn turn(&mut self) -> Option<K> {
        let (_, who) = self.by_place.pop_first()?;
        self.places.remove(&who);
        self.push(who.clone());
        Some(who)
    }
}

const fn lane_index(lane: Lane) -> usize {
    lane as usize
}

const fn priority_index(priority: Priority) -> usize {
    priority as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROOMY: Capacity = Capacity { total: 1_000_000 };

    fn tenant(number: u32) -> Tenant {
        format!("t{number}").parse().unwrap()
    }

    fn bucket(flow: i64, lane: Lane, priority: Priority) -> Bucket {
        Bucket { flow: FlowId(flow), lane, priority }
    }

    /// Deals one place at a time to buckets that never run dry, and counts who got them.
    fn shares(turns: &mut Turns, owners: &BTreeMap<FlowId, Tenant>, places: u32) -> BTreeMap<Bucket, u32> {
        let mut shares = BTreeMap::new();
        for _ in 0..places {
            for quota in turns.deal(ROOMY, InFlight::default(), 1, |_| u32::MAX) {
                *shares.entry(quota.bucket).or_default() += quota.limit;
                turns.ready(&owners[&quota.bucket.flow], quota.bucket);
            }
        }
        shares
    }

    #[test]
    fn priorities_share_a_lane_by_eight_four_two_one() {
        let mut turns = Turns::default();
        let owners = BTreeMap::from([(FlowId(1), tenant(1))]);
        for priority in Priority::ALL {
            turns.ready(&tenant(1), bucket(1, Lane::Main, priority));
        }
        let shares = shares(&mut turns, &owners, 150);
        assert_eq!(shares.into_values().collect::<Vec<_>>(), [80, 40, 20, 10]);
    }

    #[test]
    fn a_tenant_with_many_flows_gets_no_more_than_one_with_a_single_flow() {
        let mut turns = Turns::default();
        let mut owners = BTreeMap::from([(FlowId(0), tenant(0))]);
        turns.ready(&tenant(0), bucket(0, Lane::Main, Priority::Normal));
        for flow in 1..=50 {
            owners.insert(FlowId(flow), tenant(1));
            turns.ready(&tenant(1), bucket(flow, Lane::Main, Priority::Normal));
        }
        let shares = shares(&mut turns, &owners, 200);
        assert_eq!(shares[&bucket(0, Lane::Main, Priority::Normal)], 100);
        assert!((1..=50).all(|flow| shares[&bucket(flow, Lane::Main, Priority::Normal)] == 2));
    }

    #[test]
    fn a_wave_of_retries_leaves_new_notifications_their_reserve() {
        let mut turns = Turns::default();
        turns.ready(&tenant(1), bucket(1, Lane::Retry, Priority::Normal));
        let capacity = Capacity { total: 100 };
        let quotas = turns.deal(capacity, InFlight::default(), u32::MAX, |_| u32::MAX);
        assert_eq!(quotas, [Quota { bucket: bucket(1, Lane::Retry, Priority::Normal), limit: 50 }]);
    }

    #[test]
    fn a_flow_without_room_is_parked_and_takes_no_one_elses_place() {
        let mut turns = Turns::default();
        turns.ready(&tenant(1), bucket(1, Lane::Main, Priority::Critical));
        turns.ready(&tenant(2), bucket(2, Lane::Main, Priority::Low));
        let room = |flow: FlowId| if flow == FlowId(1) { 0 } else { u32::MAX };
        let quotas = turns.deal(ROOMY, InFlight::default(), 10, room);
        assert_eq!(quotas, [Quota { bucket: bucket(2, Lane::Main, Priority::Low), limit: 10 }]);
        assert_eq!(turns.parked().collect::<Vec<_>>(), [FlowId(1)]);
        assert!(turns.has_backlog(bucket(1, Lane::Main, Priority::Critical)));

        turns.ready(&tenant(1), bucket(1, Lane::Main, Priority::Critical));
        assert!(turns.deal(ROOMY, InFlight::default(), 10, |_| u32::MAX).is_empty(), "still parked");
        turns.unpark(FlowId(1));
        assert_eq!(turns.deal(ROOMY, InFlight::default(), 10, |_| u32::MAX).len(), 1);
    }

    #[test]
    fn the_room_of_a_flow_is_shared_by_its_buckets() {
        let mut turns = Turns::default();
        turns.ready(&tenant(1), bucket(1, Lane::Main, Priority::High));
        turns.ready(&tenant(1), bucket(1, Lane::Retry, Priority::Low));
        let quotas = turns.deal(ROOMY, InFlight::default(), 100, |_| 5);
        assert_eq!(quotas.iter().map(|quota| quota.limit).sum::<u32>(), 5);
        assert_eq!(quotas.len(), 2);
    }

    #[test]
    fn a_bucket_that_was_given_a_quota_waits_until_it_is_said_to_be_ready() {
        let mut turns = Turns::default();
        let one = bucket(1, Lane::Main, Priority::Normal);
        turns.ready(&tenant(1), one);
        turns.ready(&tenant(1), one);
        assert_eq!(
            turns.deal(ROOMY, InFlight::default(), 3, |_| u32::MAX),
            [Quota { bucket: one, limit: 3 }]
        );
        assert!(!turns.has_backlog(one));
        assert!(turns.deal(ROOMY, InFlight::default(), 3, |_| u32::MAX).is_empty());
    }

    #[test]
    fn a_bucket_that_took_all_the_room_of_its_flow_is_not_dealt_again_by_itself() {
        let mut turns = Turns::default();
        let one = bucket(1, Lane::Main, Priority::Normal);
        turns.ready(&tenant(1), one);
        let quotas = turns.deal(ROOMY, InFlight::default(), 100, |_| 5);
        assert_eq!(quotas, [Quota { bucket: one, limit: 5 }]);
        turns.unpark(FlowId(1));
        assert!(turns.deal(ROOMY, InFlight::default(), 100, |_| 5).is_empty());
        turns.ready(&tenant(1), one);
        assert!(turns.deal(ROOMY, InFlight::default(), 100, |_| 0).is_empty());
        turns.unpark(FlowId(1));
        assert_eq!(turns.deal(ROOMY, InFlight::default(), 100, |_| 5).len(), 1);
    }

    prop_compose! {
        fn some_buckets()(raw in prop::collection::btree_set((0i64..12, 0u8..2, 0u8..4), 1..40)) -> Vec<Bucket> {
            raw.into_iter()
                .map(|(flow, lane, priority)| {
                    bucket(flow, Lane::from_code(lane).unwrap(), Priority::from_code(priority).unwrap())
                })
                .collect()
        }
    }

    proptest! {
        #[test]
        fn no_flow_is_starved(buckets in some_buckets(), tenants in 1u32..5) {
            let mut turns = Turns::default();
            let owner = |flow: FlowId| tenant(u32::try_from(flow.0).unwrap() % tenants);
            let owners: BTreeMap<FlowId, Tenant> = buckets.iter().map(|b| (b.flow, owner(b.flow))).collect();
            for bucket in &buckets {
                turns.ready(&owners[&bucket.flow], *bucket);
            }
            // One round of lanes (3) x priorities (15) x tenants x flows of a tenant is the longest wait there is.
            let shares = shares(&mut turns, &owners, 3 * 15 * tenants * 12);
            for bucket in &buckets {
                prop_assert!(shares.contains_key(bucket), "{bucket:?} got nothing");
            }
        }

        #[test]
        fn no_more_is_dealt_than_there_is_room_for(
            buckets in some_buckets(), total in 0u32..60, main in 0u32..40, retry in 0u32..40, most in 0u32..60, room in 0u32..6
        ) {
            let mut turns = Turns::default();
            for bucket in &buckets {
                turns.ready(&tenant(1), *bucket);
            }
            let quotas = turns.deal(Capacity { total }, InFlight { main, retry }, most, |_| room);
            let sum: u32 = quotas.iter().map(|quota| quota.limit).sum();
            prop_assert!(sum <= most && sum <= total.saturating_sub(main + retry));
            for flow in 0..12 {
                let of_flow = quotas.iter().filter(|quota| quota.bucket.flow == FlowId(flow));
                prop_assert!(of_flow.map(|quota| quota.limit).sum::<u32>() <= room);
            }
            // Whatever got no quota is still known: in turn or parked.
            for bucket in &buckets {
                let dealt = quotas.iter().any(|quota| quota.bucket == *bucket);
                prop_assert!(dealt || turns.has_backlog(*bucket));
            }
        }
    }
}
