//! What becomes due, what expires, and what has waited for long.

use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::NotificationId;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Expiring, Overdue, Wakes};
use tokio_postgres::Row;
use uuid::Uuid;

use super::fault::{Result, unless_damaged};
use super::flows::Flows;
use super::rows::{Columns, Keys, Queued, queue_columns, uuid, whole, wide, wide_columns};
use super::tx::{Mode, Then, Tx, bind, only, step};

/// Where rows become due in a stretch of time, and when the next one does. Everything it reads is in the index.
pub(super) async fn wakes(tx: &Tx, after: Timestamp, until: Timestamp) -> Result<Wakes> {
    let sql = "
        select flow, lane, priority, null::bigint as due
        from (
            select distinct flow, lane, priority
            from queue
            where node is null
            and due > $1
            and due <= $2) as woken
        union all
        select null, null, null, min(due)
        from queue
        where node is null
        and due > $2";
    let until = until.max(after);
    let bound = bind![after.as_micros() => INT8, until.as_micros() => INT8];
    let mut found = Wakes::default();
    for row in &tx.alone(Mode::Read, sql, bound).await? {
        let mut columns = Columns::of(row);
        if row.try_get::<_, Option<i64>>(0)?.is_some() {
            found.buckets.push(columns.bucket()?);
        } else {
            columns.skip(3);
            found.next = columns.maybe_time()?;
        }
    }
    found.buckets.sort_unstable();
    Ok(found)
}

/// Rows whose time runs out up to `until`.
pub(super) async fn expiring(tx: &Tx, until: Timestamp, limit: usize) -> Result<Expiring> {
    let expired = concat!(
        "select q.id, q.expires, ",
        queue_columns!(),
        "
         from queue q
         where q.node is null
         and q.expires <= $1
         order by q.expires, q.id
         limit $2"
    );
    let later = "
        select min(expires)
        from queue
        where node is null
        and expires > $1";
    let until = until.as_micros();
    // One more than is told: where there is one, it is `next`.
    let steps = [
        step!(expired, bind![until => INT8, whole(limit).saturating_add(1) => INT8]),
        step!(later, bind![until => INT8]),
    ];
    let mut answers = tx.send(Some(Mode::Read), &steps, Then::Commit).await?;
    let next = only(answers.pop().unwrap_or_default())?;
    let mut found = Expiring { rows: vec![], next: Columns::of(&next).maybe_time()? };
    for row in answers.iter().flatten() {
        let mut columns = Columns::of(row);
        let (id, expires) = (columns.notification_id()?, columns.time()?);
        if found.rows.len() == limit {
            found.next = Some(expires);
            break;
        }
        found.rows.push((id, Queued::read(&mut columns)?.seen()));
    }
    Ok(found)
}

/// The buckets that hold rows nobody holds: one look at the index for each, however many rows it has.
pub(super) async fn buckets(
    tx: &Tx,
    after: Option<Bucket>,
    limit: usize,
) -> Result<Vec<(Bucket, Timestamp)>> {
    let sql = "
        with recursive skip as (
            (select flow, lane, priority, due
             from queue
             where node is null
             and (flow, lane, priority) > ($1, $2, $3)
             order by flow, lane, priority, due
             limit 1)
            union all
            select next.flow, next.lane, next.priority, next.due
            from skip
            cross join lateral (
                select q.flow, q.lane, q.priority, q.due
                from queue q
                where q.node is null
                and (q.flow, q.lane, q.priority) > (skip.flow, skip.lane, skip.priority)
                order by q.flow, q.lane, q.priority, q.due
                limit 1) as next)
        select flow, lane, priority, due
        from skip
        limit $4";
    let code =
        |bucket: Bucket| (bucket.flow.0, i16::from(bucket.lane.code()), i16::from(bucket.priority.code()));
    let at = after.map_or((i64::MIN, 0, 0), code);
    let bound = bind![at.0 => INT8, at.1 => INT2, at.2 => INT2, whole(limit) => INT8];
    let rows = tx.alone(Mode::Read, sql, bound).await?;
    let read = |row: &Row| {
        let mut columns = Columns::of(row);
        Ok((columns.bucket()?, columns.time()?))
    };
    rows.iter().map(read).collect()
}

/// Rows that have been due for long, the longest due first.
pub(super) async fn overdue(
    tx: &Tx,
    flows: &Flows,
    due_before: Timestamp,
    first_due_before: Timestamp,
    after: Option<(Timestamp, NotificationId)>,
    limit: usize,
) -> Result<Vec<Overdue>> {
    let sql = concat!(
        "select q.id, q.due, q.flow, ",
        queue_columns!(),
        ", ",
        wide_columns!(),
        "
         from queue q
         left join notification n on n.id = any(array[q.id])
         where q.node is null
         and (q.due, q.id) > ($1, $2)
         and q.due < $3
         and q.first_due < $4
         order by q.due, q.id
         limit $5"
    );
    let mut at = after.map_or((i64::MIN, Uuid::nil()), |(due, id)| (due.as_micros(), uuid(id)));
    let mut found = vec![];
    // A damaged row takes no place: a short answer would mean that there are no more.
    while found.len() < limit {
        let wanted = limit - found.len();
        let bound = bind![
            at.0 => INT8,
            at.1 => UUID,
            due_before.as_micros() => INT8,
            first_due_before.as_micros() => INT8,
            whole(wanted) => INT8,
        ];
        let rows = tx.alone(Mode::Read, sql, bound).await?;
        let named = rows.iter().map(|row| Ok(FlowId(row.try_get(2)?))).collect::<Result<Vec<_>>>()?;
        let keys = flows.keys(tx, named).await?;
        for row in &rows {
            let id = Columns::of(row).notification_id()?;
            at = (row.try_get(1)?, uuid(id));
            found.extend(unless_damaged(&id, waiting(id, row, &keys))?);
        }
        if rows.len() < wanted {
            break;
        }
    }
    Ok(found)
}

fn waiting(id: NotificationId, row: &Row, keys: &Keys) -> Result<Overdue> {
    let mut columns = Columns::of(row);
    columns.skip(3);
    let queued = Queued::read(&mut columns)?;
    let notification = wide(id, keys, &mut columns)?;
    Ok(Overdue { notification, seen: queued.seen(), due: queued.due, first_due: queued.first_due })
}
