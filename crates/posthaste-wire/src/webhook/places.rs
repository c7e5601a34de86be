//! Places for work that many tenants ask for and that may take long: who holds one, and who gets the next.
//!
//! A tenant may take a place while it holds fewer than are free. So one tenant alone gets half of them, and as many stay
//! free for the others; the more tenants need places at the same time, the smaller their equal shares are.

use std::collections::{HashMap, VecDeque};

use posthaste_core::notification::Tenant;

/// The places, and the work that waits for one.
#[derive(Debug)]
pub(super) struct Places<W> {
    free: usize,
    tenants: HashMap<Tenant, Share<W>>,
    /// How much work has ever waited: the number of each, in the order of arrival.
    arrived: u64,
}

/// What one tenant holds, and what it waits for.
#[derive(Debug)]
struct Share<W> {
    held: usize,
    waiting: VecDeque<(u64, W)>,
}

impl<W> Places<W> {
    pub(super) fn new(places: usize) -> Self {
        Self { free: places, tenants: HashMap::new(), arrived: 0 }
    }

    /// Puts work of a tenant behind what it already waits for.
    pub(super) fn wait(&mut self, tenant: &Tenant, work: W) {
        self.arrived += 1;
        let share = self.tenants.entry(tenant.clone());
        let share = share.or_insert_with(|| Share { held: 0, waiting: VecDeque::new() });
        share.waiting.push_back((self.arrived, work));
    }

    /// Takes a place for the work that is next: of the tenant that holds the fewest places, and of several such tenants
    /// the one that waits for longest.
    pub(super) fn take(&mut self) -> Option<(Tenant, W)> {
        let waits = |share: &Share<W>| Some((share.held, share.waiting.front()?.0));
        let waiting = self.tenants.iter().filter_map(|(tenant, share)| Some((waits(share)?, tenant)));
        let ((held, _), tenant) = waiting.min()?;
        if held >= self.free {
            return None;
        }
        let tenant = tenant.clone();
        let share = self.tenants.get_mut(&tenant)?;
        let (_, work) = share.waiting.pop_front()?;
        share.held += 1;
        self.free -= 1;
        Some((tenant, work))
    }

    /// Gives back a place that the tenant took.
    pub(super) fn give_back(&mut self, tenant: &Tenant) {
        let Some(share) = self.tenants.get_mut(tenant) else { return };
        share.held -= 1;
        self.free += 1;
        self.forget_idle();
    }

    /// Drops work that nobody wants any more.
    pub(super) fn retain(&mut self, mut wanted: impl FnMut(&W) -> bool) {
        for share in self.tenants.values_mut() {
            share.waiting.retain(|(_, work)| wanted(work));
        }
        self.forget_idle();
    }

    /// How much work waits.
    pub(super) fn waiting(&self) -> usize {
        self.tenants.values().map(|share| share.waiting.len()).sum()
    }

    fn forget_idle(&mut self) {
        self.tenants.retain(|_, share| share.held > 0 || !share.waiting.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tenant(name: &str) -> Tenant {
        name.parse().unwrap()
    }

    /// Takes places as long as there is one to take; answers whose they are.
    fn take_all(places: &mut Places<u32>) -> Vec<(String, u32)> {
        std::iter::from_fn(|| places.take()).map(|(tenant, work)| (tenant.to_string(), work)).collect()
    }

    #[test]
    fn one_tenant_alone_takes_half_of_the_places() {
        let mut places = Places::new(128);
        (0..1_000).for_each(|work| places.wait(&tenant("a"), work));
        let taken = take_all(&mut places);
        assert_eq!(taken, (0..64).map(|work| ("a".to_owned(), work)).collect::<Vec<_>>());
        places.give_back(&tenant("a"));
        assert_eq!(take_all(&mut places), [("a".to_owned(), 64)]);
        assert_eq!(places.waiting(), 1_000 - 65);
    }

    #[test]
    fn a_tenant_that_comes_later_finds_a_place_and_the_shares_become_equal() {
        let mut places = Places::new(12);
        (0..100).for_each(|work| places.wait(&tenant("a"), work));
        assert_eq!(take_all(&mut places).len(), 6);
        (0..100).for_each(|work| places.wait(&tenant("b"), work));
        assert_eq!(take_all(&mut places).len(), 3);
        places.wait(&tenant("c"), 0);
        assert_eq!(take_all(&mut places), [("c".to_owned(), 0)]);
        // The places that a gives back go to b, which holds fewer.
        for _ in 0..2 {
            places.give_back(&tenant("a"));
        }
        assert_eq!(take_all(&mut places), [("b".to_owned(), 3)]);
    }

    #[test]
    fn of_those_that_hold_as_many_the_one_that_waits_for_longest_is_next() {
        let mut places = Places::new(3);
        for (name, work) in [("c", 0), ("a", 1), ("b", 2), ("a", 3)] {
            places.wait(&tenant(name), work);
        }
        let next = |name: &str, work| (name.to_owned(), work);
        assert_eq!(take_all(&mut places), [next("c", 0), next("a", 1), next("b", 2)]);
        places.give_back(&tenant("b"));
        places.wait(&tenant("b"), 4);
        assert_eq!(take_all(&mut places), [next("b", 4)]);
    }

    #[test]
    fn work_that_nobody_wants_is_dropped_and_idle_tenants_are_forgotten() {
        let mut places = Places::new(2);
        for (name, work) in [("a", 0), ("a", 1), ("b", 2), ("c", 3)] {
            places.wait(&tenant(name), work);
        }
        assert_eq!(take_all(&mut places).len(), 2);
        places.retain(|work| *work == 1);
        assert_eq!((places.waiting(), places.tenants.len()), (1, 2));
        places.give_back(&tenant("b"));
        places.retain(|_| false);
        places.give_back(&tenant("a"));
        assert_eq!((places.free, places.tenants.len()), (2, 0));
    }

    proptest! {
        #[test]
        fn a_tenant_that_holds_nothing_gets_a_place_as_long_as_one_is_free(
            all in 1usize..40, steps in proptest::collection::vec((0u8..6, any::<bool>()), 0..200),
        ) {
            let mut places = Places::new(all);
            let mut held: Vec<Tenant> = Vec::new();
            for (number, waits) in steps {
                let name = tenant(&format!("t{number}"));
                match held.iter().position(|of| *of == name) {
                    Some(at) if !waits => places.give_back(&held.swap_remove(at)),
                    Some(_) | None => places.wait(&name, 0u32),
                }
                while let Some((tenant, _)) = places.take() {
                    let of_tenant = held.iter().filter(|of| **of == tenant).count();
                    prop_assert!(of_tenant < all - held.len(), "{of_tenant} held, {} free", all - held.len());
                    held.push(tenant);
                }
                prop_assert_eq!(places.free, all - held.len());
                let waits_without = places.tenants.iter().any(|(_, share)| share.held == 0 && !share.waiting.is_empty());
                prop_assert!(!waits_without || places.free == 0);
            }
        }
    }
}
