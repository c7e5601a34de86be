//! Nodes: heartbeats, and the leases of dead nodes.

use async_trait::async_trait;
use posthaste_core::flow::Bucket;
use std::time::Duration;

use posthaste_core::lease::NodeId;
use posthaste_core::rate::Share;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Joined, LEVEL, NodeView, Nodes, Pulse};
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteStore;
use super::claim::release_node;
use super::fault::Result;
use super::planted::Planted;
use super::rows::notification_id;
use super::writer::Tx;

#[async_trait]
impl Nodes for SqliteStore {
    async fn join(&self, name: String, hold: Duration, now: Timestamp) -> store::Result<Joined> {
        let node = self.write(1, move |tx| join(tx, &name, hold, now)).await?;
        Ok(Joined { node, now })
    }

    async fn heartbeat(&self, node: NodeId, hold: Duration, now: Timestamp) -> store::Result<Pulse> {
        self.write(1, move |tx| heartbeat(tx, node, hold, now)).await
    }

    async fn leave(&self, node: NodeId) -> store::Result<()> {
        self.write(1, move |tx| leave(tx, node)).await
    }

    async fn reclaim(&self, node: NodeId, limit: usize, now: Timestamp) -> store::Result<usize> {
        self.write(limit, move |tx| reclaim(tx, node, limit, now)).await
    }

    async fn nodes(&self, now: Timestamp) -> store::Result<Vec<NodeView>> {
        self.list(move |reader| nodes(&reader.conn, now)).await
    }

    /// A file has one node, so there is no other node to notify.
    async fn tell(&self, _: NodeId, _: Vec<Bucket>) -> store::Result<()> {
        Ok(())
    }
}

struct Node {
    expires: Timestamp,
    dead: bool,
}

pub(super) fn join(tx: &mut Tx<'_>, name: &str, hold: Duration, now: Timestamp) -> Result<NodeId> {
    let mut insert = tx.conn.prepare_cached(
        "insert into node (name, joined, beat, expires, dead, level)
         values (?1, ?2, ?2, ?3, 0, ?4)",
    )?;
    Ok(NodeId(insert.insert(params![name, now.as_micros(), now.later(hold).as_micros(), LEVEL])?))
}

/// Extends the life of a node, unless it was declared dead.
pub(super) fn heartbeat(tx: &mut Tx<'_>, node: NodeId, hold: Duration, now: Timestamp) -> Result<Pulse> {
    let alive = find(tx.conn, node)?.filter(|found| !found.dead);
    let Some(found) = alive else { return Ok(Pulse::Lost) };
    // Expired keys are removed even if no new keys arrive.
    tx.expired_keys.start_pass_if_due(tx.conn, now)?;
    let mut update = tx.conn.prepare_cached(
        "update node
         set expires = ?2, beat = ?3
         where id = ?1",
    )?;
    let expires = found.expires.max(now.later(hold));
    update.execute(params![node.0, expires.as_micros(), now.as_micros()])?;
    let mut select = tx.conn.prepare_cached(
        "select id
         from node
         where id <> ?1
         and (dead = 1 or expires <= ?2)
         order by id",
    )?;
    let dead = select.query_map(params![node.0, now.as_micros()], |row| row.get(0).map(NodeId))?;
    let dead = dead.collect::<rusqlite::Result<_>>()?;
    let mut living = tx.conn.prepare_cached(
        "select min(level), sum(id < ?1), count(*), (select version from destination_version)
         from node
         where id = ?1
         or dead = 0 and expires > ?2",
    )?;
    Ok(living.query_row(params![node.0, now.as_micros()], |row| {
        let (level, share) = (row.get(0)?, Share::new(row.get(1)?, row.get(2)?));
        Ok(Pulse::Alive { now, dead, level, share, destinations: row.get(3)? })
    })?)
}

