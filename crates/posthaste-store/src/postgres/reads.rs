//! One notification: as it stands, what an act has to know of it, and its past.

use std::sync::Arc;

use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Notification;
use posthaste_core::state::Lane;
use posthaste_engine::store::{Facts, History, HistoryEvent, Seen, View};
use tokio_postgres::Row;
use uuid::Uuid;

use super::ends::Ended;
use super::fault::{Fault, Result};
use super::flows::Flows;
use super::rows::{Columns, Queued, attempt, letter_uuid, uuid, wide, wide_columns};
use super::tx::{Mode, Then, Tx, bind, step};

/// Where a notification is, of a queue row `q` and an ended row `e` that may both be absent.
macro_rules! standing_columns {
    () => {
        concat!(
            "q.id is not null, e.id is not null, ",
            $crate::postgres::rows::queue_columns!(),
            ", ",
            $crate::postgres::ends::ended_columns!()
        )
    };
}
pub(super) use standing_columns;

/// Where a notification is: in the queue or among what ended.
pub(super) enum Standing {
    Live(Queued),
    Over(Ended),
}

impl Standing {
    /// Takes the columns of `standing_columns`.
    pub(super) fn read(id: NotificationId, columns: &mut Columns<'_>) -> Result<Self> {
        let (live, over): (bool, bool) = (columns.take()?, columns.take()?);
        if live {
            let queued = Queued::read(columns)?;
            columns.skip(Ended::COLUMNS);
            return Ok(Self::Live(queued));
        }
        columns.skip(Queued::COLUMNS);
        if !over {
            return Err(Fault::nonsense(format!("{id} is neither live nor over")));
        }
        Ok(Self::Over(Ended::read(columns)?))
    }

    /// How it stands.
    pub(super) fn seen(&self) -> Seen {
        match self {
            Self::Live(row) => row.seen(),
            Self::Over(ended) => ended.seen(),
        }
    }

    /// What is shown of it.
    pub(super) fn view(self, notification: Arc<Notification>) -> View {
        let state = self.seen().state;
        match self {
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
        }
    }
}

/// A notification as it stands.
pub(super) async fn get(tx: &Tx, flows: &Flows, id: NotificationId) -> Result<Option<View>> {
    let sql = concat!(
        "select ",
        wide_columns!(),
        ", ",
        standing_columns!(),
        "
         from notification n
         left join queue q on q.id = any(array[n.id])
         left join ended e on e.id = any(array[n.id])
         where n.id = $1"
    );
    let rows = tx.alone(Mode::Read, sql, bind![uuid(id) => UUID]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let keys = flows.keys(tx, [FlowId(Columns::of(row).take()?)]).await?;
    let mut columns = Columns::of(row);
    let view = wide(id, &keys, &mut columns)
        .and_then(|notification| Ok(Standing::read(id, &mut columns)?.view(notification)));
    view.map(Some).map_err(|fault| fault.of(id))
}

/// What an act has to know of each id that exists, in the order of the ids.
pub(super) async fn facts(tx: &Tx, flows: &Flows, ids: &[NotificationId]) -> Result<Vec<Facts>> {
    let sql = concat!(
        "select n.id, n.flow, n.priority, n.expires, ",
        standing_columns!(),
        ", d.status
         from unnest($1::uuid[]) with ordinality as asked (id, place)
         join notification n on n.id = any(array[asked.id])
         left join queue q on q.id = any(array[n.id])
         left join ended e on e.id = any(array[n.id])
         left join dead_letter d on d.id = any(array[e.dead_letter])
         order by asked.place"
    );
    let asked: Vec<Uuid> = ids.iter().copied().map(uuid).collect();
    let rows = tx.alone(Mode::Read, sql, bind![asked => UUID_ARRAY]).await?;
    let named = rows.iter().map(|row| Ok(FlowId(row.try_get(1)?))).collect::<Result<Vec<_>>>()?;
    let keys = flows.keys(tx, named).await?;
    rows.iter().map(|row| fact(row, &keys)).collect()
}

fn fact(row: &Row, keys: &super::rows::Keys) -> Result<Facts> {
    let mut columns = Columns::of(row);
    let (id, flow) = (columns.notification_id()?, FlowId(columns.take()?));
    let (priority, expires_at) = (columns.priority()?, columns.maybe_time()?);
    let key = keys.get(&flow).ok_or_else(|| Fault::nonsense(format!("flow {} is not known", flow.0)))?;
    let tenant = key.tenant.clone();
    let standing = Standing::read(id, &mut columns)?;
    let status = columns.maybe_status()?;
    let seen = standing.seen();
    let bucket = |lane| Bucket { flow, lane, priority };
    Ok(match standing {
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
        Standing::Over(ended) => Facts {
            id,
            tenant,
            bucket: bucket(Lane::Main),
            seen,
            expires_at,
            cancel_requested: false,
            reason: ended.reason,
            dead_letter: ended.dead_letter.zip(status),
        },
    })
}

/// The notification of a dead letter.
pub(super) async fn notification_of(tx: &Tx, letter: DeadLetterId) -> Result<Option<NotificationId>> {
    let sql = "select notification from dead_letter where id = $1";
    let rows = tx.alone(Mode::Read, sql, bind![letter_uuid(letter) => UUID]).await?;
    rows.first().map(|row| Columns::of(row).notification_id()).transpose()
}

/// The attempts and events of a notification, oldest first.
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
    let steps = [step!(attempts, bind![uuid(id) => UUID]), step!(events, bind![uuid(id) => UUID])];
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
