//! Applies settlements whose leases are still valid.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use posthaste_core::id::NotificationId;
use posthaste_core::reason::Reason;
use posthaste_core::time::{Timestamp, micros};
use posthaste_engine::store::{Ending, Next, Settled, Settlement};
use uuid::Uuid;

use super::ends::{Ends, Letters, bind_letters};
use super::fault::Result;
use super::planted::{Planted, spoiled};
use super::rows::{Columns, letter_uuid, number, reply_text, uuid, without_nul};
use super::tx::{Bound, Mode, Then, Tx, bind, statement};
use crate::kept::attempts::tries_text;

/// One statement, and one more if there are dead letters. Each statement costs a round trip, which matters
/// with small batches.
pub(super) async fn settle(tx: &Tx, batch: &[Settlement], now: Timestamp) -> Result<Vec<Settled>> {
    let mut answers = vec![Settled::LeaseLost; batch.len()];
    let mut begin = Some(Mode::Write);
    let mut rounds = rounds(batch).into_iter().peekable();
    while let Some(round) = rounds.next() {
        let then = if rounds.peek().is_some() { Then::Continue } else { Then::Commit };
        let applied = record(tx, begin.take(), &round, then, now).await?;
        let left = round.iter().map(|(_, item)| *item).filter(|item| !applied.contains(&uuid(item.id)));
        let told = cancelled(tx, then, left.filter(|item| !item.cancel_seen)).await?;
        for (place, item) in &round {
            if applied.contains(&uuid(item.id)) {
                answers[*place] = Settled::Applied;
            } else if told.contains(&uuid(item.id)) {
                answers[*place] = Settled::CancelRequested;
            }
        }
    }
    Ok(answers)
}

/// The settlements with their positions in the batch. Settlements of the same notification are put into
/// different rounds; more than one round is rare. A round is in id order.
fn rounds(batch: &[Settlement]) -> Vec<Vec<(usize, &Settlement)>> {
    let mut rounds: Vec<BTreeMap<NotificationId, (usize, &Settlement)>> = vec![];
    for (place, item) in batch.iter().enumerate() {
        match rounds.iter_mut().find(|round| !round.contains_key(&item.id)) {
            Some(round) => drop(round.insert(item.id, (place, item))),
            None => rounds.push(BTreeMap::from([(item.id, (place, item))])),
        }
    }
    rounds.into_iter().map(|round| round.into_values().collect()).collect()
}

/// Writes the outcomes whose lease is valid and for which no request to cancel was missed. Returns their ids.
async fn record(
    tx: &Tx,
    begin: Option<Mode>,
    items: &[(usize, &Settlement)],
    then: Then,
    now: Timestamp,
) -> Result<HashSet<Uuid>> {
    let (mut ends, mut retries) = (NewEnds::default(), Retries::default());
    for (_, item) in items {
        match &item.next {
            Next::End(ending) => ends.push(item, ending)?,
            Next::Retry { due, delay } => {
                retries.of.push(item)?;
                retries.due.push(due.as_micros());
                retries.delays.push(micros(*delay));
            }
        }
    }
    let (at, hour, writer) = (now.as_micros(), now.as_hours(), tx.writer());
    let mut bound = ends.of.bound();
    bound.extend_from_slice(bind![
        ends.states => INT2_ARRAY,
        ends.reasons => TEXT_ARRAY,
        ends.texts => TEXT_ARRAY,
        ends.names => UUID_ARRAY,
        at => INT8,
        hour => INT8,
        writer => INT2,
    ]);
    let mut sql = END;
    if !retries.due.is_empty() {
        sql = SETTLE;
        bound.extend(retries.of.bound());
        bound.extend_from_slice(bind![retries.due => INT8_ARRAY, retries.delays => INT8_ARRAY]);
    }
    let letters = bind_letters!(ends.buried);
    let mut steps = vec![statement!(planted(tx, sql), &bound)];
    if !ends.buried.ids.is_empty() && !tx.bug(Planted::LostDeadLetter) {
        steps.push(statement!(Ends::BURY, letters));
    }
    let answers = match (begin, steps.as_slice(), then) {
        (Some(mode), [only], Then::Commit) => vec![tx.alone(mode, &only.sql, only.bound).await?],
        _ => tx.send(begin, &steps, then).await?,
    };
    answers.iter().flatten().map(|row| Columns::of(row).take()).collect()
}

/// For a round in which all settlements are ends.
const END: &str = include_str!("settle_ends.sql");

/// For a round with retries.
const SETTLE: &str = include_str!("settle.sql");

