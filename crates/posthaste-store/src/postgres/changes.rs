//! The effects of acts, gathered in columns and written together.

use posthaste_core::act::{Resolution, Seen};
use posthaste_core::attempt::Progress;
use posthaste_core::flow::FlowId;
use posthaste_core::id::NotificationId;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::Audit;
use uuid::Uuid;

use super::counters::{Sums, bind_sums};
use super::ends::{Ends, bind_ends, bind_letters};
use super::fault::Result;
use super::flows::Flows;
use super::planted::Planted;
use super::rows::{letter_uuid, number, uuid};
use super::tx::{Statement, Then, Tx, bind, statement};
use crate::kept::counters::Deltas;
use crate::kept::places::{Ended, Queued};

pub(super) struct Changes<'a> {
    now: Timestamp,
    actor: Option<&'a str>,
    cancel_requests: Vec<Uuid>,
    due_at: DueAt,
    ends: Ends,
    amended: Ends,
    reopened: Reopened,
    letters: Letters,
    events: Events,
    deltas: Deltas,
}

#[derive(Default)]
struct DueAt {
    ids: Vec<Uuid>,
    times: Vec<i64>,
}

#[derive(Default)]
struct Reopened {
    ids: Vec<Uuid>,
    /// The dead letters that some of them ended as.
    snapshots: Vec<Uuid>,
    attempts: Vec<i32>,
    bases: Vec<i32>,
    generations: Vec<i32>,
}

#[derive(Default)]
struct Letters {
    ids: Vec<Uuid>,
    statuses: Vec<i16>,
    deleted_at: Vec<Option<i64>>,
}

#[derive(Default)]
struct Events {
    ids: Vec<Uuid>,
    words: Vec<&'static str>,
    generations: Vec<i32>,
    attempts: Vec<i32>,
}

impl<'a> Changes<'a> {
    pub(super) fn new(now: Timestamp, actor: Option<&'a str>) -> Self {
        Self {
            now,
            actor,
            cancel_requests: vec![],
            due_at: DueAt::default(),
            ends: Ends::default(),
            amended: Ends::default(),
            reopened: Reopened::default(),
            letters: Letters::default(),
            events: Events::default(),
            deltas: Deltas::default(),
        }
    }

    /// Requests the cancellation of a leased row.
    pub(super) fn request_cancel(&mut self, id: NotificationId) {
        self.cancel_requests.push(uuid(id));
    }

    pub(super) fn make_due(&mut self, id: NotificationId, due: Timestamp) {
        self.due_at.ids.push(uuid(id));
        self.due_at.times.push(due.as_micros());
    }

    /// Ends a queued notification.
    pub(super) fn end(&mut self, id: NotificationId, row: &Queued, ended: &Ended) {
        self.ends.push(id, ended);
        self.deltas.live(row.bucket.flow, row.bucket.lane, -1);
        self.deltas.ended(row.bucket.flow, ended.state, ended.at, 1);
    }

    /// Starts a new generation of an ended notification, due now.
    pub(super) fn reopen(&mut self, id: NotificationId, flow: FlowId, ended: &Ended, progress: Progress) {
        self.reopened.ids.push(uuid(id));
        self.reopened.snapshots.extend(ended.dead_letter.map(letter_uuid));
        self.reopened.attempts.push(number(progress.attempt));
        self.reopened.bases.push(number(progress.base));
        self.reopened.generations.push(number(progress.generation));
        self.deltas.ended(flow, ended.state, ended.at, -1);
        self.deltas.live(flow, Lane::Main, 1);
    }

    /// Replaces an end by another one at the same time.
    pub(super) fn amend(&mut self, id: NotificationId, flow: FlowId, before: &Ended, after: &Ended) {
        self.amended.push(id, after);
        self.deltas.ended(flow, before.state, before.at, -1);
        self.deltas.ended(flow, after.state, after.at, 1);
    }

    /// Sets the status of a dead letter.
    pub(super) fn resolve(&mut self, letter: Option<Resolution>) {
        if let Some(Resolution { id, status, deleted_at }) = letter {
            self.letters.ids.push(letter_uuid(id));
            self.letters.statuses.push(i16::from(status.code()));
            self.letters.deleted_at.push(deleted_at.map(Timestamp::as_micros));
        }
    }

    pub(super) fn event(&mut self, id: NotificationId, word: &'static str, seen: Seen) {
        self.events.ids.push(uuid(id));
        self.events.words.push(word);
        self.events.generations.push(number(seen.generation));
        self.events.attempts.push(number(seen.attempt));
    }

