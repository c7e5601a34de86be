//! One notification: as it stands, what an act has to know of it, and its past.

use async_trait::async_trait;
use posthaste_core::act::{self, Letter};
use posthaste_core::attempt::Outcome;
use posthaste_core::filter::{Filter, LastFailure};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::reason::Reason;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    self, AuditRow, DeadLetterView, DueCursor, History, HistoryEvent, Page, Reads, Stats, View,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::ends::Ended;
use super::fault::{Fault, Result};
use super::readers::Reader;
use super::rows::{Queued, Wide, outcome, time};
use super::settle::{attempts, queued};
use super::{SqliteStore, lists, stats};

#[async_trait]
impl Reads for SqliteStore {
    async fn get(&self, id: NotificationId) -> store::Result<Option<View>> {
        self.find(move |reader| get(reader, id)).await
    }

    async fn history(&self, id: NotificationId) -> store::Result<History> {
        self.find(move |reader| history(&reader.conn, id)).await
    }

    async fn page(
        &self,
        filter: Filter,
        before: Option<NotificationId>,
        limit: usize,
    ) -> store::Result<Page<View, NotificationId>> {
        self.list(move |reader| lists::page(reader, &filter, before, limit)).await
    }

    async fn retry_queue(
        &self,
        filter: Filter,
        after: Option<DueCursor>,
        limit: usize,
    ) -> store::Result<Page<View, DueCursor>> {
        self.list(move |reader| lists::retry_queue(reader, &filter, after, limit)).await
    }

    async fn dead_letter(&self, id: DeadLetterId) -> store::Result<Option<DeadLetterView>> {
        self.find(move |reader| lists::dead_letter(reader, id)).await
    }

    async fn dead_letters(
        &self,
        filter: Filter,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> store::Result<Page<DeadLetterView, DeadLetterId>> {
        self.list(move |reader| lists::dead_letters(reader, &filter, before, limit)).await
    }

    async fn audit(
        &self,
        tenant: Option<Tenant>,
        before: Option<i64>,
        limit: usize,
    ) -> store::Result<Page<AuditRow, i64>> {
        self.list(move |reader| lists::audit(reader, tenant.as_ref(), before, limit)).await
    }

    async fn stats(&self, tenant: Option<Tenant>, now: Timestamp) -> store::Result<Stats> {
        self.list(move |reader| stats::stats(&reader.conn, tenant.as_ref(), now)).await
    }
}

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

    /// Why it ended, if it did and was not delivered.
    pub(super) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Live(_) => None,
            Self::Over(ended) => ended.reason,
        }
    }

    /// How the last attempt failed.
    pub(super) fn last_failure(&self, conn: &Connection, id: NotificationId) -> Result<LastFailure> {
        match self {
            Self::Over(ended) => Ok(ended.failure_type.map(|failure| (failure, ended.status_code))),
            Self::Live(_) => last_failure(conn, id),
        }
    }

    /// The lane of a row of the queue, and the main lane for what would be reopened.
    pub(super) const fn lane(&self) -> Lane {
        match self {
            Self::Live(row) => row.bucket.lane,
            Self::Over(_) => Lane::Main,
        }
    }

    /// What acts ask of it.
    pub(super) fn standing(
        &self,
        expires_at: Option<Timestamp>,
        dead_letter: Option<Letter>,
    ) -> act::Standing {
        let (progress, due, cancel_requested, reason) = match self {
            Self::Live(row) => (row.progress, Some(row.due), row.cancel, None),
            Self::Over(ended) => (ended.progress, None, false, ended.reason),
        };
        let state = self.seen().state;
        act::Standing { state, progress, due, expires_at, cancel_requested, reason, dead_letter }
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

/// How the last attempt made failed; none if there was none or it delivered.
fn last_failure(conn: &Connection, id: NotificationId) -> Result<LastFailure> {
    let mut select = conn.prepare_cached(
        "select failure, status_code
         from attempt
         where notification = ?1
         order by generation desc, number desc
         limit 1",
    )?;
    let found = select.query_row([id.to_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((failure, code)) = found else { return Ok(None) };
    Ok(match outcome(failure)? {
        Outcome::Failed(failure) => Some((failure, code)),
        Outcome::Delivered => None,
    })
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
