//! Rows that become due, that expire, and that are overdue.

use async_trait::async_trait;
use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::NotificationId;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    self, DueCursor, Expiring, ExpiringRow, Overdue, Waiting, Wakes, Waking, Woken,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::fault::{Fault, Result, unless_damaged};
use super::flows::Flows;
use super::rows::{Columns, Keys, bigint, known, queue_columns, uuid, wide, wide_columns};
use super::tx::{Mode, Then, Tx, bind, single_row, statement};
use super::{PostgresStore, transact};

#[async_trait]
impl Waking for PostgresStore {
    async fn wakes(&self, after: DueCursor, until: Timestamp, limit: usize) -> store::Result<Wakes> {
        Ok(transact!(self, tx => wakes(&tx, after, until, limit))?)
    }

    async fn expiring(&self, until: Timestamp, limit: usize) -> store::Result<Expiring> {
        Ok(transact!(self, tx => expiring(&tx, until, limit))?)
    }

    async fn buckets(&self, after: Option<Bucket>, limit: usize) -> store::Result<Vec<Waiting>> {
        Ok(transact!(self, tx => buckets(&tx, after, limit))?)
    }

    async fn overdue(
        &self,
        due_before: Timestamp,
        first_due_before: Timestamp,
        after: Option<DueCursor>,
        limit: usize,
    ) -> store::Result<Vec<Overdue>> {
        Ok(transact!(
            self,
            tx => overdue(&tx, &self.flows, due_before, first_due_before, after, limit)
        )?)
    }

    async fn overdue_by_own_age(
        &self,
        due_before: Timestamp,
        after: Option<DueCursor>,
        limit: usize,
    ) -> store::Result<Vec<Overdue>> {
        Ok(transact!(self, tx => overdue_by_own_age(&tx, &self.flows, due_before, after, limit))?)
    }
}

/// The buckets with rows that become due up to `until`, and the next due time. All columns that it reads are
/// in the index. Tenants are read from the table instead of the cache of flows: a sweep over all buckets
/// would evict the flows that are in use.
async fn wakes(tx: &Tx, after: DueCursor, until: Timestamp, limit: usize) -> Result<Wakes> {
    let beyond = after.max(DueCursor::after_all_at(until));
    let bound = bind![
        after.due.as_micros() => INT8,
        uuid(after.id) => UUID,
        until.as_micros() => INT8,
        bigint(limit.max(1)) => INT8,
        beyond.due.as_micros() => INT8,
        uuid(beyond.id) => UUID,
    ];
    let mut found = Wakes::default();
    for row in &tx.alone(Mode::Read, WAKES, bound).await? {
        let mut columns = Columns::of(row);
        match columns.take::<&str>()? {
            "bucket" => {
                columns.skip(2);
                let read = columns.bucket();
                let read = read.and_then(|bucket| Ok(Woken { bucket, tenant: tenant(&mut columns)? }));
                let flow = FlowId(row.try_get(3)?);
                found.buckets.extend(unless_damaged(&flow, read)?);
            }
            "more" => found.more = Some(DueCursor { due: columns.time()?, id: columns.notification_id()? }),
            _ => found.next = columns.maybe_time()?,
        }
    }
    if found.more.is_some() {
        found.next = None;
    }
    found.buckets.sort_unstable_by_key(|woken| woken.bucket);
    Ok(found)
}

const WAKES: &str = "
    with woken as materialized (
        select due, id, flow, lane, priority
        from queue
        where node is null
        and (due, id) > ($1, $2)
        and due <= $3
        order by due, id
        limit $4)
    select 'bucket' as what, null::bigint as due, null::uuid as id, b.flow, b.lane, b.priority, f.tenant
    from (select distinct flow, lane, priority from woken) as b
    left join flow f on f.id = any(array[b.flow])
    union all
    (select 'more', due, id, null, null, null, null
     from woken
     order by due, id
     offset $4 - 1
     limit 1)
    union all
    (select 'next', due, null, null, null, null, null
     from queue
     where node is null
     and (due, id) > ($5, $6)
     order by due, id
     limit 1)";

fn tenant(columns: &mut Columns<'_>) -> Result<Tenant> {
    columns.maybe_tenant()?.ok_or_else(|| Fault::damaged("its flow is not known"))
}

