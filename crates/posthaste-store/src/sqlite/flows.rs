//! Flows and their numbers, remembered by each thread that needs them.

use std::collections::HashMap;
use std::sync::Arc;

use posthaste_core::channel::Channel;
use posthaste_core::flow::{FlowId, FlowKey};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::fault::{Fault, Result};

/// The most flows that a thread remembers; when they are more, it forgets all and starts anew.
const MOST: usize = 50_000;

/// A bounded memory of flows. A flow never changes, so what is remembered stays true, unless the transaction that made
/// it is rolled back.
#[derive(Default)]
pub(super) struct Flows {
    keys: HashMap<FlowId, Arc<FlowKey>>,
    numbers: HashMap<Arc<FlowKey>, FlowId>,
}

impl Flows {
    /// Forgets everything: what was made in a transaction that is rolled back does not exist.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.numbers.clear();
    }

    /// The flow with that number.
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

    /// The flow with that number, which must exist because a row names it.
    pub(super) fn need(&mut self, conn: &Connection, flow: FlowId) -> Result<Arc<FlowKey>> {
        self.get(conn, flow)?.ok_or_else(|| Fault::nonsense(format!("flow {} is not known", flow.0)))
    }

    /// The number of a flow, made if it is new.
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
        if self.keys.len() >= MOST {
            self.clear();
        }
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
        tenant: tenant.parse().map_err(|error| Fault::nonsense(format!("{error}")))?,
        channel: Channel::from_code(row.get(1)?).map_err(|error| Fault::nonsense(error.to_string()))?,
        destination: destination.into(),
    })
}
