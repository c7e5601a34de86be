//! Destinations: few of them, so that changes meet.

use std::time::Duration;

use posthaste_core::destination::{
    Destination, DestinationChange, DestinationEvent, DestinationKey, DestinationKind, EventKind,
};
use posthaste_core::notification::Tenant;

use super::{Generator, TENANTS, tenant};
use crate::store::{FlowsTo, Store, destinations};

/// The destinations of a run: those of its flows, and others.
pub(in crate::conformance::random) fn destination_keys() -> Vec<DestinationKey> {
    let of_tenants = TENANTS.iter().flat_map(|owner| {
        let kinds =
            [(DestinationKind::Webhook, "https://example.org"), (DestinationKind::Subscription, "sub_1")];
        kinds.map(|(kind, name)| DestinationKey { tenant: Some(tenant(owner)), kind, name: name.into() })
    });
    of_tenants.chain([DestinationKey::provider("mail")]).collect()
}

impl Generator {
    pub(super) async fn put_destinations(&mut self, store: &dyn Store) -> destinations::Call {
        // What the store cannot tell is expected not to be there.
        let known = store.destinations(destination_keys()).await.unwrap_or_default();
        let mut changes = vec![];
        for _ in 0..self.rng.usize(1..4) {
            let key = self.destination_key();
            let row = known.iter().find(|row| row.key == key);
            let expected = match self.rng.u32(0..4) {
                0 => self.rng.i64(0..20),
                _ => row.map_or(0, |row| row.version),
            };
            let value = (self.rng.u32(0..4) > 0)
                .then(|| Destination { last_status_code: Some(self.rng.u16(..)), ..Destination::default() });
            let events = (0..self.rng.usize(0..3)).map(|_| self.destination_event()).collect();
            changes.push(DestinationChange { key, expected, value, events });
        }
        let audit = self.rng.bool().then(|| self.audit("put destinations"));
        destinations::Call::Put { changes, audit, now: self.now }
    }

    pub(super) fn read_destinations(&mut self, limit: usize) -> destinations::Call {
        match self.rng.u32(0..7) {
            0 => {
                let count = self.rng.usize(0..5);
                destinations::Call::Get { keys: (0..count).map(|_| self.destination_key()).collect() }
            }
            1 => destinations::Call::Find { id: self.destination_key().id() },
            2 => {
                let (tenant, after) = self.destination_cursor();
                destinations::Call::Page { tenant, after, limit }
            }
            3 => destinations::Call::Since { version: self.rng.i64(-1..20), limit },
            4 => {
                let count = self.rng.usize(0..4);
                let of = (0..count).map(|_| self.destination_key().id()).collect();
                let since = self.now.earlier(Duration::from_secs(self.rng.u64(0..90)));
                destinations::Call::Events { of, since, limit }
            }
            5 => {
                let (tenant, after) = self.destination_cursor();
                let name = self.rng.bool().then(|| self.destination_key().name);
                destinations::Call::Known { tenant, name, after, limit }
            }
            _ => {
                let of = (0..self.rng.usize(0..3)).map(|_| {
                    let tenant = self.some_tenant();
                    FlowsTo { tenant, destination: self.destination_key().name }
                });
                let of = of.collect();
                destinations::Call::Parked { of, most: self.rng.u64(0..9), now: self.some_time() }
            }
        }
    }

    /// A tenant or all of them, and maybe a place in that list.
    fn destination_cursor(&mut self) -> (Option<Tenant>, Option<DestinationKey>) {
        let tenant = self.some_tenant();
        let after = self.rng.bool().then(|| self.destination_key());
        let after = after.filter(|key| tenant.is_none() || key.tenant == tenant);
        (tenant, after)
    }

    fn destination_key(&mut self) -> DestinationKey {
        let mut keys = destination_keys();
        keys.swap_remove(self.rng.usize(..keys.len()))
    }

    fn destination_event(&mut self) -> DestinationEvent {
        let kind = EventKind::ALL[self.rng.usize(..EventKind::ALL.len())];
        let until = self.rng.bool().then(|| self.now.later(Duration::from_secs(self.rng.u64(0..90))));
        let by = self.rng.bool().then(|| "ada".to_owned());
        DestinationEvent { at: self.now, event: kind, by, until }
    }
}
