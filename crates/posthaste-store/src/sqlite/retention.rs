//! Removal of what has outlived its period.
//!
//! What a chunk removes is found on a reader, so that the writer only deletes. A row that changed meanwhile stays.

use async_trait::async_trait;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::retention::{Kind, is_removable};
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Audit, Prune, Pruned, Retention};
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteStore;
use super::acts::write_audit;
use super::fault::{Result, unless_damaged};
use super::rows::{maybe_time, state, time};
use super::series;
use super::writer::Tx;
use crate::kept::retention::{Chunk, Pass, answer, most_looked_at};

mod letters;
mod operations;

pub(super) use self::letters::show;

#[async_trait]
impl Retention for SqliteStore {
    async fn prune(&self, prune: Prune, audit: Audit) -> store::Result<Pruned> {
        let (pass, found) = self.list(move |reader| find(&reader.conn, &prune)).await?;
        if found.is_nothing() && pass == Pass::default() {
            return Ok(answer(0, true));
        }
        self.write(found.len().max(1), move |tx| write(tx, &prune, &pass, &found, &audit)).await
    }

    async fn show_deleted(&self, dead_letter: DeadLetterId, audit: Audit) -> store::Result<bool> {
        self.write(1, move |tx| letters::show_deleted(tx, dead_letter, &audit)).await
    }
}

/// What a chunk removes, and where the next one goes on.
enum Found {
    Attempts(Chunk<[u8; 16]>),
    Notifications(Chunk<Ended>),
    Letters(Chunk<[u8; 16]>),
    Deleted(Chunk<([u8; 16], [u8; 16])>),
    Audit(Chunk<i64>),
    Runs(Chunk<i64>),
    Counters(Chunk<(String, i64, i64, i64)>),
    Series(Chunk<series::OldRow>),
    Items(Chunk<operations::Item>),
    Operations(Chunk<[u8; 16]>),
    Hours(Chunk<series::OldHour>),
}

/// A notification that ended, as it was found.
struct Ended {
    id: [u8; 16],
    flow: FlowId,
    state: State,
    at: Timestamp,
}

impl Found {
    const fn parts(&self) -> (usize, &Option<Vec<u8>>) {
        match self {
            Self::Attempts(chunk) | Self::Letters(chunk) | Self::Operations(chunk) => {
                (chunk.rows.len(), &chunk.next)
            }
            Self::Items(chunk) => (chunk.rows.len(), &chunk.next),
            Self::Notifications(chunk) => (chunk.rows.len(), &chunk.next),
            Self::Deleted(chunk) => (chunk.rows.len(), &chunk.next),
            Self::Audit(chunk) | Self::Runs(chunk) => (chunk.rows.len(), &chunk.next),
            Self::Counters(chunk) => (chunk.rows.len(), &chunk.next),
            Self::Series(chunk) => (chunk.rows.len(), &chunk.next),
            Self::Hours(chunk) => (chunk.rows.len(), &chunk.next),
        }
    }

    const fn len(&self) -> usize {
        self.parts().0
    }

    const fn is_nothing(&self) -> bool {
        let (rows, next) = self.parts();
        rows == 0 && next.is_none()
    }
}

fn pass(conn: &Connection, kind: Kind) -> Result<Pass> {
    let mut select = conn.prepare_cached("select after, removed from retention where kind = ?1")?;
    let read = |row: &rusqlite::Row<'_>| Ok(Pass { after: row.get(0)?, removed: row.get(1)? });
    Ok(select.query_row([kind.name()], read).optional()?.unwrap_or_default())
}

fn find(conn: &Connection, prune: &Prune) -> Result<(Pass, Found)> {
    let pass = pass(conn, prune.kind)?;
    let found = match prune.kind {
        Kind::Attempts => Found::Attempts(attempts(conn, prune, &pass)?),
        Kind::Delivered | Kind::Failed | Kind::Cancelled | Kind::Expired => {
            Found::Notifications(notifications(conn, prune, &pass)?)
        }
        Kind::RequeuedLetters | Kind::DiscardedLetters => {
            Found::Letters(letters::resolved(conn, prune, &pass)?)
        }
        Kind::DeletedLetters => Found::Deleted(letters::deleted(conn, prune)?),
        Kind::Audit => Found::Audit(oldest(conn, prune, AUDIT)?),
        Kind::JobRuns => Found::Runs(oldest(conn, prune, RUNS)?),
        Kind::Counters => Found::Counters(counters(conn, prune)?),
        Kind::Series => Found::Series(all(prune, series::old(conn, prune.cut_off, whole(prune.limit))?)),
        Kind::OperationItems => Found::Items(operations::items(conn, prune, &pass)?),
        Kind::Operations => Found::Operations(operations::finished(conn, prune, &pass)?),
        Kind::DestinationHours => {
            Found::Hours(all(prune, series::old_hours(conn, prune.cut_off, whole(prune.limit))?))
        }
    };
    Ok((pass, found))
}