    /// Writes all changes. The transaction continues.
    pub(super) async fn write(self, tx: &Tx, flows: &Flows) -> Result<()> {
        let Self { cancel_requests, due_at, ends, amended, reopened, letters, events, .. } = self;
        let sums = Sums::of(self.deltas, tx, flows).await?;
        let now = self.now.as_micros();
        let resolver = self.actor.unwrap_or(Audit::ITSELF);
        let (ended, buried, counted) = (bind_ends!(ends), bind_letters!(ends.buried), bind_sums!(sums));
        let requested = bind![cancel_requests => UUID_ARRAY];
        let hurried = bind![due_at.ids => UUID_ARRAY, due_at.times => INT8_ARRAY];
        let gone = bind![ends.ids => UUID_ARRAY];
        let again = bind![
            reopened.ids => UUID_ARRAY,
            reopened.bases => INT4_ARRAY,
            reopened.generations => INT4_ARRAY,
            now => INT8,
            reopened.attempts => INT4_ARRAY,
        ];
        let over = bind![reopened.ids => UUID_ARRAY];
        let snapshots = bind![reopened.snapshots => UUID_ARRAY];
        let other = bind![
            amended.ids => UUID_ARRAY,
            amended.states => INT2_ARRAY,
            amended.reasons => TEXT_ARRAY,
            amended.texts => TEXT_ARRAY,
        ];
        let resolved = bind![
            letters.ids => UUID_ARRAY,
            letters.statuses => INT2_ARRAY,
            now => INT8,
            resolver => TEXT,
            letters.deleted_at => INT8_ARRAY,
        ];
        let happened = bind![
            events.ids => UUID_ARRAY,
            events.words => TEXT_ARRAY,
            events.generations => INT4_ARRAY,
            events.attempts => INT4_ARRAY,
            now => INT8,
            self.actor => TEXT,
        ];
        let bury = !ends.buried.ids.is_empty() && !tx.bug(Planted::LostDeadLetter);
        let all: [(bool, Statement<'_>); 12] = [
            (!cancel_requests.is_empty(), statement!(REQUEST_CANCEL, requested)),
            (!due_at.ids.is_empty(), statement!(MAKE_DUE, hurried)),
            (!ends.ids.is_empty(), statement!("delete from queue where id = any($1)", gone)),
            (!ends.ids.is_empty(), statement!(Ends::INSERT, ended)),
            (bury, statement!(Ends::BURY, buried)),
            (!reopened.ids.is_empty(), statement!("delete from ended where id = any($1)", over)),
            (!reopened.snapshots.is_empty(), statement!(WRITE_BACK, snapshots)),
            (!reopened.ids.is_empty(), statement!(REOPEN, again)),
            (!amended.ids.is_empty(), statement!(AMEND, other)),
            (!letters.ids.is_empty(), statement!(RESOLVE, resolved)),
            (!events.ids.is_empty(), statement!(EVENTS, happened)),
            (!sums.by.is_empty(), statement!(Sums::ADD, counted)),
        ];
        let steps: Vec<Statement<'_>> =
            all.into_iter().filter_map(|(needed, step)| needed.then_some(step)).collect();
        tx.send(None, &steps, Then::Continue).await?;
        Ok(())
    }
}

const REQUEST_CANCEL: &str = "update queue set cancel = true where id = any($1)";

const MAKE_DUE: &str = "
    update queue q
    set due = u.due
    from unnest($1::uuid[], $2::bigint[]) as u (id, due)
    where q.id = any(array[u.id])";

/// Writes wide rows that are gone from the snapshots of their dead letters.
const WRITE_BACK: &str = "
    insert into notification (id, flow, priority, not_before, expires, recipient, template, subject, event_key,
        correlation_id, content)
    select d.notification, d.flow, d.priority, d.not_before, d.expires, d.recipient, d.template, d.subject, d.event_key,
        d.correlation_id, d.content
    from dead_letter d
    where d.id = any($1)
    and not exists (select from notification n where n.id = any(array[d.notification]))";

const REOPEN: &str = "
    insert into queue (id, flow, lane, priority, due, expires, first_due, delay, node, fence, attempt, base,
        generation, interruptions, cancel, own_policy, own_age)
    select n.id, n.flow, 0, n.priority, $4, n.expires, $4, 0, null, null, u.attempt, u.base, u.generation, 0, false,
        -- Also true for some without a policy, which costs one read of their content. Parsing the JSON here
        -- would fail on an escaped NUL.
        n.template is not null or position('\"policy\":' in n.content) > 0, position('\"maxAge\":' in n.content) > 0
    from unnest($1::uuid[], $2::integer[], $3::integer[], $5::integer[]) as u (id, base, generation, attempt)
    join notification n on n.id = any(array[u.id])";

const AMEND: &str = "
    update ended e
    set state = u.state, reason = u.reason, text = u.text
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[]) as u (id, state, reason, text)
    where e.id = any(array[u.id])";

/// A letter that is pending again (0) has no `resolved_by`; if it is shown in lists, it was restored.
const RESOLVE: &str = "
    update dead_letter d
    set status = u.status,
        resolved_at = case when u.status = 0 then null else $3::bigint end,
        resolved_by = case when u.status = 0 then null else $4::text end,
        deleted_at = u.deleted_at,
        restored_at = case when u.status = 0 and u.deleted_at is null then $3::bigint else d.restored_at end
    from unnest($1::uuid[], $2::smallint[], $5::bigint[]) as u (id, status, deleted_at)
    where d.id = any(array[u.id])";

const EVENTS: &str = "
    insert into event (notification, at, word, actor, generation, attempt)
    select u.id, $5, u.word, $6, u.generation, u.attempt
    from unnest($1::uuid[], $2::text[], $3::integer[], $4::integer[]) as u (id, word, generation, attempt)";
