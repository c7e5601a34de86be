//! Dead letters: those whose time is over are soft-deleted, later purged; until then they can be shown again.

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::id::DeadLetterId;
use posthaste_core::retention::is_deletable;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Audit, Prune};
use rusqlite::{Connection, params};

use super::{IN_OPERATION, in_operation, whole};
use crate::kept::retention::{Chunk, Pass, most_looked_at};
use crate::sqlite::acts::write_audit;
use crate::sqlite::fault::Result;
use crate::sqlite::groups;
use crate::sqlite::rows::{maybe_time, status, time};
use crate::sqlite::writer::Tx;

/// Resolved dead letters that died long ago and are shown in lists.
pub(super) fn resolved(conn: &Connection, prune: &Prune, pass: &Pass) -> Result<Chunk<[u8; 16]>> {
    let mut select = conn.prepare_cached(
        "select id, status, created_at, restored_at, octet_length(content) + octet_length(attempts)
         from dead_letter indexed by dead_letter_status
         where status = ?4
         and id > ?1
         and id < ?2
         and deleted_at is null
         order by id
         limit ?3",
    )?;
    let until = DeadLetterId::least_at(prune.cut_off).to_bytes();
    let code = prune.kind.letters().map(DeadLetterStatus::code);
    let mut rows = select.query(params![pass.start(), until, whole(most_looked_at(prune)), code])?;
    let mut chunk = Chunk::new();
    while let Some(row) = rows.next()? {
        let id: [u8; 16] = row.get(0)?;
        let over =
            is_deletable(prune.kind, status(row, 1)?, time(row, 2)?, maybe_time(row, 3)?, prune.cut_off);
        if chunk.take(prune, &id, over.then_some((id, row.get(4)?))) {
            break;
        }
    }
    Ok(chunk)
}

/// What was soft-deleted long ago, with the notifications. What an operation that is not finished names is passed over; if it
/// names everything that is looked at, the pass ends there.
pub(super) fn deleted(conn: &Connection, prune: &Prune) -> Result<Chunk<([u8; 16], [u8; 16])>> {
    let mut select = conn.prepare_cached(concat!(
        "select w.id, w.notification, w.bytes
         from (
             select id, notification, deleted_at, octet_length(content) + octet_length(attempts) as bytes
             from dead_letter indexed by dead_letter_deleted_at
             where deleted_at < ?1
             and deleted_at is not null
             order by deleted_at, id
             limit ?3) as w
         where not exists (
             ",
        in_operation!("w.notification"),
        ")
         order by w.deleted_at, w.id
         limit ?2"
    ))?;
    let most = whole(most_looked_at(prune));
    let mut rows = select.query(params![prune.cut_off.as_micros(), whole(prune.limit), most])?;
    let mut chunk = Chunk::new();
    while let Some(row) = rows.next()? {
        // The next chunk begins at the oldest again.
        if chunk.take(prune, &[], Some(((row.get(0)?, row.get(1)?), row.get(2)?))) {
            break;
        }
    }
    Ok(chunk)
}

pub(super) fn delete(tx: &mut Tx<'_>, prune: &Prune, ids: &[[u8; 16]]) -> Result<i64> {
    let code = prune.kind.letters().map(DeadLetterStatus::code);
    let mut removed = 0;
    for id in ids {
        removed += groups::changing(tx, DeadLetterId::from_bytes(*id), |conn| {
            let mut update = conn.prepare_cached(
                "update dead_letter
                 set deleted_at = ?2
                 where id = ?1
                 and status = ?3
                 and deleted_at is null",
            )?;
            Ok(update.execute(params![id, prune.now.as_micros(), code])?)
        })?;
    }
    Ok(whole(removed))
}

pub(super) fn purge(tx: &Tx<'_>, rows: &[([u8; 16], [u8; 16])]) -> Result<i64> {
    let mut delete =
        tx.conn.prepare_cached("delete from dead_letter where id = ?1 and deleted_at is not null")?;
    let mut forget =
        tx.conn.prepare_cached("update ended set dead_letter = null where id = ?1 and dead_letter = ?2")?;
    let mut named = tx.conn.prepare_cached(IN_OPERATION)?;
    let mut removed = 0;
    for (id, notification) in rows {
        if !named.exists([notification])? && delete.execute([id])? == 1 {
            forget.execute(params![notification, id])?;
            removed += 1;
        }
    }
    Ok(whole(removed))
}

pub(super) fn show_deleted(tx: &Tx<'_>, letter: DeadLetterId, audit: &Audit) -> Result<bool> {
    let found = show(tx, letter, audit.at)?;
    if found {
        write_audit(tx.conn, audit, 1, 1)?;
    }
    Ok(found)
}

/// Shows a dead letter again that is soft-deleted and resolved. False if there is no such one.
pub(in crate::sqlite) fn show(tx: &Tx<'_>, letter: DeadLetterId, now: Timestamp) -> Result<bool> {
    let mut update = tx.conn.prepare_cached(
        "update dead_letter
         set deleted_at = null, restored_at = ?2
         where id = ?1
         and deleted_at is not null
         and status <> 0",
    )?;
    Ok(update.execute(params![letter.to_bytes(), now.as_micros()])? == 1)
}
