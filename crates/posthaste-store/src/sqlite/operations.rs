//! Retry operations. The steps of the work are in `steps`.

use async_trait::async_trait;
use posthaste_core::act::Seen;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{NotificationId, OperationId};
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
use posthaste_core::operation::{
    Batch, BatchItem, Decision, Operation, OperationChange, Refused, Selected, Staging,
};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    self, Accepted, Audit, Forwarded, Idempotency, Operations, Page, Rest, UnfinishedOperation, Walk,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use self::steps::Step;
use super::SqliteStore;
use super::acts::write_audit;
use super::fault::Result;
use super::idempotency::Keys;
use super::jobs::lives;
use super::rows::{maybe_dead_letter_id, maybe_text, notification_id, state};
use super::writer::Tx;
use crate::kept::operations::{self as kept, Definitions};

mod steps;

#[async_trait]
impl Operations for SqliteStore {
    async fn start_operation(
        &self,
        operation: Operation,
        idempotency: Option<Idempotency>,
        audit: Audit,
        now: Timestamp,
    ) -> store::Result<Accepted> {
        let known = self.definitions.clone();
        self.write(1, move |tx| start(tx, &known, &operation, idempotency.as_ref(), (&audit, now))).await
    }

    async fn operation(&self, id: OperationId) -> store::Result<Option<Operation>> {
        let known = self.definitions.clone();
        self.find(move |reader| load(&reader.conn, &known, id)).await
    }

    async fn operations(
        &self,
        tenant: Option<Tenant>,
        before: Option<OperationId>,
        limit: usize,
    ) -> store::Result<Page<Operation, OperationId>> {
        self.list(move |reader| page(&reader.conn, tenant.as_ref(), before, limit)).await
    }

    async fn unfinished_operations(
        &self,
        limit: usize,
        now: Timestamp,
    ) -> store::Result<Vec<UnfinishedOperation>> {
        let known = self.definitions.clone();
        self.read(move |reader| unfinished(&reader.conn, &known, limit, now)).await
    }

    async fn adopt_operation(
        &self,
        id: OperationId,
        node: NodeId,
        now: Timestamp,
    ) -> store::Result<Option<Operation>> {
        let known = self.definitions.clone();
        self.write(1, move |tx| adopt(tx, &known, id, node, now)).await
    }

    async fn mark(
        &self,
        id: OperationId,
        node: NodeId,
        walk: Walk,
        now: Timestamp,
    ) -> store::Result<Option<Operation>> {
        let step = Step { known: self.definitions.clone(), id, node, now };
        self.write(walk.found.len(), move |tx| step.mark(tx, &walk)).await
    }

    async fn batch_to_stage(&self, id: OperationId) -> store::Result<Option<Batch>> {
        self.read(move |reader| batch_to_stage(&reader.conn, id)).await
    }

    async fn stage(
        &self,
        id: OperationId,
        node: NodeId,
        staging: Staging,
        decisions: Vec<(NotificationId, Decision)>,
        now: Timestamp,
    ) -> store::Result<Option<Operation>> {
        let step = Step { known: self.definitions.clone(), id, node, now };
        self.write(decisions.len(), move |tx| step.stage(tx, staging, &decisions)).await
    }

    async fn staged_flows(
        &self,
        id: OperationId,
        after: Option<FlowId>,
        limit: usize,
    ) -> store::Result<Vec<FlowId>> {
        self.read(move |reader| staged_flows(&reader.conn, id, after, limit)).await
    }

    async fn due_rows(&self, flows: Vec<FlowId>, limit: u32, now: Timestamp) -> store::Result<Vec<u32>> {
        self.read(move |reader| flows.iter().map(|flow| due_rows(&reader.conn, *flow, limit, now)).collect())
            .await
    }

    async fn forward(
        &self,
        id: OperationId,
        node: NodeId,
        quotas: Vec<(FlowId, u32)>,
        now: Timestamp,
    ) -> store::Result<Option<Forwarded>> {
        let rows = quotas.iter().fold(0usize, |sum, (_, limit)| sum.saturating_add(*limit as usize));
        let step = Step { known: self.definitions.clone(), id, node, now };
        self.write(rows, move |tx| step.forward(tx, &quotas)).await
    }

    async fn skip_items(
        &self,
        id: OperationId,
        node: NodeId,
        which: Rest,
        now: Timestamp,
    ) -> store::Result<Option<Operation>> {
        let step = Step { known: self.definitions.clone(), id, node, now };
        self.write(100, move |tx| step.skip(tx, which)).await
    }

    async fn canary_items(&self, id: OperationId) -> store::Result<Vec<(NotificationId, Seen)>> {
        self.read(move |reader| canary_items(&reader.conn, id)).await
    }

