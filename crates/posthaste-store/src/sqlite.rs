//! The store in one SQLite file: one thread that writes, some that read, one that carries the log over.
//!
//! Invariant: an answer is sent only after the commit that it speaks of was waited for on the disk. Commands that wait
//! together share that commit. Only one process, and in it one `SqliteStore`, uses a file.

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

mod accept;
mod acts;
pub mod backup;
mod blocks;
mod checkpoint;
mod claim;
mod counters;
mod ends;
mod fault;
mod flows;
mod idempotency;
mod lists;
mod lock;
pub mod migrate;
mod nodes;
mod open;
mod planted;
mod queue;
mod readers;
mod reads;
mod records;
mod rows;
mod settings;
mod settle;
mod stats;
#[cfg(test)]
mod steps;
mod waking;
mod writer;

/// The most commands that wait for the writer, and the most looks that wait for each group of readers; whoever comes then
/// waits outside.
const MOST_WAITING: usize = 1_024;

/// A store in one SQLite file. Dropping it waits for its threads and empties the write-ahead log.
pub struct SqliteStore {
    commands: Option<mpsc::Sender<Box<dyn Work>>>,
    readers: Option<Readers>,
    threads: Vec<JoinHandle<()>>,
    /// Whether a thread has ended.
    ended: watch::Receiver<bool>,
    commits: Arc<AtomicU64>,
    /// Held until the last thread has ended.
    _lock: Lock,
}

impl SqliteStore {
    /// Opens the file, or makes it. Every node that it knows from before is dead at once.
    pub fn open(path: impl AsRef<Path>, options: Options) -> std::result::Result<Self, OpenError> {
        let path = &open::only_name(path.as_ref())?;
        let lock = Lock::take(path)?;
        match Running::start(path, &options) {
            Ok(Running { commands, readers, threads, ended, commits }) => Ok(Self {
                commands: Some(commands),
                readers: Some(readers),
                threads,
                ended,
                commits,
                _lock: lock,
            }),
            Err(refused) => {
                lock.give_up();
                Err(refused)
            }
        }
    }

    /// How many commits were waited for on the disk since the file was opened.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Has the writer do something; answers after the commit.
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

    /// Has a reader look at something that the engine needs, all at one moment.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Reader) -> fault::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.readers.as_ref().ok_or_else(gone)?.engine.read(look).await
    }

    /// The same for what somebody asks for by its key: a bounded number of rows.
    async fn find<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Reader) -> fault::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.readers.as_ref().ok_or_else(gone)?.keys.read(look).await
    }

    /// The same for lists and figures.
    async fn list<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Reader) -> fault::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.readers.as_ref().ok_or_else(gone)?.lists.read(look).await
    }
}

/// The threads of a store that was opened, and the ways to them.
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
        let (wal, asked) = Wal::watch(&mut writer, options.wal_bound).map_err(sqlite)?;
        let commits = Arc::new(AtomicU64::new(0));
        let writer = Writer::new(writer, wal, commits.clone(), options.bug());
        let beside = open::checkpointer(path, options)?;
        let (commands, received) = mpsc::channel(MOST_WAITING);
        let (end, ended) = watch::channel(false);
        let mut threads = Threads { path, end, started: vec![] };
        let readers = Readers::start(path, options, &mut threads)?;
        threads.spawn("posthaste-write", move || writer.work(received))?;
        threads.spawn("posthaste-checkpoint", move || checkpoint::work(&beside, &asked))?;
        Ok(Self { commands, readers, threads: threads.started, ended, commits })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.commands = None;
        self.readers = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store had panicked");
            }
        }
    }
}

/// Tells that a thread has ended, by a panic too: it is dropped with the thread.
struct Ended(watch::Sender<bool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// The threads of a store, while they are started.
struct Threads<'p> {
    path: &'p Path,
    end: watch::Sender<bool>,
    started: Vec<JoinHandle<()>>,
}

impl Threads<'_> {
    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::result::Result<(), OpenError> {
        let ended = Ended(self.end.clone());
        let work = move || {
            let _ended = ended;
            work();
        };
        let thread = Builder::new().name(name.to_owned()).spawn(work);
        self.started.push(thread.map_err(|source| OpenError::Io { path: self.path.to_owned(), source })?);
        Ok(())
    }
}

/// What only tests ask.
#[cfg(feature = "planted")]
impl SqliteStore {
    /// The first counter that differs from a recount of the rows, in words; none if all are right.
    pub async fn recount(&self) -> Result<Option<String>> {
        self.list(|reader| {
            let (kept, counted) = (counters::kept_sums(&reader.conn)?, counters::counted_sums(&reader.conn)?);
            if kept == counted {
                return Ok(None);
            }
            let wrong = kept.iter().find(|(key, n)| counted.get(key) != Some(n));
            let missing = counted.iter().find(|(key, n)| kept.get(key) != Some(n));
            Ok(Some(format!("kept {wrong:?}, counted {missing:?}")))
        })
        .await
    }

    /// Bounds the file to that many pages, as a full disk would; 0 takes the bound away.
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
    /// No thread ends before the store is dropped, but by a panic.
    async fn broken(&self) {
        // Without a thread that could tell, all have ended.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}
