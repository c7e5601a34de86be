//! Who takes the next place, by arrivals and by claims.

use super::*;
use crate::notification::Priority;
use proptest::prelude::*;

fn tenant(number: u32) -> Tenant {
    format!("t{number}").parse().unwrap()
}

fn bucket(flow: i64, lane: Lane, priority: Priority) -> Bucket {
    Bucket { flow: FlowId(flow), lane, priority }
}

fn main(flow: i64) -> Bucket {
    bucket(flow, Lane::Main, Priority::Normal)
}

fn quotas(dealt: &[Dealt]) -> Vec<(Bucket, u32)> {
    dealt.iter().map(|dealt| (dealt.quota.bucket, dealt.quota.limit)).collect()
}

/// Deals one place at a time to buckets that never run dry, and counts who got them.
fn shares(slots: &mut Slots, places: u32) -> BTreeMap<Bucket, u32> {
    let mut shares = BTreeMap::new();
    for _ in 0..places {
        for Dealt { tenant, quota } in slots.deal(1) {
            *shares.entry(quota.bucket).or_default() += quota.limit;
            slots.give_back(&Place::of(&tenant, quota.bucket), quota.limit);
            slots.turns_mut().ready(&tenant, quota.bucket);
        }
    }
    shares
}

#[test]
fn priorities_share_a_lane_by_eight_four_two_one() {
    let mut slots = Slots::new(1_000);
    for priority in Priority::ALL {
        slots.turns_mut().ready(&tenant(1), bucket(1, Lane::Main, priority));
    }
    let shares = shares(&mut slots, 150);
    assert_eq!(shares.into_values().collect::<Vec<_>>(), [80, 40, 20, 10]);
}

#[test]
fn a_tenant_with_many_flows_gets_no_more_than_one_with_a_single_flow() {
    let mut slots = Slots::new(1_000);
    slots.turns_mut().ready(&tenant(0), main(0));
    for flow in 1..=50 {
        slots.turns_mut().ready(&tenant(1), main(flow));
    }
    let shares = shares(&mut slots, 200);
    assert_eq!(shares[&main(0)], 100);
    assert!((1..=50).all(|flow| shares[&main(flow)] == 2));
}

#[test]
fn a_wave_of_retries_leaves_new_notifications_their_reserve() {
    let mut slots = Slots::new(100);
    for flow in 0..50 {
        let owner = tenant(u32::try_from(flow).unwrap());
        slots.turns_mut().ready(&owner, bucket(flow, Lane::Retry, Priority::Normal));
    }
    let dealt: u32 = slots.deal(u32::MAX).iter().map(|dealt| dealt.quota.limit).sum();
    assert_eq!(dealt, 50);
}

#[test]
fn a_flow_without_room_is_parked_and_takes_no_one_elses_place() {
    let mut slots = Slots::new(4);
    let (full, other) = (bucket(1, Lane::Main, Priority::Critical), bucket(2, Lane::Main, Priority::Low));
    let places = [(); 2].map(|()| slots.arrive(&tenant(1), full).unwrap());
    slots.turns_mut().ready(&tenant(1), full);
    slots.turns_mut().ready(&tenant(2), other);
    assert_eq!(quotas(&slots.deal(10)), [(other, 1)]);
    assert_eq!(slots.turns().parked().collect::<Vec<_>>(), [FlowId(1)]);
    assert!(slots.turns().has_backlog(full));

    slots.turns_mut().ready(&tenant(1), full);
    assert!(slots.deal(10).is_empty(), "still parked");
    slots.give_back(&places[0], 1);
    assert_eq!(quotas(&slots.deal(10)), [(full, 1)]);
}

#[test]
fn the_room_of_a_flow_is_shared_by_its_buckets() {
    let mut slots = Slots::new(10);
    slots.turns_mut().ready(&tenant(1), bucket(1, Lane::Main, Priority::High));
    slots.turns_mut().ready(&tenant(1), bucket(1, Lane::Retry, Priority::Low));
    let dealt = slots.deal(100);
    assert_eq!((dealt.iter().map(|dealt| dealt.quota.limit).sum::<u32>(), dealt.len()), (5, 2));
}

#[test]
fn a_bucket_that_was_given_places_waits_until_it_is_said_to_be_ready() {
    let mut slots = Slots::new(100);
    slots.turns_mut().ready(&tenant(1), main(1));
    slots.turns_mut().ready(&tenant(1), main(1));
    assert_eq!(quotas(&slots.deal(3)), [(main(1), 3)]);
    assert!(!slots.turns().has_backlog(main(1)) && slots.turns().count() == 0);
    assert!(slots.deal(3).is_empty());
}

