//! How values are written into columns and read back.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::{Attempt, Outcome, QuickTry};
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::flow::{Bucket, FlowId, FlowKey};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::{Content, Notification, Priority, Tenant};
use posthaste_core::reason::Reason;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::Progress;
use rusqlite::{Connection, Row};

use super::fault::{Fault, Result};
use super::flows::Flows;
use crate::kept::places::Queued;
use crate::kept::replies;

/// The columns of a queue row, in the order that `queued` takes them.
macro_rules! queue_columns {
    () => {
        "flow, lane, priority, due, first_due, delay, node, fence, attempt, base, generation,
         interruptions, cancel"
    };
}
/// The columns of the wide row, in the order that `Wide::read` takes them. A dead letter's snapshot has them too.
macro_rules! wide_columns {
    () => {
        "flow, recipient, priority, template, subject, event_key, correlation_id, not_before, expires, content"
    };
}
pub(super) use {queue_columns, wide_columns};

/// Reads the columns of `queue_columns` from `start` on.
pub(super) fn queued(row: &Row<'_>, start: usize) -> Result<Queued> {
    let node: Option<i64> = row.get(start + 6)?;
    let fence: Option<i64> = row.get(start + 7)?;
    Ok(Queued {
        bucket: bucket(row, start)?,
        due: time(row, start + 3)?,
        first_due: time(row, start + 4)?,
        delay: duration(row, start + 5)?,
        lease: node.zip(fence).map(|(node, fence)| Lease { node: NodeId(node), fence: Fence(fence) }),
        progress: Progress {
            attempt: row.get(start + 8)?,
            base: row.get(start + 9)?,
            generation: row.get(start + 10)?,
        },
        interruptions: row.get(start + 11)?,
        cancel: row.get(start + 12)?,
    })
}

/// The row of what was accepted, with its content still as text: whoever asked turns it into a notification, so that
/// the writer does not have to.
#[derive(Debug)]
pub(super) struct Wide {
    id: NotificationId,
    key: Arc<FlowKey>,
    recipient: String,
    priority: Priority,
    template: Option<String>,
    subject: Option<String>,
    event_key: Option<String>,
    correlation_id: Option<String>,
    not_before: Option<Timestamp>,
    expires: Option<Timestamp>,
    content: String,
}

impl Wide {
    /// Reads the columns of `wide_columns` from `start` on.
    pub(super) fn read(id: NotificationId, key: Arc<FlowKey>, row: &Row<'_>, start: usize) -> Result<Self> {
        Ok(Self {
            id,
            key,
            recipient: row.get(start + 1)?,
            priority: priority(row, start + 2)?,
            template: row.get(start + 3)?,
            subject: row.get(start + 4)?,
            event_key: row.get(start + 5)?,
            correlation_id: row.get(start + 6)?,
            not_before: maybe_time(row, start + 7)?,
            expires: maybe_time(row, start + 8)?,
            content: row.get(start + 9)?,
        })
    }

