//! Checkpoints of the write-ahead log, on a thread of their own, and the limit on the size of the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rusqlite::{Connection, Result};

/// Growth of the log, in bytes, between two checkpoints.
const STEP: u64 = 16 << 20;

pub(super) struct Wal {
    /// Size of the log in bytes after the last commit.
    size: Arc<AtomicU64>,
    limit: u64,
    requested_at: u64,
    /// The log size at which the writer itself tries the next checkpoint.
    stop_at: u64,
    requests: SyncSender<()>,
}

impl Wal {
    /// Watches the log of `conn`. The receiver gets a message each time the log has grown by `STEP`.
    pub(super) fn watch(conn: &mut Connection, limit: u64) -> Result<(Self, Receiver<()>)> {
        let page: u32 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let size = Arc::new(AtomicU64::new(0));
        let in_hook = size.clone();
        conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
            in_hook.store(u64::try_from(pages).unwrap_or(0) * u64::from(page), Ordering::Relaxed);
            Ok(())
        }))?;
        let (requests, received) = sync_channel(1);
        Ok((Self { size, limit, requested_at: 0, stop_at: limit, requests }, received))
    }

    /// Called between two transactions. Asks for a checkpoint or, if the log has outgrown its limit because
    /// it never came to a reset, runs one on the writer.
    pub(super) fn after_commit(&mut self, conn: &Connection) {
        let size = self.size.load(Ordering::Relaxed);
        if size < self.requested_at {
            // The log was reset.
            self.requested_at = 0;
            self.stop_at = self.limit;
        }
        if size >= self.stop_at {
            // If a reader blocks it, the writer tries again after another `STEP`.
            let emptied = checkpoint(conn, "restart");
            self.stop_at = if emptied { self.limit } else { size + STEP };
        } else if size >= self.requested_at + STEP {
            self.requested_at = size;
            // A request that is already queued covers this one.
            let _ = self.requests.try_send(());
        }
    }

    /// Empties the log before the file is closed.
    pub(super) fn at_the_end(&self, conn: &Connection) {
        checkpoint(conn, "truncate");
    }
}

/// Runs a checkpoint for each request, until the writer is gone.
pub(super) fn work(conn: &Connection, received: &Receiver<()>) {
    while received.recv().is_ok() {
        checkpoint(conn, "passive");
    }
}

/// Returns whether the checkpoint was complete.
fn checkpoint(conn: &Connection, mode: &str) -> bool {
    let busy = conn.query_row(&format!("pragma wal_checkpoint({mode})"), [], |row| row.get::<_, i64>(0));
    match busy {
        Ok(busy) => busy == 0,
        Err(error) => {
            tracing::warn!(%error, mode, "the write-ahead log could not be checkpointed");
            false
        }
    }
}