/// Rows that expire up to `until`.
async fn expiring(tx: &Tx, until: Timestamp, limit: usize) -> Result<Expiring> {
    let expired = concat!(
        "select q.id, q.expires, ",
        queue_columns!(),
        "
         from queue q
         where q.node is null
         and q.expires <= $1
         and (q.expires, q.id) > ($2, $3)
         order by q.expires, q.id
         limit $4"
    );
    let later = "
        select min(expires)
        from queue
        where node is null
        and expires > $1";
    let (mut found, mut at) = (Expiring::default(), (i64::MIN, Uuid::nil()));
    // Damaged rows are not counted: a short result would mean that there are no more.
    loop {
        // One row more than the limit: if there is one, its time is `next`.
        let wanted = (limit - found.rows.len()).saturating_add(1);
        let bound = bind![until.as_micros() => INT8, at.0 => INT8, at.1 => UUID, bigint(wanted) => INT8];
        let steps = [statement!(expired, bound), statement!(later, bind![until.as_micros() => INT8])];
        let mut answers = tx.send(Some(Mode::Read), &steps, Then::Commit).await?;
        found.next = Columns::of(&single_row(answers.pop().unwrap_or_default())?).maybe_time()?;
        let rows = answers.pop().unwrap_or_default();
        for row in &rows {
            let mut columns = Columns::of(row);
            let (id, expires) = (columns.notification_id()?, columns.time()?);
            if found.rows.len() == limit {
                found.next = Some(expires);
                return Ok(found);
            }
            at = (expires.as_micros(), uuid(id));
            let read = columns.queued().map(|queued| ExpiringRow { id, seen: queued.seen() });
            found.rows.extend(unless_damaged(&id, read)?);
        }
        if rows.len() < wanted {
            return Ok(found);
        }
    }
}

/// The buckets with rows that are not leased: one index seek per bucket, independent of its size.
async fn buckets(tx: &Tx, after: Option<Bucket>, limit: usize) -> Result<Vec<Waiting>> {
    let code =
        |bucket: Bucket| (bucket.flow.0, i16::from(bucket.lane.code()), i16::from(bucket.priority.code()));
    let mut at = after.map_or((i64::MIN, 0, 0), code);
    let mut found = vec![];
    // Damaged rows are not counted: a short result would mean that there are no more.
    while found.len() < limit {
        let wanted = limit - found.len();
        let bound = bind![at.0 => INT8, at.1 => INT2, at.2 => INT2, bigint(wanted) => INT8];
        let rows = tx.alone(Mode::Read, BUCKETS, bound).await?;
        for row in &rows {
            at = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            found.extend(unless_damaged(&at, waiting_in(&mut Columns::of(row)))?);
        }
        if rows.len() < wanted {
            break;
        }
    }
    Ok(found)
}

fn waiting_in(columns: &mut Columns<'_>) -> Result<Waiting> {
    Ok(Waiting { bucket: columns.bucket()?, due: columns.time()?, tenant: tenant(columns)? })
}

const BUCKETS: &str = "
    with recursive skip as (
        (select flow, lane, priority, due
         from queue
         where node is null
         and (flow, lane, priority) > ($1, $2, $3)
         order by flow, lane, priority, due
         limit 1)
        union all
        select next.flow, next.lane, next.priority, next.due
        from skip
        cross join lateral (
            select q.flow, q.lane, q.priority, q.due
            from queue q
            where q.node is null
            and (q.flow, q.lane, q.priority) > (skip.flow, skip.lane, skip.priority)
            order by q.flow, q.lane, q.priority, q.due
            limit 1) as next)
    select skip.flow, skip.lane, skip.priority, skip.due, (select f.tenant from flow f where f.id = skip.flow)
    from skip
    limit $4";

