//! Retry operations. The steps of the work are in `steps`.

use std::collections::HashMap;

use async_trait::async_trait;
use posthaste_core::act::Seen;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{DeadLetterId, NotificationId, OperationId};
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
use posthaste_core::operation::{
    Batch, BatchItem, Decision, Operation, OperationChange, Refused, Selected, Staging,
};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    self, Accepted, Audit, Forwarded, Idempotency, Operations, Page, Request, Rest, UnfinishedOperation, Walk,
};
use tokio_postgres::Row;
use uuid::Uuid;

use self::items::{canary_items, due_rows, held_by, seen, staged_flows};
use self::steps::Step;
use super::acts::write_audit;
use super::fault::Result;
use super::idempotency;
use super::rows::{Columns, bigint};
use super::tx::{Mode, Then, Tx, bind, statement};
use super::{PostgresStore, list, look, transact};
use crate::kept::operations::{self as kept, Definitions};

mod items;
mod steps;

#[async_trait]
impl Operations for PostgresStore {
    async fn start_operation(
        &self,
        operation: Operation,
        idempotency: Option<Idempotency>,
        audit: Audit,
        now: Timestamp,
    ) -> store::Result<Accepted> {
        if idempotency.is_some() && !self.days.ready(now) {
            transact!(self, tx => self.days.turn(&tx, now))?;
        }
        let request = Request { idempotency, arrivals: vec![] };
        Ok(transact!(self, tx => start(&tx, self, &operation, &request, &audit, now))?)
    }

    async fn operation(&self, id: OperationId) -> store::Result<Option<Operation>> {
        Ok(look!(self, tx => find(&tx, &self.definitions, id))?)
    }

    async fn operations(
        &self,
        tenant: Option<Tenant>,
        before: Option<OperationId>,
        limit: usize,
    ) -> store::Result<Page<Operation, OperationId>> {
        Ok(list!(self, tx => page(&tx, tenant.as_ref(), before, limit))?)
    }

    async fn unfinished_operations(
        &self,
        limit: usize,
        now: Timestamp,
    ) -> store::Result<Vec<UnfinishedOperation>> {
        Ok(look!(self, tx => unfinished(&tx, &self.definitions, limit, now))?)
    }

    async fn adopt_operation(
        &self,
        id: OperationId,
        node: NodeId,
        now: Timestamp,
    ) -> store::Result<Option<Operation>> {
        Ok(transact!(self, tx => adopt(&tx, &self.definitions, id, node, now))?)
    }

    async fn mark(
        &self,
        id: OperationId,
        node: NodeId,
        walk: Walk,
        now: Timestamp,
    ) -> store::Result<Option<Operation>> {
        let step = Step { known: &self.definitions, id, node, now };
        Ok(transact!(self, tx => step.mark(&tx, &walk))?)
    }

    async fn batch_to_stage(&self, id: OperationId) -> store::Result<Option<Batch>> {
        Ok(look!(self, tx => batch_to_stage(&tx, id))?)
    }

    async fn stage(
        &self,
        id: OperationId,
        node: NodeId,
        staging: Staging,
        decisions: Vec<(NotificationId, Decision)>,
        now: Timestamp,
    ) -> store::Result<Option<Operation>> {
        let step = Step { known: &self.definitions, id, node, now };
        Ok(transact!(self, tx => step.stage(&tx, staging, &decisions))?)
    }

    async fn staged_flows(
        &self,
        id: OperationId,
        after: Option<FlowId>,
        limit: usize,
    ) -> store::Result<Vec<FlowId>> {
        Ok(look!(self, tx => staged_flows(&tx, id, after, limit))?)
    }

    async fn due_rows(&self, flows: Vec<FlowId>, limit: u32, now: Timestamp) -> store::Result<Vec<u32>> {
        Ok(look!(self, tx => due_rows(&tx, &flows, limit, now))?)
    }

