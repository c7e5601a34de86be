//! Rows that become due, that expire, and that are overdue.
//!
//! SQLite looks up `(a, b) > (?1, ?2)` as if it were `>=` and then skips every equal row. That is at most one
//! row if the columns end with the id, and a whole bucket if they do not.

use async_trait::async_trait;
use std::collections::BTreeMap;

use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::NotificationId;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    self, DueCursor, Expiring, ExpiringRow, Overdue, Waiting, Wakes, Waking, Woken,
};
use rusqlite::{Connection, OptionalExtension, Row, Rows, params, params_from_iter};

use super::SqliteStore;
use super::fault::{Fault, Result, unless_damaged};
use super::flows::Flows;
use super::readers::Reader;
use super::rows::{Wide, bucket, maybe_tenant, maybe_time, notification_id, queue_columns, queued, time};

#[async_trait]
impl Waking for SqliteStore {
    async fn wakes(&self, after: DueCursor, until: Timestamp, limit: usize) -> store::Result<Wakes> {
        self.read(move |reader| wakes(&reader.conn, after, until, limit)).await
    }

    async fn expiring(&self, until: Timestamp, limit: usize) -> store::Result<Expiring> {
        self.read(move |reader| expiring(&reader.conn, until, limit)).await
    }

    async fn buckets(&self, after: Option<Bucket>, limit: usize) -> store::Result<Vec<Waiting>> {
        self.read(move |reader| buckets(&reader.conn, after, limit)).await
    }

    async fn overdue(
        &self,
        due_before: Timestamp,
        first_due_before: Timestamp,
        after: Option<DueCursor>,
        limit: usize,
    ) -> store::Result<Vec<Overdue>> {
        self.read(move |reader| overdue(reader, due_before, first_due_before, after, limit)).await
    }

    async fn overdue_by_own_age(
        &self,
        due_before: Timestamp,
        after: Option<DueCursor>,
        limit: usize,
    ) -> store::Result<Vec<Overdue>> {
        self.read(move |reader| overdue_by_own_age(reader, due_before, after, limit)).await
    }
}

/// The buckets with rows that become due up to `until`. All columns that it reads are in the index.
pub(super) fn wakes(conn: &Connection, after: DueCursor, until: Timestamp, limit: usize) -> Result<Wakes> {
    let mut page = WakePage { conn, limit: limit.max(1), read: 0, last: after, buckets: BTreeMap::new() };
    let mut select = conn.prepare_cached(
        "select flow, lane, priority, due, id
         from queue indexed by queue_wake
         where node is null
         and (due, id) > (?1, ?2)
         and due <= ?3
         order by due, id",
    )?;
    page.take(select.query(params![after.due.as_micros(), after.id.to_bytes(), until.as_micros()])?)?;
    let more = page.is_full().then_some(page.last);
    let next = match more {
        Some(_) => None,
        None => next_due(conn, after.max(DueCursor::after_all_at(until)))?,
    };
    let buckets = page
        .buckets
        .into_iter()
        .filter_map(|(bucket, tenant)| Some(Woken { bucket, tenant: tenant? }))
        .collect();
    Ok(Wakes { buckets, more, next })
}

struct WakePage<'c> {
    conn: &'c Connection,
    limit: usize,
    read: usize,
    last: DueCursor,
    /// Without a tenant if the flow is unknown.
    buckets: BTreeMap<Bucket, Option<Tenant>>,
}

impl WakePage<'_> {
    fn is_full(&self) -> bool {
        self.read == self.limit
    }

    /// Reads rows (bucket, due time, id) until the page is full.
    fn take(&mut self, mut rows: Rows<'_>) -> Result<()> {
        while !self.is_full()
            && let Some(row) = rows.next()?
        {
            let due = time(row, 3)?;
            // A cursor needs an id, so a row with a damaged id is not counted.
            let Some(id) = unless_damaged(&due, notification_id(row, 4))? else { continue };
            (self.last, self.read) = (DueCursor { due, id }, self.read + 1);
            let Some(bucket) = unless_damaged(&id, bucket(row, 0))? else { continue };
            if !self.buckets.contains_key(&bucket) {
                self.buckets.insert(bucket, tenant_of(self.conn, bucket.flow)?);
            }
        }
        Ok(())
    }
}

/// The due time of the first row after a cursor.
fn next_due(conn: &Connection, after: DueCursor) -> Result<Option<Timestamp>> {
    let mut select = conn.prepare_cached(
        "select due
         from queue indexed by queue_wake
         where node is null
         and (due, id) > (?1, ?2)
         order by due, id
         limit 1",
    )?;
    let bound = params![after.due.as_micros(), after.id.to_bytes()];
    select.query_row(bound, |row| Ok(time(row, 0))).optional()?.transpose()
}