/// The attempts of what ended long ago, by notification.
fn attempts(conn: &Connection, prune: &Prune, pass: &Pass) -> Result<Chunk<[u8; 16]>> {
    let mut select = conn.prepare_cached(
        "select a.notification, e.at
         from (select distinct notification
               from attempt
               where notification > ?1
               and notification < ?2
               order by notification
               limit ?3) a
         left join ended e on e.id = a.notification
         order by a.notification",
    )?;
    let until = NotificationId::least_at(prune.cut_off).to_bytes();
    let mut rows = select.query(params![pass.start(), until, whole(most_looked_at(prune))])?;
    let mut chunk = Chunk::new();
    while let Some(row) = rows.next()? {
        let (id, ended_at) = (row.get::<_, [u8; 16]>(0)?, maybe_time(row, 1)?);
        let over = ended_at.is_some_and(|at| at < prune.cut_off);
        if chunk.take(prune, &id, over.then_some((id, 0))) {
            break;
        }
    }
    Ok(chunk)
}

/// Whether an operation that is not finished names a notification. Such operations are few.
macro_rules! in_operation {
    ($notification:literal) => {
        concat!(
            "select 1
             from operation o indexed by operation_unfinished
             cross join operation_item i
             on i.operation = o.id
             and i.notification = ",
            $notification,
            "
             where o.finished = 0"
        )
    };
}
use in_operation;

const IN_OPERATION: &str = in_operation!("?1");

const NAMED: &str = concat!(
    "select 1
     from dead_letter
     where notification = ?1
     union all
     ",
    in_operation!("?1")
);

/// What ended with the outcome of the kind. Deliveries have no index of their own: everything that ended is looked at.
fn notifications(conn: &Connection, prune: &Prune, pass: &Pass) -> Result<Chunk<Ended>> {
    let delivered = "
        select id, state, at
        from ended
        where id > ?1
        and id < ?2
        order by id
        limit ?3";
    let others = "
        select id, state, at
        from ended indexed by ended_state
        where id > ?1
        and id < ?2
        and state = ?4
        and state <> 2
        order by id
        limit ?3";
    let until = NotificationId::least_at(prune.cut_off).to_bytes();
    let most = whole(most_looked_at(prune));
    let code = prune.kind.state().map(State::code);
    let mut select = conn.prepare_cached(if prune.kind == Kind::Delivered { delivered } else { others })?;
    let mut rows = match prune.kind {
        Kind::Delivered => select.query(params![pass.start(), until, most])?,
        _ => select.query(params![pass.start(), until, most, code])?,
    };
    let mut named = conn.prepare_cached(NAMED)?;
    let mut wide =
        conn.prepare_cached("select flow, octet_length(content) from notification where id = ?1")?;
    let mut chunk = Chunk::new();
    while let Some(row) = rows.next()? {
        let id: [u8; 16] = row.get(0)?;
        let found = unless_damaged(&"an end", state(row, 1).and_then(|state| Ok((state, time(row, 2)?))))?;
        let over = match found {
            Some((state, at)) if is_removable(prune.kind, state, at, false, prune.cut_off) => {
                let flow = |row: &rusqlite::Row<'_>| Ok((FlowId(row.get(0)?), row.get(1)?));
                let wide = if named.exists([id])? { None } else { wide.query_row([id], flow).optional()? };
                wide.map(|(flow, bytes)| (Ended { id, flow, state, at }, bytes))
            }
            _ => None,
        };
        if chunk.take(prune, &id, over) {
            break;
        }
    }
    Ok(chunk)
}

const AUDIT: &str = "
    select number
    from (select number, at
          from audit
          order by number
          limit ?2)
    where at < ?1";

const RUNS: &str = "
    select number
    from (select number, outcome, finished_at
          from job_run
          order by number
          limit ?2)
    where outcome is not null
    and finished_at < ?1";

/// The oldest rows of a table whose numbers grow with time.
fn oldest(conn: &Connection, prune: &Prune, sql: &str) -> Result<Chunk<i64>> {
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query(params![prune.cut_off.as_micros(), whole(prune.limit)])?;
    let mut chunk = Chunk::new();
    while let Some(row) = rows.next()? {
        chunk.take(prune, &[], Some((row.get(0)?, 0)));
    }
    Ok(chunk)
}

/// Counters of old hours. Hour 0 stands for what has no hour.
fn counters(conn: &Connection, prune: &Prune) -> Result<Chunk<(String, i64, i64, i64)>> {
    let mut select = conn.prepare_cached(
        "select tenant, channel, kind, hour
         from counter
         where hour > 0
         and hour < ?1
         limit ?2",
    )?;
    let mut rows = select.query(params![prune.cut_off.as_hours(), whole(prune.limit)])?;
    let mut chunk = Chunk::new();
    let hour = prune.cut_off.as_hours().to_be_bytes();
    while let Some(row) = rows.next()? {
        chunk.take(prune, &hour, Some(((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?), 0)));
    }
    Ok(chunk)
}

/// All of the rows, which are the oldest ones.
fn all<R>(prune: &Prune, rows: Vec<R>) -> Chunk<R> {
    let mut chunk = Chunk::new();
    for row in rows {
        chunk.take(prune, &[], Some((row, 0)));
    }
    chunk
}

