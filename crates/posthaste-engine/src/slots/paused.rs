//! Attempts between two quick tries: they hold their lease and no slot.
//!
//! As many may be paused as the node has slots, half of them of one tenant. Beyond that an attempt keeps its slot while it
//! waits, so that a destination that fails at once does not fill the memory with attempts.

use std::collections::{HashMap, VecDeque};

use posthaste_core::flow::Bucket;
use posthaste_core::notification::Tenant;
use posthaste_core::slots::Slot;
use posthaste_core::time::Timestamp;
use tokio::sync::oneshot;

use super::NodeSlots;

/// What an attempt holds.
#[derive(Debug)]
pub(crate) enum Held {
    Slot(Slot),
    /// It waits for its next try and has given back this slot.
    Paused(Slot),
}

#[derive(Debug)]
pub(super) struct Paused {
    most: u32,
    total: u32,
    by_tenant: HashMap<Tenant, u32>,
    /// Those whose wait is over and that ask for a slot, the first one first.
    asking: HashMap<Bucket, VecDeque<oneshot::Sender<Slot>>>,
}

impl Paused {
    pub(super) fn new(most: u32) -> Self {
        Self { most, total: 0, by_tenant: HashMap::new(), asking: HashMap::new() }
    }

    pub(super) const fn len(&self) -> u32 {
        self.total
    }

    /// Counts one more, if there may be one more.
    fn add(&mut self, tenant: &Tenant) -> bool {
        let of_tenant = self.by_tenant.get(tenant).copied().unwrap_or(0);
        let fits = self.total < self.most && of_tenant < (self.most / 2).max(1);
        if fits {
            self.total += 1;
            self.by_tenant.insert(tenant.clone(), of_tenant + 1);
        }
        fits
    }

    pub(super) fn remove(&mut self, tenant: &Tenant) {
        let Some(of_tenant) = self.by_tenant.get_mut(tenant) else { return };
        self.total -= 1;
        *of_tenant -= 1;
        if *of_tenant == 0 {
            self.by_tenant.remove(tenant);
        }
    }

    /// Whether any of the bucket asks for a slot.
    pub(super) fn asks(&self, bucket: Bucket) -> bool {
        self.asking.contains_key(&bucket)
    }

    fn ask(&mut self, bucket: Bucket) -> oneshot::Receiver<Slot> {
        let (answer, answered) = oneshot::channel();
        self.asking.entry(bucket).or_default().push_back(answer);
        answered
    }

    /// Gives a slot that is like this one to the first of the bucket that asks. Returns false if none does.
    pub(super) fn answer(&mut self, bucket: Bucket, slot: &Slot) -> bool {
        let Some(asking) = self.asking.get_mut(&bucket) else { return false };
        let mut given = false;
        while !given && let Some(answer) = asking.pop_front() {
            given = answer.send(slot.clone()).is_ok();
        }
        if asking.is_empty() {
            self.asking.remove(&bucket);
        }
        if given {
            self.remove(&slot.tenant);
        }
        given
    }

    /// Forgets those of the bucket that do not wait any more.
    fn forget_closed(&mut self, bucket: Bucket) {
        let Some(asking) = self.asking.get_mut(&bucket) else { return };
        asking.retain(|answer| !answer.is_closed());
        if asking.is_empty() {
            self.asking.remove(&bucket);
        }
    }
}

impl NodeSlots {
    /// Gives the slot back until the next try. Where too many are paused already, the attempt keeps it.
    pub(crate) fn pause(&self, held: &mut Held, now: Timestamp) {
        let Held::Slot(slot) = held else { return };
        let mut inner = self.lock();
        if !inner.paused.add(&slot.tenant) {
            // Its next try counts for rates, as if it had taken the slot again.
            inner.slots.sent_again(slot, now);
            return;
        }
        inner.slots.give_back(slot, 1);
        drop(inner);
        *held = Held::Paused(slot.clone());
        self.deal_now.notify_one();
    }

    /// Takes a slot for the next try by the rules of an arrival. If none is free, the attempt takes part in the turns, before
    /// everything of its bucket that has not been sent yet, and what is returned says when it has one.
    pub(crate) fn resume(
        &self,
        held: &mut Held,
        bucket: Bucket,
        now: Timestamp,
    ) -> Option<oneshot::Receiver<Slot>> {
        let Held::Paused(Slot { tenant, .. }) = held else { return None };
        let mut inner = self.lock();
        if !inner.is_behind()
            && !inner.paused.asks(bucket)
            && let Some(slot) = inner.slots.arrive(tenant, bucket, now)
        {
            inner.paused.remove(tenant);
            *held = Held::Slot(slot);
            return None;
        }
        let answered = inner.paused.ask(bucket);
        inner.slots.turns_mut().push(tenant, bucket);
        drop(inner);
        self.deal_now.notify_one();
        Some(answered)
    }

