//! Kept sums: deltas are added up in memory and written once a transaction.

use std::collections::{BTreeMap, HashMap};

use posthaste_core::flow::FlowId;
use posthaste_core::notification::Tenant;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;
#[cfg(feature = "planted")]
use rusqlite::Row;
use rusqlite::{Connection, params};

use super::fault::Result;
use super::flows::Flows;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(super) enum Kind {
    /// Rows of the main lane, held or not.
    Main = 0,
    /// Rows of the retry lane, held or not.
    Retry = 1,
    /// Ended as a dead letter.
    Dead = 2,
    /// Ended as delivered, by the hour of the end.
    Delivered = 3,
    /// Ended in any way, by the hour of the end.
    Ended = 4,
}

/// The name under which the sums over all tenants are kept; no tenant can have it.
pub(super) const ALL: &str = "";

/// What a transaction changes in the counters.
#[derive(Default)]
pub(super) struct Deltas {
    of: HashMap<(FlowId, Kind, i64), i64>,
}

impl Deltas {
    /// A row of the queue appears (1) or goes (-1).
    pub(super) fn live(&mut self, flow: FlowId, lane: Lane, by: i64) {
        let kind = match lane {
            Lane::Main => Kind::Main,
            Lane::Retry => Kind::Retry,
        };
        self.add(flow, kind, 0, by);
    }

    /// An end at that time appears (1) or goes (-1).
    pub(super) fn ended(&mut self, flow: FlowId, state: State, at: Timestamp, by: i64) {
        let hour = at.as_hours();
        self.add(flow, Kind::Ended, hour, by);
        match state {
            State::Succeeded => self.add(flow, Kind::Delivered, hour, by),
            State::DeadLetter => self.add(flow, Kind::Dead, 0, by),
            State::Failed | State::Cancelled | State::Expired => {}
            State::Pending | State::Processing | State::RetryScheduled | State::Retrying => {}
        }
    }

    fn add(&mut self, flow: FlowId, kind: Kind, hour: i64, by: i64) {
        *self.of.entry((flow, kind, hour)).or_default() += by;
    }

    /// Forgets what a transaction wanted to change that was rolled back.
    pub(super) fn clear(&mut self) {
        self.of.clear();
    }

    /// Adds the deltas to the kept sums, in the order of their keys.
    pub(super) fn write(&mut self, conn: &Connection, flows: &mut Flows) -> Result<()> {
        if self.of.is_empty() {
            return Ok(());
        }
        let mut sums: BTreeMap<(Option<Tenant>, u8, u8, i64), i64> = BTreeMap::new();
        for ((flow, kind, hour), by) in self.of.drain().filter(|(_, by)| *by != 0) {
            let key = flows.need(conn, flow)?;
            let channel = key.channel.code();
            *sums.entry((None, channel, kind as u8, hour)).or_default() += by;
            *sums.entry((Some(key.tenant.clone()), channel, kind as u8, hour)).or_default() += by;
        }
        let mut upsert = conn.prepare_cached(
            "insert into counter (tenant, channel, kind, hour, n)
             values (?1, ?2, ?3, ?4, ?5)
             on conflict (tenant, channel, kind, hour) do update
             set n = n + excluded.n",
        )?;
        for ((tenant, channel, kind, hour), by) in sums.into_iter().filter(|(_, by)| *by != 0) {
            let tenant = tenant.as_ref().map_or(ALL, Tenant::as_str);
            upsert.execute(params![tenant, channel, kind, hour, by])?;
        }
        Ok(())
    }
}

/// The kept sums and the same sums counted anew over all rows: they must be equal.
#[cfg(feature = "planted")]
pub(super) type Sums = BTreeMap<(String, u8, u8, i64), i64>;

/// The kept sums that are not zero.
#[cfg(feature = "planted")]
pub(super) fn kept_sums(conn: &Connection) -> Result<Sums> {
    sums(conn, "select tenant, channel, kind, hour, n from counter where n <> 0")
}

/// The same sums, counted over all rows.
#[cfg(feature = "planted")]
pub(super) fn counted_sums(conn: &Connection) -> Result<Sums> {
    sums(
        conn,
        "with fact (flow, kind, hour) as (
             select flow, lane, 0
             from queue
             union all
             select flow, 2, 0
             from ended
             join notification using (id)
             where state = 6
             union all
             select flow, 3, at / 3600000000
             from ended
             join notification using (id)
             where state = 2
             union all
             select flow, 4, at / 3600000000
             from ended
             join notification using (id)),
         counted as (
             select tenant, channel, kind, hour, count(*) as n
             from fact
             join flow on flow.id = fact.flow
             group by tenant, channel, kind, hour)
         select tenant, channel, kind, hour, n
         from counted
         union all
         select '', channel, kind, hour, sum(n)
         from counted
         group by channel, kind, hour",
    )
}

#[cfg(feature = "planted")]
fn sums(conn: &Connection, sql: &str) -> Result<Sums> {
    let mut select = conn.prepare(sql)?;
    let read = |row: &Row<'_>| Ok(((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?), row.get(4)?));
    let all = select.query_map([], read)?.collect::<rusqlite::Result<_>>()?;
    Ok(all)
}