fn write(tx: &mut Tx<'_>, prune: &Prune, seen: &Pass, found: &Found, audit: &Audit) -> Result<Pruned> {
    if pass(tx.conn, prune.kind)? != *seen {
        return Ok(answer(0, false));
    }
    let removed = match found {
        Found::Attempts(chunk) => remove_attempts(tx, prune, &chunk.rows)?,
        Found::Notifications(chunk) => remove_notifications(tx, &chunk.rows)?,
        Found::Letters(chunk) => letters::delete(tx, prune, &chunk.rows)?,
        Found::Deleted(chunk) => letters::purge(tx, &chunk.rows)?,
        Found::Audit(chunk) => remove_audit(tx, &chunk.rows)?,
        Found::Runs(chunk) => by_number(tx, "delete from job_run where number = ?1", &chunk.rows)?,
        Found::Counters(chunk) => remove_counters(tx, &chunk.rows)?,
        Found::Series(chunk) => whole(series::remove(tx, &chunk.rows)?),
        Found::Items(chunk) => operations::remove_items(tx, &chunk.rows)?,
        Found::Operations(chunk) => operations::remove(tx, &chunk.rows)?,
        Found::Hours(chunk) => whole(series::remove_hours(tx, &chunk.rows)?),
    };
    if removed > 0 {
        tx.free_pages.note();
    }
    let next = found.parts().1.clone();
    let done = next.is_none();
    let all = seen.removed + removed;
    if done && all > 0 {
        write_audit(tx.conn, audit, all, all)?;
    }
    let mut after = seen.after(removed, next);
    if prune.kind == Kind::Counters {
        after.after = Some(prune.cut_off.as_hours().to_be_bytes().to_vec());
    }
    let mut upsert = tx.conn.prepare_cached(
        "insert into retention (kind, after, removed)
         values (?1, ?2, ?3)
         on conflict (kind) do update
         set after = excluded.after, removed = excluded.removed",
    )?;
    upsert.execute(params![prune.kind.name(), after.after, after.removed])?;
    Ok(answer(removed, done))
}

fn remove_attempts(tx: &Tx<'_>, prune: &Prune, ids: &[[u8; 16]]) -> Result<i64> {
    let mut delete = tx.conn.prepare_cached(
        "delete from attempt
         where notification = ?1
         and exists (
             select 1
             from ended
             where id = ?1
             and at < ?2)",
    )?;
    let mut removed = 0;
    for id in ids {
        removed += delete.execute(params![id, prune.cut_off.as_micros()])?;
    }
    Ok(whole(removed))
}

fn remove_notifications(tx: &mut Tx<'_>, rows: &[Ended]) -> Result<i64> {
    let conn = tx.conn;
    // Whatever happens to a notification that has ended changes this row.
    let mut ended = conn.prepare_cached("delete from ended where id = ?1 and state = ?2 and at = ?3")?;
    // An operation may have begun to name it meanwhile.
    let mut named = conn.prepare_cached(NAMED)?;
    let mut others = [
        conn.prepare_cached("delete from attempt where notification = ?1")?,
        conn.prepare_cached("delete from event where notification = ?1")?,
        conn.prepare_cached("delete from notification where id = ?1")?,
    ];
    let mut gone = Vec::with_capacity(rows.len());
    for Ended { id, flow, state, at } in rows {
        if named.exists([id])? || ended.execute(params![id, state.code(), at.as_micros()])? == 0 {
            continue;
        }
        for delete in &mut others {
            delete.execute([id])?;
        }
        tx.deltas.ended(*flow, *state, *at, -1);
        gone.push(*id);
    }
    tx.blocks.remove(conn, &gone)?;
    Ok(whole(gone.len()))
}

/// Remembers the last number: the newest row may be among those that go, and its number is not given again.
fn remove_audit(tx: &Tx<'_>, numbers: &[i64]) -> Result<i64> {
    if let Some(last) = numbers.iter().max() {
        let mut upsert = tx.conn.prepare_cached(
            "insert into retention (kind, after, removed)
             values ('audit-number', null, ?1)
             on conflict (kind) do update
             set removed = max(removed, excluded.removed)",
        )?;
        upsert.execute([last])?;
    }
    by_number(tx, "delete from audit where number = ?1", numbers)
}

fn by_number(tx: &Tx<'_>, sql: &str, numbers: &[i64]) -> Result<i64> {
    let mut delete = tx.conn.prepare_cached(sql)?;
    let mut removed = 0;
    for number in numbers {
        removed += delete.execute([number])?;
    }
    Ok(whole(removed))
}

fn remove_counters(tx: &Tx<'_>, rows: &[(String, i64, i64, i64)]) -> Result<i64> {
    let mut delete = tx.conn.prepare_cached(
        "delete from counter
         where tenant = ?1
         and channel = ?2
         and kind = ?3
         and hour = ?4",
    )?;
    let mut removed = 0;
    for (tenant, channel, kind, hour) in rows {
        removed += delete.execute(params![tenant, channel, kind, hour])?;
    }
    Ok(whole(removed))
}

fn whole(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
