//! Slots for slow work, shared fairly between tenants.
//!
//! A tenant may take a slot while it holds fewer than are free. So one tenant alone gets half of them, and
//! the other half stays free. The more tenants need slots at the same time, the smaller their equal shares.

use std::collections::{HashMap, VecDeque};

use posthaste_core::notification::Tenant;

/// The slots, and the work that waits for one.
#[derive(Debug)]
pub(super) struct FairSlots<W> {
    free: usize,
    tenants: HashMap<Tenant, Share<W>>,
    /// Counts all work that ever waited. Its value is the sequence number of each piece of work.
    last_sequence: u64,
}

/// The slots of one tenant, and its queue.
#[derive(Debug)]
struct Share<W> {
    held: usize,
    queued: VecDeque<(u64, W)>,
}

impl<W> FairSlots<W> {
    pub(super) fn new(slots: usize) -> Self {
        Self { free: slots, tenants: HashMap::new(), last_sequence: 0 }
    }

    /// Adds work to the end of a tenant's queue.
    pub(super) fn queue(&mut self, tenant: &Tenant, work: W) {
        self.last_sequence += 1;
        let share = self.tenants.entry(tenant.clone());
        let share = share.or_insert_with(|| Share { held: 0, queued: VecDeque::new() });
        share.queued.push_back((self.last_sequence, work));
    }

    /// Takes a slot for the next work: of the tenant with the fewest slots, and among equals of the one that
    /// has waited longest.
    pub(super) fn take(&mut self) -> Option<(Tenant, W)> {
        let waits = |share: &Share<W>| Some((share.held, share.queued.front()?.0));
        let queued = self.tenants.iter().filter_map(|(tenant, share)| Some((waits(share)?, tenant)));
        let ((held, _), tenant) = queued.min()?;
        if held >= self.free {
            return None;
        }
        let tenant = tenant.clone();
        let share = self.tenants.get_mut(&tenant)?;
        let (_, work) = share.queued.pop_front()?;
        share.held += 1;
        self.free -= 1;
        Some((tenant, work))
    }

    /// Frees a slot of the tenant.
    pub(super) fn release(&mut self, tenant: &Tenant) {
        let Some(share) = self.tenants.get_mut(tenant) else { return };
        share.held -= 1;
        self.free += 1;
        self.remove_idle();
    }

    /// Drops queued work that is no longer wanted.
    pub(super) fn retain(&mut self, mut wanted: impl FnMut(&W) -> bool) {
        for share in self.tenants.values_mut() {
            share.queued.retain(|(_, work)| wanted(work));
        }
        self.remove_idle();
    }

    pub(super) fn queued(&self) -> usize {
        self.tenants.values().map(|share| share.queued.len()).sum()
    }

    fn remove_idle(&mut self) {
        self.tenants.retain(|_, share| share.held > 0 || !share.queued.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tenant(name: &str) -> Tenant {
        name.parse().unwrap()
    }

    /// Takes all slots that can be taken, and returns their tenants.
    fn take_all(slots: &mut FairSlots<u32>) -> Vec<(String, u32)> {
        std::iter::from_fn(|| slots.take()).map(|(tenant, work)| (tenant.to_string(), work)).collect()
    }

    #[test]
    fn one_tenant_alone_takes_half_of_the_places() {
        let mut slots = FairSlots::new(128);
        (0..1_000).for_each(|work| slots.queue(&tenant("a"), work));
        let taken = take_all(&mut slots);
        assert_eq!(taken, (0..64).map(|work| ("a".to_owned(), work)).collect::<Vec<_>>());
        slots.release(&tenant("a"));
        assert_eq!(take_all(&mut slots), [("a".to_owned(), 64)]);
        assert_eq!(slots.queued(), 1_000 - 65);
    }

    #[test]
    fn a_tenant_that_comes_later_finds_a_place_and_the_shares_become_equal() {
        let mut slots = FairSlots::new(12);
        (0..100).for_each(|work| slots.queue(&tenant("a"), work));
        assert_eq!(take_all(&mut slots).len(), 6);
        (0..100).for_each(|work| slots.queue(&tenant("b"), work));
        assert_eq!(take_all(&mut slots).len(), 3);
        slots.queue(&tenant("c"), 0);
        assert_eq!(take_all(&mut slots), [("c".to_owned(), 0)]);
        // The slots that a frees go to b, which holds fewer.
        for _ in 0..2 {
            slots.release(&tenant("a"));
        }
        assert_eq!(take_all(&mut slots), [("b".to_owned(), 3)]);
    }

    #[test]
    fn of_those_that_hold_as_many_the_one_that_waits_for_longest_is_next() {
        let mut slots = FairSlots::new(3);
        for (name, work) in [("c", 0), ("a", 1), ("b", 2), ("a", 3)] {
            slots.queue(&tenant(name), work);
        }
        let next = |name: &str, work| (name.to_owned(), work);
        assert_eq!(take_all(&mut slots), [next("c", 0), next("a", 1), next("b", 2)]);
        slots.release(&tenant("b"));
        slots.queue(&tenant("b"), 4);
        assert_eq!(take_all(&mut slots), [next("b", 4)]);
    }

    #[test]
    fn work_that_nobody_wants_is_dropped_and_idle_tenants_are_forgotten() {
        let mut slots = FairSlots::new(2);
        for (name, work) in [("a", 0), ("a", 1), ("b", 2), ("c", 3)] {
            slots.queue(&tenant(name), work);
        }
        assert_eq!(take_all(&mut slots).len(), 2);
        slots.retain(|work| *work == 1);
        assert_eq!((slots.queued(), slots.tenants.len()), (1, 2));
        slots.release(&tenant("b"));
        slots.retain(|_| false);
        slots.release(&tenant("a"));
        assert_eq!((slots.free, slots.tenants.len()), (2, 0));
    }

    proptest! {
        #[test]
        fn a_tenant_that_holds_nothing_gets_a_place_as_long_as_one_is_free(
            all in 1usize..40, steps in proptest::collection::vec((0u8..6, any::<bool>()), 0..200),
        ) {
            let mut slots = FairSlots::new(all);
            let mut held: Vec<Tenant> = Vec::new();
            for (number, waits) in steps {
                let name = tenant(&format!("t{number}"));
                match held.iter().position(|of| *of == name) {
                    Some(at) if !waits => slots.release(&held.swap_remove(at)),
                    Some(_) | None => slots.queue(&name, 0u32),
                }
                while let Some((tenant, _)) = slots.take() {
                    let of_tenant = held.iter().filter(|of| **of == tenant).count();
                    prop_assert!(of_tenant < all - held.len(), "{of_tenant} held, {} free", all - held.len());
                    held.push(tenant);
                }
                prop_assert_eq!(slots.free, all - held.len());
                let waits_without = slots.tenants.iter().any(|(_, share)| share.held == 0 && !share.queued.is_empty());
                prop_assert!(!waits_without || slots.free == 0);
            }
        }
    }
}
