//! Reads of single notifications: current view, and history.

use async_trait::async_trait;
use posthaste_core::filter::{AuditFilter, Filter, LastFailure};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    self, AuditRow, DeadLetterView, DueCursor, History, HistoryEvent, Page, Reads, Stats, View,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::fault::{Fault, Result, unless_damaged};
use super::readers::Reader;
use super::rows::{Wide, queue_columns, queued, time};
use super::settle::attempts;
use super::{SqliteStore, ends, flows, lists, stats};
use crate::kept::places::Place;

#[async_trait]
impl Reads for SqliteStore {
    async fn get(&self, id: NotificationId) -> store::Result<Option<View>> {
        self.find(move |reader| get(reader, id)).await
    }

    async fn get_many(&self, ids: Vec<NotificationId>) -> store::Result<Vec<View>> {
        self.find(move |reader| get_many(reader, ids)).await
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
        filter: AuditFilter,
        before: Option<i64>,
        limit: usize,
    ) -> store::Result<Page<AuditRow, i64>> {
        self.list(move |reader| lists::audit(reader, &filter, before, limit)).await
    }

    async fn stats(&self, tenant: Option<Tenant>, now: Timestamp) -> store::Result<Stats> {
        self.list(move |reader| stats::stats(&reader.conn, tenant.as_ref(), now)).await
    }

    async fn tenants(&self, from: Option<Tenant>, limit: usize) -> store::Result<Vec<Tenant>> {
        self.list(move |reader| flows::tenants(&reader.conn, from.as_ref(), limit)).await
    }
}

/// Returns `None` if the notification does not exist.
pub(super) fn place(conn: &Connection, id: NotificationId) -> Result<Option<Place>> {
    let mut select =
        conn.prepare_cached(concat!("select ", queue_columns!(), " from queue where id = ?1"))?;
    let live = select.query_row([id.to_bytes()], |row| Ok(queued(row, 0))).optional()?;
    match live {
        Some(row) => Ok(Some(Place::Live(row?))),
        None => Ok(ends::find(conn, id)?.map(Place::Over)),
    }
}

/// Like `place`, for a notification that has a wide row.
pub(super) fn need_place(conn: &Connection, id: NotificationId) -> Result<Place> {
    place(conn, id)?.ok_or_else(|| Fault::damaged(format!("{id} is neither live nor over")))
}

pub(super) fn get(reader: &mut Reader, id: NotificationId) -> Result<Option<View>> {
    let Reader { conn, flows } = reader;
    let view = |wide: Wide| {
        Ok(need_place(conn, id)?.view(wide.notification()?, ends::last_attempt(conn, id)?.failed()))
    };
    Wide::find(conn, flows, id).and_then(|wide| wide.map(view).transpose()).map_err(|fault| fault.of(id))
}

fn get_many(reader: &mut Reader, mut ids: Vec<NotificationId>) -> Result<Vec<View>> {
    ids.sort_unstable();
    ids.dedup();
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        found.extend(unless_damaged(&id, get(reader, id))?.flatten());
    }
    Ok(found)
}

/// Returns `None` if the last attempt was delivered, or there was none.
pub(super) fn last_failure(conn: &Connection, id: NotificationId, place: &Place) -> Result<LastFailure> {
    if let Place::Over(ended) = place {
        return Ok(ended.failure_type.map(|failure| (failure, ended.status_code)));
    }
    let last = ends::last_attempt(conn, id)?;
    Ok(last.failure_type.map(|failure| (failure, last.status_code)))
}

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
