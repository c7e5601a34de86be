//! Reads values from columns and converts parameters.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use posthaste_core::attempt::{Attempt, Response};
use posthaste_core::channel::Channel;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::flow::{Bucket, FlowId, FlowKey};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::{Notification, Priority, Tenant};
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::Progress;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::fault::{Fault, Result};
use crate::kept::attempts::tries_from;
use crate::kept::places::Queued;
use crate::kept::{replies, values};

/// The columns of a queue row `q`, in the order in which `Columns::queued` reads them.
macro_rules! queue_columns {
    () => {
        "q.flow, q.lane, q.priority, q.due, q.first_due, q.delay, q.node, q.fence, q.attempt, q.base, q.generation,
         q.interruptions, q.cancel"
    };
}
/// The columns of a wide row `n`, in the order in which `wide` reads them. The snapshot of a dead letter has
/// them too.
macro_rules! wide_columns {
    () => {
        "n.flow, n.recipient, n.priority, n.template, n.subject, n.event_key, n.correlation_id, n.not_before,
         n.expires, n.content"
    };
}
pub(super) use {queue_columns, wide_columns};

/// Number of columns in `queue_columns`.
pub(super) const QUEUE_COLUMNS: usize = 13;

/// The flows of a result, by number.
pub(super) type Keys = HashMap<FlowId, Arc<FlowKey>>;

/// Reads the columns of a row one after the other.
pub(super) struct Columns<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> Columns<'r> {
    /// Starts at the first column.
    pub(super) const fn of(row: &'r Row) -> Self {
        Self { row, next: 0 }
    }

    /// Reads the next column.
    pub(super) fn take<T: FromSql<'r>>(&mut self) -> Result<T> {
        let at = self.next;
        self.next += 1;
        self.row.try_get(at).map_err(|error| Fault::damaged(format!("column {at}: {error}")))
    }

    pub(super) const fn skip(&mut self, count: usize) {
        self.next += count;
    }

    /// Reads an integer column as a smaller type.
    pub(super) fn small<N: TryFrom<i64>>(&mut self) -> Result<N> {
        let number = i64::from(self.take::<i32>()?);
        N::try_from(number).map_err(|_| Fault::damaged(format!("the number {number}")))
    }

    /// Reads the code of an enum.
    pub(super) fn code(&mut self) -> Result<u8> {
        let code: i16 = self.take()?;
        u8::try_from(code).map_err(|_| Fault::damaged(format!("the code {code}")))
    }

    pub(super) fn maybe_code(&mut self) -> Result<Option<u8>> {
        let code: Option<i16> = self.take()?;
        code.map(|code| u8::try_from(code).map_err(|_| Fault::damaged(format!("the code {code}"))))
            .transpose()
    }

    pub(super) fn time(&mut self) -> Result<Timestamp> {
        Ok(Timestamp::from_micros(self.take()?))
    }

    pub(super) fn maybe_time(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.take::<Option<i64>>()?.map(Timestamp::from_micros))
    }

    pub(super) fn notification_id(&mut self) -> Result<NotificationId> {
        Ok(NotificationId::from_bytes(self.take::<Uuid>()?.into_bytes()))
    }

    pub(super) fn dead_letter_id(&mut self) -> Result<DeadLetterId> {
        Ok(DeadLetterId::from_bytes(self.take::<Uuid>()?.into_bytes()))
    }

    /// Reads flow, lane and priority from three columns.
    pub(super) fn bucket(&mut self) -> Result<Bucket> {
        let (flow, lane) = (FlowId(self.take()?), values::lane(self.code()?)?);
        Ok(Bucket { flow, lane, priority: self.priority()? })
    }

    pub(super) fn priority(&mut self) -> Result<Priority> {
        Ok(values::priority(self.code()?)?)
    }

    pub(super) fn state(&mut self) -> Result<State> {
        Ok(values::state(self.code()?)?)
    }

    pub(super) fn channel(&mut self) -> Result<Channel> {
        Ok(values::channel(self.code()?)?)
    }

    pub(super) fn maybe_reason(&mut self) -> Result<Option<Reason>> {
        Ok(self.take::<Option<&str>>()?.map(values::reason).transpose()?)
    }

    pub(super) fn maybe_failure(&mut self) -> Result<Option<FailureType>> {
        Ok(self.maybe_code()?.map(values::failure).transpose()?)
    }

    pub(super) fn maybe_status_code(&mut self) -> Result<Option<u16>> {
        Ok(self.take::<Option<i32>>()?.and_then(|code| u16::try_from(code).ok()))
    }

    /// The status of a dead letter.
    pub(super) fn maybe_status(&mut self) -> Result<Option<DeadLetterStatus>> {
        Ok(self.maybe_code()?.map(values::status).transpose()?)
    }

    /// Reads `queue_columns`.
    pub(super) fn queued(&mut self) -> Result<Queued> {
        let (bucket, due, first_due) = (self.bucket()?, self.time()?, self.time()?);
        let delay = values::duration(self.take()?);
        let (node, fence): (Option<i64>, Option<i64>) = (self.take()?, self.take()?);
        let lease = values::lease(node, fence);
        let (attempt, base, generation) = (self.small()?, self.small()?, self.small()?);
        let progress = Progress { generation, attempt, base };
        let (interruptions, cancel) = (self.small()?, self.take()?);
        Ok(Queued { bucket, due, first_due, delay, lease, progress, interruptions, cancel })
    }

    pub(super) fn maybe_tenant(&mut self) -> Result<Option<Tenant>> {
        Ok(self.take::<Option<&str>>()?.map(values::tenant).transpose()?)
    }
}

