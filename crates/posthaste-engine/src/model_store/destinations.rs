//! Destinations: rows with versions, their histories, and what waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::destination::{
    DestinationChange, DestinationEvent, DestinationId, DestinationKey, DestinationPut, MAX_EVENTS,
    REMOVED_AT_ONCE, REMOVED_KEPT, StoredDestination, change_destinations,
};
use posthaste_core::flow::{FlowId, FlowKey};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::planted::Planted;
use super::tables::Tables;
use crate::store::{Audit, Destinations, FlowsTo, Notice, Page, Result};

/// The rows, the version of the last change, and the histories.
#[derive(Debug, Clone, Default)]
pub struct DestinationTable {
    rows: BTreeMap<DestinationKey, StoredDestination>,
    pub(super) version: i64,
    /// The last event last.
    events: BTreeMap<DestinationId, Vec<DestinationEvent>>,
}

#[async_trait]
impl Destinations for ModelStore {
    async fn put_destinations(
        &self,
        changes: Vec<DestinationChange>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Vec<DestinationPut>> {
        let put = self.lock().put_destinations(changes, audit, now);
        if put.iter().any(DestinationPut::is_made) {
            let _ = self.notices.send(Notice::Destination);
        }
        Ok(put)
    }

    async fn destinations(&self, mut keys: Vec<DestinationKey>) -> Result<Vec<StoredDestination>> {
        keys.sort_unstable();
        keys.dedup();
        let tables = self.lock();
        let found = keys.iter().filter_map(|key| tables.destinations.rows.get(key));
        Ok(found.filter(|row| row.value.is_some()).cloned().collect())
    }

    async fn destination(&self, id: DestinationId) -> Result<Option<StoredDestination>> {
        let tables = self.lock();
        let mut rows = tables.destinations.rows.values();
        Ok(rows.find(|row| row.key.id() == id && row.value.is_some()).cloned())
    }

    async fn destination_page(
        &self,
        tenant: Option<Tenant>,
        after: Option<DestinationKey>,
        limit: usize,
    ) -> Result<Page<StoredDestination, DestinationKey>> {
        let tables = self.lock();
        let listed = tables.destinations.rows.values().filter(|row| {
            tenant.as_ref().is_none_or(|tenant| row.key.tenant.as_ref() == Some(tenant))
                && after.as_ref().is_none_or(|after| row.key > *after)
        });
        let looked_at: Vec<&StoredDestination> = listed.take(limit).collect();
        let last = looked_at.last().filter(|_| looked_at.len() == limit);
        let next = last.map(|row| row.key.clone());
        let rows = looked_at.into_iter().filter(|row| row.value.is_some()).cloned().collect();
        Ok(Page { rows, next })
    }

    async fn destinations_since(&self, version: i64, limit: usize) -> Result<Vec<StoredDestination>> {
        let tables = self.lock();
        let changed = |row: &&StoredDestination| row.version > version;
        let mut found: Vec<StoredDestination> =
            tables.destinations.rows.values().filter(changed).cloned().collect();
        found.sort_unstable_by_key(|row| row.version);
        found.truncate(limit);
        Ok(found)
    }

    async fn destination_events(
        &self,
        of: Vec<DestinationId>,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<Vec<DestinationEvent>>> {
        let tables = self.lock();
        let history = |id: &DestinationId| {
            let events = tables.destinations.events.get(id).map_or(&[][..], Vec::as_slice);
            events.iter().rev().filter(|event| event.at >= since).take(limit).cloned().collect()
        };
        Ok(of.iter().map(history).collect())
    }

    async fn known_destinations(
        &self,
        tenant: Option<Tenant>,
        name: Option<Arc<str>>,
        after: Option<DestinationKey>,
        limit: usize,
    ) -> Result<Page<DestinationKey, DestinationKey>> {
        Ok(self.lock().known_destinations(tenant.as_ref(), name.as_ref(), after.as_ref(), limit))
    }

    async fn parked(&self, of: Vec<FlowsTo>, most: u64, now: Timestamp) -> Result<Vec<u64>> {
        let tables = self.lock();
        Ok(of.iter().map(|flows| tables.parked(flows, now).min(most)).collect())
    }
}

impl DestinationTable {
    fn forget_removed(&mut self, now: Timestamp) {
        let old = |row: &&StoredDestination| row.value.is_none() && row.changed < now.earlier(REMOVED_KEPT);
        let mut removed: Vec<_> =
            self.rows.values().filter(old).map(|row| (row.changed, row.version, row.key.clone())).collect();
        removed.sort_unstable();
        for (_, _, key) in removed.into_iter().take(REMOVED_AT_ONCE) {
            self.rows.remove(&key);
        }
    }
}

impl Tables {
    fn put_destinations(
        &mut self,
        mut changes: Vec<DestinationChange>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Vec<DestinationPut> {
        let table = &mut self.destinations;
        if self.planted == Some(Planted::DestinationSwappedUnseen) {
            for change in &mut changes {
                change.expected = table.rows.get(&change.key).map_or(0, StoredDestination::expected);
            }
        }
        let put = change_destinations(&mut table.rows, &mut table.version, &changes, now);
        for (change, _) in changes.into_iter().zip(&put).filter(|(_, put)| put.is_made()) {
            let events = table.events.entry(change.key.id()).or_default();
            events.extend(change.events);
            events.drain(..events.len().saturating_sub(MAX_EVENTS));
        }
        let count = put.iter().filter(|put| put.is_made()).count();
        if let Some(audit) = audit.filter(|_| count > 0) {
            self.write_audit(audit, put.len(), count);
        }
        self.destinations.forget_removed(now);
        put
    }

    fn known_destinations(
        &self,
        tenant: Option<&Tenant>,
        name: Option<&Arc<str>>,
        after: Option<&DestinationKey>,
        limit: usize,
    ) -> Page<DestinationKey, DestinationKey> {
        let place = |key: &DestinationKey| (key.tenant.clone(), key.name.clone());
        let known = self.flow_numbers.keys().filter_map(DestinationKey::of_flow).filter(|key| {
            tenant.is_none_or(|tenant| key.tenant.as_ref() == Some(tenant))
                && name.is_none_or(|name| key.name == *name)
                && after.is_none_or(|after| place(key) > place(after))
        });
        let mut rows: Vec<DestinationKey> = known.collect();
        rows.sort_unstable_by_key(place);
        rows.truncate(limit);
        let next = rows.last().filter(|_| rows.len() == limit).cloned();
        Page { rows, next }
    }

    fn parked(&self, of: &FlowsTo, now: Timestamp) -> u64 {
        let is_of = |flow: &FlowKey| {
            flow.destination == of.destination
                && of.tenant.as_ref().is_none_or(|tenant| flow.tenant == *tenant)
        };
        let flows: Vec<FlowId> =
            self.flow_numbers.iter().filter(|(flow, _)| is_of(flow)).map(|(_, id)| *id).collect();
        let waiting = self.waiting.iter();
        waiting.filter(|(bucket, due, _)| flows.contains(&bucket.flow) && *due <= now).count() as u64
    }
}