/// Logs an error and returns `None` if the flow is unknown or damaged. Reads the table instead of the cache
/// of flows: a sweep over all buckets would evict the flows that are in use.
fn tenant_of(conn: &Connection, flow: FlowId) -> Result<Option<Tenant>> {
    let mut select = conn.prepare_cached(
        "select tenant
         from flow
         where id = ?1",
    )?;
    let found = select.query_row([flow.0], |row| Ok(maybe_tenant(row, 0))).optional()?;
    let unknown = || Fault::damaged(format!("flow {} is not known", flow.0));
    unless_damaged(&flow, found.transpose().and_then(|found| found.flatten().ok_or_else(unknown)))
}

/// Rows that expire up to `until`.
pub(super) fn expiring(conn: &Connection, until: Timestamp, limit: usize) -> Result<Expiring> {
    let mut select = conn.prepare_cached(concat!(
        "select ",
        queue_columns!(),
        ", id, expires
         from queue indexed by queue_expiry
         where node is null
         and expires is not null
         order by expires, id"
    ))?;
    let mut rows = select.query([])?;
    let mut found = Expiring::default();
    while let Some(row) = rows.next()? {
        let expires = maybe_time(row, 14)?;
        if found.rows.len() == limit || expires.is_some_and(|expires| expires > until) {
            found.next = expires;
            break;
        }
        let read = |id| Ok(ExpiringRow { id, seen: queued(row, 0)?.seen() });
        found.rows.extend(unless_damaged(&expires, notification_id(row, 13).and_then(read))?);
    }
    Ok(found)
}

/// The buckets with rows that are not leased. Small buckets are read through; after `FEW` rows of a bucket
/// the next one is looked up, so that its size does not matter.
pub(super) fn buckets(conn: &Connection, after: Option<Bucket>, limit: usize) -> Result<Vec<Waiting>> {
    let code =
        |bucket: Bucket| (bucket.flow.0, i64::from(bucket.lane.code()), i64::from(bucket.priority.code()));
    let mut page =
        BucketPage { conn, limit, at: after.map_or((i64::MIN, 0, 0), code), flow: None, found: vec![] };
    while page.go_on()? {}
    Ok(page.found)
}

/// Stored flow, lane and priority.
type Codes = (i64, i64, i64);

struct BucketPage<'c> {
    conn: &'c Connection,
    limit: usize,
    /// The last bucket that was read.
    at: Codes,
    /// The last flow that was looked up, with its tenant if it is known.
    flow: Option<(i64, Option<Tenant>)>,
    found: Vec<Waiting>,
}

impl BucketPage<'_> {
    /// Number of rows of a bucket that are skipped before the next bucket is looked up.
    const FEW: usize = 8;

    /// Continues after the last bucket: with the next priority of its lane, then the next lane of its flow,
    /// then the next flow. Returns whether a bucket was left because it has many rows.
    fn go_on(&mut self) -> Result<bool> {
        for sql in [NEXT_PRIORITIES, NEXT_LANES, NEXT_FLOWS] {
            let mut select = self.conn.prepare_cached(sql)?;
            let (known, codes) = (select.parameter_count(), <[i64; 3]>::from(self.at));
            let mut rows = select.query(params_from_iter(&codes[..known]))?;
            let mut passed = 0;
            while self.found.len() < self.limit
                && let Some(row) = rows.next()?
            {
                let codes = (row.get(0)?, row.get(1)?, row.get(2)?);
                if codes != self.at {
                    (self.at, passed) = (codes, 0);
                    self.keep(row)?;
                } else if passed == Self::FEW {
                    return Ok(true);
                } else {
                    passed += 1;
                }
            }
        }
        Ok(false)
    }

    /// Adds the bucket of a row, unless the row is damaged.
    fn keep(&mut self, row: &Row<'_>) -> Result<()> {
        let flow = self.at.0;
        if self.flow.as_ref().is_none_or(|(last, _)| *last != flow) {
            self.flow = Some((flow, tenant_of(self.conn, FlowId(flow))?));
        }
        let read = bucket(row, 0).and_then(|bucket| Ok((bucket, time(row, 3)?)));
        if let Some((bucket, due)) = unless_damaged(&self.at, read)?
            && let Some((_, Some(tenant))) = &self.flow
        {
            self.found.push(Waiting { bucket, tenant: tenant.clone(), due });
        }
        Ok(())
    }
}

