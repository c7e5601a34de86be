//! The one thread that writes: it gathers what waits, runs it in one transaction, and answers after the commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use posthaste_engine::store::{Result as Answer, StoreError};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Wal;
use super::counters::Deltas;
use super::fault::{Fault, Result};
use super::flows::Flows;
use super::planted::Planted;

/// The most commands that share a commit.
const MOST_COMMANDS: usize = 512;
/// The most rows that share a commit, but for a single command that has more.
const MOST_ROWS: usize = 10_000;

/// A transaction under way, and what the writer knows beside it.
pub(super) struct Tx<'w> {
    pub(super) conn: &'w Connection,
    pub(super) flows: &'w mut Flows,
    pub(super) deltas: &'w mut Deltas,
    planted: Option<Planted>,
}

impl Tx<'_> {
    /// Whether a test has switched this bug on.
    pub(super) fn bug(&self, which: Planted) -> bool {
        cfg!(feature = "planted") && self.planted == Some(which)
    }
}

/// A command that waits for its turn.
pub(super) trait Work: Send {
    /// About how many rows it writes.
    fn rows(&self) -> usize;
    /// Does it inside a transaction and keeps the answer. Runs a second time if that transaction was rolled back.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<()>;
    /// Tells the caller, after the commit or the failure.
    fn answer(self: Box<Self>, outcome: Result<()>);
}

/// A command made of a function and the place where its answer goes.
pub(super) struct Call<T, F> {
    rows: usize,
    run: F,
    kept: Option<T>,
    to: oneshot::Sender<Answer<T>>,
}

impl<T, F> Call<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
{
    /// The command and where its answer will be.
    pub(super) fn waiting(rows: usize, run: F) -> (Box<dyn Work>, oneshot::Receiver<Answer<T>>) {
        let (to, answer) = oneshot::channel();
        (Box::new(Self { rows, run, kept: None, to }), answer)
    }
}

impl<T, F> Work for Call<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
{
    fn rows(&self) -> usize {
        self.rows
    }

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        self.kept = Some((self.run)(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<()>) {
        let answer = match (outcome, self.kept) {
            (Ok(()), Some(kept)) => Ok(kept),
            (Ok(()), None) => Err(Fault::nonsense("a command was answered before it ran").into()),
            (Err(fault), _) => Err(StoreError::from(fault)),
        };
        // Whoever asked may have stopped waiting; what was done stays done.
        let _ = self.to.send(answer);
    }
}

/// The writing thread's own things.
pub(super) struct Writer {
    conn: Connection,
    flows: Flows,
    deltas: Deltas,
    wal: Wal,
    commits: Arc<AtomicU64>,
    planted: Option<Planted>,
}

impl Writer {
    /// A writer over its connection, which counts its commits in `commits`.
    pub(super) fn new(conn: Connection, wal: Wal, commits: Arc<AtomicU64>, planted: Option<Planted>) -> Self {
        Self { conn, flows: Flows::default(), deltas: Deltas::default(), wal, commits, planted }
    }

    /// Works until nobody can send commands any more, then empties the log.
    pub(super) fn work(mut self, mut commands: mpsc::Receiver<Box<dyn Work>>) {
        while let Some(first) = commands.blocking_recv() {
            let group = gather(first, &mut commands);
            self.serve(group);
            self.wal.after_commit(&self.conn);
        }
        self.wal.at_the_end(&self.conn);
    }

    /// One commit for the whole group. If that fails, each command gets a transaction of its own, so that a poisonous
    /// one fails alone.
    fn serve(&mut self, mut group: Vec<Box<dyn Work>>) {
        let together = self.transaction(&mut group);
        if group.len() == 1 || together.is_ok() {
            let mut outcome = Some(together);
            for work in group {
                work.answer(outcome.take().unwrap_or(Ok(())));
            }
            return;
        }
        for work in group {
            let mut alone = [work];
            let outcome = self.transaction(&mut alone);
            let [work] = alone;
            work.answer(outcome);
        }
    }

    /// Runs the commands in one transaction; durable when it answers Ok.
    fn transaction(&mut self, group: &mut [Box<dyn Work>]) -> Result<()> {
        let outcome = self.attempt(group);
        match &outcome {
            Ok(()) => {
                self.commits.fetch_add(1, Ordering::Relaxed);
            }
            Err(fault) => {
                // Whoever asked is told, and says so in the log.
                tracing::debug!(commands = group.len(), error = %fault, "a transaction was rolled back");
                self.roll_back();
            }
        }
        outcome
    }

    fn attempt(&mut self, group: &mut [Box<dyn Work>]) -> Result<()> {
        self.conn.prepare_cached("begin immediate")?.execute([])?;
        let Self { conn, flows, deltas, planted, .. } = self;
        let mut tx = Tx { conn, flows, deltas, planted: *planted };
        for work in group.iter_mut() {
            work.run(&mut tx)?;
        }
        tx.deltas.write(tx.conn, tx.flows)?;
        self.conn.prepare_cached("commit")?.execute([])?;
        Ok(())
    }

    fn roll_back(&mut self) {
        self.flows.clear();
        self.deltas.clear();
        // SQLite may have rolled back by itself, as it does on a full disk.
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("rollback")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}

/// The first command and whatever else waits behind it, within the bounds.
fn gather(first: Box<dyn Work>, commands: &mut mpsc::Receiver<Box<dyn Work>>) -> Vec<Box<dyn Work>> {
    let mut rows = first.rows();
    let mut group = vec![first];
    while group.len() < MOST_COMMANDS && rows < MOST_ROWS {
        let Ok(next) = commands.try_recv() else { break };
        rows = rows.saturating_add(next.rows());
        group.push(next);
    }
    group
}
