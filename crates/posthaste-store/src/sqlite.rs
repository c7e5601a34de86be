//! The store in one SQLite file: a writer thread, reader threads and a checkpoint thread.
//!
//! Invariant: a caller gets its result only after the fsync of the commit. Commands that wait together share
//! a commit. Only one process, and in it one `SqliteStore`, uses a file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use async_trait::async_trait;
use posthaste_engine::store::{Result, Store};
use tokio::sync::{mpsc, watch};

pub use self::open::{OpenError, Options, Synchronous};
#[cfg(feature = "planted")]
pub use self::planted::Occupied;
pub use self::planted::Planted;

use self::checkpoint::Wal;
use self::fault::gone;
use self::lock::Lock;
use self::readers::{Reader, Readers};
use self::writer::{Call, Tx, Work, Writer};
use crate::kept::operations::Definitions;

mod accept;
mod acts;
pub mod backup;
mod blocks;
mod checkpoint;
mod claim;
mod counters;
mod destinations;
mod ends;
mod fault;
mod flows;
mod groups;
mod idempotency;
mod inbound;
mod jobs;
mod key_uses;
mod lists;
mod lock;
pub mod migrate;
mod nodes;
mod open;
mod operations;
mod planted;
mod queue;
mod readers;
mod reads;
mod records;
mod retention;
mod rows;
mod series;
mod settings;
mod settle;
mod stats;
#[cfg(test)]
mod steps;
pub mod vacuum;
mod waking;
mod writer;

/// Capacity of the writer's queue, and of the queue of each reader group. Callers wait while a queue is full.
const MAX_QUEUED: usize = 1_024;

/// Dropping the store joins its threads and empties the write-ahead log.
pub struct SqliteStore {
    commands: Option<mpsc::Sender<Box<dyn Work>>>,
    readers: Option<Readers>,
    threads: Vec<JoinHandle<()>>,
    /// True once a thread has ended.
    ended: watch::Receiver<bool>,
    commits: Arc<AtomicU64>,
    definitions: Arc<Definitions>,
    _lock: Lock,
}

impl SqliteStore {
    /// Opens or creates the file. All nodes of earlier processes are marked dead.
    pub fn open(path: impl AsRef<Path>, options: Options) -> std::result::Result<Self, OpenError> {
        let path = &open::canonical(path.as_ref())?;
        let lock = Lock::take(path)?;
        match Running::start(path, &options) {
            Ok(Running { commands, readers, threads, ended, commits }) => Ok(Self {
                commands: Some(commands),
                readers: Some(readers),
                threads,
                ended,
                commits,
                definitions: Arc::default(),
                _lock: lock,
            }),
            Err(refused) => {
                lock.give_up();
                Err(refused)
            }
        }
    }

    /// Number of commits since the file was opened.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Runs a command on the writer. Returns after the commit.
    async fn write<T: Send + 'static>(
        &self,
        rows: usize,
        run: impl FnMut(&mut Tx<'_>) -> fault::Result<T> + Send + 'static,
    ) -> Result<T> {
        let commands = self.commands.as_ref().ok_or_else(gone)?;
        let (work, answer) = Call::waiting(rows, run);
        commands.send(work).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Runs a read for the engine, in one read transaction.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Reader) -> fault::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.readers.as_ref().ok_or_else(gone)?.engine.read(look).await
    }

    /// Runs a read by key, which is bounded to a few rows.
    async fn find<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Reader) -> fault::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.readers.as_ref().ok_or_else(gone)?.keys.read(look).await
    }

    /// Runs a read for lists and stats.
    async fn list<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Reader) -> fault::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.readers.as_ref().ok_or_else(gone)?.lists.read(look).await
    }
}

/// The threads of an open store, and the channels to them.
struct Running {
    commands: mpsc::Sender<Box<dyn Work>>,
    readers: Readers,
    threads: Vec<JoinHandle<()>>,
    ended: watch::Receiver<bool>,
    commits: Arc<AtomicU64>,
}

impl Running {
    fn start(path: &Path, options: &Options) -> std::result::Result<Self, OpenError> {
        let sqlite = |source| OpenError::sqlite(path, source);
        let mut writer = open::writer(path, options)?;
        let (wal, checkpoints) = Wal::watch(&mut writer, options.wal_bound).map_err(sqlite)?;
        let commits = Arc::new(AtomicU64::new(0));
        let writer = Writer::new(writer, wal, commits.clone(), options.bug());
        let checkpointer = open::checkpointer(path, options)?;
        let (commands, received) = mpsc::channel(MAX_QUEUED);
        let (end, ended) = watch::channel(false);
        let mut threads = StartedThreads { path, end, started: vec![] };
        let readers = Readers::start(path, options, &mut threads)?;
        threads.spawn("posthaste-write", move || writer.work(received))?;
        threads.spawn("posthaste-checkpoint", move || checkpoint::work(&checkpointer, &checkpoints))?;
        Ok(Self { commands, readers, threads: threads.started, ended, commits })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.commands = None;
        self.readers = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }
}

/// Signals on drop that its thread has ended, normally or by a panic.
struct EndSignal(watch::Sender<bool>);

impl Drop for EndSignal {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

struct StartedThreads<'p> {
    path: &'p Path,
    end: watch::Sender<bool>,
    started: Vec<JoinHandle<()>>,
}

impl StartedThreads<'_> {
    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::result::Result<(), OpenError> {
        let ended = EndSignal(self.end.clone());
        let work = move || {
            let _ended = ended;
            work();
        };
        let thread = Builder::new().name(name.to_owned()).spawn(work);
        self.started.push(thread.map_err(|source| OpenError::Io { path: self.path.to_owned(), source })?);
        Ok(())
    }
}

/// For tests.
#[cfg(feature = "planted")]
impl SqliteStore {
    /// Compares the counters with the rows. Describes the first difference; `None` if there is none.
    pub async fn recount(&self) -> Result<Option<String>> {
        self.list(|reader| {
            let (mut kept, mut counted) =
                (counters::kept_sums(&reader.conn)?, counters::counted_sums(&reader.conn)?);
            let first = counters::first_hour(&reader.conn)?;
            for sums in [&mut kept, &mut counted] {
                sums.retain(|(_, _, _, hour), _| *hour == 0 || *hour >= first);
            }
            if kept == counted {
                return groups::recount(&reader.conn);
            }
            let wrong = kept.iter().find(|(key, n)| counted.get(key) != Some(n));
            let missing = counted.iter().find(|(key, n)| kept.get(key) != Some(n));
            Ok(Some(format!("kept {wrong:?}, counted {missing:?}")))
        })
        .await
    }

    /// Limits the size of the file, to simulate a full disk. 0 removes the limit.
    pub async fn limit_pages(&self, pages: u32) -> Result<()> {
        let most = if pages == 0 { u32::MAX - 1 } else { pages };
        self.write(1, move |tx| {
            tx.conn.pragma_update_and_check(None, "max_page_count", most, |_| Ok(()))?;
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl Store for SqliteStore {
    /// StartedThreads end before the store is dropped only by a panic.
    async fn broken(&self) {
        // An error means that all senders are gone, and with them all threads.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}
