//! Who takes the next slot, by arrivals and by claims.

use super::*;
use crate::flow::Limits;
use crate::notification::Priority;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::EPOCH;

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

/// Deals one slot at a time to buckets that never run dry, and counts who got them.
fn shares(slots: &mut Slots, deals: u32) -> BTreeMap<Bucket, u32> {
    let mut shares = BTreeMap::new();
    for _ in 0..deals {
        for Dealt { slot, quota } in slots.deal(1, NOW) {
            *shares.entry(quota.bucket).or_default() += quota.limit;
            slots.give_back(&slot, quota.limit);
            slots.turns_mut().ready(&slot.tenant, quota.bucket);
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
    let dealt: u32 = slots.deal(u32::MAX, NOW).iter().map(|dealt| dealt.quota.limit).sum();
    assert_eq!(dealt, 50);
}

#[test]
fn a_flow_without_room_is_parked_and_takes_no_one_elses_slot() {
    let mut slots = Slots::new(4);
    let (full, other) = (bucket(1, Lane::Main, Priority::Critical), bucket(2, Lane::Main, Priority::Low));
    let taken = [(); 2].map(|()| slots.arrive(&tenant(1), full, NOW).unwrap());
    slots.turns_mut().ready(&tenant(1), full);
    slots.turns_mut().ready(&tenant(2), other);
    assert_eq!(quotas(&slots.deal(10, NOW)), [(other, 1)]);
    assert_eq!(slots.turns().parked().collect::<Vec<_>>(), [FlowId(1)]);
    assert!(slots.turns().has_backlog(full));

    slots.turns_mut().ready(&tenant(1), full);
    assert!(slots.deal(10, NOW).is_empty(), "still parked");
    slots.give_back(&taken[0], 1);
    assert_eq!(quotas(&slots.deal(10, NOW)), [(full, 1)]);
}

#[test]
fn the_room_of_a_flow_is_shared_by_its_buckets() {
    let mut slots = Slots::new(10);
    slots.turns_mut().ready(&tenant(1), bucket(1, Lane::Main, Priority::High));
    slots.turns_mut().ready(&tenant(1), bucket(1, Lane::Retry, Priority::Low));
    let dealt = slots.deal(100, NOW);
    assert_eq!((dealt.iter().map(|dealt| dealt.quota.limit).sum::<u32>(), dealt.len()), (5, 2));
}

#[test]
fn a_bucket_that_was_given_slots_waits_until_it_is_said_to_be_ready() {
    let mut slots = Slots::new(100);
    slots.turns_mut().ready(&tenant(1), main(1));
    slots.turns_mut().ready(&tenant(1), main(1));
    assert_eq!(quotas(&slots.deal(3, NOW)), [(main(1), 3)]);
    assert!(!slots.turns().has_backlog(main(1)) && slots.turns().count() == 0);
    assert!(slots.deal(3, NOW).is_empty());
}

#[test]
fn a_bucket_that_took_all_the_room_of_its_flow_is_not_dealt_again_by_itself() {
    let mut slots = Slots::new(10);
    slots.turns_mut().ready(&tenant(1), main(1));
    assert_eq!(quotas(&slots.deal(100, NOW)), [(main(1), 5)]);
    let slot = Slot { lane: Lane::Main, flow: FlowId(1), tenant: tenant(1), key: None, is_bounded: false };
    slots.give_back(&slot, 1);
    assert!(slots.deal(100, NOW).is_empty());
    slots.turns_mut().ready(&tenant(1), main(1));
    assert_eq!(quotas(&slots.deal(100, NOW)), [(main(1), 1)]);
}

#[test]
fn flows_of_two_tenants_share_the_limit_of_their_key_and_get_it_in_turn() {
    let mut slots = Slots::new(100);
    slots.limit(Gated::Key(KeyId(7)), Limits { concurrency: Some(3), ..Limits::default() }.into(), NOW);
    for flow in [1, 2] {
        slots.set_keys(FlowId(flow), vec![KeyId(7)]);
    }
    let first = slots.arrive(&tenant(1), main(1), NOW).unwrap();
    assert_eq!((first.key, slots.room(FlowId(2), Lane::Main, NOW)), (Some(KeyId(7)), 2));
    let more = [(); 2].map(|()| slots.arrive(&tenant(1), main(1), NOW).unwrap());
    assert_eq!(slots.arrive(&tenant(2), main(2), NOW), None);
    slots.turns_mut().ready(&tenant(2), main(2));
    assert!(slots.deal(10, NOW).is_empty() && slots.turns().parked().eq([FlowId(2)]));
    slots.give_back(&first, 1);
    assert_eq!(
        quotas(&slots.deal(10, NOW)),
        [(main(2), 1)],
        "what the first tenant gives back is the other's"
    );
    slots.turns_mut().ready(&tenant(2), main(2));
    assert!(slots.deal(10, NOW).is_empty());
    slots.limit(Gated::Key(KeyId(7)), Limits { concurrency: Some(4), ..Limits::default() }.into(), NOW);
    assert_eq!(quotas(&slots.deal(10, NOW)), [(main(2), 1)], "a wider limit is used at once");
    slots.give_back(&more[0], 2);
    assert_eq!(slots.room(FlowId(1), Lane::Main, NOW), 2);
}

#[test]
fn a_bucket_whose_key_is_full_gets_slots_of_the_next_key_in_the_next_deal() {
    let mut slots = Slots::new(100);
    slots.limit(Gated::Key(KeyId(1)), Limits { concurrency: Some(2), ..Limits::default() }.into(), NOW);
    slots.set_keys(FlowId(1), vec![KeyId(1), KeyId(2)]);
    let mut keys = vec![];
    for _ in 0..2 {
        slots.turns_mut().ready(&tenant(1), main(1));
        keys.extend(slots.deal(5, NOW).iter().map(|dealt| (dealt.slot.key, dealt.quota.limit)));
    }
    assert_eq!(keys, [(Some(KeyId(1)), 2), (Some(KeyId(2)), 5)]);
}

#[test]
fn a_paused_flow_has_its_turn_when_the_pause_ends() {
    let mut slots = Slots::new(100);
    let until = NOW.later(std::time::Duration::from_secs(10));
    slots.limit(
        Gated::Flow(FlowId(1)),
        Limits { paused_until: Some(until), ..Limits::default() }.into(),
        NOW,
    );
    slots.turns_mut().ready(&tenant(1), main(1));
    assert!(slots.deal(5, NOW).is_empty() && slots.arrive(&tenant(1), main(1), NOW).is_none());
    assert_eq!(quotas(&slots.deal(5, until)), [(main(1), 5)]);
}

/// The slots that a tenant with hanging destinations gets, by arrivals and by claims.
fn hang(slots: &mut Slots, owner: &Tenant, lane: Lane, flows: i64) -> u32 {
    let before = slots.taken();
    for turn in 0..1_000 {
        let bucket = bucket(turn % flows, lane, Priority::Critical);
        if slots.arrive(owner, bucket, NOW).is_none() {
            slots.turns_mut().ready(owner, bucket);
        }
        if turn % 7 == 0 {
            slots.deal(500, NOW);
        }
    }
    slots.deal(500, NOW);
    slots.taken() - before
}

#[test]
fn an_eighth_of_a_lane_stays_free_of_a_tenant_that_hangs() {
    for (lane, most, kept) in [(Lane::Main, 192, 24), (Lane::Retry, 128, 16)] {
        for flows in [2, 8, 200] {
            let mut slots = Slots::new(256);
            assert_eq!(hang(&mut slots, &tenant(1), lane, flows), most - kept, "{lane:?} {flows}");
            let other = bucket(1_000, lane, Priority::Low);
            let took = (0..256).filter(|_| slots.arrive(&tenant(2), other, NOW).is_some()).count();
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
        *took.entry(lane).or_insert(0) += u32::from(slots.arrive(&tenant(number), other, NOW).is_some());
    }
    assert_eq!((took[&Lane::Main], took[&Lane::Retry]), (24, 16));
    let counted = |lane: &InLane| lane.by_tenant.values().filter(|held| **held <= 24).sum::<u32>();
    assert_eq!(slots.lanes[0].by_small, counted(&slots.lanes[0]));
}

#[test]
fn an_arrival_does_not_take_the_turn_of_one_that_waits() {
    let mut slots = Slots::new(8);
    let held: Vec<Slot> = (0..6).map_while(|flow| slots.arrive(&tenant(1), main(flow), NOW)).collect();
    assert_eq!(held.len(), 6);
    slots.turns_mut().ready(&tenant(2), main(10));
    slots.give_back(&held[0], 1);
    assert_eq!(slots.arrive(&tenant(1), main(11), NOW), None, "the slot is for whoever waits");
    assert_eq!(quotas(&slots.deal(10, NOW)), [(main(10), 1)]);
}

#[test]
fn a_tenant_with_more_buckets_than_are_remembered_leaves_room_for_others() {
    let mut slots = Slots::new(8);
    let most = i64::try_from(MOST_OF_TENANT).unwrap();
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
                slots.arrive(&tenant(9), main(100 + flow), NOW)
            });
            let flood: Vec<Slot> = flood.collect();
            for Dealt { slot, quota } in slots.deal(1, NOW) {
                got.insert(quota.bucket);
                slots.give_back(&slot, quota.limit);
                slots.turns_mut().ready(&slot.tenant, quota.bucket);
            }
            flood.iter().for_each(|slot| slots.give_back(slot, 1));
        }
        for bucket in &buckets {
            prop_assert!(got.contains(bucket), "{bucket:?} got nothing");
        }
    }

    #[test]
    fn a_tenant_below_an_eighth_always_finds_a_slot_beside_one_that_hangs(
        steps in prop::collection::vec((0u8..4, 0i64..40), 1..200), total in 16u32..300
    ) {
        let mut slots = Slots::new(total);
        for (what, flow) in steps {
            let lane = if flow % 3 == 0 { Lane::Retry } else { Lane::Main };
            let hung = bucket(flow, lane, Priority::Critical);
            match what {
                0 => drop(slots.arrive(&tenant(1), hung, NOW)),
                1 => drop(slots.turns_mut().ready(&tenant(1), hung)),
                _ => drop(slots.deal(50, NOW)),
            }
            for lane in Lane::ALL {
                if slots.capacity.kept_for_small(lane) > 0 {
                    let slot = slots.arrive(&tenant(2), bucket(1_000, lane, Priority::Low), NOW);
                    // While another bucket waits for a free slot, the deal decides.
                    let slot = slot.or_else(|| {
                        slots.turns_mut().ready(&tenant(2), bucket(1_000, lane, Priority::Low));
                        let dealt = slots.deal(1_000, NOW);
                        let mine = dealt.iter().find(|dealt| dealt.slot.tenant == tenant(2))?;
                        Some(mine.slot.clone())
                    });
                    prop_assert!(slot.is_some(), "{lane:?}");
                    // What it was dealt beyond one is given back as well.
                    let held = slots.lanes[lane as usize].by_tenant[&tenant(2)];
                    slots.give_back(&slot.unwrap(), held);
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
            slots.arrive(&tenant(1), bucket(flow % 12, Lane::ALL[(flow % 2) as usize], Priority::Normal), NOW);
        }
        let before = slots.taken();
        for bucket in &buckets {
            slots.turns_mut().ready(&tenant(1), *bucket);
        }
        let dealt = slots.deal(most, NOW);
        let sum: u32 = dealt.iter().map(|dealt| dealt.quota.limit).sum();
        prop_assert!(sum <= most && before + sum <= total && slots.taken() == before + sum);
        let most_of_flow = slots.capacity.per_flow();
        prop_assert!((0..12).all(|flow| slots.gates.in_flight(Gated::Flow(FlowId(flow))) <= most_of_flow));
        // Whatever got no slot is still known: in turn or parked.
        for bucket in &buckets {
            let got = dealt.iter().any(|dealt| dealt.quota.bucket == *bucket);
            prop_assert!(got || slots.turns().has_backlog(*bucket));
        }
    }
}
