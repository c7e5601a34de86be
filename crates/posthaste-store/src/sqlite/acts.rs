//! Acts on notifications. A change is applied only if the notification is still in the state that was seen.

use async_trait::async_trait;
use posthaste_core::act::{Act, Effect, Seen, Standing, effect};
use posthaste_core::attempt::Progress;
use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Priority;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Accepted, Acts, Audit, Change, Facts, LetterFacts, Replacement};
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteStore;
use super::accept::{self, Incoming};
use super::ends::{self, bury, letter, resolve};
use super::fault::{Fault, Result};
use super::nodes::Event;
use super::planted::Planted;
use super::readers::Reader;
use super::reads;
use super::rows::{maybe_time, notification_id, priority, status};
use super::writer::Tx;
use crate::kept::places::{Ended, Place};

#[async_trait]
impl Acts for SqliteStore {
    async fn facts(&self, ids: Vec<NotificationId>) -> store::Result<Vec<Facts>> {
        self.find(move |reader| facts(reader, &ids)).await
    }

    async fn notification_of(&self, dead_letter: DeadLetterId) -> store::Result<Option<NotificationId>> {
        self.find(move |reader| notification_of(&reader.conn, dead_letter)).await
    }

    async fn letter_facts(&self, dead_letters: Vec<DeadLetterId>) -> store::Result<Vec<Option<LetterFacts>>> {
        let all = move |reader: &mut Reader| {
            dead_letters.iter().map(|letter| letter_facts(&reader.conn, *letter)).collect()
        };
        self.find(all).await
    }

