//! Removal of retry operations that ended long ago: first their items, later the operations with their batches.

use posthaste_core::id::OperationId;
use posthaste_core::retention::is_over;
use posthaste_engine::store::Prune;
use uuid::Uuid;

use super::super::fault::Result;
use super::super::rows::{Columns, bigint};
use super::super::tx::{Then, Tx, bind, statement};
use crate::kept::operations::{BATCH_BYTES, finished_at};
use crate::kept::retention::{Chunk, Pass, most_looked_at};

/// How many rows are removed, and where the next chunk goes on.
type Removed = (i64, Option<Vec<u8>>);

/// Old operations, from the one on that the pass has come to: it may have items left. Nothing changes any more about an
/// operation that is finished.
pub(super) async fn items(tx: &Tx, prune: &Prune, pass: &Pass) -> Result<Removed> {
    let sql = "
        select w.id, w.standing, exists (
            select
            from operation_item i
            where i.operation = any(array[w.id]))
        from (
            select id, case when finished then standing end as standing
            from operation
            where id >= $1
            and id < $2
            order by id
            limit $3) as w
        order by w.id";
    let of = "
        select notification
        from operation_item
        where operation = $1
        order by notification
        limit $2";
    let mut chunk: Chunk<(Uuid, Uuid)> = Chunk::new();
    for row in window(tx, prune, pass, sql).await? {
        let mut columns = Columns::of(&row);
        let (id, standing, has_items): (Uuid, Option<&str>, bool) =
            (columns.take()?, columns.take()?, columns.take()?);
        let mut found: Vec<Uuid> = vec![];
        if has_items && is_over(standing.and_then(finished_at), prune.cut_off) {
            let left = prune.limit - chunk.rows.len();
            for item in tx.rows(of, bind![id => UUID, bigint(left) => INT8]).await? {
                found.push(Columns::of(&item).take()?);
            }
        }
        let full = if found.is_empty() {
            chunk.take(prune, id.as_bytes(), None)
        } else {
            found.into_iter().any(|item| chunk.take(prune, id.as_bytes(), Some(((id, item), 0))))
        };
        if full {
            break;
        }
    }
    if chunk.rows.is_empty() {
        return Ok((0, chunk.next));
    }
    let delete = "
        delete from operation_item i
        using unnest($1::uuid[], $2::uuid[]) as u (operation, notification)
        where i.operation = any(array[u.operation])
        and i.notification = any(array[u.notification])
        and i.stage >= 2
        returning 1";
    let (operations, items): (Vec<Uuid>, Vec<Uuid>) = chunk.rows.into_iter().unzip();
    let removed = tx.rows(delete, bind![operations => UUID_ARRAY, items => UUID_ARRAY]).await?;
    Ok((bigint(removed.len()), chunk.next))
}

/// Old operations that have no items any more.
pub(super) async fn finished(tx: &Tx, prune: &Prune, pass: &Pass) -> Result<Removed> {
    let sql = "
        select w.id, w.standing, exists (
            select
            from operation_item i
            where i.operation = any(array[w.id])), (
            select count(*)
            from operation_batch b
            where b.operation = any(array[w.id]))
        from (
            select id, case when finished then standing end as standing
            from operation
            where id > $1
            and id < $2
            order by id
            limit $3) as w
        order by w.id";
    let mut chunk: Chunk<Uuid> = Chunk::new();
    for row in window(tx, prune, pass, sql).await? {
        let mut columns = Columns::of(&row);
        let (id, standing, has_items): (Uuid, Option<&str>, bool) =
            (columns.take()?, columns.take()?, columns.take()?);
        let batches: i64 = columns.take()?;
        let over = is_over(standing.and_then(finished_at), prune.cut_off) && !has_items;
        if chunk.take(prune, id.as_bytes(), over.then_some((id, batches * BATCH_BYTES))) {
            break;
        }
    }
    if chunk.rows.is_empty() {
        return Ok((0, chunk.next));
    }
    let delete = "delete from operation where id = any($1) and finished returning 1";
    let (batches, gone) = (bind![chunk.rows => UUID_ARRAY], bind![chunk.rows => UUID_ARRAY]);
    let steps = [
        statement!("delete from operation_batch where operation = any($1)", batches),
        statement!(delete, gone),
    ];
    let removed = tx.send(None, &steps, Then::Continue).await?.pop().unwrap_or_default();
    Ok((bigint(removed.len()), chunk.next))
}

/// The operations that a chunk looks at.
async fn window(tx: &Tx, prune: &Prune, pass: &Pass, sql: &str) -> Result<Vec<tokio_postgres::Row>> {
    let after = Uuid::from_slice(pass.start()).unwrap_or(Uuid::nil());
    let until = Uuid::from_bytes(OperationId::least_at(prune.cut_off).to_bytes());
    tx.rows(sql, bind![after => UUID, until => UUID, bigint(most_looked_at(prune)) => INT8]).await
}
