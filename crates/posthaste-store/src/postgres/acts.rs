//! What people and programs do to a notification, each change only while it stands as it was seen.
//!
//! Changes of different notifications are made together: their rows are locked in the order of ids, each change is decided
//! on what is found, and everything is written. Changes of the same notification come one after the other.

use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap};

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::reason::Reason;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Act, Acts, Audit, Change, Facts, Progress, Seen};
use tokio_postgres::Row;
use uuid::Uuid;

use super::changes::Changes;
use super::ends::{Ended, Letter, ended_columns};
use super::fault::{Fault, Result};
use super::flows::Flows;
use super::reads::{Standing, standing_columns};
use super::rows::{Columns, Keys, Queued, letter_uuid, queue_columns, uuid, whole};
use super::tx::{Mode, Step, Then, Tx, bind, step};
use super::{PostgresStore, look, transact};

#[async_trait]
impl Acts for PostgresStore {
    async fn facts(&self, ids: Vec<NotificationId>) -> store::Result<Vec<Facts>> {
        Ok(look!(self, tx => facts(&tx, &self.flows, &ids))?)
    }

    async fn notification_of(&self, dead_letter: DeadLetterId) -> store::Result<Option<NotificationId>> {
        Ok(look!(self, tx => notification_of(&tx, dead_letter))?)
    }

    async fn transition(
        &self,
        changes: Vec<Change>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Vec<bool>> {
        Ok(transact!(self, tx => transition(&tx, &self.flows, &changes, audit.as_ref(), now))?)
    }
}

/// What an act has to know of each id that exists, in the order of the ids.
async fn facts(tx: &Tx, flows: &Flows, ids: &[NotificationId]) -> Result<Vec<Facts>> {
    let sql = concat!(
        "select n.id, n.flow, n.priority, n.expires, ",
        standing_columns!(),
        ", d.status
         from unnest($1::uuid[]) with ordinality as asked (id, place)
         join notification n on n.id = any(array[asked.id])
         left join queue q on q.id = any(array[n.id])
         left join ended e on e.id = any(array[n.id])
         left join dead_letter d on d.id = any(array[e.dead_letter])
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
    let key = keys.get(&flow).ok_or_else(|| Fault::nonsense(format!("flow {} is not known", flow.0)))?;
    let tenant = key.tenant.clone();
    let standing = Standing::read(id, &mut columns)?;
    let status = columns.maybe_status()?;
    let seen = standing.seen();
    let bucket = |lane| Bucket { flow, lane, priority };
    Ok(match standing {
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
        Standing::Over(ended) => Facts {
            id,
            tenant,
            bucket: bucket(Lane::Main),
            seen,
            expires_at,
            cancel_requested: false,
            reason: ended.reason,
            dead_letter: ended.dead_letter.zip(status),
        },
    })
}

/// The notification of a dead letter.
async fn notification_of(tx: &Tx, letter: DeadLetterId) -> Result<Option<NotificationId>> {
    let sql = "select notification from dead_letter where id = $1";
    let rows = tx.alone(Mode::Read, sql, bind![letter_uuid(letter) => UUID]).await?;
    rows.first().map(|row| Columns::of(row).notification_id()).transpose()
}

/// Makes each change that still fits, with one audit row for all of them.
async fn transition(
    tx: &Tx,
    flows: &Flows,
    changes: &[Change],
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
        let found = Found::lock(tx, begin.take(), round.keys().copied()).await?;
        let mut written = Changes::new(now, audit);
        for (id, place) in round {
            made[place] = apply(&mut written, &found, &changes[place], now)?;
            let word = changes[place].act.word().filter(|_| made[place]);
            if let (Some(word), Some(seen)) = (word, found.seen(id)) {
                written.event(id, word, seen);
            }
        }
        written.write(tx, flows).await?;
    }
    let count = made.iter().filter(|made| **made).count();
    match audit.filter(|_| count > 0) {
        Some(audit) => record(tx, begin, audit, changes.len(), count, vec![]).await?,
        None => {
            tx.send(begin, &[], Then::Commit).await?;
        }
    }
    Ok(made)
}

/// Writes an audit row of so many changes asked for and made, after other statements, and commits.
pub(super) async fn record(
    tx: &Tx,
    begin: Option<Mode>,
    audit: &Audit,
    asked: usize,
    count: usize,
    mut before: Vec<Step<'_>>,
) -> Result<()> {
    let tenant = audit.tenant.as_ref().map(posthaste_core::notification::Tenant::as_str);
    let bound = bind![
        tenant => TEXT,
        audit.actor => TEXT,
        audit.action => TEXT,
        audit.target => TEXT,
        audit.at.as_micros() => INT8,
        whole(asked) => INT8,
        whole(count) => INT8,
        audit.key_id => TEXT,
        audit.address => TEXT,
    ];
    let sql = "
        insert into audit (tenant, actor, action, target, at, asked, count, key_id, address)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    before.push(step!(sql, bound));
    tx.send(begin, &before, Then::Commit).await?;
    Ok(())
}

/// Notifications as they stand, locked until the transaction ends.
struct Found {
    live: HashMap<NotificationId, Queued>,
    over: HashMap<NotificationId, (Ended, FlowId)>,
    letters: HashMap<NotificationId, Letter>,
}

impl Found {
    async fn lock(tx: &Tx, begin: Option<Mode>, ids: impl Iterator<Item = NotificationId>) -> Result<Self> {
        let ids: Vec<Uuid> = ids.map(uuid).collect();
        let live = concat!(
            "select q.id, ",
            queue_columns!(),
            "
             from queue q
             where q.id = any($1)
             order by q.id
             for update"
        );
        let over = concat!(
            "select e.id, ",
            ended_columns!(),
            ", n.flow
             from ended e
             join notification n on n.id = any(array[e.id])
             where e.id = any($1)
             order by e.id
             for update of e"
        );
        // A statement of its own: it sees what was committed while the one before it waited.
        let letters = "
            select e.id, d.status, d.reason, d.text
            from ended e
            join dead_letter d on d.id = any(array[e.dead_letter])
            where e.id = any($1)";
        let bound = bind![ids => UUID_ARRAY];
        let steps = [step!(live, bound), step!(over, bound), step!(letters, bound)];
        let answers = tx.send(begin, &steps, Then::GoOn).await?;
        let mut found = Self { live: HashMap::new(), over: HashMap::new(), letters: HashMap::new() };
        for row in &answers[0] {
            let mut columns = Columns::of(row);
            found.live.insert(columns.notification_id()?, Queued::read(&mut columns)?);
        }
        for row in &answers[1] {
            let mut columns = Columns::of(row);
            let (id, ended) = (columns.notification_id()?, Ended::read(&mut columns)?);
            found.over.insert(id, (ended, FlowId(columns.take()?)));
        }
        for row in &answers[2] {
            let mut columns = Columns::of(row);
            let id = columns.notification_id()?;
            let status = columns.maybe_status()?.ok_or_else(|| Fault::nonsense("no status"))?;
            let letter = Letter { status, reason: columns.maybe_reason()?, text: columns.take()? };
            found.letters.insert(id, letter);
        }
        Ok(found)
    }

