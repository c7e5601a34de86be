//! What is read of the items of retry operations: which flows they wait for, the canary, who holds a notification.

use posthaste_core::act::Seen;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{NotificationId, OperationId};
use posthaste_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::operation_uuid;
use crate::postgres::fault::Result;
use crate::postgres::rows::{Columns, uuid};
use crate::postgres::tx::{Mode, Tx, bind};

/// Jumps from flow to flow, however many items a flow has.
pub(super) async fn staged_flows(
    tx: &Tx,
    id: OperationId,
    after: Option<FlowId>,
    limit: usize,
) -> Result<Vec<FlowId>> {
    let sql = "
        with recursive found (flow, number) as (
            (select i.flow, 1
             from operation_item i
             where i.operation = $1
             and i.stage = 1
             and i.flow > $2
             order by i.flow
             limit 1)
            union all
            select (
                select i.flow
                from operation_item i
                where i.operation = $1
                and i.stage = 1
                and i.flow > f.flow
                order by i.flow
                limit 1), f.number + 1
            from found f
            where f.flow is not null
            and f.number < $3)
        select flow
        from found
        where flow is not null
        order by flow";
    if limit == 0 {
        return Ok(vec![]);
    }
    let after = after.map_or(i64::MIN, |flow| flow.0);
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let rows =
        tx.alone(Mode::Read, sql, bind![operation_uuid(id) => UUID, after => INT8, limit => INT4]).await?;
    rows.iter().map(|row| Ok(FlowId(Columns::of(row).take()?))).collect()
}

pub(super) async fn due_rows(tx: &Tx, flows: &[FlowId], limit: u32, now: Timestamp) -> Result<Vec<u32>> {
    // One look at the index of claims for each lane and priority.
    let sql = "
        select least(sum(c.rows), $3)::bigint
        from unnest($1::bigint[]) with ordinality as f (flow, place)
        cross join unnest($4::smallint[]) as l (lane)
        cross join unnest($5::smallint[]) as p (priority)
        cross join lateral (
            select count(*) as rows
            from (
                select
                from queue q
                where q.flow = f.flow
                and q.lane = l.lane
                and q.priority = p.priority
                and q.due <= $2
                and q.node is null
                limit $3) as due) as c
        group by f.place
        order by f.place";
    let asked: Vec<i64> = flows.iter().map(|flow| flow.0).collect();
    let lanes: Vec<i16> =
        posthaste_core::state::Lane::ALL.iter().map(|lane| i16::from(lane.code())).collect();
    let priorities = posthaste_core::notification::Priority::ALL;
    let priorities: Vec<i16> = priorities.iter().map(|priority| i16::from(priority.code())).collect();
    let bound = bind![
        asked => INT8_ARRAY,
        now.as_micros() => INT8,
        i64::from(limit) => INT8,
        lanes => INT2_ARRAY,
        priorities => INT2_ARRAY,
    ];
    let rows = tx.alone(Mode::Read, sql, bound).await?;
    let count = |row: &Row| Ok(u32::try_from(Columns::of(row).take::<i64>()?).unwrap_or(limit));
    rows.iter().map(count).collect()
}

/// Reads how an item stood.
pub(super) fn seen(columns: &mut Columns<'_>) -> Result<Seen> {
    Ok(Seen { state: columns.state()?, generation: columns.small()?, attempt: columns.small()? })
}

pub(super) async fn canary_items(tx: &Tx, id: OperationId) -> Result<Vec<(NotificationId, Seen)>> {
    let sql = "
        select notification, seen_state, seen_generation, seen_attempt
        from operation_item
        where operation = $1
        and canary
        order by notification";
    let rows = tx.alone(Mode::Read, sql, bind![operation_uuid(id) => UUID]).await?;
    let item = |row: &Row| {
        let mut columns = Columns::of(row);
        Ok((columns.notification_id()?, seen(&mut columns)?))
    };
    rows.iter().map(item).collect()
}

pub(super) async fn held_by(tx: &Tx, ids: &[NotificationId]) -> Result<Vec<(NotificationId, OperationId)>> {
    let sql = "
        select i.notification, i.operation
        from unnest($1::uuid[]) with ordinality as asked (id, place)
        join operation_item i on i.notification = any(array[asked.id]) and i.stage < 2
        order by asked.place";
    let asked: Vec<Uuid> = ids.iter().copied().map(uuid).collect();
    let rows = tx.alone(Mode::Read, sql, bind![asked => UUID_ARRAY]).await?;
    let held = |row: &Row| {
        let mut columns = Columns::of(row);
        let (id, holder) = (columns.notification_id()?, columns.take::<Uuid>()?);
        Ok((id, OperationId::from_bytes(holder.into_bytes())))
    };
    rows.iter().map(held).collect()
}
