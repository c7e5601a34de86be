//! Removal of retry operations that ended long ago: first their items, later the operations with their batches.

use posthaste_core::id::OperationId;
use posthaste_core::retention::is_over;
use posthaste_engine::store::Prune;
use rusqlite::{Connection, params};

use super::whole;
use crate::kept::operations::{BATCH_BYTES, finished_at};
use crate::kept::retention::{Chunk, Pass, most_looked_at};
use crate::sqlite::fault::Result;
use crate::sqlite::rows::maybe_text;
use crate::sqlite::writer::Tx;

/// An item: its operation and its notification.
pub(super) type Item = ([u8; 16], [u8; 16]);

/// Old operations, from the one on that the pass has come to: it may have items left.
pub(super) fn items(conn: &Connection, prune: &Prune, pass: &Pass) -> Result<Chunk<Item>> {
    let mut select = conn.prepare_cached(
        "select id, case when finished = 1 then standing end
         from operation
         where id >= ?1
         and id < ?2
         order by id
         limit ?3",
    )?;
    let mut of = conn.prepare_cached(
        "select notification
         from operation_item
         where operation = ?1
         order by notification
         limit ?2",
    )?;
    let until = OperationId::least_at(prune.cut_off).to_bytes();
    let mut rows = select.query(params![pass.start(), until, whole(most_looked_at(prune))])?;
    let mut chunk = Chunk::new();
    while let Some(row) = rows.next()? {
        let id: [u8; 16] = row.get(0)?;
        let ended = maybe_text(row, 1)?.and_then(finished_at);
        let mut found: Vec<[u8; 16]> = vec![];
        if is_over(ended, prune.cut_off) {
            let mut items = of.query(params![id, whole(prune.limit - chunk.rows.len())])?;
            while let Some(item) = items.next()? {
                found.push(item.get(0)?);
            }
        }
        let full = if found.is_empty() {
            chunk.take(prune, &id, None)
        } else {
            found.into_iter().any(|item| chunk.take(prune, &id, Some(((id, item), 0))))
        };
        if full {
            break;
        }
    }
    Ok(chunk)
}

/// Old operations that have no items any more.
pub(super) fn finished(conn: &Connection, prune: &Prune, pass: &Pass) -> Result<Chunk<[u8; 16]>> {
    let mut select = conn.prepare_cached(
        "select o.id, case when o.finished = 1 then o.standing end,
             exists (select 1 from operation_item i where i.operation = o.id),
             (select count(*) from operation_batch b where b.operation = o.id)
         from operation o
         where o.id > ?1
         and o.id < ?2
         order by o.id
         limit ?3",
    )?;
    let until = OperationId::least_at(prune.cut_off).to_bytes();
    let mut rows = select.query(params![pass.start(), until, whole(most_looked_at(prune))])?;
    let mut chunk = Chunk::new();
    while let Some(row) = rows.next()? {
        let id: [u8; 16] = row.get(0)?;
        let (has_items, batches): (bool, i64) = (row.get(2)?, row.get(3)?);
        let over = is_over(maybe_text(row, 1)?.and_then(finished_at), prune.cut_off) && !has_items;
        if chunk.take(prune, &id, over.then_some((id, batches * BATCH_BYTES))) {
            break;
        }
    }
    Ok(chunk)
}

/// Nothing changes any more about an operation that is finished.
pub(super) fn remove_items(tx: &Tx<'_>, items: &[Item]) -> Result<i64> {
    let mut delete = tx.conn.prepare_cached(
        "delete from operation_item
         where operation = ?1
         and notification = ?2
         and stage >= 2",
    )?;
    let mut removed = 0;
    for (operation, notification) in items {
        removed += delete.execute(params![operation, notification])?;
    }
    Ok(whole(removed))
}

pub(super) fn remove(tx: &Tx<'_>, operations: &[[u8; 16]]) -> Result<i64> {
    let mut batches = tx.conn.prepare_cached("delete from operation_batch where operation = ?1")?;
    let mut delete = tx.conn.prepare_cached("delete from operation where id = ?1 and finished = 1")?;
    let mut removed = 0;
    for id in operations {
        batches.execute([id])?;
        removed += delete.execute([id])?;
    }
    Ok(whole(removed))
}
