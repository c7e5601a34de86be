//! What is taken of inbound limits.

use async_trait::async_trait;
use posthaste_core::inbound::{self, AllTaken, IDLE_AT_ONCE, InboundKey, InboundLimits, Reserved, Wanted};
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::planted::Planted;
use super::tables::Tables;
use crate::store::{Inbound, Result};

#[async_trait]
impl Inbound for ModelStore {
    async fn reserve(
        &self,
        wanted: Vec<Wanted>,
        limits: InboundLimits,
        now: Timestamp,
    ) -> Result<Vec<Reserved>> {
        Ok(self.lock().reserve(&wanted, limits, now))
    }

    async fn inbound_taken(&self, keys: Vec<InboundKey>) -> Result<AllTaken> {
        let tables = self.lock();
        let found = keys.into_iter().filter_map(|key| Some((key.clone(), tables.inbound.get(&key)?.clone())));
        Ok(found.collect())
    }

    async fn main_lane(&self) -> Result<u64> {
        Ok(self.lock().queue.values().filter(|row| row.lane == Lane::Main).count() as u64)
    }
}

impl Tables {
    fn reserve(&mut self, wanted: &[Wanted], limits: InboundLimits, now: Timestamp) -> Vec<Reserved> {
        let before = self.inbound.clone();
        let reserved = inbound::reserve(&mut self.inbound, wanted, limits, now);
        if self.planted == Some(Planted::ReservationForgotten) {
            self.inbound = before;
        }
        let idle = self.inbound.iter().map(|(key, taken)| (taken.idle_from(), key.clone()));
        let mut idle: Vec<(Timestamp, InboundKey)> = idle.filter(|(from, _)| *from <= now).collect();
        idle.sort_unstable();
        for (_, key) in idle.into_iter().take(IDLE_AT_ONCE) {
            self.inbound.remove(&key);
        }
        reserved
    }
}
