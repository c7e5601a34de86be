//! Reads values from columns.

use std::sync::Arc;

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::flow::{Bucket, FlowId, FlowKey};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::{Notification, Priority, Tenant};
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::Progress;
use rusqlite::{Connection, Row};

use super::fault::{Fault, Result};
use super::flows::Flows;
use crate::kept::places::Queued;
use crate::kept::values;

/// The columns of a queue row, in the order in which `queued` reads them.
macro_rules! queue_columns {
    () => {
        "flow, lane, priority, due, first_due, delay, node, fence, attempt, base, generation,
         interruptions, cancel"
    };
}
/// The columns of the wide row, in the order in which `Wide::read` reads them. The snapshot of a dead letter
/// has them too.
macro_rules! wide_columns {
    () => {
        "flow, recipient, priority, template, subject, event_key, correlation_id, not_before, expires, content"
    };
}
pub(super) use {queue_columns, wide_columns};

/// Reads `queue_columns` from column `start` on.
pub(super) fn queued(row: &Row<'_>, start: usize) -> Result<Queued> {
    let node: Option<i64> = row.get(start + 6)?;
    let fence: Option<i64> = row.get(start + 7)?;
    Ok(Queued {
        bucket: bucket(row, start)?,
        due: time(row, start + 3)?,
        first_due: time(row, start + 4)?,
        delay: values::duration(row.get(start + 5)?),
        lease: values::lease(node, fence),
        progress: Progress {
            attempt: row.get(start + 8)?,
            base: row.get(start + 9)?,
            generation: row.get(start + 10)?,
        },
        interruptions: row.get(start + 11)?,
        cancel: row.get(start + 12)?,
    })
}

/// The row of an accepted notification. The content is parsed by the caller, to save time on the writer.
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
    /// Reads `wide_columns` from column `start` on.
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

    pub(super) fn find(conn: &Connection, flows: &mut Flows, id: NotificationId) -> Result<Option<Self>> {
        let mut select =
            conn.prepare_cached(concat!("select ", wide_columns!(), " from notification where id = ?1"))?;
        let mut rows = select.query([id.to_bytes()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let key = flows.need(conn, FlowId(row.get(0)?))?;
        Self::read(id, key, row, 0).map(Some)
    }

    /// Like `find`, for a notification that must exist because another row refers to it.
    pub(super) fn need(conn: &Connection, flows: &mut Flows, id: NotificationId) -> Result<Self> {
        Self::find(conn, flows, id)?.ok_or_else(|| Fault::damaged(format!("{id} has no wide row")))
    }

    pub(super) fn notification(self) -> Result<Arc<Notification>> {
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
            content: values::content(&self.content)?,
        }))
    }
}

/// Reads flow, lane and priority from three columns.
pub(super) fn bucket(row: &Row<'_>, start: usize) -> Result<Bucket> {
    Ok(Bucket {
        flow: FlowId(row.get(start)?),
        lane: values::lane(row.get(start + 1)?)?,
        priority: priority(row, start + 2)?,
    })
}

pub(super) fn priority(row: &Row<'_>, column: usize) -> Result<Priority> {
    Ok(values::priority(row.get(column)?)?)
}

pub(super) fn state(row: &Row<'_>, column: usize) -> Result<State> {
    Ok(values::state(row.get(column)?)?)
}

pub(super) fn maybe_reason(row: &Row<'_>, column: usize) -> Result<Option<Reason>> {
    Ok(maybe_text(row, column)?.map(values::reason).transpose()?)
}

pub(super) fn status(row: &Row<'_>, column: usize) -> Result<DeadLetterStatus> {
    Ok(values::status(row.get(column)?)?)
}

pub(super) fn maybe_failure(row: &Row<'_>, column: usize) -> Result<Option<FailureType>> {
    Ok(row.get::<_, Option<u8>>(column)?.map(values::failure).transpose()?)
}

pub(super) fn maybe_tenant(row: &Row<'_>, column: usize) -> Result<Option<Tenant>> {
    Ok(maybe_text(row, column)?.map(values::tenant).transpose()?)
}

/// Borrows the text from the row.
pub(super) fn maybe_text<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r str>> {
    Ok(row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)?)
}

pub(super) fn notification_id(row: &Row<'_>, column: usize) -> Result<NotificationId> {
    Ok(NotificationId::from_bytes(row.get(column)?))
}

pub(super) fn dead_letter_id(row: &Row<'_>, column: usize) -> Result<DeadLetterId> {
    Ok(DeadLetterId::from_bytes(row.get(column)?))
}

pub(super) fn maybe_dead_letter_id(row: &Row<'_>, column: usize) -> Result<Option<DeadLetterId>> {
    let bytes: Option<[u8; 16]> = row.get(column)?;
    Ok(bytes.map(DeadLetterId::from_bytes))
}

pub(super) fn time(row: &Row<'_>, column: usize) -> Result<Timestamp> {
    Ok(Timestamp::from_micros(row.get(column)?))
}

pub(super) fn maybe_time(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>> {
    let micros: Option<i64> = row.get(column)?;
    Ok(micros.map(Timestamp::from_micros))
}
