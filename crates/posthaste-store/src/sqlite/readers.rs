//! The reader threads. Each has its own connection and sees what was committed when its read began.
//!
//! Invariant: reads of the engine do not wait for other reads, and reads by key do not wait for lists.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use posthaste_engine::store::{Result as Answer, StoreError};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::fault::{Result, gone};
use super::flows::Flows;
use super::open::{self, OpenError, Options};
use super::{MAX_QUEUED, StartedThreads};

/// StartedThreads per group.
const THREADS: usize = 2;

/// A read that also sends its result.
type Look = Box<dyn FnOnce(&mut Reader) + Send>;

/// The queue of a group.
type Looks = Arc<Mutex<mpsc::Receiver<Look>>>;

pub(super) struct Readers {
    /// For the loops of the engine.
    pub(super) engine: Group,
    /// For reads by key.
    pub(super) keys: Group,
    /// For lists and stats.
    pub(super) lists: Group,
}

impl Readers {
    pub(super) fn start(
        path: &Path,
        options: &Options,
        threads: &mut StartedThreads<'_>,
    ) -> std::result::Result<Self, OpenError> {
        let mut group = |name| Group::start(path, options, name, threads);
        Ok(Self {
            engine: group("posthaste-read")?,
            keys: group("posthaste-find")?,
            lists: group("posthaste-list")?,
        })
    }
}

pub(super) struct Group {
    looks: mpsc::Sender<Look>,
}

impl Group {
    fn start(
        path: &Path,
        options: &Options,
        name: &str,
        threads: &mut StartedThreads<'_>,
    ) -> std::result::Result<Self, OpenError> {
        let (looks, looked) = mpsc::channel(MAX_QUEUED);
        let looked = Arc::new(Mutex::new(looked));
        for _ in 0..THREADS {
            let (reader, looked) = (Reader::new(open::reader(path, options)?), looked.clone());
            threads.spawn(name, move || reader.work(&looked))?;
        }
        Ok(Self { looks })
    }

    /// Runs `look` on a thread of this group, in one read transaction.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Reader) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        let (to, answer) = oneshot::channel();
        let look = move |reader: &mut Reader| {
            // The caller may have stopped waiting.
            let _ = to.send(reader.at_one_moment(look).map_err(StoreError::from));
        };
        self.looks.send(Box::new(look)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Occupies all threads of this group until the result is dropped.
    #[cfg(feature = "planted")]
    pub(super) async fn occupy(&self) -> Vec<std::sync::mpsc::Sender<()>> {
        let mut held = vec![];
        for _ in 0..THREADS {
            let (hold, until) = std::sync::mpsc::channel::<()>();
            let (begun, begins) = oneshot::channel();
            let look = move |_: &mut Reader| {
                let _ = begun.send(());
                let _ = until.recv();
            };
            if self.looks.send(Box::new(look)).await.is_ok() {
                let _ = begins.await;
            }
            held.push(hold);
        }
        held
    }
}

/// The state of a reader thread.
pub(super) struct Reader {
    pub(super) conn: Connection,
    pub(super) flows: Flows,
}

impl Reader {
    pub(super) fn new(conn: Connection) -> Self {
        Self { conn, flows: Flows::default() }
    }

    /// Serves the queue until it is closed.
    fn work(mut self, looks: &Looks) {
        loop {
            // Only one reader waits for the queue; the others wait for the mutex.
            let next = looks.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
            let Some(look) = next else { return };
            look(&mut self);
        }
    }

    /// Runs `read` in one read transaction.
    fn at_one_moment<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.conn.prepare_cached("begin")?.execute([])?;
        let answer = read(self);
        let ended = self.conn.prepare_cached("rollback").and_then(|mut end| end.execute([]));
        let answer = answer?;
        ended?;
        Ok(answer)
    }
}
