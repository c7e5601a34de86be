//! Recording outcomes, each where its lease still stands.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use posthaste_core::attempt::Attempt;
use posthaste_core::flow::FlowId;
use posthaste_core::id::NotificationId;
use posthaste_core::state::Lane;
use posthaste_core::time::{Timestamp, micros};
use posthaste_engine::store::{Ending, Next, Progress, Settled, Settlement};
use tokio_postgres::Row;
use uuid::Uuid;

use super::counters::{Deltas, add_sums};
use super::ends::{Ended, Ends, bind_letters, insert_ends};
use super::fault::{Fault, Result};
use super::flows::Flows;
use super::planted::Planted;
use super::rows::{Columns, clean, number, quick_text, uuid};
use super::tx::{Mode, Step, Then, Tx, bind, step};

/// Records each outcome whose lease is still held. Two rounds of questions: the rows leave the queue or wait again where
/// the lease stands, then everything else is written and committed.
pub(super) async fn settle(
    tx: &Tx,
    flows: &Flows,
    batch: &[Settlement],
    now: Timestamp,
) -> Result<Vec<Settled>> {
    if batch.is_empty() {
        return Ok(vec![]);
    }
    let mut answers = vec![Settled::LeaseLost; batch.len()];
    let mut written = Written::default();
    let mut begin = Some(Mode::Write);
    let mut waiting: Vec<usize> = (0..batch.len()).collect();
    while !waiting.is_empty() {
        // Items about one notification come after each other; there is seldom more than one.
        let mut round: BTreeMap<NotificationId, usize> = BTreeMap::new();
        waiting.retain(|place| match round.entry(batch[*place].id) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(*place);
                false
            }
            std::collections::btree_map::Entry::Occupied(_) => true,
        });
        let items: Vec<&Settlement> = round.values().map(|place| &batch[*place]).collect();
        let applied = free(tx, begin.take(), &items).await?;
        let told = cancelled(tx, &items, &applied).await?;
        for (id, place) in &round {
            if let Some(freed) = applied.get(id) {
                written.add(tx, &batch[*place], freed, now)?;
                answers[*place] = Settled::Applied;
            } else if told.contains(id) {
                answers[*place] = Settled::CancelRequested;
            }
        }
        // What was applied is held no more, so whoever comes after it has lost its lease.
        waiting.retain(|place| !applied.contains_key(&batch[*place].id));
    }
    written.commit(tx, begin, flows).await?;
    Ok(answers)
}

/// What a settlement has to know of the row that it took from its holder.
struct Freed {
    flow: FlowId,
    lane: Lane,
    progress: Progress,
}

const END: &str = "
    delete from queue q
    using unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::boolean[]) as u (id, node, fence, cancel_seen)
    where q.id = any(array[u.id])
    and q.node is not distinct from u.node
    and q.fence is not distinct from u.fence
    and (not q.cancel or u.cancel_seen)
    returning q.id, q.flow, q.lane, q.attempt, q.base, q.generation";

/// `old` is the row as it was: what is counted changes with its lane.
const RETRY: &str = "
    update queue q
    set lane = 1, due = u.due, delay = u.delay, node = null, fence = null, attempt = q.attempt + 1,
        interruptions = 0, cancel = false
    from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::boolean[], $5::bigint[], $6::bigint[])
        as u (id, node, fence, cancel_seen, due, delay)
    join queue old on old.id = any(array[u.id])
    where q.id = any(array[u.id])
    and q.node is not distinct from u.node
    and q.fence is not distinct from u.fence
    and (not q.cancel or u.cancel_seen)
    returning q.id, q.flow, old.lane, old.attempt, q.base, q.generation";