    async fn forward(
        &self,
        id: OperationId,
        node: NodeId,
        quotas: Vec<(FlowId, u32)>,
        now: Timestamp,
    ) -> store::Result<Option<Forwarded>> {
        let step = Step { known: &self.definitions, id, node, now };
        Ok(transact!(self, tx => step.forward(&tx, &self.flows, &quotas))?)
    }

    async fn skip_items(
        &self,
        id: OperationId,
        node: NodeId,
        which: Rest,
        now: Timestamp,
    ) -> store::Result<Option<Operation>> {
        let step = Step { known: &self.definitions, id, node, now };
        Ok(transact!(self, tx => step.skip(&tx, which))?)
    }

    async fn canary_items(&self, id: OperationId) -> store::Result<Vec<(NotificationId, Seen)>> {
        Ok(look!(self, tx => canary_items(&tx, id))?)
    }

    async fn change_operation(
        &self,
        id: OperationId,
        change: OperationChange,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Option<std::result::Result<Operation, Refused>>> {
        Ok(transact!(self, tx => make_change(&tx, &self.definitions, id, &change, (audit.as_ref(), now)))?)
    }

    async fn held_by(&self, ids: Vec<NotificationId>) -> store::Result<Vec<(NotificationId, OperationId)>> {
        Ok(look!(self, tx => held_by(&tx, &ids))?)
    }
}

const fn operation_uuid(id: OperationId) -> Uuid {
    Uuid::from_bytes(id.to_bytes())
}

async fn start(
    tx: &Tx,
    store: &PostgresStore,
    operation: &Operation,
    request: &Request,
    audit: &Audit,
    now: Timestamp,
) -> Result<Accepted> {
    let mut begin = Some(Mode::Write);
    if request.idempotency.is_some() {
        let answers =
            idempotency::answers(tx, begin.take(), &store.days, std::slice::from_ref(request), now).await?;
        if let Some(known) = answers.into_iter().next().filter(|answer| *answer != Accepted::New) {
            tx.batch("commit").await?;
            return Ok(known);
        }
    }
    let sql = "
        insert into operation (id, tenant, runner, finished, definition, standing)
        values ($1, $2, $3, false, $4, $5)";
    let (definition, standing) = (kept::definition(operation)?, kept::standing(operation)?);
    let bound = bind![
        operation_uuid(operation.id) => UUID,
        operation.tenant.as_ref().map(Tenant::as_str) => TEXT,
        operation.runner.map(|node| node.0) => INT8,
        definition => TEXT,
        standing => TEXT,
    ];
    write_audit(tx, begin, audit, 1, 1, vec![statement!(sql, bound)]).await?;
    store.definitions.start(operation);
    Ok(Accepted::New)
}

/// Reads standing and runner.
fn stands(asked: Operation, columns: &mut Columns<'_>) -> Result<Operation> {
    let standing: &str = columns.take()?;
    Ok(kept::stands(asked, standing, columns.take()?)?)
}

/// What was asked for.
async fn asked(tx: &Tx, known: &Definitions, id: OperationId) -> Result<Option<Operation>> {
    if let Some(asked) = known.get(id) {
        return Ok(Some(asked));
    }
    let sql = "select definition from operation where id = $1";
    let rows = tx.rows(sql, bind![operation_uuid(id) => UUID]).await?;
    let read = |row: &Row| Ok(kept::asked(Columns::of(row).take()?)?);
    rows.first().map(read).transpose()
}

async fn find(tx: &Tx, known: &Definitions, id: OperationId) -> Result<Option<Operation>> {
    let sql = "select definition, standing, runner from operation where id = $1";
    let rows = tx.alone(Mode::Read, sql, bind![operation_uuid(id) => UUID]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut columns = Columns::of(row);
    let asked = kept::asked(columns.take()?)?;
    let operation = stands(asked, &mut columns)?;
    known.note(&operation);
    Ok(Some(operation))
}

/// Begins the transaction and locks the operation, so that its steps follow each other.
async fn lock(tx: &Tx, known: &Definitions, id: OperationId) -> Result<Option<Operation>> {
    let sql = "select standing, runner from operation where id = $1 for update";
    let bound = bind![operation_uuid(id) => UUID];
    let rows = tx.send(Some(Mode::Write), &[statement!(sql, bound)], Then::Continue).await?.pop();
    let rows = rows.unwrap_or_default();
    let Some(row) = rows.first() else { return Ok(None) };
    let Some(asked) = asked(tx, known, id).await? else { return Ok(None) };
    let operation = stands(asked, &mut Columns::of(row))?;
    known.note(&operation);
    Ok(Some(operation))
}

/// Writes how far the operation is, and commits.
async fn save(tx: &Tx, known: &Definitions, operation: &Operation) -> Result<()> {
    save_with(tx, known, operation, Then::Commit).await
}

async fn save_with(tx: &Tx, known: &Definitions, operation: &Operation, then: Then) -> Result<()> {
    let sql = "
        update operation
        set standing = $2, runner = $3, finished = $4
        where id = $1";
    let bound = bind![
        operation_uuid(operation.id) => UUID,
        kept::standing(operation)? => TEXT,
        operation.runner.map(|node| node.0) => INT8,
        operation.is_finished() => BOOL,
    ];
    tx.send(None, &[statement!(sql, bound)], then).await?;
    known.note(operation);
    Ok(())
}

/// Ends the transaction of a step that is refused.
async fn refused<T>(tx: &Tx) -> Result<Option<T>> {
    tx.batch("commit").await?;
    Ok(None)
}

async fn page(
    tx: &Tx,
    tenant: Option<&Tenant>,
    before: Option<OperationId>,
    limit: usize,
) -> Result<Page<Operation, OperationId>> {
    let of_tenant = "
        select definition, standing, runner
        from operation
        where tenant = $3
        and id < $1
        order by id desc
        limit $2";
    let of_all = "
        select definition, standing, runner
        from operation
        where $3::text is null
        and id < $1
        order by id desc
        limit $2";
    let before = operation_uuid(before.unwrap_or(OperationId::LAST));
    let bound = bind![before => UUID, bigint(limit) => INT8, tenant.map(Tenant::as_str) => TEXT];
    let rows = tx.alone(Mode::Read, if tenant.is_some() { of_tenant } else { of_all }, bound).await?;
    let read = |row: &Row| {
        let mut columns = Columns::of(row);
        let asked = kept::asked(columns.take()?)?;
        stands(asked, &mut columns)
    };
    let rows: Vec<Operation> = rows.iter().map(read).collect::<Result<_>>()?;
    let next = rows.last().filter(|_| rows.len() == limit).map(|operation| operation.id);
    Ok(Page { rows, next })
}

/// Whether the runner of operation `o` lives at `$2`.
macro_rules! alive {
    () => {
        "exists (
            select
            from node
            where node.id = o.runner
            and not node.dead
            and node.expires > $2)"
    };
}

async fn unfinished(
    tx: &Tx,
    known: &Definitions,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<UnfinishedOperation>> {
    let sql = concat!(
        "select o.id, ",
        alive!(),
        ", o.standing, o.runner
         from operation o
         where not o.finished
         order by o.id
         limit $1"
    );
    let rows = tx.alone(Mode::Read, sql, bind![bigint(limit) => INT8, now.as_micros() => INT8]).await?;
    let ids = rows.iter().map(|row| operation_id(&mut Columns::of(row))).collect::<Result<Vec<_>>>()?;
    let mut read = definitions(tx, known, &ids).await?;
    let mut found = vec![];
    for (row, id) in rows.iter().zip(ids) {
        // One that is not there any more was finished and removed since.
        let Some(asked) = known.get(id).map(Ok).or_else(|| read.remove(&id)) else { continue };
        let show = || -> Result<UnfinishedOperation> {
            let mut columns = Columns::of(row);
            columns.skip(1);
            let alive = columns.take()?;
            Ok(UnfinishedOperation { operation: stands(asked?, &mut columns)?, alive })
        };
        let Some(one) = known.unless_damaged(id, show())? else { continue };
        known.note(&one.operation);
        found.push(one);
    }
    Ok(found)
}

fn operation_id(columns: &mut Columns<'_>) -> Result<OperationId> {
    Ok(OperationId::from_bytes(columns.take::<Uuid>()?.into_bytes()))
}

/// The definitions that are not known yet.
async fn definitions(
    tx: &Tx,
    known: &Definitions,
    ids: &[OperationId],
) -> Result<HashMap<OperationId, Result<Operation>>> {
    let unknown: Vec<Uuid> =
        ids.iter().filter(|id| known.get(**id).is_none()).map(|id| operation_uuid(*id)).collect();
    if unknown.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = "select id, definition from operation where id = any($1)";
    let rows = tx.alone(Mode::Read, sql, bind![unknown => UUID_ARRAY]).await?;
    let read = |row: &Row| {
        let mut columns = Columns::of(row);
        let id = operation_id(&mut columns)?;
        let asked = columns.take().and_then(|definition: &str| Ok(kept::asked(definition)?));
        Ok((id, asked))
    };
    rows.iter().map(read).collect()
}

async fn adopt(
    tx: &Tx,
    known: &Definitions,
    id: OperationId,
    node: NodeId,
    now: Timestamp,
) -> Result<Option<Operation>> {
    let Some(mut operation) = lock(tx, known, id).await? else { return refused(tx).await };
    let sql = concat!("select ", alive!(), " from operation o where o.id = $1");
    let rows = tx.rows(sql, bind![operation_uuid(id) => UUID, now.as_micros() => INT8]).await?;
    let alive = rows.first().map_or(Ok(false), |row| Columns::of(row).take())?;
    if !operation.adopt(node, alive, now) {
        return refused(tx).await;
    }
    save(tx, known, &operation).await?;
    Ok(Some(operation))
}

async fn batch_to_stage(tx: &Tx, id: OperationId) -> Result<Option<Batch>> {
    let sql = "
        select b.number, b.staging, i.notification, i.dead_letter, i.tries
        from (
            select number, staging
            from operation_batch
            where operation = $1
            and stage = 1
            order by number
            limit 1) as b
        left join operation_item i on i.operation = $1 and i.batch = b.number and i.stage < 2
        order by i.notification";
    let rows = tx.alone(Mode::Read, sql, bind![operation_uuid(id) => UUID]).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let mut columns = Columns::of(first);
    let (number, staging) = (columns.small()?, kept::seen_staging(columns.take()?));
    let mut items = vec![];
    for row in &rows {
        let mut columns = Columns::of(row);
        columns.skip(2);
        let Some(notification) = columns.take::<Option<Uuid>>()? else { continue };
        let letter: Option<Uuid> = columns.take()?;
        let selected = Selected {
            notification: NotificationId::from_bytes(notification.into_bytes()),
            dead_letter: letter.map(|letter| DeadLetterId::from_bytes(letter.into_bytes())),
        };
        items.push(BatchItem { selected, tries: columns.small()? });
    }
    Ok(Some(Batch { number, staging, items }))
}

async fn make_change(
    tx: &Tx,
    known: &Definitions,
    id: OperationId,
    change: &OperationChange,
    (audit, now): (Option<&Audit>, Timestamp),
) -> Result<Option<std::result::Result<Operation, Refused>>> {
    let Some(mut operation) = lock(tx, known, id).await? else { return refused(tx).await };
    if let Err(why) = operation.change(change, now) {
        tx.batch("commit").await?;
        return Ok(Some(Err(why)));
    }
    match audit {
        Some(audit) => {
            save_with(tx, known, &operation, Then::Continue).await?;
            let (asked, count) = operation.audit_numbers(change);
            let [asked, count] = [asked, count].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            write_audit(tx, None, audit, asked, count, vec![]).await?;
        }
        None => save(tx, known, &operation).await?,
    }
    Ok(Some(Ok(operation)))
}
