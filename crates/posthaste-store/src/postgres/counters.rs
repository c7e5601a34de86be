//! Kept sums: deltas are added up in memory and written once a transaction, each transaction into rows of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use posthaste_core::channel::Channel;
use posthaste_core::flow::FlowId;
use posthaste_core::notification::Tenant;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{ChannelStats, Stats};

use super::fault::{Fault, Result};
use super::flows::Flows;
use super::rows::Columns;
use super::tx::{Mode, Then, Tx, bind, only, step};

/// How many rows a sum is spread over at most.
const WRITERS: usize = 64;

/// How many of them a process begins with before it meets those of the next one.
const STRIDE: i64 = 4;

/// The writers of one process. A transaction has one to itself while it runs: two transactions that change one row wait
/// for each other's commit. Processes that are so many that they share writers are slower and still right.
pub(super) struct Writers {
    first: usize,
    taken: Mutex<Vec<bool>>,
}

impl Writers {
    /// Those of the process with that number.
    pub(super) fn of(process: i64) -> Arc<Self> {
        let first = usize::try_from((process * STRIDE).rem_euclid(WRITERS as i64)).unwrap_or(0);
        Arc::new(Self { first, taken: Mutex::new(vec![]) })
    }

    /// The lowest that is free, so that few are used where few are needed.
    pub(super) fn take(self: &Arc<Self>) -> Writer {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = taken.iter().position(|taken| !taken).unwrap_or(taken.len());
        if slot == taken.len() {
            taken.push(true);
        } else {
            taken[slot] = true;
        }
        Writer { of: self.clone(), slot }
    }
}

/// One writer, until it is dropped.
pub(super) struct Writer {
    of: Arc<Writers>,
    slot: usize,
}

impl Writer {
    /// Its number in the table.
    pub(super) fn number(&self) -> i16 {
        i16::try_from((self.of.first + self.slot) % WRITERS).unwrap_or(0)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.of.taken.lock().unwrap_or_else(PoisonError::into_inner)[self.slot] = false;
    }
}

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

    /// The deltas by tenant and channel, in the order of their keys, ready to be written.
    pub(super) async fn sums(self, tx: &Tx, flows: &Flows) -> Result<Sums> {
        let changed: Vec<_> = self.of.into_iter().filter(|(_, by)| *by != 0).collect();
        let keys = flows.keys(tx, changed.iter().map(|((flow, ..), _)| *flow)).await?;
        let mut sums: BTreeMap<(&str, i64, u8, u8), i64> = BTreeMap::new();
        for ((flow, kind, hour), by) in changed {
            let unknown = || Fault::nonsense(format!("flow {} is not known", flow.0));
            let key = keys.get(&flow).ok_or_else(unknown)?;
            let channel = key.channel.code();
            *sums.entry((ALL, hour, kind as u8, channel)).or_default() += by;
            *sums.entry((key.tenant.as_str(), hour, kind as u8, channel)).or_default() += by;
        }
        let mut ready = Sums { writer: tx.writer(), ..Sums::default() };
        for ((tenant, hour, kind, channel), n) in sums.into_iter().filter(|(_, n)| *n != 0) {
            ready.tenants.push(tenant.to_owned());
            ready.hours.push(hour);
            ready.kinds.push(i16::from(kind));
            ready.channels.push(i16::from(channel));
            ready.by.push(n);
        }
        Ok(ready)
    }
}

/// Changes of the sums in columns.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) tenants: Vec<String>,
    pub(super) hours: Vec<i64>,
    pub(super) kinds: Vec<i16>,
    pub(super) channels: Vec<i16>,
    pub(super) by: Vec<i64>,
    pub(super) writer: i16,
}

/// What a new sum does where one is kept already.
macro_rules! or_add {
    () => {
        "on conflict (tenant, hour, kind, channel, writer) do update
    set n = counter.n + excluded.n"
    };
}
pub(super) use or_add;