fn fenced(tx: &Tx, sql: &'static str) -> Cow<'static, str> {
    if tx.bug(Planted::SettleWithoutFence) {
        return sql
            .replace(
                "and q.node is not distinct from u.node\n    and q.fence is not distinct from u.fence",
                "and q.node is not null",
            )
            .into();
    }
    sql.into()
}

/// Takes the rows from their holder where the lease stands and no request to cancel was overlooked. The items are in
/// the order of their ids.
async fn free(tx: &Tx, begin: Option<Mode>, items: &[&Settlement]) -> Result<HashMap<NotificationId, Freed>> {
    let (mut ends, mut retries) = (Leases::default(), Leases::default());
    let (mut due, mut delays) = (vec![], vec![]);
    for item in items {
        match &item.next {
            Next::End(_) => ends.push(item),
            Next::Retry { due: at, delay } => {
                retries.push(item);
                due.push(at.as_micros());
                delays.push(micros(*delay));
            }
        }
    }
    let end = bind![
        ends.ids => UUID_ARRAY,
        ends.nodes => INT8_ARRAY,
        ends.fences => INT8_ARRAY,
        ends.cancel_seen => BOOL_ARRAY,
    ];
    let retry = bind![
        retries.ids => UUID_ARRAY,
        retries.nodes => INT8_ARRAY,
        retries.fences => INT8_ARRAY,
        retries.cancel_seen => BOOL_ARRAY,
        due => INT8_ARRAY,
        delays => INT8_ARRAY,
    ];
    let mut steps: Vec<Step<'_>> = vec![];
    if !ends.ids.is_empty() {
        steps.push(step!(fenced(tx, END), end));
    }
    if !retries.ids.is_empty() {
        steps.push(step!(fenced(tx, RETRY), retry));
    }
    let rows = tx.send(begin, &steps, Then::GoOn).await?;
    rows.iter().flatten().map(freed).collect()
}

fn freed(row: &Row) -> Result<(NotificationId, Freed)> {
    let mut columns = Columns::of(row);
    let (id, flow, lane) = (columns.notification_id()?, FlowId(columns.take()?), columns.code()?);
    let lane = Lane::from_code(lane).ok_or_else(|| Fault::nonsense(format!("lane {lane}")))?;
    let (attempt, base, generation) = (columns.small()?, columns.small()?, columns.small()?);
    Ok((id, Freed { flow, lane, progress: Progress { generation, attempt, base } }))
}

/// Which of the items that were not applied overlooked a request to cancel; the others have lost their lease.
async fn cancelled(
    tx: &Tx,
    items: &[&Settlement],
    applied: &HashMap<NotificationId, Freed>,
) -> Result<HashSet<NotificationId>> {
    let mut leases = Leases::default();
    for item in items.iter().filter(|item| !applied.contains_key(&item.id) && !item.cancel_seen) {
        leases.push(item);
    }
    if leases.ids.is_empty() {
        return Ok(HashSet::new());
    }
    let sql = "
        select q.id
        from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as u (id, node, fence)
        join queue q on q.id = any(array[u.id])
        where q.node is not distinct from u.node
        and q.fence is not distinct from u.fence
        and q.cancel";
    let bound = bind![leases.ids => UUID_ARRAY, leases.nodes => INT8_ARRAY, leases.fences => INT8_ARRAY];
    let rows = tx.rows(sql, bound).await?;
    rows.iter().map(|row| Columns::of(row).notification_id()).collect()
}

/// Leases in columns.
#[derive(Default)]
struct Leases {
    ids: Vec<Uuid>,
    nodes: Vec<i64>,
    fences: Vec<i64>,
    cancel_seen: Vec<bool>,
}

impl Leases {
    fn push(&mut self, item: &Settlement) {
        self.ids.push(uuid(item.id));
        self.nodes.push(item.lease.node.0);
        self.fences.push(item.lease.fence.0);
        self.cancel_seen.push(item.cancel_seen);
    }
}

/// What is written beside the queue.
#[derive(Default)]
struct Written {
    attempts: Attempts,
    ends: Ends,
    deltas: Deltas,
}

impl Written {
    fn add(&mut self, tx: &Tx, item: &Settlement, freed: &Freed, now: Timestamp) -> Result<()> {
        if let Some(attempt) = &item.attempt {
            self.attempts.push(item.id, attempt)?;
        }
        let ending = match &item.next {
            Next::Retry { .. } => {
                self.deltas.live(freed.flow, freed.lane, -1);
                self.deltas.live(freed.flow, Lane::Retry, 1);
                return Ok(());
            }
            Next::End(ending) => ending,
        };
        let before = freed.progress.attempt.saturating_sub(1);
        let last = item.attempt.as_ref().map_or(before, |made| made.number);
        let plain = Ended::plain(ending.state(), now, Progress { attempt: last, ..freed.progress });
        let ended = match ending {
            Ending::Delivered | Ending::Cancelled | Ending::Expired => plain,
            Ending::Failed { reason, text } => plain.because(*reason, text, None),
            Ending::Buried { dead_letter, reason, text } => plain.because(*reason, text, Some(*dead_letter)),
        };
        self.ends.push(item.id, &ended);
        self.deltas.ended(freed.flow, ended.state, now, 1);
        if !(tx.bug(Planted::CounterDrift) && matches!(ending, Ending::Delivered)) {
            self.deltas.live(freed.flow, freed.lane, -1);
        }
        Ok(())
    }

    /// Writes what there is and commits. The attempts come before the dead letters, which hold a copy of them.
    async fn commit(self, tx: &Tx, begin: Option<Mode>, flows: &Flows) -> Result<()> {
        let Self { attempts, ends, deltas } = self;
        let sums = deltas.sums(tx, flows).await?;
        let recorded = bind![
            attempts.ids => UUID_ARRAY,
            attempts.generations => INT4_ARRAY,
            attempts.numbers => INT4_ARRAY,
            attempts.started_at => INT8_ARRAY,
            attempts.durations => INT8_ARRAY,
            attempts.failures => INT2_ARRAY,
            attempts.status_codes => INT4_ARRAY,
            attempts.errors => TEXT_ARRAY,
            attempts.quick_tries => TEXT_ARRAY,
            ends.ids => UUID_ARRAY,
            ends.states => INT2_ARRAY,
            ends.at => INT8_ARRAY,
            ends.generations => INT4_ARRAY,
            ends.bases => INT4_ARRAY,
            ends.attempts => INT4_ARRAY,
            ends.reasons => TEXT_ARRAY,
            ends.texts => TEXT_ARRAY,
            ends.letters => UUID_ARRAY,
            sums.tenants => TEXT_ARRAY,
            sums.hours => INT8_ARRAY,
            sums.kinds => INT2_ARRAY,
            sums.channels => INT2_ARRAY,
            sums.by => INT8_ARRAY,
            sums.writer => INT2,
        ];
        let letters = bind_letters!(ends);
        let mut steps: Vec<Step<'_>> = vec![];
        if !attempts.ids.is_empty() || !ends.ids.is_empty() || !sums.by.is_empty() {
            steps.push(step!(RECORD, recorded));
        }
        if ends.any_buried() && !tx.bug(Planted::LostDeadLetter) {
            steps.push(step!(Ends::BURY, letters));
        }
        tx.send(begin, &steps, Then::Commit).await?;
        Ok(())
    }
}

/// The attempts, the ends and the counters in one statement, which is one answer and not three.
const RECORD: &str = concat!(
    "with made as (
        insert into attempt (notification, generation, number, started_at, duration, failure, status_code, error,
            quick_tries)
        select *
        from unnest($1::uuid[], $2::integer[], $3::integer[], $4::bigint[], $5::bigint[], $6::smallint[], $7::integer[],
            $8::text[], $9::text[])),
    over as (",
    insert_ends!("$10", "$11", "$12", "$13", "$14", "$15", "$16", "$17", "$18"),
    ")",
    add_sums!("$19", "$20", "$21", "$22", "$23", "$24")
);

/// Attempts in columns.
#[derive(Default)]
struct Attempts {
    ids: Vec<Uuid>,
    generations: Vec<i32>,
    numbers: Vec<i32>,
    started_at: Vec<i64>,
    durations: Vec<i64>,
    failures: Vec<Option<i16>>,
    status_codes: Vec<Option<i32>>,
    errors: Vec<Option<String>>,
    quick_tries: Vec<Option<String>>,
}

impl Attempts {
    fn push(&mut self, id: NotificationId, attempt: &Attempt) -> Result<()> {
        self.ids.push(uuid(id));
        self.generations.push(number(attempt.generation));
        self.numbers.push(number(attempt.number));
        self.started_at.push(attempt.started_at.as_micros());
        self.durations.push(micros(attempt.duration));
        self.failures.push(attempt.outcome.code().map(i16::from));
        self.status_codes.push(attempt.status_code.map(i32::from));
        self.errors.push(attempt.error.as_ref().map(|text| clean(text).into_owned()));
        self.quick_tries.push(quick_text(&attempt.quick_tries)?);
        Ok(())
    }
}
