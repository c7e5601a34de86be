//! One notification: as it stands, what an act has to know of it, and its past.

use posthaste_core::attempt::Outcome;
use posthaste_core::flow::Bucket;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::state::Lane;
use posthaste_engine::store::{Facts, History, HistoryEvent, View};
use rusqlite::{Connection, OptionalExtension, params};

use super::ends::{Ended, Letter};
use super::fault::{Fault, Result};
use super::readers::Reader;
use super::rows::{Queued, Wide, maybe_time, notification_id, outcome, priority, time};
use super::settle::{attempts, queued};

/// Where a notification is: in the queue or among what ended.
pub(super) enum Standing {
    Live(Queued),
    Over(Ended),
}

impl Standing {
    /// Where that notification is; none if it is not known.
    pub(super) fn find(conn: &Connection, id: NotificationId) -> Result<Option<Self>> {
        if let Some(row) = queued(conn, id)? {
            return Ok(Some(Self::Live(row)));
        }
        Ok(Ended::find(conn, id)?.map(Self::Over))
    }

    /// Where a notification is that has a wide row.
    pub(super) fn need(conn: &Connection, id: NotificationId) -> Result<Self> {
        let found = Self::find(conn, id)?;
        found.ok_or_else(|| Fault::nonsense(format!("{id} is neither live nor over")))
    }

    /// How it stands.
    pub(super) fn seen(&self) -> posthaste_engine::store::Seen {
        match self {
            Self::Live(row) => row.seen(),
            Self::Over(ended) => ended.seen(),
        }
    }

    /// What is shown of it.
    pub(super) fn view(self, wide: Wide) -> Result<View> {
        let (notification, state) = (wide.notification()?, self.seen().state);
        Ok(match self {
            Self::Live(row) => View {
                notification,
                state,
                progress: row.progress,
                due: Some(row.due),
                cancel_requested: row.cancel,
                end: None,
            },
            Self::Over(ended) => View {
                notification,
                state,
                progress: ended.progress,
                due: None,
                cancel_requested: false,
                end: Some(ended.shown()),
            },
        })
    }
}

/// A notification as it stands.
pub(super) fn get(reader: &mut Reader, id: NotificationId) -> Result<Option<View>> {
    let Reader { conn, flows } = reader;
    let view = |wide| Standing::need(conn, id)?.view(wide);
    Wide::find(conn, flows, id).and_then(|wide| wide.map(view).transpose()).map_err(|fault| fault.of(id))
}

/// What an act has to know of each id that exists.
pub(super) fn facts(reader: &mut Reader, ids: &[NotificationId]) -> Result<Vec<Facts>> {
    let mut all = Vec::with_capacity(ids.len());
    for id in ids {
        all.extend(fact(reader, *id)?);
    }
    Ok(all)
}

fn fact(reader: &mut Reader, id: NotificationId) -> Result<Option<Facts>> {
    let Reader { conn, flows } = reader;
    let mut select = conn.prepare_cached(
        "select flow, priority, expires
         from notification
         where id = ?1",
    )?;
    let mut rows = select.query([id.to_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let flow = posthaste_core::flow::FlowId(row.get(0)?);
    let (priority, expires_at) = (priority(row, 1)?, maybe_time(row, 2)?);
    let tenant = flows.need(conn, flow)?.tenant.clone();
    let standing = Standing::need(conn, id)?;
    let seen = standing.seen();
    let bucket = |lane| Bucket { flow, lane, priority };
    Ok(Some(match standing {
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
        Standing::Over(ended) => {
            let letter = ended.dead_letter.map(|name| Letter::find(conn, name)).transpose()?.flatten();
            let dead_letter = ended.dead_letter.zip(letter.map(|letter| letter.status));
            Facts {
                id,
                tenant,
                bucket: bucket(Lane::Main),
                seen,
                expires_at,
                cancel_requested: false,
                reason: ended.reason,
                dead_letter,
            }
        }
    }))
}

/// The notification of a dead letter.
pub(super) fn notification_of(conn: &Connection, letter: DeadLetterId) -> Result<Option<NotificationId>> {
    let mut select = conn.prepare_cached(
        "select notification
         from dead_letter
         where id = ?1",
    )?;
    let found = select.query_row([letter.to_bytes()], |row| Ok(notification_id(row, 0))).optional()?;
    found.transpose()
}

/// How the last attempt made came out; none if there was none.
pub(super) fn last_outcome(conn: &Connection, id: NotificationId) -> Result<Option<Outcome>> {
    let mut select = conn.prepare_cached(
        "select failure
         from attempt
         where notification = ?1
         order by generation desc, number desc
         limit 1",
    )?;
    let found: Option<Option<u8>> = select.query_row([id.to_bytes()], |row| row.get(0)).optional()?;
    found.map(outcome).transpose()
}

/// The attempts and events of a notification, oldest first.
pub(super) fn history(conn: &Connection, id: NotificationId) -> Result<History> {
    let mut select = conn.prepare_cached(
        "select at, word, actor, generation, attempt
         from event
         where notification = ?1
         order by number",
    )?;
    let mut rows = select.query(params![id.to_bytes()])?;
    let mut events = vec![];
    while let Some(row) = rows.next()? {
        events.push(HistoryEvent {
            at: time(row, 0)?,
            word: row.get(1)?,
            actor: row.get(2)?,
            generation: row.get(3)?,
            attempt: row.get(4)?,
        });
    }
    Ok(History { attempts: attempts(conn, id, None)?, events })
}