/// Adds sums to what is kept; the parameters of their columns are named.
macro_rules! add_sums {
    ($tenants:literal, $hours:literal, $kinds:literal, $channels:literal, $by:literal, $writer:literal) => {
        concat!(
            "
    insert into counter (tenant, hour, kind, channel, writer, n)
    select tenant, hour, kind, channel, ",
            $writer,
            ", n
    from unnest(",
            $tenants,
            "::text[], ",
            $hours,
            "::bigint[], ",
            $kinds,
            "::smallint[], ",
            $channels,
            "::smallint[], ",
            $by,
            "::bigint[])
        as u (tenant, hour, kind, channel, n)
    ",
            $crate::postgres::counters::or_add!()
        )
    };
}
pub(super) use add_sums;

impl Sums {
    /// Adds them to what is kept.
    pub(super) const ADD: &str = add_sums!("$1", "$2", "$3", "$4", "$5", "$6");
}

/// The values of `Sums::ADD`.
macro_rules! bind_sums {
    ($sums:expr) => {
        $crate::postgres::tx::bind![
            $sums.tenants => TEXT_ARRAY,
            $sums.hours => INT8_ARRAY,
            $sums.kinds => INT2_ARRAY,
            $sums.channels => INT2_ARRAY,
            $sums.by => INT8_ARRAY,
            $sums.writer => INT2,
        ]
    };
}
pub(super) use bind_sums;

/// Where notifications stand now (hour 0), and how many ended in a stretch of hours.
const KEPT: &str = "
    select channel, kind, sum(n)::bigint
    from (
        select channel, kind, n
        from counter
        where tenant = $1
        and hour = 0
        union all
        select channel, kind, n
        from counter
        where tenant = $1
        and hour > $2
        and hour <= $3
        and hour <> 0) as counted
    group by channel, kind";

/// What nodes hold, which is small and counted. The empty tenant stands for all.
const HELD: &str = "
    select f.channel, q.lane, count(*)
    from queue q
    join flow f on f.id = any(array[q.flow])
    where q.node is not null
    and ($1 = '' or f.tenant = $1)
    group by f.channel, q.lane";

const OLDEST: &str = "
    select min(due)
    from queue
    where node is null
    and due <= $1
    and $2 = ''";

/// One look at the index of claims for each bucket that the tenant may have.
const OLDEST_OF_TENANT: &str = "
    select min(first.due)
    from flow
    cross join (values (0::smallint), (1::smallint)) as lanes (lane)
    cross join (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) as priorities (priority)
    cross join lateral (
        select due
        from queue
        where node is null
        and queue.flow = flow.id
        and queue.lane = lanes.lane
        and queue.priority = priorities.priority
        and due <= $1
        order by due
        limit 1) as first
    where tenant = $2";

/// The kept counters of one tenant or of all, what nodes hold, and the oldest that is due: all at one moment.
pub(super) async fn stats(tx: &Tx, tenant: Option<&Tenant>, now: Timestamp) -> Result<Stats> {
    let (name, hour) = (tenant.map_or(ALL, Tenant::as_str), now.as_hours());
    let oldest = if tenant.is_some() { OLDEST_OF_TENANT } else { OLDEST };
    let steps = [
        step!(KEPT, bind![name => TEXT, hour - 24 => INT8, hour => INT8]),
        step!(HELD, bind![name => TEXT]),
        step!(oldest, bind![now.as_micros() => INT8, name => TEXT]),
    ];
    let mut answers = tx.send(Some(Mode::Read), &steps, Then::Commit).await?.into_iter();
    let mut answer = || answers.next().unwrap_or_default();
    let mut channels: BTreeMap<Channel, ChannelStats> = BTreeMap::new();
    for row in &answer() {
        let mut columns = Columns::of(row);
        let stats = channels.entry(channel(&mut columns)?).or_default();
        add(stats, columns.code()?, u64::try_from(columns.take::<i64>()?).unwrap_or(0))?;
    }
    for row in &answer() {
        let mut columns = Columns::of(row);
        let stats = channels.entry(channel(&mut columns)?).or_default();
        let (lane, n) = (columns.code()?, columns.take::<i64>()?.unsigned_abs());
        stats.sending += n;
        // What is held in the main lane is not queued.
        if lane == Lane::Main.code() {
            stats.queued = stats.queued.saturating_sub(n);
        }
    }
    channels.retain(|_, stats| *stats != ChannelStats::default());
    let oldest_due = Columns::of(&only(answer())?).maybe_time()?;
    Ok(Stats { channels: channels.into_iter().collect(), oldest_due })
}

fn channel(columns: &mut Columns<'_>) -> Result<Channel> {
    Channel::from_code(columns.code()?).map_err(|error| Fault::nonsense(error.to_string()))
}

fn add(stats: &mut ChannelStats, kind: u8, n: u64) -> Result<()> {
    match kind {
        0 => stats.queued = n,
        1 => stats.in_retry = n,
        2 => stats.in_dead_letter = n,
        3 => stats.delivered_24h = n,
        4 => stats.ended_24h = n,
        _ => return Err(Fault::nonsense(format!("counter kind {kind}"))),
    }
    Ok(())
}

/// The first sum that differs from a recount of the rows, in words; none if all are right.
#[cfg(feature = "planted")]
pub(super) async fn recount(tx: &Tx) -> Result<Option<String>> {
    let sql = "
        with fact (flow, kind, hour) as (
            select flow, lane, 0::bigint
            from queue
            union all
            select flow, 2::smallint, 0
            from ended
            join notification using (id)
            where state = 6
            union all
            select flow, 3::smallint, at / 3600000000
            from ended
            join notification using (id)
            where state = 2
            union all
            select flow, 4::smallint, at / 3600000000
            from ended
            join notification using (id)),
        counted as (
            select coalesce(tenant, '') as tenant, channel, kind, hour, count(*) as n
            from fact
            join flow on flow.id = fact.flow
            group by grouping sets ((tenant, channel, kind, hour), (channel, kind, hour))),
        kept as (
            select tenant, channel, kind, hour, sum(n)::bigint as n
            from counter
            group by tenant, channel, kind, hour
            having sum(n) <> 0)
        select format('%s channel %s kind %s hour %s: kept %s, counted %s', tenant, channel, kind, hour, kept.n, counted.n)
        from kept
        full join counted using (tenant, channel, kind, hour)
        where kept.n is distinct from counted.n
        limit 1";
    let rows = tx.alone(Mode::Read, sql, &[]).await?;
    rows.first().map(|row| Columns::of(row).take()).transpose()
}
