//! Ended notifications and their dead letters.

use posthaste_core::group::pattern;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::reason::Reason;
use posthaste_engine::store::Progress;
use uuid::Uuid;

use super::fault::Result;
use super::rows::{Columns, letter_uuid, number, uuid, without_nul};
use crate::kept::places::Ended;

/// The columns of an ended row `e`, in the order in which `Columns::ended` reads them.
macro_rules! ended_columns {
    () => {
        "e.state, e.at, e.generation, e.base, e.attempt, e.reason, e.text, e.dead_letter, e.failure, e.status_code"
    };
}
pub(super) use ended_columns;

/// Number of columns in `ended_columns`.
pub(super) const ENDED_COLUMNS: usize = 10;

impl Columns<'_> {
    /// Reads `ended_columns`.
    pub(super) fn ended(&mut self) -> Result<Ended> {
        let (state, at) = (self.state()?, self.time()?);
        let (generation, base, attempt) = (self.small()?, self.small()?, self.small()?);
        Ok(Ended {
            state,
            at,
            progress: Progress { generation, attempt, base },
            reason: self.maybe_reason()?,
            text: self.take()?,
            dead_letter: self.take::<Option<Uuid>>()?.map(|id| DeadLetterId::from_bytes(id.into_bytes())),
            failure_type: self.maybe_failure()?,
            status_code: self.maybe_status_code()?,
        })
    }
}

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
    /// Those that are dead letters.
    pub(super) buried: Letters,
}

impl Ends {
    /// The fields of the last attempt are set by the statement that inserts the row.
    pub(super) fn push(&mut self, id: NotificationId, ended: &Ended) {
        self.ids.push(uuid(id));
        self.states.push(i16::from(ended.state.code()));
        self.at.push(ended.at.as_micros());
        self.generations.push(number(ended.progress.generation));
        self.bases.push(number(ended.progress.base));
        self.attempts.push(number(ended.progress.attempt));
        self.reasons.push(ended.reason.map(Reason::code));
        self.texts.push(ended.text.as_ref().map(|text| without_nul(text).into_owned()));
        self.letters.push(ended.dead_letter.map(letter_uuid));
        if let Some(name) = ended.dead_letter {
            self.buried.push(id, name, ended.text.as_deref());
        }
    }

    /// Inserts the rows. They belong to no new attempt, so failure type and status code come from the last
    /// stored one. None of them is delivered, so each has a tenant.
    pub(super) const INSERT: &str = "
        insert into ended (id, state, at, generation, base, attempt, reason, text, dead_letter, failure, status_code, tenant)
        select u.id, u.state, u.at, u.generation, u.base, u.attempt, u.reason, u.text, u.letter, last.failure,
            last.status_code, f.tenant
        from unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::integer[], $5::integer[], $6::integer[], $7::text[],
            $8::text[], $9::uuid[])
            as u (id, state, at, generation, base, attempt, reason, text, letter)
        left join notification n on n.id = any(array[u.id])
        left join flow f on f.id = any(array[n.flow])
        left join lateral (
            select a.failure, a.status_code
            from attempt a
            where a.notification = u.id
            order by a.generation desc, a.number desc
            limit 1) as last on true";

    /// Inserts the dead letters, each with its own snapshot of the notification and of the attempts of the
    /// generation. If an end is recorded again, its dead letter already exists. A missing wide row violates a
    /// constraint, which fails the transaction. The fingerprint is that of `group::fingerprint`: the attempts are
    /// known only here. Triggers count the dead letters in their groups.
    pub(super) const BURY: &str = "
        insert into dead_letter (id, notification, flow, priority, not_before, expires, recipient, template, subject,
            event_key, correlation_id, content, reason, text, attempts, replies, failure, status_code, status, created_at,
            fingerprint, tenant)
        select e.dead_letter, e.id, n.flow, n.priority, n.not_before, n.expires, n.recipient, n.template, n.subject,
            n.event_key, n.correlation_id, n.content, e.reason, e.text, coalesce(made.attempts, '[]'), made.replies,
            made.failure, made.status_code, 0, u.died,
            encode(substring(sha256(convert_to(
                e.reason || e'\\n' || coalesce(made.failure::text, '') || e'\\n' || coalesce(made.status_code::text, '')
                || e'\\n' || u.pattern, 'UTF8')) from 1 for 16), 'hex')::uuid,
            f.tenant
        from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[]) as u (id, letter, died, pattern)
        join ended e on e.id = any(array[u.id])
        left join notification n on n.id = any(array[u.id])
        left join flow f on f.id = any(array[n.flow])
        left join lateral (
            select json_agg(
                    json_build_array(generation, number, started_at, duration, failure, status_code, error,
                        coalesce(quick_tries::json, '[]'::json))
                    order by number)::text as attempts,
                case when count(coalesce(provider, message_id)) > 0 then json_agg(
                    case when coalesce(provider, message_id) is not null
                        then json_build_array(provider, message_id, null, null)
                    end
                    order by number)::text
                end as replies,
                (array_agg(failure order by number desc))[1] as failure,
                (array_agg(status_code order by number desc))[1] as status_code
            from attempt
            where attempt.notification = u.id
            and attempt.generation = e.generation) as made on true
        where e.dead_letter is not distinct from u.letter
        and not exists (
            select
            from dead_letter d
            where d.id = any(array[u.letter])
            and d.notification is not distinct from u.id)";
}

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

pub(super) use bind_ends;

/// Ids of dead letters and their notifications, in columns.
#[derive(Default)]
pub(super) struct Letters {
    pub(super) ids: Vec<Uuid>,
    pub(super) names: Vec<Uuid>,
    /// The times in the ids.
    pub(super) died: Vec<i64>,
    /// The normalised error texts.
    pub(super) patterns: Vec<String>,
}

impl Letters {
    pub(super) fn push(&mut self, id: NotificationId, name: DeadLetterId, text: Option<&str>) {
        self.ids.push(uuid(id));
        self.names.push(letter_uuid(name));
        self.died.push(name.made_at().as_micros());
        self.patterns.push(pattern(text.unwrap_or_default()));
    }
}

macro_rules! bind_letters {
    ($letters:expr) => {
        $crate::postgres::tx::bind![
            $letters.ids => UUID_ARRAY,
            $letters.names => UUID_ARRAY,
            $letters.died => INT8_ARRAY,
            $letters.patterns => TEXT_ARRAY,
        ]
    };
}
pub(super) use bind_letters;
