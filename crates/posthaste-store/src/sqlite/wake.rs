//! What becomes due, what expires, and what has waited for long.

use std::collections::BTreeSet;

use posthaste_core::flow::Bucket;
use posthaste_core::id::NotificationId;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Expiring, Overdue, Wakes};
use rusqlite::{Connection, Row, params};

use super::fault::{Result, unless_damaged};
use super::readers::Reader;
use super::rows::{Queued, Wide, bucket, maybe_time, notification_id, queue_columns, time};

/// Where rows become due in a stretch of time. Everything it reads is in the index.
pub(super) fn wakes(conn: &Connection, after: Timestamp, until: Timestamp) -> Result<Wakes> {
    let until = until.max(after);
    let mut select = conn.prepare_cached(
        "select distinct flow, lane, priority
         from queue indexed by queue_wake
         where node is null
         and due > ?1
         and due <= ?2",
    )?;
    let mut rows = select.query([after.as_micros(), until.as_micros()])?;
    let mut buckets = BTreeSet::new();
    while let Some(row) = rows.next()? {
        buckets.insert(bucket(row, 0)?);
    }
    let mut select = conn.prepare_cached(
        "select min(due)
         from queue indexed by queue_wake
         where node is null
         and due > ?1",
    )?;
    let next = select.query_row([until.as_micros()], |row| Ok(maybe_time(row, 0)))??;
    Ok(Wakes { buckets: buckets.into_iter().collect(), next })
}

/// Rows whose time runs out up to `until`.
pub(super) fn expiring(conn: &Connection, until: Timestamp, limit: usize) -> Result<Expiring> {
    let mut select = conn.prepare_cached(concat!(
        "select ",
        queue_columns!(),
        ", id, expires
         from queue indexed by queue_expiry
         where node is null
         and expires is not null
         order by expires, id
         limit ?1"
    ))?;
    // One more than is told: the first of the rest is `next`.
    let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = select.query([most])?;
    let mut found = Expiring::default();
    while let Some(row) = rows.next()? {
        let expires = maybe_time(row, 14)?;
        if found.rows.len() == limit || expires.is_some_and(|expires| expires > until) {
            found.next = expires;
            break;
        }
        found.rows.push((notification_id(row, 13)?, Queued::read(row, 0)?.seen()));
    }
    Ok(found)
}

/// The buckets that hold rows nobody holds: one look at the index for each, however many rows it has.
pub(super) fn buckets(
    conn: &Connection,
    after: Option<Bucket>,
    limit: usize,
) -> Result<Vec<(Bucket, Timestamp)>> {
    let mut select = conn.prepare_cached(
        "select flow, lane, priority, due
         from queue indexed by queue_claim
         where node is null
         and (flow, lane, priority) > (?1, ?2, ?3)
         order by flow, lane, priority, due
         limit 1",
    )?;
    let code = |bucket: Bucket| (bucket.flow.0, bucket.lane.code(), bucket.priority.code());
    let mut at = after.map_or((i64::MIN, 0, 0), code);
    let mut found = vec![];
    while found.len() < limit {
        let mut rows = select.query(params![at.0, at.1, at.2])?;
        let Some(row) = rows.next()? else { break };
        let bucket = bucket(row, 0)?;
        found.push((bucket, time(row, 3)?));
        at = code(bucket);
    }
    Ok(found)
}

/// Rows that have been due for long, the longest due first.
pub(super) fn overdue(
    reader: &mut Reader,
    due_before: Timestamp,
    first_due_before: Timestamp,
    after: Option<(Timestamp, NotificationId)>,
    limit: usize,
) -> Result<Vec<Overdue>> {
    let Reader { conn, flows } = reader;
    let mut select = conn.prepare_cached(concat!(
        "select ",
        queue_columns!(),
        ", id
         from queue indexed by queue_wake
         where node is null
         and (due, id) > (?1, ?2)
         and due < ?3
         and first_due < ?4
         order by due, id"
    ))?;
    let (due, id) = after.map_or((i64::MIN, [0; 16]), |(due, id)| (due.as_micros(), id.to_bytes()));
    let mut rows = select.query(params![due, id, due_before.as_micros(), first_due_before.as_micros()])?;
    let mut read = |id, row: &Row<'_>| {
        let queued = Queued::read(row, 0)?;
        let notification = Wide::need(conn, flows, id)?.notification()?;
        Ok(Overdue { notification, seen: queued.seen(), due: queued.due, first_due: queued.first_due })
    };
    let mut found = vec![];
    // A damaged row takes no place: a short answer would mean that there are no more.
    while found.len() < limit
        && let Some(row) = rows.next()?
    {
        let id = notification_id(row, 13)?;
        found.extend(unless_damaged(&id, read(id, row))?);
    }
    Ok(found)
}
