//! The writer thread: it gathers waiting commands, runs them in one transaction, and answers after the
//! commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use posthaste_engine::store::{Result as Answer, StoreError};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::blocks::Blocks;
use super::checkpoint::Wal;
use super::counters;
use super::fault::{Fault, Result};
use super::flows::Flows;
use super::groups;
use super::idempotency::{ExpiredKeys, MAX_ROWS_ALONE, MAX_ROWS_BESIDE_COMMANDS};
use super::planted::Planted;
use super::vacuum::FreePages;
use crate::kept::counters::Deltas;
use crate::kept::groups::GroupDeltas;

/// Maximum number of commands per commit.
const MAX_COMMANDS: usize = 512;
/// Maximum number of rows per commit, except for a single command with more.
const MAX_ROWS: usize = 10_000;

/// A running transaction, and the writer's caches.
pub(super) struct Tx<'w> {
    pub(super) conn: &'w Connection,
    pub(super) flows: &'w mut Flows,
    pub(super) deltas: &'w mut Deltas,
    pub(super) groups: &'w mut GroupDeltas,
    pub(super) blocks: &'w mut Blocks,
    pub(super) expired_keys: &'w mut ExpiredKeys,
    pub(super) free_pages: &'w mut FreePages,
    planted: Option<Planted>,
}

impl Tx<'_> {
    pub(super) fn bug(&self, which: Planted) -> bool {
        cfg!(feature = "planted") && self.planted == Some(which)
    }
}

/// A queued command.
pub(super) trait Work: Send {
    /// Estimated number of written rows.
    fn rows(&self) -> usize;
    /// Runs inside a transaction and stores the result. Runs a second time if that transaction was rolled
    /// back.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<()>;
    /// Sends the result to the caller, after the commit or the failure.
    fn answer(self: Box<Self>, outcome: Result<()>);
}

/// A command that runs a function and sends its result through a channel.
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
    /// Returns the command, and the receiver of its result.
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
            (Ok(()), None) => Err(Fault::damaged("a command was answered before it ran").into()),
            (Err(fault), _) => Err(StoreError::from(fault)),
        };
        // The caller may have stopped waiting; the transaction is committed anyway.
        let _ = self.to.send(answer);
    }
}

/// The state of the writer thread.
pub(super) struct Writer {
    conn: Connection,
    flows: Flows,
    deltas: Deltas,
    groups: GroupDeltas,
    blocks: Blocks,
    expired_keys: ExpiredKeys,
    free_pages: FreePages,
    wal: Wal,
    commits: Arc<AtomicU64>,
    planted: Option<Planted>,
}

impl Writer {
    /// `commits` counts the commits.
    pub(super) fn new(conn: Connection, wal: Wal, commits: Arc<AtomicU64>, planted: Option<Planted>) -> Self {
        let (flows, deltas, groups) = (Flows::default(), Deltas::default(), GroupDeltas::default());
        let (blocks, expired_keys) = (Blocks::default(), ExpiredKeys::default());
        let free_pages = FreePages::default();
        Self { conn, flows, deltas, groups, blocks, expired_keys, free_pages, wal, commits, planted }
    }

    /// Runs until all senders are gone, then empties the log.
    pub(super) fn work(mut self, mut commands: mpsc::Receiver<Box<dyn Work>>) {
        while let Some(first) = commands.blocking_recv() {
            let group = gather(first, &mut commands);
            self.serve(group);
            self.wal.after_commit(&self.conn);
            while self.expired_keys.is_running() && commands.is_empty() && !commands.is_closed() {
                self.remove_expired_keys();
            }
            while self.free_pages.is_running() && commands.is_empty() && !commands.is_closed() {
                self.give_pages_back();
            }
        }
        self.wal.at_the_end(&self.conn);
    }

    /// Removes some expired keys while no command waits. If that fails, the next command that carries a time
    /// starts the pass again.
    fn remove_expired_keys(&mut self) {
        if let Err(fault) = self.transaction(&mut []) {
            tracing::warn!(error = %fault, "expired idempotency keys could not be removed");
        }
        self.wal.after_commit(&self.conn);
    }

    /// Makes the file a little smaller while no command waits. If that fails, the next removal of rows asks for it again.
    fn give_pages_back(&mut self) {
        if let Err(error) = self.free_pages.step(&self.conn) {
            tracing::warn!(%error, "free pages could not be given back");
        }
        self.wal.after_commit(&self.conn);
    }

    /// Runs the group in one commit. If that fails, each command gets its own transaction, so that only the
    /// faulty one fails.
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

    /// Durable if it returns `Ok`.
    fn transaction(&mut self, group: &mut [Box<dyn Work>]) -> Result<()> {
        let outcome = self.attempt(group);
        match &outcome {
            Ok(()) => {
                self.commits.fetch_add(1, Ordering::Relaxed);
            }
            Err(fault) => {
                // The caller gets the error and logs it.
                tracing::debug!(commands = group.len(), error = %fault, "a transaction was rolled back");
                self.roll_back();
            }
        }
        outcome
    }