    fn seen(&self, id: NotificationId) -> Option<Seen> {
        let live = self.live.get(&id).map(Queued::seen);
        live.or_else(|| self.over.get(&id).map(|(ended, _)| ended.seen()))
    }
}

/// Decides on one change, and adds it to what is to be written if it fits.
fn apply(written: &mut Changes<'_>, found: &Found, change: &Change, now: Timestamp) -> Result<bool> {
    let Some(seen) = found.seen(change.id).filter(|seen| *seen == change.seen) else { return Ok(false) };
    let Some(to) = arrow(seen.state, &change.act) else { return Ok(false) };
    if let Some(row) = found.live.get(&change.id) {
        if row.lease.is_none() {
            return Ok(waiting(written, change, row, to, now));
        }
        // All that can be done to what a node holds is to ask for its end.
        let asked = change.act == Act::RequestCancel;
        if asked {
            written.request_cancel(change.id);
        }
        return Ok(asked);
    }
    let Some((ended, flow)) = found.over.get(&change.id) else { return Ok(false) };
    Ok(over(written, change, ended, *flow, found.letters.get(&change.id), to))
}

/// Where the act leads from a state (law 3), which is the same state if it takes no arrow; none if there is no such arrow.
fn arrow(from: State, act: &Act) -> Option<State> {
    act.event().map_or(Some(from), |event| from.next(event).ok())
}

/// An act on a row that nobody holds.
fn waiting(written: &mut Changes<'_>, change: &Change, row: &Queued, to: State, now: Timestamp) -> bool {
    let last = row.progress.attempt.saturating_sub(1);
    let plain = Ended::plain(to, now, Progress { attempt: last, ..row.progress });
    match &change.act {
        Act::Cancel | Act::Expire => written.end(change.id, row, &plain),
        Act::Bury { dead_letter, reason, text } => {
            written.end(change.id, row, &plain.because(*reason, text, Some(*dead_letter)));
        }
        Act::RetryNow if row.bucket.lane == Lane::Retry => written.retry_now(change.id),
        Act::RetryNow | Act::RequestCancel | Act::Requeue | Act::Retry | Act::Discard | Act::Restore => {
            return false;
        }
    }
    true
}

/// An act on what ended.
fn over(
    written: &mut Changes<'_>,
    change: &Change,
    ended: &Ended,
    flow: FlowId,
    letter: Option<&Letter>,
    to: State,
) -> bool {
    let named = ended.dead_letter.zip(letter);
    match &change.act {
        Act::Requeue => {
            if let Some((name, _)) = named {
                written.resolve(name, DeadLetterStatus::Requeued);
            }
            written.reopen(change.id, flow, ended, 0);
        }
        Act::Retry => {
            if let Some((name, Letter { status: DeadLetterStatus::Pending, .. })) = named {
                written.resolve(name, DeadLetterStatus::Requeued);
            }
            written.reopen(change.id, flow, ended, ended.progress.attempt);
        }
        Act::Discard => {
            if let Some((name, _)) = named {
                written.resolve(name, DeadLetterStatus::Cancelled);
            }
            let (reason, text) = (Some(Reason::Discarded), Some(Reason::Discarded.words().to_owned()));
            written.amend(change.id, flow, ended, &Ended { state: to, reason, text, ..ended.clone() });
        }
        Act::Restore if ended.reason == Some(Reason::Discarded) => {
            let discarded = |letter: &&Letter| letter.status == DeadLetterStatus::Cancelled;
            let Some((name, letter)) = ended.dead_letter.zip(letter.filter(discarded)) else { return false };
            written.resolve(name, DeadLetterStatus::Pending);
            let (reason, text) = (letter.reason, Some(letter.text.clone()));
            written.amend(change.id, flow, ended, &Ended { state: to, reason, text, ..ended.clone() });
        }
        Act::Restore | Act::Cancel | Act::RequestCancel | Act::RetryNow | Act::Expire | Act::Bury { .. } => {
            return false;
        }
    }
    true
}