/// All nodes, each with the number of its leases.
fn nodes(conn: &Connection, now: Timestamp) -> Result<Vec<NodeView>> {
    let mut select = conn.prepare_cached(
        "select id, name, joined, beat, expires, dead,
             (select count(*)
              from queue indexed by queue_held
              where node = node.id),
             level
         from node
         order by id",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let expires_at = Timestamp::from_micros(row.get(4)?);
        Ok(NodeView {
            id: NodeId(row.get(0)?),
            name: row.get(1)?,
            joined_at: Timestamp::from_micros(row.get(2)?),
            beat_at: Timestamp::from_micros(row.get(3)?),
            expires_at,
            alive: !row.get::<_, bool>(5)? && expires_at > now,
            held: row.get::<_, i64>(6)?.unsigned_abs(),
            level: row.get(7)?,
        })
    };
    let nodes = select.query_map([], read)?;
    Ok(nodes.collect::<rusqlite::Result<_>>()?)
}

/// Whether leases may be granted to the node. Those of a dead or departed node would never be reclaimed.
pub(super) fn may_hold(tx: &Tx<'_>, node: NodeId) -> Result<bool> {
    let alive = find(tx.conn, node)?.is_some_and(|found| !found.dead);
    Ok(alive || tx.bug(Planted::GrantsToTheDead))
}

/// Removes the node and releases its leases.
fn leave(tx: &mut Tx<'_>, node: NodeId) -> Result<()> {
    release_node(tx.conn, node.0)?;
    forget(tx.conn, node)
}

/// Reclaims up to `limit` leases of a dead node.
fn reclaim(tx: &mut Tx<'_>, node: NodeId, limit: usize, now: Timestamp) -> Result<usize> {
    let Some(found) = find(tx.conn, node)? else { return Ok(0) };
    let alive = !found.dead && found.expires > now;
    if alive && !tx.bug(Planted::ReclaimFromTheLiving) {
        return Ok(0);
    }
    if !found.dead {
        let mut update = tx.conn.prepare_cached("update node set dead = 1 where id = ?1")?;
        update.execute([node.0])?;
    }
    let taken = interrupt(tx, node, limit, now)?;
    if taken < limit {
        forget(tx.conn, node)?;
    }
    Ok(taken)
}

/// Each reclaimed row counts one more interruption and gets an event.
fn interrupt(tx: &mut Tx<'_>, node: NodeId, limit: usize, now: Timestamp) -> Result<usize> {
    let mut select = tx.conn.prepare_cached(
        "select id, generation, attempt
         from queue indexed by queue_held
         where node = ?1
         order by id
         limit ?2",
    )?;
    let mut update = tx.conn.prepare_cached(
        "update queue
         set node = null, fence = null, interruptions = interruptions + ?2
         where id = ?1",
    )?;
    let by = i64::from(!tx.bug(Planted::ReclaimForgetsInterruption));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut held = vec![];
    let mut rows = select.query(params![node.0, limit])?;
    while let Some(row) = rows.next()? {
        held.push((notification_id(row, 0)?, row.get(1)?, row.get(2)?));
    }
    for (id, generation, attempt) in &held {
        update.execute(params![id.to_bytes(), by])?;
        let event = Event { word: "interrupted", actor: None, generation: *generation, attempt: *attempt };
        event.insert(tx.conn, *id, now)?;
    }
    Ok(held.len())
}

/// An entry of the history that is not an attempt.
pub(super) struct Event<'e> {
    pub(super) word: &'e str,
    pub(super) actor: Option<&'e str>,
    pub(super) generation: u32,
    pub(super) attempt: u32,
}

impl Event<'_> {
    pub(super) fn insert(
        &self,
        conn: &Connection,
        id: posthaste_core::id::NotificationId,
        at: Timestamp,
    ) -> Result<()> {
        let mut insert = conn.prepare_cached(
            "insert into event (notification, number, at, word, actor, generation, attempt)
             select ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5, ?6
             from event
             where notification = ?1",
        )?;
        insert.execute(params![
            id.to_bytes(),
            at.as_micros(),
            self.word,
            self.actor,
            self.generation,
            self.attempt
        ])?;
        Ok(())
    }
}

fn find(conn: &Connection, node: NodeId) -> Result<Option<Node>> {
    let mut select = conn.prepare_cached(
        "select expires, dead
         from node
         where id = ?1",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Node { expires: Timestamp::from_micros(row.get(0)?), dead: row.get(1)? })
    };
    Ok(select.query_row([node.0], read).optional()?)
}

fn forget(conn: &Connection, node: NodeId) -> Result<()> {
    let mut delete = conn.prepare_cached("delete from node where id = ?1")?;
    delete.execute([node.0])?;
    Ok(())
}
