//! Ended notifications and their dead letters.

use posthaste_core::act::{Letter, Resolution};
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{LastError, Progress};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::fault::{Fault, Result};
use super::groups;
use super::planted::Planted;
use super::rows::{maybe_dead_letter_id, maybe_failure, maybe_reason, state, status, time};
use super::settle::attempts;
use super::writer::Tx;
use crate::kept::attempts::attempts_text;
use crate::kept::groups::print;
use crate::kept::places::Ended;
use crate::kept::replies;

/// The columns of an ended row, in the order in which `ended` reads them.
macro_rules! ended_columns {
    () => {
        "state, at, generation, base, attempt, reason, text, dead_letter, failure, status_code"
    };
}

/// Inserts a row with the tenant of its flow.
pub(super) const INSERT: &str = concat!(
    "insert into ended (id, ",
    ended_columns!(),
    ", tenant) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
);

/// Reads `ended_columns` from column `start` on.
fn ended(row: &Row<'_>, start: usize) -> Result<Ended> {
    Ok(Ended {
        state: state(row, start)?,
        at: time(row, start + 1)?,
        progress: Progress {
            generation: row.get(start + 2)?,
            base: row.get(start + 3)?,
            attempt: row.get(start + 4)?,
        },
        reason: maybe_reason(row, start + 5)?,
        text: row.get(start + 6)?,
        dead_letter: maybe_dead_letter_id(row, start + 7)?,
        failure_type: maybe_failure(row, start + 8)?,
        status_code: row.get(start + 9)?,
    })
}

pub(super) fn find(conn: &Connection, id: NotificationId) -> Result<Option<Ended>> {
    let mut select =
        conn.prepare_cached(concat!("select ", ended_columns!(), " from ended where id = ?1"))?;
    let found = select.query_row([id.to_bytes()], |row| Ok(ended(row, 0))).optional()?;
    found.transpose()
}

/// Sets failure type and status code from the last attempt.
pub(super) fn with_last_attempt(conn: &Connection, id: NotificationId, ended: Ended) -> Result<Ended> {
    let LastAttempt { failure_type, status_code, .. } = last_attempt(conn, id)?;
    Ok(Ended { failure_type, status_code, ..ended })
}

/// All are `None` without an attempt; a delivered one has no failure type.
#[derive(Default)]
pub(super) struct LastAttempt {
    pub(super) failure_type: Option<FailureType>,
    pub(super) status_code: Option<u16>,
    error: Option<String>,
}

impl LastAttempt {
    pub(super) fn failed(self) -> Option<LastError> {
        self.failure_type.map(|_| LastError { error: self.error, status_code: self.status_code })
    }
}

