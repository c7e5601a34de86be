//! Reservations under inbound limits: few of them, so that they wait for each other.

use std::time::Duration;

use posthaste_core::inbound::{InboundKey, InboundLimits, Wanted};

use super::{Generator, TENANTS, tenant};
use crate::store::inbound;

const MODULES: [&str; 3] = ["", "a", "b"];

/// The limits of a run.
pub(in crate::conformance::random) fn inbound_keys() -> Vec<InboundKey> {
    let of = |owner: &'static str| {
        MODULES.map(|module| InboundKey { tenant: tenant(owner), module: some(module) })
    };
    TENANTS.into_iter().flat_map(of).collect()
}

fn some(module: &str) -> Option<std::sync::Arc<str>> {
    (!module.is_empty()).then(|| module.into())
}

impl Generator {
    pub(super) fn inbound_call(&mut self) -> inbound::Call {
        let wanted = (0..self.rng.usize(0..8)).map(|_| self.wanted()).collect();
        let limits = [(3, 2), (0, 1), (2, 0), (5, 4)][self.rng.usize(0..4)];
        let limits = InboundLimits { per_tenant: limits.0, per_module: limits.1 };
        inbound::Call::Reserve { wanted, limits, now: self.now }
    }

    fn wanted(&mut self) -> Wanted {
        let expiry = Duration::from_millis(self.rng.u64(1..200_000));
        Wanted {
            tenant: tenant(TENANTS[self.rng.usize(..TENANTS.len())]),
            module: some(MODULES[self.rng.usize(..MODULES.len())]),
            expires_at: (self.rng.u8(0..4) == 0).then(|| self.now.later(expiry)),
        }
    }
}
