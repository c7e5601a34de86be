//! Nodes of one to eight slots: a wave in one lane does not shut out the other, with a reserve or without one.

use super::*;
use crate::notification::Priority;

const NOW: Timestamp = Timestamp::EPOCH;

fn tenant(number: u32) -> Tenant {
    format!("t{number}").parse().unwrap()
}

/// Twenty flows of a tenant that have more to send than a node can.
fn wave(owner: u32, lane: Lane) -> Vec<Bucket> {
    let first = i64::from(owner) * 20;
    (first..first + 20).map(|flow| Bucket { flow: FlowId(flow), lane, priority: Priority::Normal }).collect()
}

/// A node with so many slots, all of them busy if one lane can take all.
struct Node {
    slots: Slots,
    under_way: Vec<Slot>,
}

impl Node {
    fn filled(total: u32, lane: Lane) -> Self {
        let mut node = Self { slots: Slots::new(total), under_way: vec![] };
        node.wants(1, lane);
        node.deal();
        node
    }

    fn wants(&mut self, owner: u32, lane: Lane) {
        for bucket in wave(owner, lane) {
            self.slots.turns_mut().ready(&tenant(owner), bucket);
        }
    }

    /// Returns the lanes of the slots that are dealt. Who got one has more to send.
    fn deal(&mut self) -> Vec<Lane> {
        let mut lanes = vec![];
        for Dealt { slot, quota: Quota { bucket, limit } } in self.slots.deal(500, NOW) {
            for _ in 0..limit {
                lanes.push(bucket.lane);
                self.under_way.push(slot.clone());
            }
            self.slots.turns_mut().ready(&slot.tenant, bucket);
        }
        lanes
    }

    /// The oldest send ends.
    fn end_one(&mut self) {
        let slot = self.under_way.remove(0);
        self.slots.give_back(&slot, 1);
    }
}

#[test]
fn from_four_slots_on_a_wave_leaves_the_other_lane_a_slot_at_once() {
    for total in 4..=8 {
        for (wave, other) in [(Lane::Main, Lane::Retry), (Lane::Retry, Lane::Main)] {
            let mut node = Node::filled(total, wave);
            node.wants(2, other);
            let lanes = node.deal();
            assert!(lanes.contains(&other), "{total} slots, a wave of {wave:?}: {lanes:?}");
        }
    }
}

#[test]
fn below_four_slots_the_lanes_take_turns_by_two_to_one() {
    for total in 1..4 {
        for (wave, other) in [(Lane::Main, Lane::Retry), (Lane::Retry, Lane::Main)] {
            let mut node = Node::filled(total, wave);
            node.wants(2, other);
            let mut lanes = node.deal();
            for _ in 0..30 {
                node.end_one();
                lanes.extend(node.deal());
            }
            let main = lanes.iter().filter(|lane| **lane == Lane::Main).count();
            assert!((19..=21).contains(&main), "{total} slots, a wave of {wave:?}: {lanes:?}");
        }
    }
}

#[test]
fn below_four_slots_arrivals_do_not_take_the_turns_of_retries() {
    for total in 1..4 {
        let mut node = Node { slots: Slots::new(total), under_way: vec![] };
        let mut arrivals = wave(1, Lane::Main).into_iter().cycle();
        while let Some(slot) = arrivals.next().and_then(|arrival| node.slots.arrive(&tenant(1), arrival, NOW))
        {
            node.under_way.push(slot);
        }
        node.wants(2, Lane::Retry);
        let mut retries = 0;
        for arrival in arrivals.take(30) {
            node.end_one();
            match node.slots.arrive(&tenant(1), arrival, NOW) {
                Some(slot) => node.under_way.push(slot),
                None => drop(node.slots.turns_mut().ready(&tenant(1), arrival)),
            }
            retries += node.deal().iter().filter(|lane| **lane == Lane::Retry).count();
        }
        assert!((9..=11).contains(&retries), "{total} slots: {retries} retries of 30");
    }
}