fn planted(tx: &Tx, sql: &'static str) -> Cow<'static, str> {
    if tx.bug(Planted::SettleWithoutFence) {
        let fence = "and q.node is not distinct from u.node
    and q.fence is not distinct from u.fence";
        return spoiled(sql, fence, "and q.node is not null").into();
    }
    if tx.bug(Planted::CounterDrift) {
        let drift = "c.lane, case when c.state is null then -c.n else 0 end)";
        return spoiled(sql, "c.lane, -c.n)", drift).into();
    }
    sql.into()
}

/// Returns which of the settlements that were not applied missed a request to cancel; the others have lost
/// their lease. It may run after the commit: a lost lease stays lost, and a request stays too.
async fn cancelled<'s>(
    tx: &Tx,
    then: Then,
    items: impl Iterator<Item = &'s Settlement>,
) -> Result<HashSet<Uuid>> {
    let (mut ids, mut nodes, mut fences) = (vec![], vec![], vec![]);
    for item in items {
        ids.push(uuid(item.id));
        nodes.push(item.lease.node.0);
        fences.push(item.lease.fence.0);
    }
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let sql = "
        select q.id
        from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as u (id, node, fence)
        join queue q on q.id = any(array[u.id])
        where q.node is not distinct from u.node
        and q.fence is not distinct from u.fence
        and q.cancel";
    let bound = bind![ids => UUID_ARRAY, nodes => INT8_ARRAY, fences => INT8_ARRAY];
    let rows = match then {
        Then::Continue => tx.rows(sql, bound).await?,
        Then::Commit => tx.alone(Mode::Read, sql, bound).await?,
    };
    rows.iter().map(|row| Columns::of(row).take()).collect()
}

/// Leases and attempts of settlements, in columns.
#[derive(Default)]
struct Outcomes {
    ids: Vec<Uuid>,
    nodes: Vec<i64>,
    fences: Vec<i64>,
    cancel_seen: Vec<bool>,
    generations: Vec<Option<i32>>,
    numbers: Vec<Option<i32>>,
    started_at: Vec<Option<i64>>,
    durations: Vec<Option<i64>>,
    failures: Vec<Option<i16>>,
    status_codes: Vec<Option<i32>>,
    errors: Vec<Option<String>>,
    quick_tries: Vec<Option<String>>,
    replies: Vec<Option<String>>,
}

impl Outcomes {
    fn push(&mut self, item: &Settlement) -> Result<()> {
        self.ids.push(uuid(item.id));
        self.nodes.push(item.lease.node.0);
        self.fences.push(item.lease.fence.0);
        self.cancel_seen.push(item.cancel_seen);
        let attempt = item.attempt.as_ref();
        self.generations.push(attempt.map(|made| number(made.generation)));
        self.numbers.push(attempt.map(|made| number(made.number)));
        self.started_at.push(attempt.map(|made| made.started_at.as_micros()));
        self.durations.push(attempt.map(|made| micros(made.duration)));
        self.failures.push(attempt.and_then(|made| made.outcome.code()).map(i16::from));
        self.status_codes.push(attempt.and_then(|made| made.status_code).map(i32::from));
        let error = attempt.and_then(|made| made.error.as_ref());
        self.errors.push(error.map(|text| without_nul(text).into_owned()));
        self.quick_tries.push(attempt.map_or(Ok(None), tries_text)?);
        self.replies.push(attempt.map_or(Ok(None), reply_text)?);
        Ok(())
    }

    /// The parameters $1 to $13 of settle_ends.sql.
    fn bound(&self) -> Vec<Bound<'_>> {
        let bound: &[Bound<'_>] = bind![
            self.ids => UUID_ARRAY,
            self.nodes => INT8_ARRAY,
            self.fences => INT8_ARRAY,
            self.cancel_seen => BOOL_ARRAY,
            self.generations => INT4_ARRAY,
            self.numbers => INT4_ARRAY,
            self.started_at => INT8_ARRAY,
            self.durations => INT8_ARRAY,
            self.failures => INT2_ARRAY,
            self.status_codes => INT4_ARRAY,
            self.errors => TEXT_ARRAY,
            self.quick_tries => TEXT_ARRAY,
            self.replies => TEXT_ARRAY,
        ];
        bound.to_vec()
    }
}

/// Settlements that end a notification, in columns.
#[derive(Default)]
struct NewEnds {
    of: Outcomes,
    states: Vec<i16>,
    reasons: Vec<Option<&'static str>>,
    texts: Vec<Option<String>>,
    names: Vec<Option<Uuid>>,
    buried: Letters,
}

impl NewEnds {
    fn push(&mut self, item: &Settlement, ending: &Ending) -> Result<()> {
        self.of.push(item)?;
        let (reason, text, name) = ending.parts();
        self.states.push(i16::from(ending.state().code()));
        self.reasons.push(reason.map(Reason::code));
        self.texts.push(text.map(|text| without_nul(text).into_owned()));
        self.names.push(name.map(letter_uuid));
        if let Some(name) = name {
            self.buried.push(item.id, name, text);
        }
        Ok(())
    }
}

/// Settlements with a retry, in columns.
#[derive(Default)]
struct Retries {
    of: Outcomes,
    due: Vec<i64>,
    delays: Vec<i64>,
}