pub(super) fn last_attempt(conn: &Connection, id: NotificationId) -> Result<LastAttempt> {
    let mut select = conn.prepare_cached(
        "select failure, status_code, error
         from attempt
         where notification = ?1
         order by generation desc, number desc
         limit 1",
    )?;
    let mut rows = select.query([id.to_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(LastAttempt::default()) };
    Ok(LastAttempt { failure_type: maybe_failure(row, 0)?, status_code: row.get(1)?, error: row.get(2)? })
}

/// Inserts a row by the statement `INSERT`. Delivered rows have no tenant: the column serves the index for
/// lists of failures.
pub(super) fn insert(
    tx: &mut Tx<'_>,
    statement: &mut CachedStatement<'_>,
    id: NotificationId,
    flow: FlowId,
    ended: &Ended,
) -> Result<()> {
    let failed = ended.state != State::Succeeded;
    let key = failed.then(|| tx.flows.need(tx.conn, flow)).transpose()?;
    statement.execute(params![
        id.to_bytes(),
        ended.state.code(),
        ended.at.as_micros(),
        ended.progress.generation,
        ended.progress.base,
        ended.progress.attempt,
        ended.reason.map(Reason::code),
        ended.text,
        ended.dead_letter.map(DeadLetterId::to_bytes),
        ended.failure_type.map(FailureType::code),
        ended.status_code,
        key.as_ref().map(|key| key.tenant.as_str()),
    ])?;
    Ok(())
}

pub(super) fn delete(conn: &Connection, id: NotificationId) -> Result<()> {
    let mut delete = conn.prepare_cached("delete from ended where id = ?1")?;
    delete.execute([id.to_bytes()])?;
    Ok(())
}

/// Creates the dead letter of an end, with its own snapshot of the notification and of the attempts of the
/// generation.
pub(super) fn bury(tx: &mut Tx<'_>, id: NotificationId, ended: &Ended) -> Result<()> {
    if tx.bug(Planted::LostDeadLetter) {
        return Ok(());
    }
    let attempts = attempts(tx.conn, id, Some(ended.progress.generation))?;
    let mut insert = tx.conn.prepare_cached(
        "insert into dead_letter (id, notification, flow, recipient, priority, template, subject, event_key,
             correlation_id, not_before, expires, content, reason, text, attempts, status, created_at, failure,
             status_code, replies, fingerprint, tenant)
         select ?1, n.id, flow, recipient, priority, template, subject, event_key, correlation_id, not_before, expires,
             content, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, f.tenant
         from notification n
         join flow f on f.id = n.flow
         where n.id = ?2",
    )?;
    let last = attempts.last();
    let status_code = last.and_then(|attempt| attempt.status_code);
    let text = ended.text.as_deref().unwrap_or_default();
    let print = ended.reason.map(|reason| {
        print(reason, last.and_then(|attempt| attempt.outcome.failure_type()), status_code, text)
    });
    let made = insert.execute(params![
        ended.dead_letter.map(DeadLetterId::to_bytes),
        id.to_bytes(),
        ended.reason.map(Reason::code),
        ended.text,
        attempts_text(&attempts)?,
        DeadLetterStatus::Pending.code(),
        ended.dead_letter.map(|name| name.made_at().as_micros()),
        last.and_then(|attempt| attempt.outcome.code()),
        status_code,
        replies::all(&attempts)?,
        print,
    ])?;
    if made != 1 {
        return Err(Fault::damaged(format!("{id} has no wide row or no flow")));
    }
    ended.dead_letter.map_or(Ok(()), |letter| groups::made(tx, letter))
}

/// Writes the wide row from the snapshot of that dead letter, if it is gone. Returns whether it was.
pub(super) fn write_back(conn: &Connection, letter: DeadLetterId) -> Result<bool> {
    let mut insert = conn.prepare_cached(
        "insert into notification (id, flow, recipient, priority, template, subject, event_key, correlation_id,
             not_before, expires, content)
         select d.notification, flow, recipient, priority, template, subject, event_key, correlation_id, not_before,
             expires, content
         from dead_letter d
         where d.id = ?1
         and not exists (select 1 from notification n where n.id = d.notification)",
    )?;
    Ok(insert.execute([letter.to_bytes()])? > 0)
}

pub(super) fn letter(conn: &Connection, id: DeadLetterId) -> Result<Option<Letter>> {
    let mut select = conn.prepare_cached(
        "select status, reason, text, deleted_at is not null
         from dead_letter
         where id = ?1",
    )?;
    let mut rows = select.query([id.to_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Letter {
        id,
        status: status(row, 0)?,
        deleted: row.get(3)?,
        reason: maybe_reason(row, 1)?,
        text: row.get(2)?,
    }))
}

/// Writes the status of a dead letter and whether it is shown in lists. A letter that is pending again has no
/// `resolved_by`; if it is shown, it was restored.
pub(super) fn resolve(
    tx: &mut Tx<'_>,
    letter: Option<Resolution>,
    (now, actor): (Timestamp, &str),
) -> Result<()> {
    let Some(Resolution { id, status, deleted_at }) = letter else { return Ok(()) };
    let by = (status != DeadLetterStatus::Pending).then_some((now.as_micros(), actor));
    let (at, who) = by.unzip();
    let restored_at = (by.is_none() && deleted_at.is_none()).then_some(now.as_micros());
    let deleted_at = deleted_at.map(Timestamp::as_micros);
    groups::changing(tx, id, |conn| {
        let mut update = conn.prepare_cached(
            "update dead_letter
             set status = ?2, resolved_at = ?3, resolved_by = ?4, deleted_at = ?5, restored_at = coalesce(?6, restored_at)
             where id = ?1",
        )?;
        update.execute(params![id.to_bytes(), status.code(), at, who, deleted_at, restored_at])?;
        Ok(())
    })
}