/// Reads `wide_columns`.
pub(super) fn wide(id: NotificationId, keys: &Keys, columns: &mut Columns<'_>) -> Result<Arc<Notification>> {
    let flow: Option<i64> = columns.take()?;
    let flow = flow.map(FlowId).ok_or_else(|| Fault::damaged(format!("{id} has no wide row")))?;
    wide_in(id, known(keys, flow)?, columns)
}

/// Reads `wide_columns` for a claim, which knows the flow from the queue row.
pub(super) fn wide_in_flow(
    id: NotificationId,
    keys: &Keys,
    flow: FlowId,
    columns: &mut Columns<'_>,
) -> Result<Arc<Notification>> {
    let accepted_in: Option<i64> = columns.take()?;
    accepted_in.ok_or_else(|| Fault::damaged(format!("{id} has no wide row")))?;
    wide_in(id, known(keys, flow)?, columns)
}

pub(super) fn known(keys: &Keys, flow: FlowId) -> Result<&FlowKey> {
    let key = keys.get(&flow).ok_or_else(|| Fault::damaged(format!("flow {} is not known", flow.0)))?;
    Ok(key)
}

fn wide_in(id: NotificationId, key: &FlowKey, columns: &mut Columns<'_>) -> Result<Arc<Notification>> {
    Ok(Arc::new(Notification {
        id,
        tenant: key.tenant.clone(),
        channel: key.channel,
        destination: key.destination.clone(),
        to: columns.take()?,
        priority: columns.priority()?,
        template: columns.take()?,
        subject: columns.take()?,
        event_key: columns.take()?,
        correlation_id: columns.take()?,
        not_before: columns.maybe_time()?,
        expires_at: columns.maybe_time()?,
        content: values::content(columns.take()?)?,
    }))
}

pub(super) const fn uuid(id: NotificationId) -> Uuid {
    Uuid::from_bytes(id.to_bytes())
}

pub(super) const fn letter_uuid(id: DeadLetterId) -> Uuid {
    Uuid::from_bytes(id.to_bytes())
}

pub(super) fn bigint(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// For counters of attempts, generations and interruptions.
pub(super) fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// PostgreSQL cannot store NUL in a text. No sender needs it, but a broken server may send it.
pub(super) fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

pub(super) fn maybe_without_nul(text: Option<&String>) -> Option<Cow<'_, str>> {
    text.map(|text| without_nul(text))
}

/// The reply as stored in `attempt` and `dead_letter`; see `replies`.
pub(super) fn reply_text(attempt: &Attempt) -> Result<Option<String>> {
    let cleaned = |text: &String| without_nul(text).into_owned();
    let response = attempt.response.as_ref().map(|response| Response {
        content_type: response.content_type.as_ref().map(cleaned),
        excerpt: cleaned(&response.excerpt),
    });
    let (provider, message_id) =
        (attempt.provider.as_ref().map(cleaned), attempt.message_id.as_ref().map(cleaned));
    Ok(replies::one(provider, message_id, response)?)
}

/// Reads generation, number, start, duration, failure, status code, error, quick tries, provider, message id,
/// content type and excerpt.
pub(super) fn attempt(columns: &mut Columns<'_>) -> Result<Attempt> {
    let made = Attempt {
        generation: columns.small()?,
        number: columns.small()?,
        started_at: columns.time()?,
        duration: values::duration(columns.take()?),
        outcome: values::outcome(columns.maybe_code()?)?,
        status_code: columns.maybe_status_code()?,
        error: columns.take()?,
        quick_tries: vec![],
        last_try_at: None,
        provider: None,
        message_id: None,
        response: None,
    };
    let (quick_tries, last_try_at) = tries_from(columns.take()?)?;
    let (provider, message_id) = (columns.take()?, columns.take()?);
    let (content_type, excerpt): (_, Option<String>) = (columns.take()?, columns.take()?);
    let response = excerpt.map(|excerpt| Response { content_type, excerpt });
    Ok(Attempt { quick_tries, last_try_at, provider, message_id, response, ..made })
}