    fn attempt(&mut self, group: &mut [Box<dyn Work>]) -> Result<()> {
        self.conn.prepare_cached("begin immediate")?.execute([])?;
        let Self { conn, flows, deltas, groups, blocks, expired_keys, free_pages, planted, .. } = self;
        let mut tx = Tx { conn, flows, deltas, groups, blocks, expired_keys, free_pages, planted: *planted };
        for work in group.iter_mut() {
            work.run(&mut tx)?;
        }
        counters::write(tx.deltas, tx.conn, tx.flows)?;
        groups::write(tx.groups, tx.conn, tx.flows)?;
        tx.blocks.write(tx.conn)?;
        tx.expired_keys
            .step(tx.conn, if group.is_empty() { MAX_ROWS_ALONE } else { MAX_ROWS_BESIDE_COMMANDS })?;
        self.conn.prepare_cached("commit")?.execute([])?;
        Ok(())
    }

    fn roll_back(&mut self) {
        self.flows.clear();
        self.deltas.clear();
        self.groups.clear();
        self.blocks.clear();
        self.expired_keys.clear();
        // SQLite may already have rolled back, as it does on a full disk.
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("rollback")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}

/// Returns the first command and those queued behind it, within the limits.
fn gather(first: Box<dyn Work>, commands: &mut mpsc::Receiver<Box<dyn Work>>) -> Vec<Box<dyn Work>> {
    let mut rows = first.rows();
    let mut group = vec![first];
    while group.len() < MAX_COMMANDS && rows < MAX_ROWS {
        let Ok(next) = commands.try_recv() else { break };
        rows = rows.saturating_add(next.rows());
        group.push(next);
    }
    group
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use posthaste_core::time::Timestamp;
    use posthaste_engine::store::{Accepted, Idempotency, Pulse, Request};

    use super::*;
    use crate::sqlite::accept::{self, Incoming};
    use crate::sqlite::nodes;

    /// Expired keys that are not removed yet.
    const OLD: usize = 5_000;
    /// Rows that a command itself writes: its key, the days of the tables, a node.
    const OWN: u64 = 5;

    fn days(days: f64) -> Timestamp {
        Timestamp::from_micros(0).later(Idempotency::LIFE.mul_f64(days))
    }

    fn writer() -> Writer {
        let mut conn = Connection::open_in_memory().unwrap();
        for (_, step) in crate::sqlite::migrate::MIGRATIONS {
            conn.execute_batch(step).unwrap();
        }
        let (wal, _) = Wal::watch(&mut conn, u64::MAX).unwrap();
        Writer::new(conn, wal, Arc::default(), None)
    }

    /// Runs a command. Returns its result, and how many rows changed beside its own.
    fn changed<T: Send + 'static>(
        writer: &mut Writer,
        run: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> (T, u64) {
        let before = writer.conn.total_changes();
        let (work, answer) = Call::waiting(1, run);
        writer.serve(vec![work]);
        let answer = answer.blocking_recv().unwrap().unwrap();
        (answer, (writer.conn.total_changes() - before).saturating_sub(OWN))
    }

    /// Accepts `count` keys in one call.
    fn send(writer: &mut Writer, prefix: &str, count: usize, now: Timestamp) -> (Accepted, u64) {
        let tenant = |number| format!("tenant{}", number % 3).parse().unwrap();
        let key = |number: usize| Idempotency {
            tenant: tenant(number),
            key: format!("{prefix}{number:05}"),
            hash: [1; 32],
            answer: vec![1],
        };
        let request = |number| Request { idempotency: Some(key(number)), arrivals: vec![] };
        let requests: Vec<_> = (0..count).map(|number| Incoming::new(request(number)).unwrap()).collect();
        let (mut acceptance, changed) = changed(writer, move |tx| accept::accept(tx, &requests, now));
        (acceptance.answers.pop().unwrap(), changed)
    }

    fn keys(writer: &Writer) -> (usize, usize) {
        let count = |table| {
            writer.conn.query_row(&format!("select count(*) from {table}"), [], |row| row.get::<_, i64>(0))
        };
        let (even, odd) = (count("idempotency_even").unwrap(), count("idempotency_odd").unwrap());
        (usize::try_from(even).unwrap(), usize::try_from(odd).unwrap())
    }

    #[test]
    fn no_command_removes_more_than_a_few_expired_keys() {
        let mut writer = writer();
        send(&mut writer, "old", OLD, days(2.5));
        send(&mut writer, "late", 10, days(3.9));
        assert_eq!(keys(&writer), (OLD, 10));
        let (_, removed) = send(&mut writer, "new", 1, days(4.1));
        assert!((1..=MAX_ROWS_BESIDE_COMMANDS as u64).contains(&removed), "{removed} keys were removed");
        let mut commands = 0;
        while writer.expired_keys.is_running() {
            // An expired key that is not removed yet is new, and keys of a day ago are known.
            assert_eq!(send(&mut writer, "late", 1, days(4.2)).0, Accepted::Twin(vec![1]));
            let (_, removed) = send(&mut writer, &format!("more{commands}"), 1, days(4.2));
            assert!(removed <= MAX_ROWS_BESIDE_COMMANDS as u64, "{removed} keys were removed");
            commands += 1;
        }
        assert!(
            commands >= OLD / MAX_ROWS_BESIDE_COMMANDS / 2 - 1,
            "{commands} commands have removed everything"
        );
        assert_eq!(keys(&writer), (1 + commands, 10));
        // The pass is over until the next day, also after a restart.
        send(&mut writer, "new", 1, days(4.9));
        assert!(!writer.expired_keys.is_running());
        writer.expired_keys = ExpiredKeys::default();
        send(&mut writer, "new", 1, days(4.9));
        assert!(!writer.expired_keys.is_running());
    }

    #[test]
    fn a_expired_key_that_is_not_removed_yet_can_be_used_again() {
        let mut writer = writer();
        send(&mut writer, "old", OLD, days(2.5));
        let last = |writer: &mut Writer, now| {
            let key = Idempotency {
                tenant: "tenant2".parse().unwrap(),
                key: "old04997".to_owned(),
                hash: [2; 32],
                answer: vec![2],
            };
            let request = Request { idempotency: Some(key), arrivals: vec![] };
            let requests = [Incoming::new(request).unwrap()];
            changed(writer, move |tx| accept::accept(tx, &requests, now)).0.answers.pop().unwrap()
        };
        assert_eq!(last(&mut writer, days(3.49)), Accepted::Conflict);
        assert_eq!(last(&mut writer, days(4.1)), Accepted::New);
        while writer.expired_keys.is_running() {
            writer.remove_expired_keys();
        }
        assert_eq!(last(&mut writer, days(5.0)), Accepted::Twin(vec![2]));
        assert_eq!(keys(&writer), (1, 0));
    }

    #[test]
    fn expired_keys_are_removed_when_no_more_keys_come() {
        let mut writer = writer();
        send(&mut writer, "old", OLD, days(2.5));
        send(&mut writer, "odd", OLD, days(3.5));
        let hold = Duration::from_secs(9);
        let (node, _) = changed(&mut writer, move |tx| nodes::join(tx, "one", hold, days(3.9)));
        for (now, left) in [(3.9, (OLD, OLD)), (4.0, (0, OLD)), (5.0, (0, 0))] {
            for _ in 0..=OLD / MAX_ROWS_BESIDE_COMMANDS {
                let (pulse, removed) =
                    changed(&mut writer, move |tx| nodes::heartbeat(tx, node, hold, days(now)));
                assert!(matches!(pulse, Pulse::Alive { .. }), "{pulse:?}");
                assert!(removed <= MAX_ROWS_BESIDE_COMMANDS as u64, "{removed} keys were removed");
            }
            assert_eq!(keys(&writer), left, "at day {now}");
        }
    }

    #[test]
    fn a_pass_that_was_rolled_back_is_begun_anew() {
        let mut writer = writer();
        send(&mut writer, "old", OLD, days(2.5));
        send(&mut writer, "new", 1, days(4.1));
        let (work, answer) = Call::waiting(1, |_| Err::<(), _>(Fault::damaged("a test")));
        writer.serve(vec![work]);
        assert!(answer.blocking_recv().unwrap().is_err());
        assert!(!writer.expired_keys.is_running());
        send(&mut writer, "more", 1, days(4.1));
        while writer.expired_keys.is_running() {
            writer.remove_expired_keys();
        }
        assert_eq!(keys(&writer), (2, 0));
    }

    #[test]
    fn no_step_of_the_pass_goes_over_what_is_behind_it() {
        use std::sync::atomic::AtomicUsize;
        let mut writer = writer();
        // The pass skips keys that were used again, to reach those that were not.
        send(&mut writer, "key", 4 * OLD, days(2.5));
        send(&mut writer, "key", 3 * OLD, days(4.1));
        let steps = Arc::new(AtomicUsize::new(0));
        let counted = steps.clone();
        let count = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            false
        };
        writer.conn.progress_handler(1, Some(count)).unwrap();
        let mut costs = vec![];
        while writer.expired_keys.is_running() {
            writer.remove_expired_keys();
            costs.push(steps.swap(0, Ordering::Relaxed));
        }
        assert!(costs.iter().all(|cost| *cost < 30 * MAX_ROWS_ALONE), "{costs:?}");
    }
}