#[test]
fn a_bucket_that_took_all_the_room_of_its_flow_is_not_dealt_again_by_itself() {
    let mut slots = Slots::new(10);
    slots.turns_mut().ready(&tenant(1), main(1));
    assert_eq!(quotas(&slots.deal(100)), [(main(1), 5)]);
    let place = Place::of(&tenant(1), main(1));
    slots.give_back(&place, 1);
    assert!(slots.deal(100).is_empty());
    slots.turns_mut().ready(&tenant(1), main(1));
    assert_eq!(quotas(&slots.deal(100)), [(main(1), 1)]);
}

/// The places that a tenant with hanging destinations gets, by arrivals and by claims.
fn hang(slots: &mut Slots, owner: &Tenant, lane: Lane, flows: i64) -> u32 {
    let before = slots.taken();
    for turn in 0..1_000 {
        let bucket = bucket(turn % flows, lane, Priority::Critical);
        if slots.arrive(owner, bucket).is_none() {
            slots.turns_mut().ready(owner, bucket);
        }
        if turn % 7 == 0 {
            slots.deal(500);
        }
    }
    slots.deal(500);
    slots.taken() - before
}

#[test]
fn an_eighth_of_a_lane_stays_free_of_a_tenant_that_hangs() {
    for (lane, most, kept) in [(Lane::Main, 192, 24), (Lane::Retry, 128, 16)] {
        for flows in [2, 8, 200] {
            let mut slots = Slots::new(256);
            assert_eq!(hang(&mut slots, &tenant(1), lane, flows), most - kept, "{lane:?} {flows}");
            let other = bucket(1_000, lane, Priority::Low);
            let took = (0..256).filter(|_| slots.arrive(&tenant(2), other).is_some()).count();
            assert_eq!(took, kept as usize, "{lane:?} {flows}");
        }
    }
}

#[test]
fn a_tenant_that_hangs_in_both_lanes_leaves_the_eighths_of_both() {
    let mut slots = Slots::new(256);
    hang(&mut slots, &tenant(1), Lane::Main, 200);
    hang(&mut slots, &tenant(1), Lane::Retry, 200);
    // Small tenants take all they can get in one lane; those of the other lane still have theirs.
    let mut took = BTreeMap::new();
    for (lane, number) in Lane::ALL.into_iter().flat_map(|lane| (2..40).map(move |number| (lane, number))) {
        let other = bucket(1_000 + i64::from(number), lane, Priority::Low);
        *took.entry(lane).or_insert(0) += u32::from(slots.arrive(&tenant(number), other).is_some());
    }
    assert_eq!((took[&Lane::Main], took[&Lane::Retry]), (24, 16));
    let counted = |lane: &InLane| lane.by_tenant.values().filter(|held| **held <= 24).sum::<u32>();
    assert_eq!(slots.lanes[0].by_small, counted(&slots.lanes[0]));
}

#[test]
fn an_arrival_does_not_take_the_turn_of_one_that_waits() {
    let mut slots = Slots::new(8);
    let held: Vec<Place> = (0..6).map_while(|flow| slots.arrive(&tenant(1), main(flow))).collect();
    assert_eq!(held.len(), 6);
    slots.turns_mut().ready(&tenant(2), main(10));
    slots.give_back(&held[0], 1);
    assert_eq!(slots.arrive(&tenant(1), main(11)), None, "the place is for whoever waits");
    assert_eq!(quotas(&slots.deal(10)), [(main(10), 1)]);
}

