//! The threads that read. Each has a connection of its own and sees what was committed when its work began.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::mpsc;

use super::fault::Result;
use super::flows::Flows;

/// How many threads read.
pub(super) const READERS: usize = 2;

/// Something to read, answer included.
pub(super) type Look = Box<dyn FnOnce(&mut Reader) + Send>;

/// The queue that the readers share.
pub(super) type Looks = Arc<Mutex<mpsc::Receiver<Look>>>;

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
    pub(super) fn work(mut self, looks: &Looks) {
        loop {
            // Only one reader waits at the queue; the others wait for the lock.
            let next = looks.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
            let Some(look) = next else { return };
            look(&mut self);
        }
    }

    /// Everything that `read` looks at belongs to one moment.
    pub(super) fn at_one_moment<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.conn.prepare_cached("begin")?.execute([])?;
        let answer = read(self);
        let ended = self.conn.prepare_cached("rollback").and_then(|mut end| end.execute([]));
        let answer = answer?;
        ended?;
        Ok(answer)
    }
}
