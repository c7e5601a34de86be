//! The memory that the bodies of all requests may take together. The limit on connections alone would allow
//! far more.
//!
//! Invariant: no tenant takes all of it. One tenant has at most half, and the last eighth is for tenants that
//! have less than an eighth.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use posthaste_core::notification::Tenant;

use super::problem::{Kind, Problem, Result};

/// The most bytes of bodies that are held at once.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// The part of it that large bodies cannot take, so that small ones find room beside them.
const RESERVED_FOR_SMALL: usize = MAX_BYTES / 8;
/// A body up to this size does not count for its tenant. Most sends are smaller, so they need no lock, and as
/// many of them as there are connections by default take a quarter of the budget.
const NOT_COUNTED: usize = 64 * 1024;

/// What is held now.
#[derive(Debug, Default)]
pub(super) struct Budget {
    held: AtomicUsize,
    /// Only tenants that hold something.
    tenants: Mutex<HashMap<Tenant, usize>>,
}

/// How much of the budget a body may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// All of it.
    Small,
    /// All but what is kept free.
    Large,
}

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    budget: Arc<Budget>,
    tenant: Tenant,
    size: Size,
    bytes: usize,
    /// How many of them count for the tenant.
    counted: usize,
}

impl Budget {
    /// A body of a tenant's request, of which nothing has come yet.
    pub(super) fn begin(self: &Arc<Self>, tenant: Tenant, size: Size) -> Held {
        Held { budget: self.clone(), tenant, size, bytes: 0, counted: 0 }
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Tenant, usize>> {
        self.tenants.lock().expect("no code panics while it counts these bytes")
    }
}

impl Held {
    /// More bytes came; refused if there is no room for them.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<()> {
        let most = match self.size {
            Size::Small => MAX_BYTES,
            Size::Large => MAX_BYTES - RESERVED_FOR_SMALL,
        };
        // Counted also where it is refused, for the drop that follows gives all of it back.
        let held = self.budget.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.bytes += bytes;
        let of_tenant = self.count_for_tenant();
        let refused = if held > most || (held > most - most / 8 && of_tenant > most / 8) {
            "too many large requests are being read; nothing of this one was stored: ask again"
        } else if of_tenant > most / 2 {
            "too many large requests of this tenant are being read; nothing of this one was stored: ask again"
        } else {
            return Ok(());
        };
        Err(Problem::new(Kind::Overloaded, refused))
    }

    /// How many bytes the tenant holds in bodies that count.
    fn count_for_tenant(&mut self) -> usize {
        if self.bytes <= NOT_COUNTED {
            return 0;
        }
        let mut tenants = self.budget.tenants();
        let held = tenants.entry(self.tenant.clone()).or_default();
        *held += self.bytes - self.counted;
        self.counted = self.bytes;
        *held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.counted == 0 {
            return;
        }
        let mut tenants = self.budget.tenants();
        if let Some(held) = tenants.get_mut(&self.tenant) {
            *held -= self.counted;
            if *held == 0 {
                tenants.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = MAX_BYTES - RESERVED_FOR_SMALL;

    fn tenant(name: &str) -> Tenant {
        name.parse().unwrap()
    }

    #[test]
    fn large_bodies_leave_room_for_small_ones_and_what_ends_is_given_back() {
        let budget = Arc::<Budget>::default();
        // Of five tenants, so that none has more than its share.
        let mut large: Vec<_> =
            ["a", "b", "c", "d", "e"].map(|name| budget.begin(tenant(name), Size::Large)).into();
        for body in &mut large {
            body.grow(LARGE / 6).unwrap();
        }
        let mut last = budget.begin(tenant("f"), Size::Large);
        last.grow(LARGE / 8).unwrap();
        let mut another = budget.begin(tenant("g"), Size::Large);
        assert_eq!(another.grow(LARGE / 8).unwrap_err().kind, Kind::Overloaded);
        drop(another);
        let mut small = budget.begin(tenant("g"), Size::Small);
        small.grow(LARGE / 8).unwrap();
        drop((large, last, small));
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
        assert!(budget.tenants().is_empty());
    }

    #[test]
    fn a_tenant_has_at_most_half_and_the_last_eighth_is_for_those_with_little() {
        let budget = Arc::<Budget>::default();
        let (mut a, mut more) =
            (budget.begin(tenant("a"), Size::Large), budget.begin(tenant("a"), Size::Large));
        a.grow(LARGE / 2).unwrap();
        assert_eq!(more.grow(NOT_COUNTED + 1).unwrap_err().kind, Kind::Overloaded);
        drop(more);
        let mut b = budget.begin(tenant("b"), Size::Large);
        b.grow(LARGE / 8 * 3).unwrap();
        assert_eq!(b.grow(NOT_COUNTED).unwrap_err().kind, Kind::Overloaded, "seven eighths are held");
        let mut c = budget.begin(tenant("c"), Size::Large);
        c.grow(LARGE / 16).unwrap();
    }

    #[test]
    fn small_bodies_do_not_count_for_their_tenant() {
        let budget = Arc::<Budget>::default();
        let mut body = budget.begin(tenant("a"), Size::Small);
        body.grow(NOT_COUNTED).unwrap();
        assert!(budget.tenants().is_empty());
        body.grow(1).unwrap();
        assert_eq!(budget.tenants()[&tenant("a")], NOT_COUNTED + 1);
    }
}
