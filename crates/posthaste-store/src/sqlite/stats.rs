//! Stats: the kept counters, and a bounded number of held and due rows.

use std::collections::BTreeMap;

use posthaste_core::channel::Channel;
use posthaste_core::notification::Tenant;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{ChannelStats, Stats};
use rusqlite::{Connection, Rows, params};

use super::fault::Result;
use crate::kept::counters::{self, ALL};
use crate::kept::values;
use crate::stats_limits::{MAX_DUE, MAX_FLOWS, MAX_HELD};

/// For one tenant, or for all.
pub(super) fn stats(conn: &Connection, tenant: Option<&Tenant>, now: Timestamp) -> Result<Stats> {
    let mut channels: BTreeMap<Channel, ChannelStats> = BTreeMap::new();
    kept(conn, tenant, now, &mut channels)?;
    held(conn, tenant, &mut channels)?;
    channels.retain(|_, stats| *stats != ChannelStats::default());
    let oldest_due = match tenant {
        None => oldest_due(conn, now)?,
        Some(tenant) => oldest_due_of(conn, tenant, now)?,
    };
    Ok(Stats { channels: channels.into_iter().collect(), oldest_due })
}

/// The counters without an hour: current numbers by lane, and dead letters.
const CURRENT: &str = "
    select kind, n
    from counter
    where tenant = ?1
    and channel = ?2
    and kind in (0, 1, 2)
    and hour = 0";

/// Notifications that ended between two hours. Each kind is a seek to its first hour, so the length of the
/// history does not matter.
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
    let (mut current, mut ends) = (conn.prepare_cached(CURRENT)?, conn.prepare_cached(ENDS)?);
    let (name, hour) = (tenant.map_or(ALL, Tenant::as_str), now.as_hours());
    for channel in Channel::ALL {
        let stats = channels.entry(channel).or_default();
        add(stats, current.query(params![name, channel.code()])?)?;
        add(stats, ends.query(params![name, channel.code(), hour - 24, hour])?)?;
    }
    Ok(())
}

fn add(stats: &mut ChannelStats, mut rows: Rows<'_>) -> Result<()> {
    while let Some(row) = rows.next()? {
        counters::show(stats, row.get(0)?, row.get(1)?)?;
    }
    Ok(())
}

/// Held rows by channel and lane, among the first `?2` held rows. The empty tenant means all.
const HELD: &str = "
    select channel, lane, count(*)
    from (
        select flow, lane
        from queue indexed by queue_held
        where node is not null
        limit ?2) as held
    cross join flow on flow.id = held.flow
    where ?1 = ''
    or tenant = ?1
    group by channel, lane";

/// Held rows of the main lane are not counted as queued.
fn held(
    conn: &Connection,
    tenant: Option<&Tenant>,
    channels: &mut BTreeMap<Channel, ChannelStats>,
) -> Result<()> {
    let mut select = conn.prepare_cached(HELD)?;
    let mut rows = select.query(params![tenant.map_or(ALL, Tenant::as_str), MAX_HELD])?;
    while let Some(row) = rows.next()? {
        let channel = values::channel(row.get(0)?)?;
        let (lane, n): (u8, u64) = (row.get(1)?, row.get::<_, i64>(2)?.unsigned_abs());
        let stats = channels.entry(channel).or_default();
        stats.sending += n;
        if lane == Lane::Main.code() {
            stats.queued = stats.queued.saturating_sub(n);
        }
    }
    Ok(())
}

/// The longest due row of all tenants: the first entry of the index.
const OLDEST: &str = "
    select min(due)
    from queue indexed by queue_wake
    where node is null
    and due <= ?1";

fn oldest_due(conn: &Connection, now: Timestamp) -> Result<Option<Timestamp>> {
    let due: Option<i64> = conn.prepare_cached(OLDEST)?.query_row([now.as_micros()], |row| row.get(0))?;
    Ok(due.map(Timestamp::from_micros))
}

/// The first `?3` due rows of all tenants, longest due first, and whether each belongs to the tenant.
const DUE: &str = "
    select due, tenant = ?2
    from (
        select due, flow
        from queue indexed by queue_wake
        where node is null
        and due <= ?1
        order by due, id
        limit ?3) as waiting
    cross join flow on flow.id = waiting.flow";

/// One seek in the index of claims for each bucket of the first `?3` flows of the tenant, and one for a flow
/// without rows.
const DUE_BY_FLOW: &str = "
    select min((
        select min(due)
        from queue indexed by queue_claim
        where node is null
        and queue.flow = flow.id
        and lane = lanes.lane
        and priority = priorities.priority
        and due <= ?1))
    from (
        select id
        from flow
        where tenant = ?2
        limit ?3) as flow
    cross join (select 0 as lane union all select 1) as lanes
    cross join (select 0 as priority union all select 1 union all select 2 union all select 3) as priorities
    where exists (
        select 1
        from queue indexed by queue_claim
        where node is null
        and queue.flow = flow.id)";