    async fn transition(
        &self,
        changes: Vec<Change>,
        actor: Option<String>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Vec<bool>> {
        let rows = changes.len();
        let run = move |tx: &mut Tx<'_>| transition(tx, &changes, actor.as_deref(), audit.as_ref(), now);
        self.write(rows, run).await
    }

    async fn replace(
        &self,
        replacement: Replacement,
        actor: Option<String>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Option<Accepted>> {
        let change = replacement.change();
        let copy = [Incoming::new(replacement.request())?];
        let run = move |tx: &mut Tx<'_>| replace(tx, &change, &copy, actor.as_deref(), audit.as_ref(), now);
        self.write(4, run).await
    }
}

/// Ids that do not exist are left out.
fn facts(reader: &mut Reader, ids: &[NotificationId]) -> Result<Vec<Facts>> {
    let mut all = Vec::with_capacity(ids.len());
    for id in ids {
        all.extend(fact(reader, *id)?);
    }
    Ok(all)
}

fn fact(reader: &mut Reader, id: NotificationId) -> Result<Option<Facts>> {
    let Reader { conn, flows } = reader;
    let place = reads::place(conn, id)?;
    let snapshot = place.as_ref().and_then(Place::dead_letter);
    let Some(wide) = ActColumns::find(conn, id, snapshot)? else { return Ok(None) };
    let tenant = flows.need(conn, wide.flow)?.tenant.clone();
    let place = place.ok_or_else(|| Fault::damaged(format!("{id} is neither live nor over")))?;
    let lane = place.lane();
    let bucket = Bucket { flow: wide.flow, lane, priority: wide.priority };
    Ok(Some(Facts { id, tenant, bucket, standing: standing(conn, &place, wide.expires_at)? }))
}

/// The columns of the wide row that acts need, or of the snapshot that a dead letter has of it.
struct ActColumns {
    flow: FlowId,
    priority: Priority,
    expires_at: Option<Timestamp>,
}

impl ActColumns {
    fn find(conn: &Connection, id: NotificationId, snapshot: Option<DeadLetterId>) -> Result<Option<Self>> {
        let mut select = conn.prepare_cached(
            "select flow, priority, expires
             from notification
             where id = ?1
             union all
             select flow, priority, expires
             from dead_letter
             where id = ?2
             limit 1",
        )?;
        let mut rows = select.query(params![id.to_bytes(), snapshot.map(DeadLetterId::to_bytes)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let flow = FlowId(row.get(0)?);
        Ok(Some(Self { flow, priority: priority(row, 1)?, expires_at: maybe_time(row, 2)? }))
    }
}

fn standing(conn: &Connection, place: &Place, expires_at: Option<Timestamp>) -> Result<Standing> {
    let dead_letter = place.dead_letter().map(|name| letter(conn, name)).transpose()?.flatten();
    Ok(place.standing(expires_at, dead_letter))
}

fn notification_of(conn: &Connection, letter: DeadLetterId) -> Result<Option<NotificationId>> {
    let mut select = conn.prepare_cached(
        "select notification
         from dead_letter
         where id = ?1",
    )?;
    let found = select.query_row([letter.to_bytes()], |row| Ok(notification_id(row, 0))).optional()?;
    found.transpose()
}

fn letter_facts(conn: &Connection, letter: DeadLetterId) -> Result<Option<LetterFacts>> {
    let mut select = conn.prepare_cached(
        "select notification, status, deleted_at is not null
         from dead_letter
         where id = ?1",
    )?;
    let mut rows = select.query([letter.to_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(LetterFacts {
        notification: notification_id(row, 0)?,
        status: status(row, 1)?,
        deleted: row.get(2)?,
    }))
}

/// Applies each change that is still possible, with one audit row for all of them.
fn transition(
    tx: &mut Tx<'_>,
    changes: &[Change],
    actor: Option<&str>,
    audit: Option<&Audit>,
    now: Timestamp,
) -> Result<Vec<bool>> {
    let mut made = Vec::with_capacity(changes.len());
    for change in changes {
        made.push(apply(tx, change, actor, now)?);
    }
    let count = made.iter().map(|applied| i64::from(*applied)).sum();
    if let Some(audit) = audit
        && count > 0
    {
        let asked = i64::try_from(changes.len()).unwrap_or(i64::MAX);
        write_audit(tx.conn, audit, asked, count)?;
    }
    Ok(made)
}

/// Writes an audit row: `asked` changes were requested, `count` were applied.
pub(super) fn write_audit(conn: &Connection, audit: &Audit, asked: i64, count: i64) -> Result<()> {
    let mut insert = conn.prepare_cached(
        "insert into audit (number, tenant, actor, action, target, at, asked, count, key_id, address)
         select max(
             coalesce((select max(number) from audit), 0),
             -- The last one that retention has removed: a number is not given twice.
             coalesce((select removed from retention where kind = 'audit-number'), 0)
         ) + 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9",
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

/// Takes the copy in and replaces the original.
fn replace(
    tx: &mut Tx<'_>,
    change: &Change,
    copy: &[Incoming],
    actor: Option<&str>,
    audit: Option<&Audit>,
    now: Timestamp,
) -> Result<Option<Accepted>> {
    let Some(found) = possible(tx, change, now)? else { return Ok(None) };
    let accepted = accept::accept(tx, copy, now)?.answers.pop();
    if accepted == Some(Accepted::New) {
        found.perform(tx, &change.act, actor, now)?;
        if let (Act::Replace { by: id }, Some(word)) = (&change.act, change.act.word()) {
            let Seen { generation, attempt, .. } = Replacement::COPY;
            Event { word, actor, generation, attempt }.insert(tx.conn, *id, now)?;
        }
        if let Some(audit) = audit {
            write_audit(tx.conn, audit, 1, 1)?;
        }
    }
    Ok(accepted)
}

fn apply(tx: &mut Tx<'_>, change: &Change, actor: Option<&str>, now: Timestamp) -> Result<bool> {
    let Some(found) = possible(tx, change, now)? else { return Ok(false) };
    found.perform(tx, &change.act, actor, now)
}

/// The notification, if it is still as it was seen and the act fits.
fn possible(tx: &Tx<'_>, change: &Change, now: Timestamp) -> Result<Option<Found>> {
    let Some(found) = Found::look(tx.conn, change.id)? else { return Ok(None) };
    let as_seen = found.standing.seen() == change.seen || tx.bug(Planted::ActWithoutLooking);
    let fits = as_seen && effect(&found.standing, &change.act, now).is_ok();
    Ok(fits.then_some(found))
}

/// A notification as the writer finds it.
pub(super) struct Found {
    id: NotificationId,
    place: Place,
    flow: FlowId,
    priority: Priority,
    pub(super) standing: Standing,
}

impl Found {
    pub(super) fn look(conn: &Connection, id: NotificationId) -> Result<Option<Self>> {
        let Some(place) = reads::place(conn, id)? else { return Ok(None) };
        let wide = ActColumns::find(conn, id, place.dead_letter())?
            .ok_or_else(|| Fault::damaged(format!("{id} has no wide row")))?;
        let standing = standing(conn, &place, wide.expires_at)?;
        Ok(Some(Self { id, place, flow: wide.flow, priority: wide.priority, standing }))
    }

    /// Does an act, if it is possible.
    pub(super) fn perform(
        &self,
        tx: &mut Tx<'_>,
        act: &Act,
        actor: Option<&str>,
        now: Timestamp,
    ) -> Result<bool> {
        let Ok(effect) = effect(&self.standing, act, now) else { return Ok(false) };
        write(tx, self.id, &self.place, self.flow, effect, (now, actor.unwrap_or(Audit::ITSELF)))?;
        if let Some(word) = act.word() {
            let Seen { generation, attempt, .. } = self.standing.seen();
            Event { word, actor, generation, attempt }.insert(tx.conn, self.id, now)?;
        }
        Ok(true)
    }

    pub(super) fn facts(self, tx: &mut Tx<'_>) -> Result<Facts> {
        let tenant = tx.flows.need(tx.conn, self.flow)?.tenant.clone();
        let bucket = Bucket { flow: self.flow, lane: self.place.lane(), priority: self.priority };
        Ok(Facts { id: self.id, tenant, bucket, standing: self.standing })
    }
}

fn write(
    tx: &mut Tx<'_>,
    id: NotificationId,
    place: &Place,
    flow: FlowId,
    effect: Effect,
    by: (Timestamp, &str),
) -> Result<()> {
    let now = by.0;
    match (effect, place) {
        (Effect::End { ending, progress }, Place::Live(row)) => {
            let ended = Ended::of(&ending, progress, now);
            if ended.dead_letter.is_some() {
                bury(tx, id, &ended)?;
            }
            tx.conn.prepare_cached("delete from queue where id = ?1")?.execute([id.to_bytes()])?;
            let ended = ends::with_last_attempt(tx.conn, id, ended)?;
            ends::insert(tx, &mut tx.conn.prepare_cached(ends::INSERT)?, id, row.bucket.flow, &ended)?;
            tx.deltas.live(row.bucket.flow, row.bucket.lane, -1);
            tx.deltas.ended(row.bucket.flow, ended.state, now, 1);
            Ok(())
        }
        (Effect::MarkCancel, Place::Live(_)) => {
            tx.conn.prepare_cached("update queue set cancel = 1 where id = ?1")?.execute([id.to_bytes()])?;
            Ok(())
        }
        (Effect::MakeDue(due), Place::Live(_)) => {
            let mut update = tx.conn.prepare_cached("update queue set due = ?2 where id = ?1")?;
            update.execute(params![id.to_bytes(), due.as_micros()])?;
            Ok(())
        }
        (Effect::Reopen { progress, letter }, Place::Over(ended)) => {
            resolve(tx, letter, by)?;
            reopen(tx, id, flow, ended, progress, now)
        }
        (Effect::Amend { state, reason, text, letter }, Place::Over(ended)) => {
            resolve(tx, letter, by)?;
            amend(tx, id, flow, ended, &Ended { state, reason, text, ..ended.clone() })
        }
        (effect, _) => Err(Fault::damaged(format!("{effect:?} does not fit where {id} is"))),
    }
}

/// Starts a new generation, due now.
fn reopen(
    tx: &mut Tx<'_>,
    id: NotificationId,
    flow: FlowId,
    ended: &Ended,
    progress: Progress,
    now: Timestamp,
) -> Result<()> {
    ends::delete(tx.conn, id)?;
    tx.deltas.ended(flow, ended.state, ended.at, -1);
    if let Some(letter) = ended.dead_letter
        && ends::write_back(tx.conn, letter)?
    {
        tx.blocks.note(id, flow);
    }
    let mut insert = tx.conn.prepare_cached(
        "insert into queue (id, flow, lane, priority, due, expires, first_due, delay, node, fence, attempt, base,
             generation, interruptions, cancel, own_policy, own_age)
         select id, flow, 0, priority, ?2, expires, ?2, 0, null, null, ?3, ?4, ?5, 0, 0,
             template is not null or content ->> '$.policy' is not null, content ->> '$.policy.maxAge' is not null
         from notification
         where id = ?1",
    )?;
    let Progress { generation, attempt, base } = progress;
    insert.execute(params![id.to_bytes(), now.as_micros(), attempt, base, generation])?;
    tx.deltas.live(flow, Lane::Main, 1);
    Ok(())
}

/// Replaces an end by another one at the same time, in the counters too.
fn amend(tx: &mut Tx<'_>, id: NotificationId, flow: FlowId, before: &Ended, after: &Ended) -> Result<()> {
    ends::delete(tx.conn, id)?;
    ends::insert(tx, &mut tx.conn.prepare_cached(ends::INSERT)?, id, flow, after)?;
    tx.deltas.ended(flow, before.state, before.at, -1);
    tx.deltas.ended(flow, after.state, after.at, 1);
    Ok(())
}
