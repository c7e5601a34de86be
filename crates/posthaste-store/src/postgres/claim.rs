//! Claims and releases leases.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use posthaste_core::flow::{Bucket, FlowId, Quota};
use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{ClaimResult, Claimed, Held};
use tokio_postgres::Row;
use uuid::Uuid;

use super::fault::{Fault, Result, unless_damaged};
use super::flows::Flows;
use super::planted::{Planted, spoiled};
use super::rows::{Columns, Keys, bigint, queue_columns, uuid, wide_columns, wide_in_flow};
use super::tx::{Mode, Tx, bind};

/// Leases due rows up to the limit of each quota. Returns them, and a quota for each leased row that was
/// damaged. One statement, which is its own transaction.
pub(super) async fn claim(
    tx: &Tx,
    flows: &Flows,
    quotas: &[Quota],
    lease: Lease,
    now: Timestamp,
) -> Result<(ClaimResult, Vec<Quota>)> {
    // If a bucket appeared twice, both scans would return the same rows.
    let mut limits: BTreeMap<Bucket, i64> = BTreeMap::new();
    for quota in quotas.iter().filter(|quota| quota.limit > 0) {
        *limits.entry(quota.bucket).or_default() += i64::from(quota.limit);
    }
    let ids: Vec<i64> = limits.keys().map(|bucket| bucket.flow.0).collect();
    let lanes: Vec<i16> = limits.keys().map(|bucket| i16::from(bucket.lane.code())).collect();
    let priorities: Vec<i16> = limits.keys().map(|bucket| i16::from(bucket.priority.code())).collect();
    let most: Vec<i64> = limits.values().copied().collect();
    let bound = bind![
        ids => INT8_ARRAY,
        lanes => INT2_ARRAY,
        priorities => INT2_ARRAY,
        most => INT8_ARRAY,
        now.as_micros() => INT8,
        lease.node.0 => INT8,
        lease.fence.0 => INT8,
    ];
    let rows = tx.alone(Mode::Write, &sql(tx), bound).await?;
    let keys = flows.keys(tx, limits.keys().map(|bucket| bucket.flow)).await?;
    let mut leased: BTreeMap<(FlowId, i16, i16), VecDeque<&Row>> = BTreeMap::new();
    for row in &rows {
        let place = |column| row.try_get::<_, i16>(column).map_err(Fault::from);
        leased.entry((FlowId(row.try_get(1)?), place(2)?, place(3)?)).or_default().push_back(row);
    }
    let mut result = ClaimResult { claimed: Vec::with_capacity(rows.len()), set_aside: vec![] };
    let mut lost = vec![];
    for Quota { bucket, limit } in quotas {
        let code = (bucket.flow, i16::from(bucket.lane.code()), i16::from(bucket.priority.code()));
        let Some(rows) = leased.get_mut(&code) else { continue };
        let count = rows.len().min(*limit as usize);
        for row in rows.drain(..count) {
            let id = Columns::of(row).notification_id()?;
            match unless_damaged(&id, claimed(id, row, &keys, lease))? {
                Some(claimed) => result.claimed.push(claimed),
                None => {
                    result.set_aside.push(id);
                    lost.push(Quota { bucket: *bucket, limit: 1 });
                }
            }
        }
    }
    Ok((result, lost))
}

/// The row of the node is locked until the commit, so that a transaction that declares the node dead waits
/// and then sees the leases. Rows that another transaction has locked are skipped.
const CLAIM: &str = concat!(
    "with holder as materialized (
        select id
        from node
        where id = $6
        and not dead
        for key share),
    due as materialized (
        select picked.id
        from holder
        cross join unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::bigint[])
            as quota (flow, lane, priority, most)
        cross join lateral (
            select queue.id
            from queue
            where queue.node is null
            and queue.flow = quota.flow
            and queue.lane = quota.lane
            and queue.priority = quota.priority
            and queue.due <= $5
            order by queue.due, queue.id
            limit quota.most
            for update skip locked) as picked),
    leased as (
        update queue q
        set node = $6, fence = $7
        from due
        where q.id = any(array[due.id])
        returning q.id, ",
    queue_columns!(),
    ")
    select q.id, ",
    queue_columns!(),
    ", ",
    wide_columns!(),
    "
    from leased q
    left join notification n on n.id = any(array[q.id])
    order by q.flow, q.lane, q.priority, q.due, q.id"
);

fn sql(tx: &Tx) -> Cow<'static, str> {
    if tx.bug(Planted::ClaimIgnoresLease) {
        return spoiled(CLAIM, "where queue.node is null\n            and", "where").into();
    }
    if tx.bug(Planted::GrantsToTheDead) {
        let dead = "from node\n        where id = $6\n        and not dead\n        for key share";
        return spoiled(&spoiled(CLAIM, dead, ""), "select id\n", "select $6::bigint as id\n").into();
    }
    CLAIM.into()
}

fn claimed(id: NotificationId, row: &Row, keys: &Keys, lease: Lease) -> Result<Claimed> {
    let mut columns = Columns::of(row);
    columns.skip(1);
    let queued = columns.queued()?;
    let notification = wide_in_flow(id, keys, queued.bucket.flow, &mut columns)?;
    Ok(queued.claimed(notification, lease))
}

/// In id order.
pub(super) async fn held(
    tx: &Tx,
    node: NodeId,
    after: Option<NotificationId>,
    limit: usize,
) -> Result<Vec<Held>> {
    let sql = "
        select id, fence
        from queue
        where node = $1
        and id > $2
        and fence is not null
        order by id
        limit $3";
    let after = uuid(after.unwrap_or(NotificationId::FIRST));
    let bound = bind![node.0 => INT8, after => UUID, bigint(limit) => INT8];
    let rows = tx.alone(Mode::Read, sql, bound).await?;
    let read = |row: &Row| {
        let mut columns = Columns::of(row);
        Ok(Held { id: columns.notification_id()?, fence: Fence(columns.take()?) })
    };
    rows.iter().map(read).collect()
}

/// Releases the rows of a grant, or only those of `only`. Locks in id order, so that two transactions cannot
/// deadlock.
pub(super) async fn release(tx: &Tx, lease: Lease, only: Option<&[NotificationId]>) -> Result<usize> {
    let named: Option<Vec<Uuid>> = only.map(|ids| ids.iter().copied().map(uuid).collect());
    let which = if named.is_some() { "id = any($3)" } else { "$3::uuid[] is null" };
    let sql = format!(
        "with held as materialized (
             select id
             from queue
             where node = $1
             and fence = $2
             and {which}
             order by id
             for update)
         update queue q
         set node = null, fence = null
         from held
         where q.id = any(array[held.id])
         returning 1"
    );
    let bound = bind![lease.node.0 => INT8, lease.fence.0 => INT8, named => UUID_ARRAY];
    Ok(tx.alone(Mode::Write, &sql, bound).await?.len())
}
