//! Figures of destinations for metrics: by what this node knows, which is what all nodes know a moment later.

use posthaste_core::destination::{DestinationKind, Hindrance};

use super::PARKED_COUNTED;
use super::people::flows_to;
use crate::engine::Engine;
use crate::reads::Reads;
use crate::store::{FlowsTo, StoreError};

/// How many destinations that nothing is sent to are looked at for what waits for them.
const MOST_SHUT: usize = 400;
/// So many of them are asked for at a time.
const AT_ONCE: usize = 8;

/// How many destinations are not at their full speed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationFigures {
    /// How many there are of each, over all tenants.
    pub hindered: [(Hindrance, u64); Hindrance::ALL.len()],
    /// Every configured provider, and whether nothing but probes is sent to it.
    pub providers: Vec<(String, bool)>,
}

impl Engine {
    pub fn destination_figures(&self) -> DestinationFigures {
        let (shared, now) = (&self.shared, self.now());
        let memory = shared.destinations.lock();
        let mut hindered = Hindrance::ALL.map(|hindrance| (hindrance, 0));
        for found in memory.values().filter_map(|(_, value)| value.hindrance(now)) {
            hindered
                .iter_mut()
                .filter(|(hindrance, _)| *hindrance == found)
                .for_each(|(_, count)| *count += 1);
        }
        let is_shut = |name: &str| {
            let mut of_providers = memory.values().filter(|(key, _)| key.kind == DestinationKind::Provider);
            of_providers.any(|(key, value)| *key.name == *name && value.is_shut(now))
        };
        let providers = shared.pools.all().map(|one| (one.name.to_string(), is_shut(&one.name))).collect();
        DestinationFigures { hindered, providers }
    }
}

impl Reads {
    /// How many due notifications of all tenants wait because nothing is sent to their destination, counted up to
    /// `PARKED_COUNTED`.
    pub async fn parked(&self) -> Result<u64, StoreError> {
        let (shared, now) = (self.shared(), self.shared().node.now());
        let shut: Vec<_> = {
            let memory = shared.destinations.lock();
            let shut = memory.values().filter(|(_, value)| value.is_shut(now));
            shut.map(|(key, _)| key.clone()).take(MOST_SHUT).collect()
        };
        let mut flows: Vec<FlowsTo> = shut.iter().flat_map(|key| flows_to(shared, key)).collect();
        // Several providers of one pool.
        flows.sort_unstable();
        flows.dedup();
        let mut found = 0;
        for some in flows.chunks(AT_ONCE) {
            let counts = shared.store.parked(some.to_vec(), PARKED_COUNTED - found, now).await?;
            found = (found + counts.iter().sum::<u64>()).min(PARKED_COUNTED);
            if found == PARKED_COUNTED {
                break;
            }
        }
        Ok(found)
    }
}