/// Exact if the tenant's oldest row is among the `MAX_DUE` longest due rows of all tenants, or if the tenant
/// has at most `MAX_FLOWS` flows; otherwise the oldest row of that many flows.
fn oldest_due_of(conn: &Connection, tenant: &Tenant, now: Timestamp) -> Result<Option<Timestamp>> {
    let mut select = conn.prepare_cached(DUE)?;
    let mut rows = select.query(params![now.as_micros(), tenant.as_str(), MAX_DUE])?;
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        if row.get(1)? {
            return Ok(Some(Timestamp::from_micros(row.get(0)?)));
        }
        seen += 1;
    }
    if seen < MAX_DUE {
        return Ok(None);
    }
    let bound = params![now.as_micros(), tenant.as_str(), MAX_FLOWS];
    let due: Option<i64> = conn.prepare_cached(DUE_BY_FLOW)?.query_row(bound, |row| row.get(0))?;
    Ok(due.map(Timestamp::from_micros))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A queue whose rows have all been due for a long time.
    fn queue() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../migrations/sqlite/0001_first.sql")).unwrap();
        conn
    }

    /// Adds `count` destinations of a tenant with a row each. The first is due at `due`; all are held by
    /// `node`.
    fn add_rows(conn: &Connection, tenant: &str, count: i64, due: i64, node: Option<i64>) {
        let sql = "
            with recursive number (n) as (select 0 union all select n + 1 from number where n + 1 < ?2)
            insert into flow (tenant, channel, destination)
            select ?1, 0, n
            from number";
        conn.execute(sql, params![tenant, count]).unwrap();
        let sql = "
            insert into queue (id, flow, lane, priority, due, first_due, delay, node, fence, attempt, base, generation,
                interruptions, cancel)
            select cast(format('%016d', id) as blob), id, id % 2, id % 4, ?2 + id, 0, 0, ?3, ?3, 1, 0, 1, 0, 0
            from flow
            where tenant = ?1";
        conn.execute(sql, params![tenant, due, node]).unwrap();
    }

    fn figures(conn: &Connection, tenant: &str) -> Stats {
        stats(conn, Some(&tenant.parse().unwrap()), Timestamp::from_micros(i64::MAX / 2)).unwrap()
    }

    /// The query plan in SQLite's words.
    fn plan(sql: &str) -> Vec<String> {
        let conn = queue();
        let mut select = conn.prepare(&format!("explain query plan {sql}")).unwrap();
        let bound = (1..=select.parameter_count()).map(|_| 0);
        let steps = select.query_map(rusqlite::params_from_iter(bound), |row| row.get(3)).unwrap();
        steps.map(|step| step.unwrap()).collect()
    }

    #[test]
    fn the_counters_are_found_by_their_whole_key() {
        let by = "SEARCH counter USING PRIMARY KEY (tenant=? AND channel=? AND kind=? AND";
        assert_eq!(plan(CURRENT), [format!("{by} hour=?)")]);
        assert_eq!(plan(ENDS), [format!("{by} hour>? AND hour<?)")]);
    }

    /// The number of virtual machine steps that stats take.
    fn steps(conn: &mut Connection, tenant: Option<&str>) -> u64 {
        let taken = Arc::new(AtomicU64::new(0));
        let counted = taken.clone();
        let count = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            false
        };
        conn.progress_handler(1, Some(count)).unwrap();
        let tenant = tenant.map(|tenant| tenant.parse().unwrap());
        stats(conn, tenant.as_ref(), Timestamp::from_micros(i64::MAX / 2)).unwrap();
        conn.progress_handler(0, None::<fn() -> bool>).unwrap();
        taken.load(Ordering::Relaxed)
    }

    #[test]
    fn the_cost_of_stats_does_not_grow_with_waiting_and_held_rows() {
        let taken = |destinations: i64| {
            let mut conn = queue();
            // No row of the tenant is among the longest due rows.
            add_rows(&conn, "others", destinations, 0, None);
            add_rows(&conn, "big", destinations, 1_000_000, None);
            add_rows(&conn, "held", destinations, 0, Some(1));
            [steps(&mut conn, Some("big")), steps(&mut conn, Some("held")), steps(&mut conn, None)]
        };
        let (few, many) = (taken(2 * MAX_HELD), taken(4 * MAX_HELD));
        for (few, many) in few.into_iter().zip(many) {
            assert!(many < few + few / 10, "{few} steps, and {many} with twice as much of everything");
            assert!(many < 400_000, "{many} steps");
        }
    }

    #[test]
    fn the_oldest_row_of_a_tenant_is_found_behind_the_rows_of_others() {
        let conn = queue();
        add_rows(&conn, "others", 2 * MAX_DUE, 0, None);
        assert_eq!(figures(&conn, "small").oldest_due, None);
        add_rows(&conn, "small", MAX_FLOWS, 1_000_000, None);
        let first: i64 =
            conn.query_row("select min(id) from flow where tenant = 'small'", [], |row| row.get(0)).unwrap();
        assert_eq!(figures(&conn, "small").oldest_due, Some(Timestamp::from_micros(1_000_000 + first)));
        // The result is exact for a tenant of any size while it is behind all others.
        add_rows(&conn, "big", 10 * MAX_FLOWS, -1_000_000, None);
        let first: i64 =
            conn.query_row("select min(id) from flow where tenant = 'big'", [], |row| row.get(0)).unwrap();
        assert_eq!(figures(&conn, "big").oldest_due, Some(Timestamp::from_micros(first - 1_000_000)));
    }

    #[test]
    fn held_rows_beyond_the_bound_stay_queued() {
        let conn = queue();
        add_rows(&conn, "big", 2 * MAX_HELD, 0, Some(1));
        conn.execute("insert into counter values ('big', 0, 0, 0, ?1)", [2 * MAX_HELD]).unwrap();
        let [(_, shown)] = figures(&conn, "big").channels[..] else { panic!("one channel") };
        assert_eq!(shown.sending, MAX_HELD.unsigned_abs());
        assert_eq!(shown.queued, 2 * MAX_HELD.unsigned_abs() - MAX_HELD.unsigned_abs() / 2);
    }
}
