//! Acts on notifications. A change is applied only if the notification is still in the state that was seen.
//!
//! Changes of different notifications are applied together: their rows are locked in id order, each change is
//! decided on the locked rows, and all effects are written. Changes of the same notification are applied one
//! after the other.

use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap};

use posthaste_core::act::{Effect, Letter, Standing, effect};
use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Priority;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    self, Accepted, Acts, Arrival, Audit, Change, Facts, LetterFacts, Replacement, Request,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::accept::{self, How};
use super::changes::Changes;
use super::fault::Result;
use super::flows::Flows;
use super::reads::place_columns;
use super::rows::{Columns, Keys, bigint, known, letter_uuid, uuid};
use super::tx::{Mode, Statement, Then, Tx, bind, statement};
use super::{PostgresStore, idempotency, look, transact};
use crate::kept::places::{Ended, Place};

#[async_trait]
impl Acts for PostgresStore {
    async fn facts(&self, ids: Vec<NotificationId>) -> store::Result<Vec<Facts>> {
        Ok(look!(self, tx => facts(&tx, &self.flows, &ids))?)
    }

    async fn notification_of(&self, dead_letter: DeadLetterId) -> store::Result<Option<NotificationId>> {
        Ok(look!(self, tx => notification_of(&tx, dead_letter))?)
    }

    async fn letter_facts(&self, dead_letters: Vec<DeadLetterId>) -> store::Result<Vec<Option<LetterFacts>>> {
        Ok(look!(self, tx => letter_facts(&tx, &dead_letters))?)
    }

