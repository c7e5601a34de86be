//! The write-ahead log is carried over into the file beside the writer, and its growth is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rusqlite::{Connection, Result};

/// How many bytes the log grows by before it is carried over again.
const STEP: u64 = 16 << 20;

/// The writer's view of its log.
pub(super) struct Wal {
    /// Bytes in the log, as the last commit left it.
    size: Arc<AtomicU64>,
    bound: u64,
    asked_at: u64,
    /// The size at which the writer tries again to empty the log itself.
    stop_at: u64,
    beside: SyncSender<()>,
}

impl Wal {
    /// Watches the log of `conn`. Whoever receives is asked to carry it over each time it has grown.
    pub(super) fn watch(conn: &mut Connection, bound: u64) -> Result<(Self, Receiver<()>)> {
        let page: u32 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let size = Arc::new(AtomicU64::new(0));
        let told = size.clone();
        conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
            told.store(u64::try_from(pages).unwrap_or(0) * u64::from(page), Ordering::Relaxed);
            Ok(())
        }))?;
        let (beside, asked) = sync_channel(1);
        Ok((Self { size, bound, asked_at: 0, stop_at: bound, beside }, asked))
    }

    /// Between two transactions: has the log carried over beside the writer or, where it outgrew its bound because
    /// there was never a pause, stops to empty it.
    pub(super) fn after_commit(&mut self, conn: &Connection) {
        let size = self.size.load(Ordering::Relaxed);
        if size < self.asked_at {
            // The log began anew.
            self.asked_at = 0;
            self.stop_at = self.bound;
        }
        if size >= self.stop_at {
            // A reader may be in the way; then it is tried again a step later.
            let emptied = checkpoint(conn, "restart");
            self.stop_at = if emptied { self.bound } else { size + STEP };
        } else if size >= self.asked_at + STEP {
            self.asked_at = size;
            // If one is waiting already, that one will carry this over too.
            let _ = self.beside.try_send(());
        }
    }

    /// Leaves a file that needs no log.
    pub(super) fn at_the_end(&self, conn: &Connection) {
        checkpoint(conn, "truncate");
    }
}

/// Carries the log over each time it is asked to, until the writer is gone.
pub(super) fn work(conn: &Connection, asked: &Receiver<()>) {
    while asked.recv().is_ok() {
        checkpoint(conn, "passive");
    }
}

/// Whether nothing stood in the way.
fn checkpoint(conn: &Connection, mode: &str) -> bool {
    let busy = conn.query_row(&format!("pragma wal_checkpoint({mode})"), [], |row| row.get::<_, i64>(0));
    match busy {
        Ok(busy) => busy == 0,
        Err(error) => {
            tracing::warn!(%error, mode, "the log could not be carried over");
            false
        }
    }
}
