//! Nodes: heartbeats, and the leases of dead nodes.
//!
//! Invariant: a transaction that grants a lease locks the row of the node `for key share` until its commit;
//! one that declares the node dead or removes it locks the row `for update`. So one of the two comes first:
//! either the lease is seen and reclaimed, or it is not granted. A heartbeat changes no key and does not wait
//! for transactions that grant leases.

use async_trait::async_trait;
use posthaste_core::flow::Bucket;
use std::time::Duration;

use posthaste_core::lease::NodeId;
use posthaste_core::rate::Share;
use posthaste_core::time::{Timestamp, micros};
use posthaste_engine::store::{self, Joined, LEVEL, NodeView, Nodes, Pulse};
use tokio_postgres::Row;

use super::fault::Result;
use super::rows::{Columns, bigint, number};
use super::tx::{Mode, Then, Tx, bind, single_row, statement};
use super::{PostgresStore, list, notices, transact, transact_quickly};

#[async_trait]
impl Nodes for PostgresStore {
    async fn join(&self, name: String, hold: Duration, now: Timestamp) -> store::Result<Joined> {
        Ok(transact!(self, tx => join(&tx, &name, hold, self.time(now)))?)
    }

    async fn heartbeat(&self, node: NodeId, hold: Duration, now: Timestamp) -> store::Result<Pulse> {
        Ok(transact_quickly!(self, heartbeat_tx, tx => heartbeat(&tx, node, hold, self.time(now)))?)
    }

    async fn leave(&self, node: NodeId) -> store::Result<()> {
        Ok(transact!(self, tx => leave(&tx, node))?)
    }

    async fn reclaim(&self, node: NodeId, limit: usize, now: Timestamp) -> store::Result<usize> {
        Ok(transact_quickly!(self, tx, tx => reclaim(&tx, node, limit, self.time(now)))?)
    }

    async fn nodes(&self, now: Timestamp) -> store::Result<Vec<NodeView>> {
        Ok(list!(self, tx => nodes(&tx, self.time(now)))?)
    }

    async fn tell(&self, from: NodeId, due: Vec<Bucket>) -> store::Result<()> {
        Ok(transact!(self, tx => notices::tell(&tx, &self.notify.channel, from, &due))?)
    }
}

/// The time of the caller if one is given, otherwise the clock of the server, which is the clock of the
/// cluster. This is the only use of the server's clock. It is the current time, not the start of the
/// transaction.
macro_rules! clock {
    ($given:literal) => {
        concat!("coalesce(", $given, "::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint)")
    };
}

/// Limits the hold so that its end is a valid time.
fn held(hold: Duration) -> i64 {
    micros(hold).min(Timestamp::MAX.as_micros() / 2)
}

async fn join(tx: &Tx, name: &str, hold: Duration, now: Option<Timestamp>) -> Result<Joined> {
    let sql = concat!(
        "with clock as materialized (select ",
        clock!("$3"),
        " as now)
         insert into node (name, joined, beat, expires, dead, level)
         select $1, clock.now, clock.now, clock.now + $2, false, $4
         from clock
         returning id, expires - $2"
    );
    let bound =
        bind![name => TEXT, held(hold) => INT8, now.map(Timestamp::as_micros) => INT8, number(LEVEL) => INT4];
    let row = single_row(tx.alone(Mode::Write, sql, bound).await?)?;
    let mut columns = Columns::of(&row);
    Ok(Joined { node: NodeId(columns.take()?), now: columns.time()? })
}

/// Extends the life of a node, unless it was declared dead. Other nodes are dead by their own last heartbeat.
async fn heartbeat(tx: &Tx, node: NodeId, hold: Duration, now: Option<Timestamp>) -> Result<Pulse> {
    let sql = concat!(
        "with clock as materialized (select ",
        clock!("$3"),
        " as now),
         beat as (
             update node
             set expires = greatest(expires, clock.now + $2), beat = clock.now
             from clock
             where id = $1
             and not dead
             returning clock.now)
         select beat.now, array(
             select id
             from node
             where id <> $1
             and (dead or expires <= beat.now)
             order by id), living.level, living.before, living.nodes, version
         from beat
         cross join lateral (
             select min(level) as level, count(*) filter (where id < $1)::int as before, count(*)::int as nodes
             from node
             where id = $1
             or not dead and expires > beat.now) as living
         cross join destination_version"
    );
    let bound = bind![node.0 => INT8, held(hold) => INT8, now.map(Timestamp::as_micros) => INT8];
    let rows = tx.alone(Mode::Write, sql, bound).await?;
    let Some(row) = rows.first() else { return Ok(Pulse::Lost) };
    let mut columns = Columns::of(row);
    let (now, dead) = (columns.time()?, columns.take::<Vec<i64>>()?);
    Ok(Pulse::Alive {
        now,
        dead: dead.into_iter().map(NodeId).collect(),
        level: columns.small()?,
        share: Share::new(columns.small()?, columns.small()?),
        destinations: columns.take()?,
    })
}

