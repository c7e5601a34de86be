//! What people and programs do to a notification, each change only while it stands as it was seen.

use async_trait::async_trait;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::reason::Reason;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Act, Acts, Audit, Change, Facts, Progress, Seen};
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteStore;
use super::ends::{Ended, Letter, bury};
use super::fault::{Fault, Result};
use super::nodes::Event;
use super::planted::Planted;
use super::readers::Reader;
use super::reads::Standing;
use super::rows::{Queued, maybe_time, notification_id, priority};
use super::writer::Tx;

#[async_trait]
impl Acts for SqliteStore {
    async fn facts(&self, ids: Vec<NotificationId>) -> store::Result<Vec<Facts>> {
        self.find(move |reader| facts(reader, &ids)).await
    }

    async fn notification_of(&self, dead_letter: DeadLetterId) -> store::Result<Option<NotificationId>> {
        self.find(move |reader| notification_of(&reader.conn, dead_letter)).await
    }

    async fn transition(
        &self,
        changes: Vec<Change>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Vec<bool>> {
        self.write(changes.len(), move |tx| transition(tx, &changes, audit.as_ref(), now)).await
    }
}

/// What an act has to know of each id that exists.
fn facts(reader: &mut Reader, ids: &[NotificationId]) -> Result<Vec<Facts>> {
    let mut all = Vec::with_capacity(ids.len());
    for id in ids {
        all.extend(fact(reader, *id)?);
    }
    Ok(all)
}

fn fact(reader: &mut Reader, id: NotificationId) -> Result<Option<Facts>> {
    let Reader { conn, flows } = reader;
    let mut select = conn.prepare_cached(
        "select flow, priority, expires
         from notification
         where id = ?1",
    )?;
    let mut rows = select.query([id.to_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let flow = FlowId(row.get(0)?);
    let (priority, expires_at) = (priority(row, 1)?, maybe_time(row, 2)?);
    let tenant = flows.need(conn, flow)?.tenant.clone();
    let standing = Standing::need(conn, id)?;
    let seen = standing.seen();
    let bucket = |lane| Bucket { flow, lane, priority };
    Ok(Some(match standing {
        Standing::Live(row) => Facts {
            id,
            tenant,
            bucket: bucket(row.bucket.lane),
            seen,
            expires_at,
            cancel_requested: row.cancel,
            reason: None,
            dead_letter: None,
        },
        Standing::Over(ended) => {
            let letter = ended.dead_letter.map(|name| Letter::find(conn, name)).transpose()?.flatten();
            let dead_letter = ended.dead_letter.zip(letter.map(|letter| letter.status));
            Facts {
                id,
                tenant,
                bucket: bucket(Lane::Main),
                seen,
                expires_at,
                cancel_requested: false,
                reason: ended.reason,
                dead_letter,
            }
        }
    }))
}

/// The notification of a dead letter.
fn notification_of(conn: &Connection, letter: DeadLetterId) -> Result<Option<NotificationId>> {
    let mut select = conn.prepare_cached(
        "select notification
         from dead_letter
         where id = ?1",
    )?;
    let found = select.query_row([letter.to_bytes()], |row| Ok(notification_id(row, 0))).optional()?;
    found.transpose()
}

/// Makes each change that still fits, with one audit row for all of them.
fn transition(
    tx: &mut Tx<'_>,
    changes: &[Change],
    audit: Option<&Audit>,
    now: Timestamp,
) -> Result<Vec<bool>> {
    let mut made = Vec::with_capacity(changes.len());
    for change in changes {
        made.push(apply(tx, change, audit, now)?);
    }
    let count = made.iter().map(|applied| i64::from(*applied)).sum();
    if let Some(audit) = audit
        && count > 0
    {
        let asked = i64::try_from(changes.len()).unwrap_or(i64::MAX);
        record(tx.conn, audit, asked, count)?;
    }
    Ok(made)
}

/// Writes an audit row of so many changes asked for and made.
pub(super) fn record(conn: &Connection, audit: &Audit, asked: i64, count: i64) -> Result<()> {
    let mut insert = conn.prepare_cached(
        "insert into audit (tenant, actor, action, target, at, asked, count, key_id, address)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    insert.execute(params![
        audit.tenant.as_ref().map(posthaste_core::notification::Tenant::as_str),
        audit.actor,
        audit.action,
        audit.target,
        audit.at.as_micros(),
        asked,
        count,
        audit.key_id,
        audit.address,
    ])?;
    Ok(())
}

fn apply(tx: &mut Tx<'_>, change: &Change, audit: Option<&Audit>, now: Timestamp) -> Result<bool> {
    let Some(standing) = Standing::find(tx.conn, change.id)? else { return Ok(false) };
    if standing.seen() != change.seen && !tx.bug(Planted::ActWithoutLooking) {
        return Ok(false);
    }
    let Some(to) = arrow(standing.seen().state, &change.act) else { return Ok(false) };
    let by = (now, audit.map_or(Audit::ITSELF, |audit| audit.actor.as_str()));
    let done = match &standing {
        Standing::Live(row) if row.lease.is_none() => waiting(tx, change.id, row, &change.act, to, now)?,
        Standing::Live(_) => leased(tx, change.id, &change.act)?,
        Standing::Over(ended) => over(tx, change.id, ended, &change.act, to, by)?,
    };
    if done && let Some(word) = change.act.word() {
        let Seen { generation, attempt, .. } = standing.seen();
        let actor = audit.map(|audit| audit.actor.as_str());
        Event { word, actor, generation, attempt }.insert(tx.conn, change.id, now)?;
    }
    Ok(done)
}

/// Where the act leads from a state (law 3), which is the same state if it takes no arrow; none if there is no such arrow.
fn arrow(from: State, act: &Act) -> Option<State> {
    act.event().map_or(Some(from), |event| from.next(event).ok())
}

/// An act on a row that nobody holds.
fn waiting(
    tx: &mut Tx<'_>,
    id: NotificationId,
    row: &Queued,
    act: &Act,
    to: State,
    now: Timestamp,
) -> Result<bool> {
    let last = row.progress.attempt.saturating_sub(1);
    let mut ended = Ended {
        state: to,
        at: now,
        progress: Progress { attempt: last, ..row.progress },
        reason: None,
        text: None,
        dead_letter: None,
        failure_type: None,
        status_code: None,
    };
    match act {
        Act::Cancel | Act::Expire => {}
        Act::Bury { dead_letter, reason, text } => {
            ended.reason = Some(*reason);
            ended.text = Some(text.clone());
            ended.dead_letter = Some(*dead_letter);
            bury(tx, id, &ended)?;
        }
        Act::RetryNow if row.bucket.lane == Lane::Retry => {
            let mut update = tx.conn.prepare_cached("update queue set due = ?2 where id = ?1")?;
            update.execute(params![id.to_bytes(), row.due.min(now).as_micros()])?;
            return Ok(true);
        }
        Act::RetryNow | Act::RequestCancel | Act::Requeue | Act::Retry | Act::Discard | Act::Restore => {
            return Ok(false);
        }
    }
    tx.conn.prepare_cached("delete from queue where id = ?1")?.execute([id.to_bytes()])?;
    let ended = ended.with_last_attempt(tx.conn, id)?;
    ended.insert(tx, &mut tx.conn.prepare_cached(Ended::INSERT)?, id, row.bucket.flow)?;
    tx.deltas.live(row.bucket.flow, row.bucket.lane, -1);
    tx.deltas.ended(row.bucket.flow, ended.state, now, 1);
    Ok(true)
}

/// An act on a row that a node holds: all that can be done is to ask for its end.
fn leased(tx: &mut Tx<'_>, id: NotificationId, act: &Act) -> Result<bool> {
    if *act != Act::RequestCancel {
        return Ok(false);
    }
    tx.conn.prepare_cached("update queue set cancel = 1 where id = ?1")?.execute([id.to_bytes()])?;
    Ok(true)
}

/// An act on what ended.
fn over(
    tx: &mut Tx<'_>,
    id: NotificationId,
    ended: &Ended,
    act: &Act,
    to: State,
    by: (Timestamp, &str),
) -> Result<bool> {
    let letter = ended.dead_letter.map(|name| Letter::find(tx.conn, name)).transpose()?.flatten();
    let named = ended.dead_letter.zip(letter);
    match act {
        Act::Requeue => {
            if let Some((name, _)) = named {
                Letter::resolve(tx.conn, name, DeadLetterStatus::Requeued, Some(by))?;
            }
            reopen(tx, id, ended, 0, by.0)?;
        }
        Act::Retry => {
            if let Some((name, Letter { status: DeadLetterStatus::Pending, .. })) = named {
                Letter::resolve(tx.conn, name, DeadLetterStatus::Requeued, Some(by))?;
            }
            reopen(tx, id, ended, ended.progress.attempt, by.0)?;
        }
        Act::Discard => {
            if let Some((name, _)) = named {
                Letter::resolve(tx.conn, name, DeadLetterStatus::Cancelled, Some(by))?;
            }
            let (reason, text) = (Some(Reason::Discarded), Some(Reason::Discarded.words().to_owned()));
            replace(tx, id, ended, Ended { state: to, reason, text, ..ended.clone() })?;
        }
        Act::Restore if ended.reason == Some(Reason::Discarded) => {
            let Some((name, letter)) = named else { return Ok(false) };
            if letter.status != DeadLetterStatus::Cancelled {
                return Ok(false);
            }
            Letter::resolve(tx.conn, name, DeadLetterStatus::Pending, None)?;
            let text = Some(letter.text);
            replace(tx, id, ended, Ended { state: to, reason: letter.reason, text, ..ended.clone() })?;
        }
        Act::Restore | Act::Cancel | Act::RequestCancel | Act::RetryNow | Act::Expire | Act::Bury { .. } => {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A new generation, due at once, whose attempts are counted from `base`.
fn reopen(tx: &mut Tx<'_>, id: NotificationId, ended: &Ended, base: u32, now: Timestamp) -> Result<()> {
    let flow = flow_of(tx.conn, id)?;
    Ended::delete(tx.conn, id)?;
    tx.deltas.ended(flow, ended.state, ended.at, -1);
    let mut insert = tx.conn.prepare_cached(
        "insert into queue (id, flow, lane, priority, due, expires, first_due, delay, node, fence, attempt, base,
             generation, interruptions, cancel, own_policy)
         select id, flow, 0, priority, ?2, expires, ?2, 0, null, null, ?3, ?4, ?5, 0, 0,
             template is not null or content ->> '$.policy' is not null
         from notification
         where id = ?1",
    )?;
    let generation = ended.progress.generation + 1;
    insert.execute(params![id.to_bytes(), now.as_micros(), base + 1, base, generation])?;
    tx.deltas.live(flow, Lane::Main, 1);
    Ok(())
}

/// Another end in place of the one before, at the same time; the counters move with it.
fn replace(tx: &mut Tx<'_>, id: NotificationId, before: &Ended, after: Ended) -> Result<()> {
    let flow = flow_of(tx.conn, id)?;
    Ended::delete(tx.conn, id)?;
    after.insert(tx, &mut tx.conn.prepare_cached(Ended::INSERT)?, id, flow)?;
    tx.deltas.ended(flow, before.state, before.at, -1);
    tx.deltas.ended(flow, after.state, after.at, 1);
    Ok(())
}

fn flow_of(conn: &Connection, id: NotificationId) -> Result<FlowId> {
    let mut select = conn.prepare_cached("select flow from notification where id = ?1")?;
    let mut rows = select.query([id.to_bytes()])?;
    let row = rows.next()?.ok_or_else(|| Fault::nonsense(format!("{id} has no wide row")))?;
    Ok(FlowId(row.get(0)?))
}
