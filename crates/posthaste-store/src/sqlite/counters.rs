//! Kept counters: deltas are summed in memory and written once per transaction.

use std::collections::BTreeMap;

use posthaste_core::notification::Tenant;
#[cfg(feature = "planted")]
use rusqlite::Row;
use rusqlite::{Connection, params};

use super::fault::Result;
use super::flows::Flows;
use crate::kept::counters::{ALL, Delta, Deltas};

/// Adds the deltas to the stored counters, in key order.
pub(super) fn write(deltas: &mut Deltas, conn: &Connection, flows: &mut Flows) -> Result<()> {
    let deltas = deltas.take();
    if deltas.is_empty() {
        return Ok(());
    }
    let mut sums: BTreeMap<(Option<Tenant>, u8, u8, i64), i64> = BTreeMap::new();
    for Delta { flow, kind, hour, by } in deltas {
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

/// Counters by tenant, channel, kind and hour.
#[cfg(feature = "planted")]
pub(super) type Sums = BTreeMap<(String, u8, u8, i64), i64>;

/// The stored counters that are not zero.
#[cfg(feature = "planted")]
pub(super) fn kept_sums(conn: &Connection) -> Result<Sums> {
    sums(conn, "select tenant, channel, kind, hour, n from counter where n <> 0")
}

/// The same counters, computed from all rows.
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

/// The counters of earlier hours were removed by retention; hour 0 stands for what has no hour.
#[cfg(feature = "planted")]
pub(super) fn first_hour(conn: &Connection) -> Result<i64> {
    let mut select = conn.prepare("select after from retention where kind = 'counters'")?;
    let mut rows = select.query([])?;
    let Some(row) = rows.next()? else { return Ok(0) };
    Ok(row.get::<_, Option<[u8; 8]>>(0)?.map_or(0, i64::from_be_bytes))
}

#[cfg(feature = "planted")]
fn sums(conn: &Connection, sql: &str) -> Result<Sums> {
    let mut select = conn.prepare(sql)?;
    let read = |row: &Row<'_>| Ok(((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?), row.get(4)?));
    let all = select.query_map([], read)?.collect::<rusqlite::Result<_>>()?;
    Ok(all)
}