    async fn transition(
        &self,
        changes: Vec<Change>,
        actor: Option<String>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Vec<bool>> {
        let by = actor.as_deref();
        Ok(transact!(self, tx => transition(&tx, &self.flows, &changes, by, audit.as_ref(), now))?)
    }

    async fn replace(
        &self,
        replacement: Replacement,
        actor: Option<String>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Option<Accepted>> {
        if replacement.idempotency.is_some() && !self.days.ready(now) {
            transact!(self, tx => self.days.turn(&tx, now))?;
        }
        let (change, copy) = (replacement.change(), replacement.request());
        let by = (actor.as_deref(), audit.as_ref());
        Ok(transact!(self, tx => replace(&tx, self, &change, &copy, by, now))?)
    }
}

/// In id order. Ids that do not exist are left out.
async fn facts(tx: &Tx, flows: &Flows, ids: &[NotificationId]) -> Result<Vec<Facts>> {
    let sql = concat!(
        "select asked.id, coalesce(n.flow, d.flow), coalesce(n.priority, d.priority), coalesce(n.expires, d.expires), ",
        place_columns!(),
        ", d.status, d.deleted_at is not null, d.reason, d.text
         from unnest($1::uuid[]) with ordinality as asked (id, place)
         left join notification n on n.id = any(array[asked.id])
         left join queue q on q.id = any(array[asked.id])
         left join ended e on e.id = any(array[asked.id])
         left join dead_letter d on d.id = any(array[e.dead_letter])
         -- A dead letter has its own snapshot of the wide row.
         where coalesce(n.flow, d.flow) is not null
         order by asked.place"
    );
    let asked: Vec<Uuid> = ids.iter().copied().map(uuid).collect();
    let rows = tx.alone(Mode::Read, sql, bind![asked => UUID_ARRAY]).await?;
    let named = rows.iter().map(|row| Ok(FlowId(row.try_get(1)?))).collect::<Result<Vec<_>>>()?;
    let keys = flows.keys(tx, named).await?;
    rows.iter().map(|row| fact(row, &keys)).collect()
}

fn fact(row: &Row, keys: &Keys) -> Result<Facts> {
    let mut columns = Columns::of(row);
    let (id, flow) = (columns.notification_id()?, FlowId(columns.take()?));
    let (priority, expires_at) = (columns.priority()?, columns.maybe_time()?);
    let tenant = known(keys, flow)?.tenant.clone();
    let place = columns.place(id)?;
    let letter = letter(place.dead_letter(), &mut columns)?;
    let bucket = Bucket { flow, lane: place.lane(), priority };
    Ok(Facts { id, tenant, bucket, standing: place.standing(expires_at, letter) })
}

/// Reads the columns status, whether it is deleted, reason and text. Returns `None` if there is no such dead letter.
fn letter(id: Option<DeadLetterId>, columns: &mut Columns<'_>) -> Result<Option<Letter>> {
    let (status, deleted) = (columns.maybe_status()?, columns.take()?);
    let (reason, text): (_, Option<String>) = (columns.maybe_reason()?, columns.take()?);
    let letter = |(id, status)| Letter { id, status, deleted, reason, text: text.unwrap_or_default() };
    Ok(id.zip(status).map(letter))
}

async fn notification_of(tx: &Tx, letter: DeadLetterId) -> Result<Option<NotificationId>> {
    let sql = "select notification from dead_letter where id = $1";
    let rows = tx.alone(Mode::Read, sql, bind![letter_uuid(letter) => UUID]).await?;
    rows.first().map(|row| Columns::of(row).notification_id()).transpose()
}

async fn letter_facts(tx: &Tx, letters: &[DeadLetterId]) -> Result<Vec<Option<LetterFacts>>> {
    let sql = "
        select d.notification, d.status, d.deleted_at is not null
        from unnest($1::uuid[]) with ordinality as asked (id, place)
        left join dead_letter d on d.id = any(array[asked.id])
        order by asked.place";
    let asked: Vec<Uuid> = letters.iter().copied().map(letter_uuid).collect();
    let rows = tx.alone(Mode::Read, sql, bind![asked => UUID_ARRAY]).await?;
    let read = |row: &Row| {
        let mut columns = Columns::of(row);
        let (id, status): (Option<Uuid>, _) = (columns.take()?, columns.maybe_status()?);
        let deleted = columns.take()?;
        let facts = |(id, status): (Uuid, _)| LetterFacts {
            notification: NotificationId::from_bytes(id.into_bytes()),
            status,
            deleted,
        };
        Ok(id.zip(status).map(facts))
    };
    rows.iter().map(read).collect()
}

/// Applies each change that is still possible, with one audit row for all of them.
async fn transition(
    tx: &Tx,
    flows: &Flows,
    changes: &[Change],
    actor: Option<&str>,
    audit: Option<&Audit>,
    now: Timestamp,
) -> Result<Vec<bool>> {
    let mut made = vec![false; changes.len()];
    let mut waiting: Vec<usize> = (0..changes.len()).collect();
    let mut begin = Some(Mode::Write);
    while !waiting.is_empty() {
        let mut round: BTreeMap<NotificationId, usize> = BTreeMap::new();
        waiting.retain(|place| {
            let first = !round.contains_key(&changes[*place].id);
            if first {
                round.insert(changes[*place].id, *place);
            }
            !first
        });
        let found = Locked::lock(tx, begin.take(), round.keys().copied()).await?;
        let mut written = Changes::new(now, actor);
        for (id, place) in round {
            made[place] =
                found.0.get(&id).is_some_and(|found| apply(&mut written, found, &changes[place], now));
        }
        written.write(tx, flows).await?;
    }
    let count = made.iter().filter(|made| **made).count();
    match audit.filter(|_| count > 0) {
        Some(audit) => write_audit(tx, begin, audit, changes.len(), count, vec![]).await?,
        None => {
            tx.send(begin, &[], Then::Commit).await?;
        }
    }
    Ok(made)
}

/// Takes the copy in and replaces the original.
async fn replace(
    tx: &Tx,
    store: &PostgresStore,
    change: &Change,
    copy: &Request,
    (actor, audit): (Option<&str>, Option<&Audit>),
    now: Timestamp,
) -> Result<Option<Accepted>> {
    let found = Locked::lock(tx, Some(Mode::Write), [change.id].into_iter()).await?;
    let mut written = Changes::new(now, actor);
    if !found.0.get(&change.id).is_some_and(|found| apply(&mut written, found, change, now)) {
        tx.send(None, &[], Then::Commit).await?;
        return Ok(None);
    }
    if copy.idempotency.is_some() {
        let known = idempotency::answers(tx, None, &store.days, std::slice::from_ref(copy), now).await?.pop();
        if known != Some(Accepted::New) {
            tx.send(None, &[], Then::Commit).await?;
            return Ok(known);
        }
    }
    let arrivals: Vec<&Arrival> = copy.arrivals.iter().collect();
    if let Some(word) = change.act.word() {
        arrivals.iter().for_each(|copy| written.event(copy.notification.id, word, Replacement::COPY));
    }
    written.write(tx, &store.flows).await?;
    accept::insert(tx, &store.flows, &arrivals, How::Within(Then::Continue)).await?;
    match audit {
        Some(audit) => write_audit(tx, None, audit, 1, 1, vec![]).await?,
        None => {
            tx.send(None, &[], Then::Commit).await?;
        }
    }
    Ok(Some(Accepted::New))
}

/// Writes an audit row after other statements, and commits: `asked` changes were requested, `count` were
/// applied.
pub(super) async fn write_audit(
    tx: &Tx,
    begin: Option<Mode>,
    audit: &Audit,
    asked: usize,
    count: usize,
    mut before: Vec<Statement<'_>>,
) -> Result<()> {
    let tenant = audit.tenant.as_ref().map(posthaste_core::notification::Tenant::as_str);
    let bound = bind![
        tenant => TEXT,
        audit.actor => TEXT,
        audit.action => TEXT,
        audit.target => TEXT,
        audit.at.as_micros() => INT8,
        bigint(asked) => INT8,
        bigint(count) => INT8,
        audit.key_id => TEXT,
        audit.address => TEXT,
    ];
    let sql = "
        insert into audit (tenant, actor, action, target, at, asked, count, key_id, address)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    before.push(statement!(sql, bound));
    tx.send(begin, &before, Then::Commit).await?;
    Ok(())
}

/// Notifications that are locked until the transaction ends.
pub(super) struct Locked(pub(super) HashMap<NotificationId, LockedNotification>);

pub(super) struct LockedNotification {
    place: Place,
    flow: FlowId,
    priority: Priority,
    pub(super) standing: Standing,
}

impl Locked {
    pub(super) async fn lock(
        tx: &Tx,
        begin: Option<Mode>,
        ids: impl Iterator<Item = NotificationId>,
    ) -> Result<Self> {
        let ids: Vec<Uuid> = ids.map(uuid).collect();
        let live = "
            select q.id
            from queue q
            where q.id = any($1)
            order by q.id
            for update";
        let over = "
            select e.id
            from ended e
            where e.id = any($1)
            order by e.id
            for update";
        // A separate statement, so that it sees what was committed while the ones before it waited.
        let found = concat!(
            "select asked.id, coalesce(n.flow, d.flow), coalesce(n.priority, d.priority), coalesce(n.expires, d.expires), ",
            place_columns!(),
            ", d.status, d.deleted_at is not null, d.reason, d.text
             from unnest($1::uuid[]) as asked (id)
             left join notification n on n.id = any(array[asked.id])
             left join queue q on q.id = any(array[asked.id])
             left join ended e on e.id = any(array[asked.id])
             left join dead_letter d on d.id = any(array[e.dead_letter])
             -- A dead letter has its own snapshot of the wide row.
             where coalesce(n.flow, d.flow) is not null"
        );
        let bound = bind![ids => UUID_ARRAY];
        let steps = [statement!(live, bound), statement!(over, bound), statement!(found, bound)];
        let mut answers = tx.send(begin, &steps, Then::Continue).await?;
        let rows = answers.pop().unwrap_or_default();
        rows.iter().map(LockedNotification::read).collect::<Result<_>>().map(Self)
    }
}

impl LockedNotification {
    fn read(row: &Row) -> Result<(NotificationId, Self)> {
        let mut columns = Columns::of(row);
        let (id, flow) = (columns.notification_id()?, FlowId(columns.take()?));
        let (priority, expires_at) = (columns.priority()?, columns.maybe_time()?);
        let place = columns.place(id)?;
        let letter = letter(place.dead_letter(), &mut columns)?;
        let standing = place.standing(expires_at, letter);
        Ok((id, Self { place, flow, priority, standing }))
    }

    pub(super) fn facts(&self, id: NotificationId, keys: &Keys) -> Result<Facts> {
        let tenant = known(keys, self.flow)?.tenant.clone();
        let bucket = Bucket { flow: self.flow, lane: self.place.lane(), priority: self.priority };
        Ok(Facts { id, tenant, bucket, standing: self.standing.clone() })
    }

    pub(super) const fn flow(&self) -> FlowId {
        self.flow
    }
}

/// Adds the effect of a change to `written`, if the notification is as it was seen and the act is possible.
pub(super) fn apply(
    written: &mut Changes<'_>,
    found: &LockedNotification,
    change: &Change,
    now: Timestamp,
) -> bool {
    let LockedNotification { place, flow, standing, .. } = found;
    if standing.seen() != change.seen {
        return false;
    }
    let Ok(effect) = effect(standing, &change.act, now) else { return false };
    let id = change.id;
    match (effect, place) {
        (Effect::End { ending, progress }, Place::Live(row)) => {
            written.end(id, row, &Ended::of(&ending, progress, now));
        }
        (Effect::MarkCancel, Place::Live(_)) => written.request_cancel(id),
        (Effect::MakeDue(due), Place::Live(_)) => written.make_due(id, due),
        (Effect::Reopen { progress, letter }, Place::Over(ended)) => {
            written.resolve(letter);
            written.reopen(id, *flow, ended, progress);
        }
        (Effect::Amend { state, reason, text, letter }, Place::Over(ended)) => {
            written.resolve(letter);
            written.amend(id, *flow, ended, &Ended { state, reason, text, ..ended.clone() });
        }
        (Effect::End { .. } | Effect::MarkCancel | Effect::MakeDue(_), Place::Over(_))
        | (Effect::Reopen { .. } | Effect::Amend { .. }, Place::Live(_)) => return false,
    }
    if let Some(word) = change.act.word() {
        written.event(id, word, standing.seen());
    }
    true
}
