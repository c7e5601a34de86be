//! The threads that read. Each has a connection of its own and sees what was committed when its work began.
//!
//! Invariant: the engine waits for no reads of people, and whoever asks for one thing by its key waits for no list.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use posthaste_engine::store::{Result as Answer, StoreError};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::fault::{Result, gone};
use super::flows::Flows;
use super::open::{self, OpenError, Options};
use super::{MOST_WAITING, Threads};

/// How many threads each group has.
const THREADS: usize = 2;

/// Something to read, answer included.
type Look = Box<dyn FnOnce(&mut Reader) + Send>;

/// The queue that the readers of a group share.
type Looks = Arc<Mutex<mpsc::Receiver<Look>>>;

/// All threads that read.
pub(super) struct Readers {
    /// For the engine's own loops.
    pub(super) engine: Group,
    /// For what is found by its key.
    pub(super) keys: Group,
    /// For lists and figures.
    pub(super) lists: Group,
}

impl Readers {
    /// Starts the threads of every group.
    pub(super) fn start(
        path: &Path,
        options: &Options,
        threads: &mut Threads<'_>,
    ) -> std::result::Result<Self, OpenError> {
        let mut group = |name| Group::start(path, options, name, threads);
        Ok(Self {
            engine: group("posthaste-read")?,
            keys: group("posthaste-find")?,
            lists: group("posthaste-list")?,
        })
    }
}

/// Threads that share a queue.
pub(super) struct Group {
    looks: mpsc::Sender<Look>,
}

impl Group {
    fn start(
        path: &Path,
        options: &Options,
        name: &str,
        threads: &mut Threads<'_>,
    ) -> std::result::Result<Self, OpenError> {
        let (looks, looked) = mpsc::channel(MOST_WAITING);
        let looked = Arc::new(Mutex::new(looked));
        for _ in 0..THREADS {
            let (reader, looked) = (Reader::new(open::reader(path, options)?), looked.clone());
            threads.spawn(name, move || reader.work(&looked))?;
        }
        Ok(Self { looks })
    }

    /// Has a thread of this group look at something, all at one moment.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Reader) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        let (to, answer) = oneshot::channel();
        let look = move |reader: &mut Reader| {
            // Whoever asked may have stopped waiting.
            let _ = to.send(reader.at_one_moment(look).map_err(StoreError::from));
        };
        self.looks.send(Box::new(look)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Occupies every thread of this group until the answer is dropped.
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

/// A reading thread's own things.
pub(super) struct Reader {
    pub(super) conn: Connection,
    pub(super) flows: Flows,
}

impl Reader {
    /// A reader over its connection.
    pub(super) fn new(conn: Connection) -> Self {
        Self { conn, flows: Flows::default() }
    }

    /// Reads until nobody can ask any more.
    fn work(mut self, looks: &Looks) {
        loop {
            // Only one reader waits at the queue; the others wait for the lock.
            let next = looks.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
            let Some(look) = next else { return };
            look(&mut self);
        }
    }

    /// Everything that `read` looks at belongs to one moment.
    fn at_one_moment<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.conn.prepare_cached("begin")?.execute([])?;
        let answer = read(self);
        let ended = self.conn.prepare_cached("rollback").and_then(|mut end| end.execute([]));
        let answer = answer?;
        ended?;
        Ok(answer)
    }
}