    async fn change_operation(
        &self,
        id: OperationId,
        change: OperationChange,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Option<std::result::Result<Operation, Refused>>> {
        let known = self.definitions.clone();
        self.write(1, move |tx| make_change(tx, &known, id, &change, (audit.as_ref(), now))).await
    }

    async fn held_by(&self, ids: Vec<NotificationId>) -> store::Result<Vec<(NotificationId, OperationId)>> {
        self.find(move |reader| held_by(&reader.conn, &ids)).await
    }
}

fn start(
    tx: &mut Tx<'_>,
    known: &Definitions,
    operation: &Operation,
    idempotency: Option<&Idempotency>,
    (audit, now): (&Audit, Timestamp),
) -> Result<Accepted> {
    if let Some(idempotency) = idempotency {
        let keys = Keys::turn(tx, now)?;
        if let Some(answer) = keys.known(tx, idempotency)? {
            return Ok(answer);
        }
        keys.remember(tx.conn, idempotency)?;
    }
    let mut insert = tx.conn.prepare_cached(
        "insert into operation (id, tenant, runner, finished, definition, standing)
         values (?1, ?2, ?3, 0, ?4, ?5)",
    )?;
    insert.execute(params![
        operation.id.to_bytes(),
        operation.tenant.as_ref().map(Tenant::as_str),
        operation.runner.map(|node| node.0),
        kept::definition(operation)?,
        kept::standing(operation)?,
    ])?;
    write_audit(tx.conn, audit, 1, 1)?;
    known.start(operation);
    Ok(Accepted::New)
}

/// Reads standing and runner.
fn stands(asked: Operation, row: &Row<'_>, start: usize) -> Result<Operation> {
    let standing = maybe_text(row, start)?.unwrap_or_default();
    Ok(kept::stands(asked, standing, row.get(start + 1)?)?)
}

fn load(conn: &Connection, known: &Definitions, id: OperationId) -> Result<Option<Operation>> {
    let mut select = conn.prepare_cached("select standing, runner from operation where id = ?1")?;
    let mut rows = select.query([id.to_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let operation = stands(asked(conn, known, id)?, row, 0)?;
    known.note(&operation);
    Ok(Some(operation))
}

/// What was asked for.
fn asked(conn: &Connection, known: &Definitions, id: OperationId) -> Result<Operation> {
    if let Some(asked) = known.get(id) {
        return Ok(asked);
    }
    let mut select = conn.prepare_cached("select definition from operation where id = ?1")?;
    let definition: String = select.query_row([id.to_bytes()], |row| row.get(0))?;
    Ok(kept::asked(&definition)?)
}

fn save(conn: &Connection, known: &Definitions, operation: &Operation) -> Result<()> {
    let mut update = conn.prepare_cached(
        "update operation
         set standing = ?2, runner = ?3, finished = ?4
         where id = ?1",
    )?;
    update.execute(params![
        operation.id.to_bytes(),
        kept::standing(operation)?,
        operation.runner.map(|node| node.0),
        operation.is_finished(),
    ])?;
    known.note(operation);
    Ok(())
}

fn page(
    conn: &Connection,
    tenant: Option<&Tenant>,
    before: Option<OperationId>,
    limit: usize,
) -> Result<Page<Operation, OperationId>> {
    let of_tenant = "select definition, standing, runner
         from operation
         where tenant = ?3
         and id < ?1
         order by id desc
         limit ?2";
    let of_all = "select definition, standing, runner
         from operation
         where ?3 is null
         and id < ?1
         order by id desc
         limit ?2";
    let mut select = conn.prepare_cached(if tenant.is_some() { of_tenant } else { of_all })?;
    let before = before.unwrap_or(OperationId::LAST).to_bytes();
    let limited = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = select.query(params![before, limited, tenant.map(Tenant::as_str)])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        let definition = maybe_text(row, 0)?.unwrap_or_default();
        found.push(stands(kept::asked(definition)?, row, 1)?);
    }
    let next = found.last().filter(|_| found.len() == limit).map(|operation| operation.id);
    Ok(Page { rows: found, next })
}

fn unfinished(
    conn: &Connection,
    known: &Definitions,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<UnfinishedOperation>> {
    let mut select = conn.prepare_cached(
        "select id, standing, runner
         from operation
         where finished = 0
         order by id
         limit ?1",
    )?;
    let mut rows = select.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        let id = OperationId::from_bytes(row.get(0)?);
        let read = asked(conn, known, id).and_then(|asked| stands(asked, row, 1));
        let Some(operation) = known.unless_damaged(id, read)? else { continue };
        known.note(&operation);
        let alive = match operation.runner {
            Some(node) => lives(conn, node, now)?,
            None => false,
        };
        found.push(UnfinishedOperation { operation, alive });
    }
    Ok(found)
}

fn adopt(
    tx: &Tx<'_>,
    known: &Definitions,
    id: OperationId,
    node: NodeId,
    now: Timestamp,
) -> Result<Option<Operation>> {
    let Some(mut operation) = load(tx.conn, known, id)? else { return Ok(None) };
    let alive = match operation.runner {
        Some(runner) => lives(tx.conn, runner, now)?,
        None => false,
    };
    if !operation.adopt(node, alive, now) {
        return Ok(None);
    }
    save(tx.conn, known, &operation)?;
    Ok(Some(operation))
}

fn batch_to_stage(conn: &Connection, id: OperationId) -> Result<Option<Batch>> {
    let mut select = conn.prepare_cached(
        "select number, staging
         from operation_batch
         where operation = ?1
         and stage = 1
         order by number
         limit 1",
    )?;
    let read = |row: &Row<'_>| Ok((row.get::<_, u32>(0)?, row.get(1)?));
    let Some((number, staging)) = select.query_row([id.to_bytes()], read).optional()? else {
        return Ok(None);
    };
    let mut select = conn.prepare_cached(
        "select notification, dead_letter, tries
         from operation_item
         where operation = ?1
         and batch = ?2
         and stage < 2
         order by notification",
    )?;
    let mut rows = select.query(params![id.to_bytes(), number])?;
    let mut items = vec![];
    while let Some(row) = rows.next()? {
        let selected =
            Selected { notification: notification_id(row, 0)?, dead_letter: maybe_dead_letter_id(row, 1)? };
        items.push(BatchItem { selected, tries: row.get(2)? });
    }
    Ok(Some(Batch { number, staging: kept::seen_staging(staging), items }))
}

/// Jumps from flow to flow, however many items a flow has.
fn staged_flows(
    conn: &Connection,
    id: OperationId,
    after: Option<FlowId>,
    limit: usize,
) -> Result<Vec<FlowId>> {
    let mut select = conn.prepare_cached(
        "select flow
         from operation_item
         where operation = ?1
         and flow > ?2
         and stage = 1
         order by flow
         limit 1",
    )?;
    let mut last = after.map_or(i64::MIN, |flow| flow.0);
    let mut found = vec![];
    while found.len() < limit {
        let next = select.query_row(params![id.to_bytes(), last], |row| row.get(0)).optional()?;
        let Some(flow) = next else { break };
        found.push(FlowId(flow));
        last = flow;
    }
    Ok(found)
}

/// One look at the index of claims for each lane and priority.
fn due_rows(conn: &Connection, flow: FlowId, limit: u32, now: Timestamp) -> Result<u32> {
    let mut select = conn.prepare_cached(
        "select count(*)
         from (
             select 1
             from queue
             where flow = ?1
             and lane = ?2
             and priority = ?3
             and due <= ?4
             and node is null
             limit ?5)",
    )?;
    let mut all = 0;
    for lane in posthaste_core::state::Lane::ALL {
        for priority in posthaste_core::notification::Priority::ALL {
            let left = limit - all;
            if left > 0 {
                let bound = params![flow.0, lane.code(), priority.code(), now.as_micros(), left];
                all += select.query_row(bound, |row| row.get::<_, u32>(0))?;
            }
        }
    }
    Ok(all)
}

fn canary_items(conn: &Connection, id: OperationId) -> Result<Vec<(NotificationId, Seen)>> {
    let mut select = conn.prepare_cached(
        "select notification, seen_state, seen_generation, seen_attempt
         from operation_item
         where operation = ?1
         and canary = 1
         order by notification",
    )?;
    let mut rows = select.query([id.to_bytes()])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        found.push((notification_id(row, 0)?, seen(row, 1)?));
    }
    Ok(found)
}

/// Reads how an item stood from three columns.
fn seen(row: &Row<'_>, start: usize) -> Result<Seen> {
    Ok(Seen { state: state(row, start)?, generation: row.get(start + 1)?, attempt: row.get(start + 2)? })
}

fn make_change(
    tx: &Tx<'_>,
    known: &Definitions,
    id: OperationId,
    change: &OperationChange,
    (audit, now): (Option<&Audit>, Timestamp),
) -> Result<Option<std::result::Result<Operation, Refused>>> {
    let Some(mut operation) = load(tx.conn, known, id)? else { return Ok(None) };
    if let Err(refused) = operation.change(change, now) {
        return Ok(Some(Err(refused)));
    }
    save(tx.conn, known, &operation)?;
    if let Some(audit) = audit {
        let (asked, count) = operation.audit_numbers(change);
        write_audit(tx.conn, audit, asked.cast_signed(), count.cast_signed())?;
    }
    Ok(Some(Ok(operation)))
}

fn held_by(conn: &Connection, ids: &[NotificationId]) -> Result<Vec<(NotificationId, OperationId)>> {
    let mut select = conn.prepare_cached(
        "select operation
         from operation_item
         where notification = ?1
         and stage < 2",
    )?;
    let mut found = vec![];
    for id in ids {
        let holder = select.query_row([id.to_bytes()], |row| row.get::<_, [u8; 16]>(0)).optional()?;
        found.extend(holder.map(|holder| (*id, OperationId::from_bytes(holder))));
    }
    Ok(found)
}