#[test]
fn a_tenant_with_more_buckets_than_are_remembered_leaves_room_for_others() {
    let mut slots = Slots::new(8);
    let most = i64::try_from(crate::turns::MOST_OF_TENANT).unwrap();
    let turns = slots.turns_mut();
    assert!((0..most).all(|flow| turns.ready(&tenant(1), main(flow))));
    assert!(!turns.ready(&tenant(1), main(most)) && turns.is_left_out(&tenant(1)));
    assert!(turns.ready(&tenant(1), main(5)), "what is remembered may be said again");
    assert!(turns.ready(&tenant(2), main(most + 1)) && !turns.is_left_out(&tenant(2)));
    assert!(!turns.wants_sweep());
    (0..most / 2 + 1).for_each(|flow| turns.remove(main(flow)));
    assert!(turns.wants_sweep());
    turns.sweep_begins();
    assert!(!turns.wants_sweep() && turns.is_left_out(&tenant(1)));
    assert!(turns.ready(&tenant(1), main(most)));
    turns.sweep_ended();
    assert!(!turns.is_left_out(&tenant(1)));
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

fn owner(flow: FlowId, tenants: u32) -> Tenant {
    tenant(u32::try_from(flow.0).unwrap() % tenants)
}

proptest! {
    #[test]
    fn no_flow_is_starved(buckets in some_buckets(), tenants in 1u32..5, arrivals in any::<bool>()) {
        let mut slots = Slots::new(8);
        for bucket in &buckets {
            slots.turns_mut().ready(&owner(bucket.flow, tenants), *bucket);
        }
        // One round of lanes (3) x priorities (15) x tenants x flows of a tenant is the longest wait there is.
        let mut got = std::collections::BTreeSet::new();
        for _ in 0..3 * 15 * tenants * 12 {
            // A tenant that keeps sending takes what it can get at every moment.
            let flood = (0..if arrivals { 6 } else { 0 }).filter_map(|flow| {
                slots.arrive(&tenant(9), main(100 + flow))
            });
            let flood: Vec<Place> = flood.collect();
            for Dealt { tenant, quota } in slots.deal(1) {
                got.insert(quota.bucket);
                slots.give_back(&Place::of(&tenant, quota.bucket), quota.limit);
                slots.turns_mut().ready(&tenant, quota.bucket);
            }
            flood.iter().for_each(|place| slots.give_back(place, 1));
        }
        for bucket in &buckets {
            prop_assert!(got.contains(bucket), "{bucket:?} got nothing");
        }
    }

    #[test]
    fn a_tenant_below_an_eighth_always_finds_a_place_beside_one_that_hangs(
        steps in prop::collection::vec((0u8..4, 0i64..40), 1..200), total in 16u32..300
    ) {
        let mut slots = Slots::new(total);
        for (what, flow) in steps {
            let lane = if flow % 3 == 0 { Lane::Retry } else { Lane::Main };
            let hung = bucket(flow, lane, Priority::Critical);
            match what {
                0 => drop(slots.arrive(&tenant(1), hung)),
                1 => drop(slots.turns_mut().ready(&tenant(1), hung)),
                _ => drop(slots.deal(50)),
            }
            for lane in Lane::ALL {
                if slots.capacity.kept_for_small(lane) > 0 {
                    let place = slots.arrive(&tenant(2), bucket(1_000, lane, Priority::Low));
                    // While another bucket waits for a free place, the deal decides.
                    let place = place.or_else(|| {
                        slots.turns_mut().ready(&tenant(2), bucket(1_000, lane, Priority::Low));
                        let dealt = slots.deal(1_000);
                        let mine = dealt.iter().find(|dealt| dealt.tenant == tenant(2))?;
                        Some(Place::of(&tenant(2), mine.quota.bucket))
                    });
                    prop_assert!(place.is_some(), "{lane:?}");
                    // What it was dealt beyond one is given back as well.
                    let held = slots.lanes[lane as usize].by_tenant[&tenant(2)];
                    slots.give_back(&place.unwrap(), held);
                }
            }
        }
    }

    #[test]
    fn no_more_is_dealt_than_there_is_room_for(
        buckets in some_buckets(), total in 0u32..60, arrivals in 0i64..40, most in 0u32..60
    ) {
        let mut slots = Slots::new(total);
        for flow in 0..arrivals {
            slots.arrive(&tenant(1), bucket(flow % 12, Lane::ALL[(flow % 2) as usize], Priority::Normal));
        }
        let before = slots.taken();
        for bucket in &buckets {
            slots.turns_mut().ready(&tenant(1), *bucket);
        }
        let dealt = slots.deal(most);
        let sum: u32 = dealt.iter().map(|dealt| dealt.quota.limit).sum();
        prop_assert!(sum <= most && before + sum <= total && slots.taken() == before + sum);
        let most_of_flow = slots.capacity.per_flow();
        prop_assert!(slots.by_flow.values().all(|taken| *taken <= most_of_flow));
        // Whatever got no place is still known: in turn or parked.
        for bucket in &buckets {
            let got = dealt.iter().any(|dealt| dealt.quota.bucket == *bucket);
            prop_assert!(got || slots.turns().has_backlog(*bucket));
        }
    }
}
