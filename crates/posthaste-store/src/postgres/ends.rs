//! How a notification ended, and the dead letter that it may have become.

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{End, Progress, Seen};
use uuid::Uuid;

use super::fault::Result;
use super::rows::{Columns, clean, letter_uuid, number, uuid};

/// The columns of an ended row `e`, in the order that `Ended::read` takes them.
macro_rules! ended_columns {
    () => {
        "e.state, e.at, e.generation, e.base, e.attempt, e.reason, e.text, e.dead_letter"
    };
}
pub(super) use ended_columns;

/// Makes rows of what ended; the parameters of their columns are named.
macro_rules! insert_ends {
    ($id:literal, $state:literal, $at:literal, $generation:literal, $base:literal, $attempt:literal, $reason:literal,
        $text:literal, $letter:literal) => {
        concat!(
            "
    insert into ended (id, state, at, generation, base, attempt, reason, text, dead_letter)
    select *
    from unnest(",
            $id,
            "::uuid[], ",
            $state,
            "::smallint[], ",
            $at,
            "::bigint[], ",
            $generation,
            "::integer[], ",
            $base,
            "::integer[], ",
            $attempt,
            "::integer[], ",
            $reason,
            "::text[], ",
            $text,
            "::text[], ",
            $letter,
            "::uuid[])"
        )
    };
}
pub(super) use insert_ends;

/// A row of what ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) state: State,
    pub(super) at: Timestamp,
    pub(super) progress: Progress,
    pub(super) reason: Option<Reason>,
    pub(super) text: Option<String>,
    pub(super) dead_letter: Option<DeadLetterId>,
}

impl Ended {
    /// How many columns it has.
    pub(super) const COLUMNS: usize = 8;

    /// An end without a reason.
    pub(super) const fn plain(state: State, at: Timestamp, progress: Progress) -> Self {
        Self { state, at, progress, reason: None, text: None, dead_letter: None }
    }

    /// The same end with its reason, and its dead letter if it has one.
    pub(super) fn because(self, reason: Reason, text: &str, dead_letter: Option<DeadLetterId>) -> Self {
        Self { reason: Some(reason), text: Some(text.to_owned()), dead_letter, ..self }
    }

    /// Takes the columns of `ended_columns`.
    pub(super) fn read(columns: &mut Columns<'_>) -> Result<Self> {
        let (state, at) = (columns.state()?, columns.time()?);
        let (generation, base, attempt) = (columns.small()?, columns.small()?, columns.small()?);
        Ok(Self {
            state,
            at,
            progress: Progress { generation, attempt, base },
            reason: columns.maybe_reason()?,
            text: columns.take()?,
            dead_letter: columns.take::<Option<Uuid>>()?.map(|id| DeadLetterId::from_bytes(id.into_bytes())),
        })
    }

    /// How it stands.
    pub(super) const fn seen(&self) -> Seen {
        let Progress { generation, attempt, .. } = self.progress;
        Seen { state: self.state, generation, attempt }
    }

    /// What is shown of the end.
    pub(super) fn shown(self) -> End {
        End { at: self.at, reason: self.reason, text: self.text, dead_letter: self.dead_letter }
    }
}

/// Where a dead letter stands, and why it died.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) status: DeadLetterStatus,
    pub(super) reason: Option<Reason>,
    pub(super) text: String,
}

/// Ends in columns.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) ids: Vec<Uuid>,
    pub(super) states: Vec<i16>,
    pub(super) at: Vec<i64>,
    pub(super) generations: Vec<i32>,
    pub(super) bases: Vec<i32>,
    pub(super) attempts: Vec<i32>,
    pub(super) reasons: Vec<Option<&'static str>>,
    pub(super) texts: Vec<Option<String>>,
    pub(super) letters: Vec<Option<Uuid>>,
    /// The time that the name of the dead letter carries.
    pub(super) died: Vec<Option<i64>>,
}

impl Ends {
    /// Adds one.
    pub(super) fn push(&mut self, id: NotificationId, ended: &Ended) {
        self.ids.push(uuid(id));
        self.states.push(i16::from(ended.state.code()));
        self.at.push(ended.at.as_micros());
        self.generations.push(number(ended.progress.generation));
        self.bases.push(number(ended.progress.base));
        self.attempts.push(number(ended.progress.attempt));
        self.reasons.push(ended.reason.map(Reason::code));
        self.texts.push(ended.text.as_ref().map(|text| clean(text).into_owned()));
        self.letters.push(ended.dead_letter.map(letter_uuid));
        self.died.push(ended.dead_letter.map(|name| name.made_at().as_micros()));
    }

    /// Whether one of them is a dead letter.
    pub(super) fn any_buried(&self) -> bool {
        self.letters.iter().any(Option::is_some)
    }

    /// Makes the rows.
    pub(super) const INSERT: &str = insert_ends!("$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9");

    /// Makes the dead letters of those that have one, each with its own snapshot of the notification and of the attempts of
    /// the generation. A wide row that is missing breaks a constraint, and with it the transaction.
    pub(super) const BURY: &str = "
        insert into dead_letter (id, notification, flow, priority, not_before, expires, recipient, template, subject,
            event_key, correlation_id, content, reason, text, attempts, failure, status, created_at)
        select u.letter, u.id, n.flow, n.priority, n.not_before, n.expires, n.recipient, n.template, n.subject,
            n.event_key, n.correlation_id, n.content, u.reason, u.text, coalesce(made.attempts, '[]'), made.failure, 0,
            u.died
        from unnest($1::uuid[], $2::bigint[], $3::integer[], $4::text[], $5::text[], $6::uuid[])
            as u (id, died, generation, reason, text, letter)
        left join notification n on n.id = any(array[u.id])
        left join lateral (
            select json_agg(
                    json_build_array(generation, number, started_at, duration, failure, status_code, error,
                        coalesce(quick_tries::json, '[]'::json))
                    order by number)::text as attempts,
                (array_agg(failure order by number desc))[1] as failure
            from attempt
            where attempt.notification = u.id
            and attempt.generation = u.generation) as made on true
        where u.letter is not null";
}

/// The values of `Ends::INSERT`.
macro_rules! bind_ends {
    ($ends:expr) => {
        $crate::postgres::tx::bind![
            $ends.ids => UUID_ARRAY,
            $ends.states => INT2_ARRAY,
            $ends.at => INT8_ARRAY,
            $ends.generations => INT4_ARRAY,
            $ends.bases => INT4_ARRAY,
            $ends.attempts => INT4_ARRAY,
            $ends.reasons => TEXT_ARRAY,
            $ends.texts => TEXT_ARRAY,
            $ends.letters => UUID_ARRAY,
        ]
    };
}

/// The values of `Ends::BURY`.
macro_rules! bind_letters {
    ($ends:expr) => {
        $crate::postgres::tx::bind![
            $ends.ids => UUID_ARRAY,
            $ends.died => INT8_ARRAY,
            $ends.generations => INT4_ARRAY,
            $ends.reasons => TEXT_ARRAY,
            $ends.texts => TEXT_ARRAY,
            $ends.letters => UUID_ARRAY,
        ]
    };
}
pub(super) use {bind_ends, bind_letters};
