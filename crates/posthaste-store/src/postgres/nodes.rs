//! Nodes: who is alive, and what the dead leave behind.
//!
//! Invariant: whoever grants a lease holds the node's row `for key share` until its commit, whoever declares the node dead
//! or gone holds it `for update`. So one of the two comes first: either the lease is seen and taken back, or it is not
//! granted. A heartbeat changes no key and waits for neither of the first kind.

use async_trait::async_trait;
use posthaste_core::flow::Bucket;
use std::time::Duration;

use posthaste_core::lease::NodeId;
use posthaste_core::time::{Timestamp, micros};
use posthaste_engine::store::{self, Joined, LEVEL, NodeView, Nodes, Pulse};
use tokio_postgres::Row;

use super::fault::Result;
use super::rows::{Columns, number, whole};
use super::tx::{Mode, Then, Tx, bind, only, step};
use super::{PostgresStore, list, news, prompt, transact};

#[async_trait]
impl Nodes for PostgresStore {
    async fn join(&self, name: String, hold: Duration, now: Timestamp) -> store::Result<Joined> {
        Ok(transact!(self, tx => join(&tx, &name, hold, self.time(now)))?)
    }

    async fn heartbeat(&self, node: NodeId, hold: Duration, now: Timestamp) -> store::Result<Pulse> {
        Ok(prompt!(self, pulse_tx, tx => heartbeat(&tx, node, hold, self.time(now)))?)
    }

    async fn leave(&self, node: NodeId) -> store::Result<()> {
        Ok(transact!(self, tx => leave(&tx, node))?)
    }

    async fn reclaim(&self, node: NodeId, limit: usize, now: Timestamp) -> store::Result<usize> {
        Ok(prompt!(self, tx, tx => reclaim(&tx, node, limit, self.time(now)))?)
    }

    async fn nodes(&self, now: Timestamp) -> store::Result<Vec<NodeView>> {
        Ok(list!(self, tx => nodes(&tx, self.time(now)))?)
    }

    async fn tell(&self, from: NodeId, due: Vec<Bucket>) -> store::Result<()> {
        Ok(transact!(self, tx => news::tell(&tx, &self.way.channel, from, &due))?)
    }
}

/// The time that is asked for: the caller's where one is given, else the server's own, which is the one clock of a cluster.
/// Where a statement says `now()` it is here alone, and by the clock, not by the start of the transaction.
macro_rules! clock {
    ($given:literal) => {
        concat!("coalesce(", $given, "::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint)")
    };
}

/// A hold that is held within the calendar.
fn held(hold: Duration) -> i64 {
    micros(hold).min(Timestamp::MAX.as_micros() / 2)
}

/// A new node, and the store's time.
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
    let row = only(tx.alone(Mode::Write, sql, bound).await?)?;
    let mut columns = Columns::of(&row);
    Ok(Joined { node: NodeId(columns.take()?), now: columns.time()? })
}

/// Keeps a node alive, unless it was declared dead. Who else is dead is what the others last said of themselves.
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
             order by id), (
             select min(level)
             from node
             where id = $1
             or not dead and expires > beat.now)
         from beat"
    );
    let bound = bind![node.0 => INT8, held(hold) => INT8, now.map(Timestamp::as_micros) => INT8];
    let rows = tx.alone(Mode::Write, sql, bound).await?;
    let Some(row) = rows.first() else { return Ok(Pulse::Lost) };
    let mut columns = Columns::of(row);
    let (now, dead) = (columns.time()?, columns.take::<Vec<i64>>()?);
    Ok(Pulse::Alive { now, dead: dead.into_iter().map(NodeId).collect(), level: columns.small()? })
}

/// Every node, with what each holds.
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

/// Keeps out whoever would grant this node a lease.
const LOCK: &str = concat!(
    "select dead, expires, ",
    clock!("$2"),
    "
     from node
     where id = $1
     for update"
);

/// The rows that a node holds, in the order of ids, as everybody takes rows for whom somebody else may wait.
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

/// The node stops, and what it holds waits again.
async fn leave(tx: &Tx, node: NodeId) -> Result<()> {
    let give_back = concat!(
        held_rows!("null"),
        " update queue q
          set node = null, fence = null
          from held
          where q.id = any(array[held.id])"
    );
    let steps = [
        step!(LOCK, bind![node.0 => INT8, None::<i64> => INT8]),
        step!(give_back, bind![node.0 => INT8]),
        step!("delete from node where id = $1", bind![node.0 => INT8]),
    ];
    tx.send(Some(Mode::Write), &steps, Then::Commit).await?;
    Ok(())
}

/// Takes back up to `limit` leases of a dead node. Each row counts one interruption more and has an event that says so.
async fn reclaim(tx: &Tx, node: NodeId, limit: usize, now: Option<Timestamp>) -> Result<usize> {
    let bound = bind![node.0 => INT8, now.map(Timestamp::as_micros) => INT8];
    let mut answers = tx.send(Some(Mode::Write), &[step!(LOCK, bound)], Then::GoOn).await?;
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
        step!("update node set dead = true where id = $1 and not dead", bind![node.0 => INT8]),
        step!(interrupt, bind![node.0 => INT8, whole(limit) => INT8, now => INT8]),
    ];
    let taken = tx.send(None, &steps, Then::GoOn).await?.pop().map_or(0, |rows| rows.len());
    let forget = step!("delete from node where id = $1", bind![node.0 => INT8]);
    let last = if taken < limit { vec![forget] } else { vec![] };
    tx.send(None, &last, Then::Commit).await?;
    Ok(taken)
}

async fn nothing(tx: &Tx) -> Result<usize> {
    tx.batch("commit").await?;
    Ok(0)
}
