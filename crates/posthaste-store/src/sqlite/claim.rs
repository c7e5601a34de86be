//! Claims and releases leases.

use posthaste_core::flow::{Bucket, Quota};
use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{ClaimResult, Claimed, Held};
use rusqlite::{Connection, params};

use super::fault::{Result, unless_damaged};
use super::nodes::may_hold;
use super::planted::Planted;
use super::rows::{Wide, notification_id, queued};
use super::writer::Tx;
use crate::kept::places::Queued;

/// A leased row whose content is still text. Damaged rows are leased too: they stay out of the way until the
/// node is gone.
pub(super) struct LeasedRow {
    id: NotificationId,
    bucket: Bucket,
    read: Result<(Queued, Wide)>,
    lease: Lease,
}

/// Adds leased rows to the result of a claim. Returns a quota for each row that was damaged, so that others
/// can be claimed in their place.
pub(super) fn add(leased: Vec<LeasedRow>, result: &mut ClaimResult) -> Result<Vec<Quota>> {
    let mut lost = vec![];
    for one in leased {
        let (id, bucket) = (one.id, one.bucket);
        match unless_damaged(&id, one.claimed())? {
            Some(claimed) => result.claimed.push(claimed),
            None => {
                result.set_aside.push(id);
                lost.push(Quota { bucket, limit: 1 });
            }
        }
    }
    Ok(lost)
}

impl LeasedRow {
    fn claimed(self) -> Result<Claimed> {
        let Self { read, lease, .. } = self;
        let (row, wide) = read?;
        Ok(row.claimed(wide.notification()?, lease))
    }
}

/// Leases due rows up to the limit of each quota, longest due first.
pub(super) fn claim(
    tx: &mut Tx<'_>,
    quotas: &[Quota],
    lease: Lease,
    now: Timestamp,
) -> Result<Vec<LeasedRow>> {
    if !may_hold(tx, lease.node)? {
        return Ok(vec![]);
    }
    let until = if tx.bug(Planted::ClaimIgnoresDue) { Timestamp::MAX } else { now };
    let mut select = tx.conn.prepare_cached(DUE)?;
    // One update per row: an update over an index range was slower with many flows of few rows.
    let mut update = tx.conn.prepare_cached(
        "update queue
         set node = ?2, fence = ?3
         where id = ?1",
    )?;
    let mut batch = vec![];
    for Quota { bucket, limit } in quotas.iter().filter(|quota| quota.limit > 0) {
        let first = batch.len();
        let (lane, priority) = (bucket.lane.code(), bucket.priority.code());
        let mut rows = select.query(params![bucket.flow.0, lane, priority, until.as_micros(), limit])?;
        while let Some(row) = rows.next()? {
            let id = notification_id(row, 13)?;
            let key = tx.flows.need(tx.conn, bucket.flow);
            let read = queued(row, 0).and_then(|queued| Ok((queued, Wide::read(id, key?, row, 14)?)));
            batch.push(LeasedRow { id, bucket: *bucket, read, lease });
        }
        for claimed in &batch[first..] {
            update.execute(params![claimed.id.to_bytes(), lease.node.0, lease.fence.0])?;
        }
    }
    Ok(batch)
}

/// The due rows of a bucket, from the index of claims, each with its wide row. A row whose wide row is
/// missing is included, so that it is set aside like other damaged rows.
pub(super) const DUE: &str = "
    select queue.flow, lane, queue.priority, due, first_due, delay, node, fence, attempt, base, generation,
        interruptions, cancel, id, notification.flow, recipient, notification.priority, template, subject,
        event_key, correlation_id, not_before, notification.expires, content
    from queue indexed by queue_claim
    left join notification using (id)
    where node is null
    and queue.flow = ?1
    and lane = ?2
    and queue.priority = ?3
    and due <= ?4
    order by due, id
    limit ?5";

/// The rows that a node holds, in id order. All columns but the fence are in the index.
pub(super) fn held(
    conn: &Connection,
    node: NodeId,
    after: Option<NotificationId>,
    limit: usize,
) -> Result<Vec<Held>> {
    let mut select = conn.prepare_cached(
        "select id, fence
         from queue indexed by queue_held
         where node = ?1
         and id > ?2
         and fence is not null
         order by id
         limit ?3",
    )?;
    let after = after.unwrap_or(NotificationId::FIRST).to_bytes();
    let mut rows = select.query(params![node.0, after, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        found.push(Held { id: notification_id(row, 0)?, fence: Fence(row.get(1)?) });
    }
    Ok(found)
}

/// Releases the rows of a grant, or only those of `only`.
pub(super) fn release(tx: &mut Tx<'_>, lease: Lease, only: Option<&[NotificationId]>) -> Result<usize> {
    match only {
        Some(ids) => release_named(tx.conn, lease, ids),
        None if tx.bug(Planted::ReleaseTakesAll) => release_node(tx.conn, lease.node.0),
        None => release_grant(tx.conn, lease),
    }
}

fn release_named(conn: &Connection, lease: Lease, ids: &[NotificationId]) -> Result<usize> {
    let mut update = conn.prepare_cached(
        "update queue
         set node = null, fence = null
         where id = ?1
         and node = ?2
         and fence = ?3",
    )?;
    let mut released = 0;
    for id in ids {
        released += update.execute(params![id.to_bytes(), lease.node.0, lease.fence.0])?;
    }
    Ok(released)
}

fn release_grant(conn: &Connection, lease: Lease) -> Result<usize> {
    let mut update = conn.prepare_cached(
        "update queue indexed by queue_held
         set node = null, fence = null
         where node = ?1
         and fence = ?2",
    )?;
    Ok(update.execute(params![lease.node.0, lease.fence.0])?)
}

pub(super) fn release_node(conn: &Connection, node: i64) -> Result<usize> {
    let mut update = conn.prepare_cached(
        "update queue indexed by queue_held
         set node = null, fence = null
         where node = ?1",
    )?;
    Ok(update.execute([node])?)
}
