//! Kept sums: deltas are added up in memory and written once a transaction.

use std::collections::{BTreeMap, HashMap};

use posthaste_core::channel::Channel;
use posthaste_core::flow::FlowId;
use posthaste_core::notification::Tenant;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{ChannelStats, Stats};
use rusqlite::{Connection, OptionalExtension, Row, Rows, params};

use super::fault::{Fault, Result};
use super::flows::Flows;
use super::readers::Reader;

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
const ALL: &str = "";

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

/// The kept counters of one tenant or of all, and what nodes hold, which is small and counted.
pub(super) fn stats(reader: &mut Reader, tenant: Option<&Tenant>, now: Timestamp) -> Result<Stats> {
    let mut channels: BTreeMap<Channel, ChannelStats> = BTreeMap::new();
    kept(&reader.conn, tenant, now, &mut channels)?;
    held(reader, tenant, &mut channels)?;
    channels.retain(|_, stats| *stats != ChannelStats::default());
    let oldest_due = oldest_due(&reader.conn, tenant, now)?;
    Ok(Stats { channels: channels.into_iter().collect(), oldest_due })
}

/// Where the notifications of a tenant and channel stand now: the kinds that have no hour.
const STANDING: &str = "
    select kind, n
    from counter
    where tenant = ?1
    and channel = ?2
    and kind in (0, 1, 2)
    and hour = 0";

/// How many ended in a stretch of hours. Each kind is a seek to its first hour, however long the history is.
const ENDS: &str = "
    select kind, sum(n)
    from counter
    where tenant = ?1
    and channel = ?2
    and kind in (3, 4)
    and hour > ?3
    and hour <= ?4
    group by kind";

fn kept(
    conn: &Connection,
    tenant: Option<&Tenant>,
    now: Timestamp,
    channels: &mut BTreeMap<Channel, ChannelStats>,
) -> Result<()> {
    let (mut standing, mut ends) = (conn.prepare_cached(STANDING)?, conn.prepare_cached(ENDS)?);
    let (name, hour) = (tenant.map_or(ALL, Tenant::as_str), now.as_hours());
    for channel in Channel::ALL {
        let stats = channels.entry(channel).or_default();
        add(stats, standing.query(params![name, channel.code()])?)?;
        add(stats, ends.query(params![name, channel.code(), hour - 24, hour])?)?;
    }
    Ok(())
}

fn add(stats: &mut ChannelStats, mut rows: Rows<'_>) -> Result<()> {
    while let Some(row) = rows.next()? {
        let (kind, n): (u8, i64) = (row.get(0)?, row.get(1)?);
        let n = u64::try_from(n).unwrap_or(0);
        match kind {
            0 => stats.queued = n,
            1 => stats.in_retry = n,
            2 => stats.in_dead_letter = n,
            3 => stats.delivered_24h = n,
            4 => stats.ended_24h = n,
            _ => return Err(Fault::nonsense(format!("counter kind {kind}"))),
        }
    }
    Ok(())
}

/// What is held in the main lane is not queued.
fn held(
    reader: &mut Reader,
    tenant: Option<&Tenant>,
    channels: &mut BTreeMap<Channel, ChannelStats>,
) -> Result<()> {
    let Reader { conn, flows } = reader;
    let mut select = conn.prepare_cached(
        "select flow, lane, count(*)
         from queue indexed by queue_held
         where node is not null
         group by flow, lane",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let key = flows.need(conn, FlowId(row.get(0)?))?;
        if tenant.is_some_and(|tenant| *tenant != key.tenant) {
            continue;
        }
        let (lane, n): (u8, u64) = (row.get(1)?, row.get::<_, i64>(2)?.unsigned_abs());
        let stats = channels.entry(key.channel).or_default();
        stats.sending += n;
        if lane == Lane::Main.code() {
            stats.queued = stats.queued.saturating_sub(n);
        }
    }
    Ok(())
}

fn oldest_due(conn: &Connection, tenant: Option<&Tenant>, now: Timestamp) -> Result<Option<Timestamp>> {
    let of_all = "select min(due)
         from queue
         where node is null
         and due <= ?1";
    // One look at the index of claims for each bucket that the tenant may have.
    let of_tenant = "select min((
             select min(due)
             from queue
             where node is null
             and queue.flow = flow.id
             and lane = lanes.lane
             and priority = priorities.priority
             and due <= ?1))
         from flow
         cross join (select 0 as lane union all select 1) as lanes
         cross join (
             select 0 as priority union all select 1 union all select 2 union all select 3) as priorities
         where tenant = ?2";
    let read = |row: &Row<'_>| row.get::<_, Option<i64>>(0);
    let due = match tenant {
        None => conn.prepare_cached(of_all)?.query_row([now.as_micros()], read).optional()?,
        Some(tenant) => {
            let bound = params![now.as_micros(), tenant.as_str()];
            conn.prepare_cached(of_tenant)?.query_row(bound, read).optional()?
        }
    };
    Ok(due.flatten().map(Timestamp::from_micros))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How SQLite means to run a statement, in its words.
    fn plan(sql: &str) -> Vec<String> {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../migrations/sqlite/0001_first.sql")).unwrap();
        let mut select = conn.prepare(&format!("explain query plan {sql}")).unwrap();
        let bound = (1..=select.parameter_count()).map(|_| 0);
        let steps = select.query_map(rusqlite::params_from_iter(bound), |row| row.get(3)).unwrap();
        steps.map(|step| step.unwrap()).collect()
    }

    #[test]
    fn the_counters_are_found_by_their_whole_key() {
        let by = "SEARCH counter USING PRIMARY KEY (tenant=? AND channel=? AND kind=? AND";
        assert_eq!(plan(STANDING), [format!("{by} hour=?)")]);
        assert_eq!(plan(ENDS), [format!("{by} hour>? AND hour<?)")]);
    }
}