    /// The wide row of that notification, if there is one.
    pub(super) fn find(conn: &Connection, flows: &mut Flows, id: NotificationId) -> Result<Option<Self>> {
        let mut select =
            conn.prepare_cached(concat!("select ", wide_columns!(), " from notification where id = ?1"))?;
        let mut rows = select.query([id.to_bytes()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let key = flows.need(conn, FlowId(row.get(0)?))?;
        Self::read(id, key, row, 0).map(Some)
    }

    /// The wide row of that notification, which must exist because another row names it.
    pub(super) fn need(conn: &Connection, flows: &mut Flows, id: NotificationId) -> Result<Self> {
        Self::find(conn, flows, id)?.ok_or_else(|| Fault::nonsense(format!("{id} has no wide row")))
    }

    /// The notification as it was accepted.
    pub(super) fn notification(self) -> Result<Arc<Notification>> {
        let content: Content = serde_json::from_str(&self.content).map_err(|error| {
            // The error's own words may quote the message, which belongs in no log.
            let (kind, column) = (error.classify(), error.column());
            Fault::nonsense(format!("the content is no content ({kind:?} error at column {column})"))
        })?;
        Ok(Arc::new(Notification {
            id: self.id,
            tenant: self.key.tenant.clone(),
            channel: self.key.channel,
            destination: self.key.destination.clone(),
            to: self.recipient,
            priority: self.priority,
            template: self.template,
            subject: self.subject,
            event_key: self.event_key,
            correlation_id: self.correlation_id,
            not_before: self.not_before,
            expires_at: self.expires,
            content,
        }))
    }
}

/// The content as it is kept.
pub(super) fn content_text(content: &Content) -> Result<String> {
    serde_json::to_string(content)
        .map_err(|error| Fault::nonsense(format!("a content cannot be written: {error}")))
}

/// Flow, lane and priority in three columns.
pub(super) fn bucket(row: &Row<'_>, start: usize) -> Result<Bucket> {
    let lane: u8 = row.get(start + 1)?;
    Ok(Bucket {
        flow: FlowId(row.get(start)?),
        lane: Lane::from_code(lane).ok_or_else(|| Fault::nonsense(format!("lane {lane}")))?,
        priority: priority(row, start + 2)?,
    })
}

/// A priority.
pub(super) fn priority(row: &Row<'_>, column: usize) -> Result<Priority> {
    let code: u8 = row.get(column)?;
    Priority::from_code(code).ok_or_else(|| Fault::nonsense(format!("priority {code}")))
}

/// A state.
pub(super) fn state(row: &Row<'_>, column: usize) -> Result<State> {
    State::from_code(row.get(column)?).map_err(|error| Fault::nonsense(error.to_string()))
}

/// A reason, or none.
pub(super) fn maybe_reason(row: &Row<'_>, column: usize) -> Result<Option<Reason>> {
    let code = row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    let Some(code) = code else { return Ok(None) };
    Reason::from_code(code).map(Some).ok_or_else(|| Fault::nonsense(format!("reason {code}")))
}

/// The status of a dead letter.
pub(super) fn status(row: &Row<'_>, column: usize) -> Result<DeadLetterStatus> {
    let code: u8 = row.get(column)?;
    DeadLetterStatus::from_code(code).ok_or_else(|| Fault::nonsense(format!("dead letter status {code}")))
}

/// A tenant, or none.
pub(super) fn maybe_tenant(row: &Row<'_>, column: usize) -> Result<Option<Tenant>> {
    let name = row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    name.map(|name| name.parse().map_err(|error| Fault::nonsense(format!("{error}")))).transpose()
}

/// The name of a notification.
pub(super) fn notification_id(row: &Row<'_>, column: usize) -> Result<NotificationId> {
    Ok(NotificationId::from_bytes(row.get(column)?))
}

/// The name of a dead letter.
pub(super) fn dead_letter_id(row: &Row<'_>, column: usize) -> Result<DeadLetterId> {
    Ok(DeadLetterId::from_bytes(row.get(column)?))
}

/// The name of a dead letter, or none.
pub(super) fn maybe_dead_letter_id(row: &Row<'_>, column: usize) -> Result<Option<DeadLetterId>> {
    let bytes: Option<[u8; 16]> = row.get(column)?;
    Ok(bytes.map(DeadLetterId::from_bytes))
}

/// A point in time.
pub(super) fn time(row: &Row<'_>, column: usize) -> Result<Timestamp> {
    Ok(Timestamp::from_micros(row.get(column)?))
}

/// A point in time, or none.
pub(super) fn maybe_time(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>> {
    let micros: Option<i64> = row.get(column)?;
    Ok(micros.map(Timestamp::from_micros))
}

/// A time or none, as it is written.
pub(super) fn maybe_micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_micros)
}

fn duration(row: &Row<'_>, column: usize) -> Result<Duration> {
    Ok(micros_duration(row.get(column)?))
}

/// A duration from its stored form.
pub(super) fn micros_duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// A quick try as it is kept: start in microseconds, milliseconds, failure type, status code, error.
pub(super) type QuickTuple = (i64, u64, u8, Option<u16>, Option<String>);

/// The quick tries of an attempt, as they are kept.
pub(super) fn quick_tuples(tries: &[QuickTry]) -> Vec<QuickTuple> {
    let tuple = |quick: &QuickTry| {
        let (code, error) = (quick.failure_type.code(), quick.error.clone());
        (quick.started_at.as_micros(), quick.duration_ms, code, quick.status_code, error)
    };
    tries.iter().map(tuple).collect()
}

/// The quick tries of an attempt from what is kept.
pub(super) fn quick_tries(tuples: Vec<QuickTuple>) -> Result<Vec<QuickTry>> {
    let quick = |(started, duration_ms, code, status_code, error): QuickTuple| {
        Ok(QuickTry {
            started_at: Timestamp::from_micros(started),
            duration_ms,
            failure_type: failure(code)?,
            status_code,
            error,
        })
    };
    tuples.into_iter().map(quick).collect()
}

/// How an attempt came out, from what is kept.
pub(super) fn outcome(code: Option<u8>) -> Result<Outcome> {
    code.map_or(Ok(Outcome::Delivered), |code| Ok(Outcome::Failed(failure(code)?)))
}

/// How an attempt failed, or none.
pub(super) fn maybe_failure(row: &Row<'_>, column: usize) -> Result<Option<FailureType>> {
    row.get::<_, Option<u8>>(column)?.map(failure).transpose()
}

fn failure(code: u8) -> Result<FailureType> {
    FailureType::from_code(code).ok_or_else(|| Fault::nonsense(format!("failure type {code}")))
}

/// An attempt as a dead letter keeps it.
type AttemptTuple = (u32, u32, i64, i64, Option<u8>, Option<u16>, Option<String>, Vec<QuickTuple>);

/// The attempts of a dead letter, as they are kept.
pub(super) fn attempts_text(attempts: &[Attempt]) -> Result<String> {
    let tuple = |a: &Attempt| -> AttemptTuple {
        let (started, took) = (a.started_at.as_micros(), posthaste_core::time::micros(a.duration));
        let quick = quick_tuples(&a.quick_tries);
        (a.generation, a.number, started, took, a.outcome.code(), a.status_code, a.error.clone(), quick)
    };
    let tuples: Vec<AttemptTuple> = attempts.iter().map(tuple).collect();
    serde_json::to_string(&tuples)
        .map_err(|error| Fault::nonsense(format!("attempts cannot be written: {error}")))
}

/// The attempts of a dead letter from what is kept of them and of their replies.
pub(super) fn attempts_from(text: &str, replies: Option<&str>) -> Result<Vec<Attempt>> {
    let tuples: Vec<AttemptTuple> = serde_json::from_str(text)
        .map_err(|error| Fault::nonsense(format!("the attempts of a dead letter: {error}")))?;
    let attempt = |(generation, number, started, took, code, status_code, error, quick): AttemptTuple| {
        Ok(Attempt {
            generation,
            number,
            started_at: Timestamp::from_micros(started),
            duration: micros_duration(took),
            outcome: outcome(code)?,
            status_code,
            error,
            quick_tries: quick_tries(quick)?,
            provider: None,
            message_id: None,
            response: None,
        })
    };
    let mut attempts = tuples.into_iter().map(attempt).collect::<Result<Vec<_>>>()?;
    replies::add(&mut attempts, replies)
        .map_err(|error| Fault::nonsense(format!("the replies of a dead letter: {error}")))?;
    Ok(attempts)
}
