//! Reads of single notifications: current view, and history.

use async_trait::async_trait;
use posthaste_core::filter::{AuditFilter, Filter};
use posthaste_core::flow::FlowId;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    self, AuditRow, DeadLetterView, DueCursor, History, HistoryEvent, LastError, Page, Reads, Stats, View,
};
use uuid::Uuid;

use super::ends::ENDED_COLUMNS;
use super::fault::{Fault, Result, unless_damaged};
use super::flows::Flows;
use super::rows::{Columns, Keys, QUEUE_COLUMNS, attempt, uuid, wide, wide_columns};
use super::tx::{Mode, Then, Tx, bind, statement};
use super::{PostgresStore, flows, list, lists, look, stats};
use crate::kept::places::Place;

#[async_trait]
impl Reads for PostgresStore {
    async fn get(&self, id: NotificationId) -> store::Result<Option<View>> {
        Ok(look!(self, tx => get(&tx, &self.flows, id))?)
    }

    async fn get_many(&self, ids: Vec<NotificationId>) -> store::Result<Vec<View>> {
        Ok(look!(self, tx => get_many(&tx, &self.flows, &ids))?)
    }

    async fn history(&self, id: NotificationId) -> store::Result<History> {
        Ok(look!(self, tx => history(&tx, id))?)
    }

    async fn page(
        &self,
        filter: Filter,
        before: Option<NotificationId>,
        limit: usize,
    ) -> store::Result<Page<View, NotificationId>> {
        Ok(list!(self, tx => lists::page(&tx, &self.flows, &filter, before, limit))?)
    }

    async fn retry_queue(
        &self,
        filter: Filter,
        after: Option<DueCursor>,
        limit: usize,
    ) -> store::Result<Page<View, DueCursor>> {
        Ok(list!(self, tx => lists::retry_queue(&tx, &self.flows, &filter, after, limit))?)
    }

    async fn dead_letter(&self, id: DeadLetterId) -> store::Result<Option<DeadLetterView>> {
        Ok(look!(self, tx => lists::dead_letter(&tx, &self.flows, id))?)
    }

    async fn dead_letters(
        &self,
        filter: Filter,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> store::Result<Page<DeadLetterView, DeadLetterId>> {
        Ok(list!(self, tx => lists::dead_letters(&tx, &self.flows, &filter, before, limit))?)
    }

    async fn audit(
        &self,
        filter: AuditFilter,
        before: Option<i64>,
        limit: usize,
    ) -> store::Result<Page<AuditRow, i64>> {
        Ok(list!(self, tx => lists::audit(&tx, &filter, before, limit))?)
    }

    async fn stats(&self, tenant: Option<Tenant>, now: Timestamp) -> store::Result<Stats> {
        Ok(list!(self, tx => stats::stats(&tx, tenant.as_ref(), now))?)
    }

    async fn tenants(&self, from: Option<Tenant>, limit: usize) -> store::Result<Vec<Tenant>> {
        Ok(list!(self, tx => flows::tenants(&tx, from.as_ref(), limit))?)
    }
}

/// The current row of a notification: the columns of a queue row `q` and an ended row `e`, of which one is
/// absent.
macro_rules! place_columns {
    () => {
        concat!(
            "q.id is not null, e.id is not null, ",
            $crate::postgres::rows::queue_columns!(),
            ", ",
            $crate::postgres::ends::ended_columns!()
        )
    };
}
pub(super) use place_columns;

/// The last attempt `l` of the notification `$id`, for `Columns::last_error`.
macro_rules! last_attempt {
    ($id:literal) => {
        concat!(
            "left join lateral (
                 select a.failure, a.status_code, a.error
                 from attempt a
                 where a.notification = ",
            $id,
            "
                 order by a.generation desc, a.number desc
                 limit 1) as l on true"
        )
    };
}
pub(super) use last_attempt;