/// All nodes, each with the number of its leases.
async fn nodes(tx: &Tx, now: Option<Timestamp>) -> Result<Vec<NodeView>> {
    let sql = concat!(
        "select id, name, joined, beat, expires, not dead and expires > ",
        clock!("$1"),
        ", (
             select count(*)
             from queue
             where queue.node = node.id), level
         from node
         order by id"
    );
    let rows = tx.alone(Mode::Read, sql, bind![now.map(Timestamp::as_micros) => INT8]).await?;
    let view = |row: &Row| {
        let mut columns = Columns::of(row);
        Ok(NodeView {
            id: NodeId(columns.take()?),
            name: columns.take()?,
            joined_at: columns.time()?,
            beat_at: columns.time()?,
            expires_at: columns.time()?,
            alive: columns.take()?,
            held: columns.take::<i64>()?.unsigned_abs(),
            level: columns.small()?,
        })
    };
    rows.iter().map(view).collect()
}

/// Blocks transactions that would grant this node a lease.
const LOCK: &str = concat!(
    "select dead, expires, ",
    clock!("$2"),
    "
     from node
     where id = $1
     for update"
);

/// The rows that a node holds. Locks in id order, so that two transactions cannot deadlock.
macro_rules! held_rows {
    ($limit:literal) => {
        concat!(
            "with held as materialized (
                 select id
                 from queue
                 where node = $1
                 order by id
                 limit ",
            $limit,
            "
                 for update)"
        )
    };
}

/// Removes the node and releases its leases.
async fn leave(tx: &Tx, node: NodeId) -> Result<()> {
    let give_back = concat!(
        held_rows!("null"),
        " update queue q
          set node = null, fence = null
          from held
          where q.id = any(array[held.id])"
    );
    let steps = [
        statement!(LOCK, bind![node.0 => INT8, None::<i64> => INT8]),
        statement!(give_back, bind![node.0 => INT8]),
        statement!("delete from node where id = $1", bind![node.0 => INT8]),
    ];
    tx.send(Some(Mode::Write), &steps, Then::Commit).await?;
    Ok(())
}

/// Reclaims up to `limit` leases of a dead node. Each row counts one more interruption and gets an event.
async fn reclaim(tx: &Tx, node: NodeId, limit: usize, now: Option<Timestamp>) -> Result<usize> {
    let bound = bind![node.0 => INT8, now.map(Timestamp::as_micros) => INT8];
    let mut answers = tx.send(Some(Mode::Write), &[statement!(LOCK, bound)], Then::Continue).await?;
    let found = answers.pop().unwrap_or_default();
    let Some(row) = found.first() else { return nothing(tx).await };
    let mut columns = Columns::of(row);
    let (dead, expires, now): (bool, i64, i64) = (columns.take()?, columns.take()?, columns.take()?);
    if !dead && expires > now {
        return nothing(tx).await;
    }
    let interrupt = concat!(
        held_rows!("$2"),
        ", freed as (
             update queue q
             set node = null, fence = null, interruptions = q.interruptions + 1
             from held
             where q.id = any(array[held.id])
             returning q.id, q.generation, q.attempt)
         insert into event (notification, at, word, actor, generation, attempt)
         select id, $3, 'interrupted', null, generation, attempt
         from freed
         order by id
         returning 1"
    );
    let steps = [
        statement!("update node set dead = true where id = $1 and not dead", bind![node.0 => INT8]),
        statement!(interrupt, bind![node.0 => INT8, bigint(limit) => INT8, now => INT8]),
    ];
    let taken = tx.send(None, &steps, Then::Continue).await?.pop().map_or(0, |rows| rows.len());
    let forget = statement!("delete from node where id = $1", bind![node.0 => INT8]);
    let last = if taken < limit { vec![forget] } else { vec![] };
    tx.send(None, &last, Then::Commit).await?;
    Ok(taken)
}

async fn nothing(tx: &Tx) -> Result<usize> {
    tx.batch("commit").await?;
    Ok(0)
}
