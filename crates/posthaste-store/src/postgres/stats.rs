//! Stats: the kept counters, and a bounded number of held and due rows.

use std::collections::BTreeMap;

use posthaste_core::channel::Channel;
use posthaste_core::notification::Tenant;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{ChannelStats, Stats};

use super::fault::Result;
use super::rows::Columns;
use super::tx::{Mode, Then, Tx, bind, single_row, statement};
use crate::kept::counters::{self, ALL};
use crate::stats_limits::{MAX_DUE, MAX_FLOWS, MAX_HELD};

/// For one tenant, or for all, in one snapshot.
pub(super) async fn stats(tx: &Tx, tenant: Option<&Tenant>, now: Timestamp) -> Result<Stats> {
    let (name, hour) = (tenant.map_or(ALL, Tenant::as_str), now.as_hours());
    let oldest = if tenant.is_some() { oldest_due_of_tenant() } else { OLDEST.to_owned() };
    let steps = [
        statement!(KEPT, bind![name => TEXT, hour - 24 => INT8, hour => INT8]),
        statement!(held(), bind![name => TEXT]),
        statement!(oldest, bind![now.as_micros() => INT8, name => TEXT]),
    ];
    let mut answers = tx.send(Some(Mode::Read), &steps, Then::Commit).await?.into_iter();
    let mut answer = || answers.next().unwrap_or_default();
    let mut channels: BTreeMap<Channel, ChannelStats> = BTreeMap::new();
    for row in &answer() {
        let mut columns = Columns::of(row);
        let stats = channels.entry(columns.channel()?).or_default();
        counters::show(stats, columns.code()?, columns.take()?)?;
    }
    for row in &answer() {
        let mut columns = Columns::of(row);
        let stats = channels.entry(columns.channel()?).or_default();
        let (lane, n) = (columns.code()?, columns.take::<i64>()?.unsigned_abs());
        stats.sending += n;
        // Held rows of the main lane are not counted as queued.
        if lane == Lane::Main.code() {
            stats.queued = stats.queued.saturating_sub(n);
        }
    }
    channels.retain(|_, stats| *stats != ChannelStats::default());
    let oldest_due = Columns::of(&single_row(answer())?).maybe_time()?;
    Ok(Stats { channels: channels.into_iter().collect(), oldest_due })
}

/// The counters without an hour (hour 0: current numbers by lane, and dead letters), and the ends between two
/// hours.
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

/// Held rows by channel and lane, among the first held rows. The empty tenant means all. The limits are part
/// of the text: a plan for an unknown limit may sort the whole table.
fn held() -> String {
    format!(
        "select f.channel, held.lane, sum(held.n)::bigint
         from (
             select flow, lane, count(*) as n
             from (
                 select flow, lane
                 from queue
                 where node is not null
                 limit {MAX_HELD}) as some_rows
             group by flow, lane) as held
         join flow f on f.id = any(array[held.flow])
         where $1 = ''
         or f.tenant = $1
         group by f.channel, held.lane"
    )
}

/// The longest due row of all tenants: the first entry of the index.
const OLDEST: &str = "
    select min(due)
    from queue
    where node is null
    and due <= $1
    and $2 = ''";

/// Exact if the tenant's oldest row is among the `MAX_DUE` longest due rows of all tenants, or if the tenant
/// has at most `MAX_FLOWS` flows; otherwise the oldest row of that many flows. Those cost one seek in the
/// index of claims per bucket, and one for a flow without rows; they are read only if the first part finds
/// nothing. The tenant is not a condition of the join: a plan from a time when it had few flows would read
/// all of them for each row.
fn oldest_due_of_tenant() -> String {
    format!(
        "with waiting as materialized (
             select due, flow
             from queue
             where node is null
             and due <= $1
             order by due, id
             limit {MAX_DUE}),
         theirs as materialized (
             select min(waiting.due) filter (where f.tenant = $2) as due
             from waiting
             join flow f on f.id = any(array[waiting.flow]))
         select case
             when theirs.due is not null or (select count(*) from waiting) < {MAX_DUE} then theirs.due
             else (
                 select min(oldest.due)
                 from (
                     select id
                     from flow
                     where tenant = $2
                     limit {MAX_FLOWS}) as f
                 cross join lateral (
                     select
                     from queue
                     where node is null
                     and queue.flow = f.id
                     limit 1) as some_row
                 cross join (values (0::smallint), (1::smallint)) as lanes (lane)
                 cross join (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) as priorities (priority)
                 cross join lateral (
                     select due
                     from queue
                     where node is null
                     and queue.flow = f.id
                     and queue.lane = lanes.lane
                     and queue.priority = priorities.priority
                     and due <= $1
                     order by due
                     limit 1) as oldest)
             end
         from theirs"
    )
}