    /// Stops to ask for a slot; one that was given just now is taken.
    pub(crate) fn stop_asking(&self, bucket: Bucket, mut asked: oneshot::Receiver<Slot>) -> Option<Slot> {
        let mut inner = self.lock();
        asked.close();
        let slot = asked.try_recv().ok();
        drop(asked);
        inner.paused.forget_closed(bucket);
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use posthaste_core::flow::FlowId;
    use posthaste_core::notification::Priority;
    use posthaste_core::state::Lane;
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::EPOCH;

    fn bucket(flow: i64) -> Bucket {
        Bucket { flow: FlowId(flow), lane: Lane::Main, priority: Priority::Normal }
    }

    fn tenant(flow: i64) -> Tenant {
        format!("t{}", flow % 2).parse().unwrap()
    }

    fn hold(node: &NodeSlots, flow: i64) -> Option<Held> {
        node.lock().slots.arrive(&tenant(flow), bucket(flow), NOW).map(Held::Slot)
    }

    #[test]
    fn a_paused_attempt_leaves_its_slot_to_others_and_is_still_in_hand() {
        let node = NodeSlots::new(1);
        let mut held = hold(&node, 1).unwrap();
        assert!(hold(&node, 2).is_none());
        node.pause(&mut held, NOW);
        assert_eq!(node.busy(), 1);
        let other = hold(&node, 2).unwrap();
        assert_eq!(node.busy(), 2);
        let mut asked = node.resume(&mut held, bucket(1), NOW).unwrap();
        assert!(asked.try_recv().is_err());
        node.free(&other);
        assert!(node.deal(10, NOW).is_any);
        assert_eq!(node.busy(), 1);
        assert_eq!(asked.try_recv().unwrap().flow, FlowId(1));
    }

    #[test]
    fn half_of_the_slots_may_be_paused_by_one_tenant_and_the_rest_keep_theirs() {
        let node = NodeSlots::new(8);
        let mut held: Vec<Held> =
            [1, 3, 5, 7, 9, 0].into_iter().map(|flow| hold(&node, flow).unwrap()).collect();
        held.iter_mut().for_each(|held| node.pause(held, NOW));
        let paused = held.iter().map(|held| matches!(held, Held::Paused(_))).collect::<Vec<_>>();
        assert_eq!(paused, [true, true, true, true, false, true]);
        assert_eq!(node.busy(), 6);
        held.iter().for_each(|held| node.free(held));
        assert_eq!(node.busy(), 0);
    }

    #[test]
    fn who_stops_to_ask_gets_a_slot_that_was_given_just_then_and_leaves_none_behind() {
        let node = NodeSlots::new(1);
        let (mut first, mut second) = (hold(&node, 1).unwrap(), None);
        node.pause(&mut first, NOW);
        second.get_or_insert(hold(&node, 2).unwrap());
        let asked = node.resume(&mut first, bucket(1), NOW).unwrap();
        assert!(node.stop_asking(bucket(1), asked).is_none());
        assert!(!node.lock().paused.asks(bucket(1)));
        let asked = node.resume(&mut first, bucket(1), NOW).unwrap();
        node.free(&second.take().unwrap());
        node.deal(10, NOW);
        let slot = node.stop_asking(bucket(1), asked).unwrap();
        node.free(&Held::Slot(slot));
        assert_eq!(node.busy(), 0);
    }

    proptest! {
        #[test]
        fn no_slot_is_lost_or_given_twice(
            steps in prop::collection::vec((0u8..6, 0i64..6), 1..120), slots in 1u32..12
        ) {
            let node = NodeSlots::new(slots);
            let mut running: Vec<(i64, Held)> = vec![];
            let mut asking: Vec<(i64, Held, oneshot::Receiver<Slot>)> = vec![];
            for (what, flow) in steps {
                match what {
                    0 => running.extend(hold(&node, flow).map(|held| (flow, held))),
                    1 => running.iter_mut().filter(|one| one.0 == flow).for_each(|one| node.pause(&mut one.1, NOW)),
                    2 => {
                        let (mine, rest): (Vec<_>, Vec<_>) = running.drain(..).partition(|one| one.0 == flow);
                        running = rest;
                        for (flow, mut held) in mine {
                            match node.resume(&mut held, bucket(flow), NOW) {
                                Some(asked) => asking.push((flow, held, asked)),
                                None => running.push((flow, held)),
                            }
                        }
                    }
                    3 => drop(node.deal(50, NOW)),
                    4 => if let Some(index) = asking.iter().position(|one| one.0 == flow) {
                        let (flow, held, asked) = asking.remove(index);
                        let slot = node.stop_asking(bucket(flow), asked);
                        node.free(&slot.map_or(held, Held::Slot));
                    },
                    _ => if let Some(index) = running.iter().position(|one| one.0 == flow) {
                        node.free(&running.remove(index).1);
                    },
                }
                for (flow, held, mut asked) in std::mem::take(&mut asking) {
                    match asked.try_recv() {
                        Ok(slot) => running.push((flow, Held::Slot(slot))),
                        Err(_) => asking.push((flow, held, asked)),
                    }
                }
                let in_slots = running.iter().filter(|one| matches!(one.1, Held::Slot(_))).count();
                prop_assert_eq!(node.lock().slots.taken() as usize, in_slots);
                prop_assert!(in_slots <= slots as usize);
                prop_assert_eq!(node.busy() as usize, running.len() + asking.len());
                let mut by_tenant: BTreeMap<Tenant, u32> = BTreeMap::new();
                let waiting = running.iter().map(|(_, held)| held).chain(asking.iter().map(|(_, held, _)| held));
                for held in waiting {
                    if let Held::Paused(slot) = held {
                        *by_tenant.entry(slot.tenant.clone()).or_default() += 1;
                    }
                }
                prop_assert!(by_tenant.values().all(|count| *count <= (slots / 2).max(1)));
                prop_assert!(by_tenant.values().sum::<u32>() <= slots);
            }
            // Whoever asks gets a slot once the others are done.
            running.iter().for_each(|(_, held)| node.free(held));
            for _ in 0..asking.len() {
                node.deal(50, NOW);
                for (_, _, mut asked) in std::mem::take(&mut asking) {
                    match asked.try_recv() {
                        Ok(slot) => node.free(&Held::Slot(slot)),
                        Err(_) => asking.push((0, Held::Paused(Slot { lane: Lane::Main, flow: FlowId(0), tenant: tenant(0), key: None, is_bounded: false }), asked)),
                    }
                }
            }
            prop_assert!(asking.is_empty());
            prop_assert_eq!(node.busy(), 0);
        }
    }
}