const NEXT_PRIORITIES: &str = "
    select flow, lane, priority, due
    from queue indexed by queue_claim
    where node is null
    and flow = ?1
    and lane = ?2
    and priority > ?3
    order by priority, due";

const NEXT_LANES: &str = "
    select flow, lane, priority, due
    from queue indexed by queue_claim
    where node is null
    and flow = ?1
    and lane > ?2
    order by lane, priority, due";

const NEXT_FLOWS: &str = "
    select flow, lane, priority, due
    from queue indexed by queue_claim
    where node is null
    and flow > ?1
    order by flow, lane, priority, due";

/// Longest due first.
pub(super) fn overdue(
    reader: &mut Reader,
    due_before: Timestamp,
    first_due_before: Timestamp,
    after: Option<DueCursor>,
    limit: usize,
) -> Result<Vec<Overdue>> {
    let mut page = OverduePage { reader, limit, found: vec![] };
    let first = first_due_before.as_micros();
    page.take(OVERDUE, after, due_before.min(first_due_before), first, |_| true)?;
    // What was put off, or is tried again, was first due before it is due now; only such rows are looked at here.
    let from = DueCursor { due: first_due_before, id: NotificationId::FIRST };
    let after = after.filter(|after| *after >= from).unwrap_or(DueCursor::after_all_before(first_due_before));
    page.take(OVERDUE_RETRIES, Some(after), due_before, first, |_| true)?;
    Ok(page.found)
}

/// The same for rows whose message says itself how old it may become.
pub(super) fn overdue_by_own_age(
    reader: &mut Reader,
    due_before: Timestamp,
    after: Option<DueCursor>,
    limit: usize,
) -> Result<Vec<Overdue>> {
    let mut page = OverduePage { reader, limit, found: vec![] };
    // Rows of older versions do not say it.
    let own_age = |row: &Overdue| row.notification.as_ref().is_some_and(|found| found.has_own_age());
    page.take(OVERDUE_BY_OWN_AGE, after, due_before, i64::MAX, own_age)?;
    Ok(page.found)
}

macro_rules! overdue {
    ($index:literal, $only:literal) => {
        concat!(
            "select ",
            queue_columns!(),
            ", id, own_policy, expires
             from queue indexed by ",
            $index,
            "
             where node is null
             and ",
            $only,
            "
             and (due, id) > (?1, ?2)
             and due < ?3
             and first_due < ?4
             order by due, id"
        )
    };
}

const OVERDUE: &str = overdue!("queue_wake", "true");
const OVERDUE_RETRIES: &str = overdue!("queue_retry", "lane = 1");
const OVERDUE_BY_OWN_AGE: &str = overdue!("queue_own_age", "own_age is not 0");

struct OverduePage<'r> {
    reader: &'r mut Reader,
    limit: usize,
    found: Vec<Overdue>,
}

impl OverduePage<'_> {
    /// Damaged rows are not counted: a short result would mean that there are no more.
    fn take(
        &mut self,
        sql: &str,
        after: Option<DueCursor>,
        due_before: Timestamp,
        first_due_before: i64,
        is_shown: impl Fn(&Overdue) -> bool,
    ) -> Result<()> {
        let Reader { conn, flows } = &mut *self.reader;
        let (due, id) =
            after.map_or((i64::MIN, [0; 16]), |after| (after.due.as_micros(), after.id.to_bytes()));
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = select.query(params![due, id, due_before.as_micros(), first_due_before])?;
        while self.found.len() < self.limit
            && let Some(row) = rows.next()?
        {
            let id = notification_id(row, 13)?;
            self.found.extend(unless_damaged(&id, read_overdue(conn, flows, id, row))?.filter(&is_shown));
        }
        Ok(())
    }
}

fn read_overdue(conn: &Connection, flows: &mut Flows, id: NotificationId, row: &Row<'_>) -> Result<Overdue> {
    let queued = queued(row, 0)?;
    let key = flows.need(conn, queued.bucket.flow)?;
    // Rows of older versions do not have this column.
    let own_policy = row.get::<_, Option<bool>>(14)?.unwrap_or(true);
    let notification = own_policy.then(|| Wide::need(conn, flows, id)?.notification()).transpose()?;
    Ok(Overdue {
        id,
        tenant: key.tenant.clone(),
        channel: key.channel,
        notification: notification.filter(|found| found.has_own_policy()),
        expires_at: maybe_time(row, 15)?,
        seen: queued.seen(),
        due: queued.due,
        first_due: queued.first_due,
    })
}