/// Longest due first.
async fn overdue(
    tx: &Tx,
    flows: &Flows,
    due_before: Timestamp,
    first_due_before: Timestamp,
    after: Option<DueCursor>,
    limit: usize,
) -> Result<Vec<Overdue>> {
    let mut page = OverduePage { tx, flows, limit, found: vec![] };
    page.take(OVERDUE, after, due_before.min(first_due_before), first_due_before, |_| true).await?;
    // What was put off, or is tried again, was first due before it is due now; only such rows are looked at here.
    let from = DueCursor { due: first_due_before, id: NotificationId::FIRST };
    let after = after.filter(|after| *after >= from).unwrap_or(DueCursor::after_all_before(first_due_before));
    page.take(OVERDUE_RETRIES, Some(after), due_before, first_due_before, |_| true).await?;
    Ok(page.found)
}

/// The same for rows whose message says itself how old it may become.
async fn overdue_by_own_age(
    tx: &Tx,
    flows: &Flows,
    due_before: Timestamp,
    after: Option<DueCursor>,
    limit: usize,
) -> Result<Vec<Overdue>> {
    let mut page = OverduePage { tx, flows, limit, found: vec![] };
    // Rows of older versions do not say it.
    let own_age = |row: &Overdue| row.notification.as_ref().is_some_and(|found| found.has_own_age());
    page.take(OVERDUE_BY_OWN_AGE, after, due_before, Timestamp::MAX, own_age).await?;
    Ok(page.found)
}

macro_rules! overdue {
    ($only:literal) => {
        concat!(
            "select q.id, q.due, q.flow, q.expires, q.own_policy is false, ",
            queue_columns!(),
            ", ",
            wide_columns!(),
            "
             from queue q
             left join notification n on n.id = any(array[q.id]) and q.own_policy is not false
             where q.node is null
             and ",
            $only,
            "
             and (q.due, q.id) > ($1, $2)
             and q.due < $3
             and q.first_due < $4
             order by q.due, q.id
             limit $5"
        )
    };
}

const OVERDUE: &str = overdue!("true");
const OVERDUE_RETRIES: &str = overdue!("q.lane = 1");
const OVERDUE_BY_OWN_AGE: &str = overdue!("q.own_age is not false");

struct OverduePage<'t> {
    tx: &'t Tx,
    flows: &'t Flows,
    limit: usize,
    found: Vec<Overdue>,
}

impl OverduePage<'_> {
    /// Damaged rows are not counted: a short result would mean that there are no more.
    async fn take(
        &mut self,
        sql: &str,
        after: Option<DueCursor>,
        due_before: Timestamp,
        first_due_before: Timestamp,
        is_shown: impl Fn(&Overdue) -> bool,
    ) -> Result<()> {
        let mut at = after.map_or((i64::MIN, Uuid::nil()), |after| (after.due.as_micros(), uuid(after.id)));
        while self.found.len() < self.limit {
            let wanted = self.limit - self.found.len();
            let bound = bind![
                at.0 => INT8,
                at.1 => UUID,
                due_before.as_micros() => INT8,
                first_due_before.as_micros() => INT8,
                bigint(wanted) => INT8,
            ];
            let rows = self.tx.alone(Mode::Read, sql, bound).await?;
            let named = rows.iter().map(|row| Ok(FlowId(row.try_get(2)?))).collect::<Result<Vec<_>>>()?;
            let keys = self.flows.keys(self.tx, named).await?;
            for row in &rows {
                let id = Columns::of(row).notification_id()?;
                at = (row.try_get(1)?, uuid(id));
                self.found.extend(unless_damaged(&id, waiting(id, row, &keys))?.filter(&is_shown));
            }
            if rows.len() < wanted {
                break;
            }
        }
        Ok(())
    }
}

fn waiting(id: NotificationId, row: &Row, keys: &Keys) -> Result<Overdue> {
    let mut columns = Columns::of(row);
    columns.skip(3);
    let (expires_at, plain): (_, bool) = (columns.maybe_time()?, columns.take()?);
    let queued = columns.queued()?;
    let key = known(keys, queued.bucket.flow)?;
    let notification = if plain { None } else { Some(wide(id, keys, &mut columns)?) };
    Ok(Overdue {
        id,
        tenant: key.tenant.clone(),
        channel: key.channel,
        // Rows of older versions do not have this column.
        notification: notification.filter(|found| found.has_own_policy()),
        expires_at,
        seen: queued.seen(),
        due: queued.due,
        first_due: queued.first_due,
    })
}