impl Columns<'_> {
    /// Reads `place_columns`.
    pub(super) fn place(&mut self, id: NotificationId) -> Result<Place> {
        let (live, over): (bool, bool) = (self.take()?, self.take()?);
        if live {
            let queued = self.queued()?;
            self.skip(ENDED_COLUMNS);
            return Ok(Place::Live(queued));
        }
        self.skip(QUEUE_COLUMNS);
        if !over {
            return Err(Fault::damaged(format!("{id} is neither live nor over")));
        }
        Ok(Place::Over(self.ended()?))
    }

    /// Reads the columns of `last_attempt`.
    fn last_error(&mut self) -> Result<Option<LastError>> {
        let (failure, status_code) = (self.maybe_code()?, self.maybe_status_code()?);
        let error = self.take()?;
        Ok(failure.map(|_| LastError { error, status_code }))
    }

    /// Reads `wide_columns`, `place_columns` and the columns of `last_attempt`.
    pub(super) fn view(&mut self, id: NotificationId, keys: &Keys) -> Result<View> {
        let (notification, place) = (wide(id, keys, self)?, self.place(id)?);
        Ok(place.view(notification, self.last_error()?))
    }
}

pub(super) async fn get(tx: &Tx, flows: &Flows, id: NotificationId) -> Result<Option<View>> {
    let sql = concat!(
        "select ",
        wide_columns!(),
        ", ",
        place_columns!(),
        ", l.*
         from notification n
         left join queue q on q.id = any(array[n.id])
         left join ended e on e.id = any(array[n.id])
         ",
        last_attempt!("n.id"),
        "
         where n.id = $1"
    );
    let rows = tx.alone(Mode::Read, sql, bind![uuid(id) => UUID]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let keys = flows.keys(tx, [FlowId(Columns::of(row).take()?)]).await?;
    let view = Columns::of(row).view(id, &keys);
    view.map(Some).map_err(|fault| fault.of(id))
}

async fn get_many(tx: &Tx, flows: &Flows, ids: &[NotificationId]) -> Result<Vec<View>> {
    let sql = concat!(
        "select n.id, ",
        wide_columns!(),
        ", ",
        place_columns!(),
        ", l.*
         from notification n
         left join queue q on q.id = any(array[n.id])
         left join ended e on e.id = any(array[n.id])
         ",
        last_attempt!("n.id"),
        "
         where n.id = any($1)
         order by n.id"
    );
    let asked: Vec<Uuid> = ids.iter().copied().map(uuid).collect();
    let rows = tx.alone(Mode::Read, sql, bind![asked => UUID_ARRAY]).await?;
    let named = rows.iter().map(|row| Ok(FlowId(row.try_get(1)?))).collect::<Result<Vec<_>>>()?;
    let keys = flows.keys(tx, named).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut columns = Columns::of(row);
        let id = columns.notification_id()?;
        found.extend(unless_damaged(&id, columns.view(id, &keys))?);
    }
    Ok(found)
}

pub(super) async fn history(tx: &Tx, id: NotificationId) -> Result<History> {
    let attempts = "
        select generation, number, started_at, duration, failure, status_code, error, quick_tries, provider, message_id,
            response_type, response
        from attempt
        where notification = $1
        order by generation, number";
    let events = "
        select at, word, actor, generation, attempt
        from event
        where notification = $1
        order by number";
    let steps = [statement!(attempts, bind![uuid(id) => UUID]), statement!(events, bind![uuid(id) => UUID])];
    let answers = tx.send(Some(Mode::Read), &steps, Then::Commit).await?;
    let mut history = History::default();
    for row in answers.first().into_iter().flatten() {
        history.attempts.push(attempt(&mut Columns::of(row))?);
    }
    for row in answers.get(1).into_iter().flatten() {
        let mut columns = Columns::of(row);
        history.events.push(HistoryEvent {
            at: columns.time()?,
            word: columns.take()?,
            actor: columns.take()?,
            generation: columns.small()?,
            attempt: columns.small()?,
        });
    }
    Ok(history)
}
