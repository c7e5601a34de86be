//! Cache of flows and their numbers, one per thread.

use std::collections::BTreeSet;
use std::sync::Arc;

use posthaste_core::flow::{FlowId, FlowKey};
use posthaste_core::notification::Tenant;
use posthaste_core::recent::Recent;
use posthaste_engine::store::KnownFlow;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::fault::{Fault, Result, unless_damaged};
use crate::kept::values;

/// Maximum number of flows in the cache of a thread.
const MAX_CACHED: usize = 50_000;

/// A bounded cache of flows. A flow never changes, so cached entries stay valid, unless the transaction that
/// created the flow is rolled back.
pub(super) struct Flows {
    keys: Recent<FlowId, Arc<FlowKey>>,
    numbers: Recent<Arc<FlowKey>, FlowId>,
}

impl Default for Flows {
    fn default() -> Self {
        Self { keys: Recent::new(MAX_CACHED), numbers: Recent::new(MAX_CACHED) }
    }
}

impl Flows {
    /// Empties the cache after a rollback: flows of that transaction do not exist.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.numbers.clear();
    }

    pub(super) fn get(&mut self, conn: &Connection, flow: FlowId) -> Result<Option<Arc<FlowKey>>> {
        if let Some(key) = self.keys.get(&flow) {
            return Ok(Some(key.clone()));
        }
        let mut select = conn.prepare_cached(
            "select tenant, channel, destination
             from flow
             where id = ?1",
        )?;
        let found = select.query_row([flow.0], |row| Ok(key(row))).optional()?;
        let Some(key) = found else { return Ok(None) };
        Ok(Some(self.remember(flow, key?)))
    }

    /// The flows that exist and are readable: each once, ordered by number.
    pub(super) fn known(&mut self, conn: &Connection, flows: Vec<FlowId>) -> Result<Vec<KnownFlow>> {
        let wanted: BTreeSet<FlowId> = flows.into_iter().collect();
        let mut found = Vec::with_capacity(wanted.len());
        for flow in wanted {
            let key = unless_damaged(&flow, self.get(conn, flow))?.flatten();
            found.extend(key.map(|key| KnownFlow { id: flow, key: (*key).clone() }));
        }
        Ok(found)
    }

    /// Like `get`, for a flow that must exist because a row refers to it.
    pub(super) fn need(&mut self, conn: &Connection, flow: FlowId) -> Result<Arc<FlowKey>> {
        self.get(conn, flow)?.ok_or_else(|| Fault::damaged(format!("flow {} is not known", flow.0)))
    }

    /// Returns the number of a flow. Inserts the flow if it is new.
    pub(super) fn intern(&mut self, conn: &Connection, key: FlowKey) -> Result<FlowId> {
        if let Some(flow) = self.numbers.get(&key) {
            return Ok(*flow);
        }
        let mut select = conn.prepare_cached(
            "select id
             from flow
             where tenant = ?1
             and channel = ?2
             and destination = ?3",
        )?;
        let bound = params![key.tenant.as_str(), key.channel.code(), &*key.destination];
        let found = select.query_row(bound, |row| row.get(0)).optional()?;
        let number = match found {
            Some(number) => number,
            None => {
                let mut insert = conn.prepare_cached(
                    "insert into flow (tenant, channel, destination)
                     values (?1, ?2, ?3)",
                )?;
                insert.insert(bound)?
            }
        };
        self.remember(FlowId(number), key);
        Ok(FlowId(number))
    }

    fn remember(&mut self, flow: FlowId, key: FlowKey) -> Arc<FlowKey> {
        let key = Arc::new(key);
        self.keys.insert(flow, key.clone());
        self.numbers.insert(key.clone(), flow);
        key
    }
}

fn key(row: &Row<'_>) -> Result<FlowKey> {
    let tenant: String = row.get(0)?;
    let destination: String = row.get(2)?;
    Ok(FlowKey {
        tenant: values::tenant(&tenant)?,
        channel: values::channel(row.get(1)?)?,
        destination: destination.into(),
    })
}

/// The tenants of all flows by name, from this one on. Each is one look into the index of flows. A name that cannot be read is
/// left out.
pub(super) fn tenants(conn: &Connection, from: Option<&Tenant>, limit: usize) -> Result<Vec<Tenant>> {
    let mut first = conn.prepare_cached("select min(tenant) from flow where tenant >= ?1")?;
    let mut next = conn.prepare_cached("select min(tenant) from flow where tenant > ?1")?;
    let mut at: Option<String> = first.query_row([from.map_or("", Tenant::as_str)], |row| row.get(0))?;
    let mut found = vec![];
    while let Some(name) = at.filter(|_| found.len() < limit) {
        at = next.query_row([&name], |row| row.get(0))?;
        found.extend(name.parse::<Tenant>().ok());
    }
    Ok(found)
}
