//! The queue limit: how many notifications the main lane may have, over all tenants and nodes.
//!
//! What the store counts is read at most once a second, and added to what this node has accepted since. So one node alone never
//! exceeds the limit; several may by what the others accept in a second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::accept::{AcceptError, Incoming};
use crate::engine::Shared;

/// For how long a count is believed.
const FRESH: Duration = Duration::from_secs(1);
/// Before anything is refused the count is read again, but not more often than this.
const AGAIN: Duration = Duration::from_millis(50);

/// What this node knows of the main lane.
#[derive(Debug)]
pub(crate) struct QueueLimit {
    /// 0: no limit.
    limit: u64,
    known: Mutex<Known>,
    /// Held while the count is read, so that everybody waits for the same one.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Known {
    /// What the store counted.
    rows: u64,
    /// When it was asked; none before the first time.
    read_at: Option<Instant>,
    /// What this node had accepted by then, since its start.
    accepted_then: u64,
    /// What it has accepted now.
    accepted: u64,
}

impl Known {
    fn is_older_than(self, age: Duration) -> bool {
        self.read_at.is_none_or(|read_at| read_at.elapsed() >= age)
    }

    fn fits(self, more: usize, limit: u64) -> bool {
        let since = self.accepted - self.accepted_then;
        self.rows.saturating_add(since).saturating_add(more as u64) <= limit
    }
}

impl QueueLimit {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, known: Mutex::default(), reading: tokio::sync::Mutex::default() }
    }

    const fn is_off(&self) -> bool {
        self.limit == 0
    }

    /// So many were accepted, or may have been.
    pub(crate) fn accepted(&self, count: usize) {
        if !self.is_off() {
            self.change(|known| known.accepted += count as u64);
        }
    }

    fn known(&self) -> Known {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Asks the store, unless somebody else has just done so.
    async fn read(&self, shared: &Shared, older_than: Duration) {
        let _turn = self.reading.lock().await;
        if !self.known().is_older_than(older_than) {
            return;
        }
        let (read_at, accepted_then) = (Some(Instant::now()), self.known().accepted);
        match shared.store.main_lane().await {
            Ok(rows) => self.change(|known| *known = Known { rows, read_at, accepted_then, ..*known }),
            // What it counted before still counts; the accept says more.
            Err(error) => shared.store_failed("count the main lane", &error),
        }
    }
}

impl Shared {
    /// Whether the main lane takes so many more. False makes sure first that this is so now.
    pub(crate) async fn has_room_for(&self, more: usize) -> bool {
        let queue = &self.queue_limit;
        if queue.is_off() {
            return true;
        }
        if queue.known().is_older_than(FRESH) {
            queue.read(self, FRESH).await;
        }
        if !queue.known().fits(more, queue.limit) {
            queue.read(self, AGAIN).await;
        }
        queue.known().fits(more, queue.limit)
    }

    /// Refuses the requests of a batch that there is no room for, each as a whole.
    pub(crate) async fn keep_what_fits(&self, batch: Vec<Incoming>) -> Vec<Incoming> {
        if self.queue_limit.is_off() {
            return batch;
        }
        let (mut kept, mut rows) = (Vec::with_capacity(batch.len()), 0);
        for incoming in batch {
            let count = incoming.count();
            if count == 0 || self.has_room_for(rows + count).await {
                rows += count;
                kept.push(incoming);
            } else {
                self.counts.queue_full(count);
                incoming.refuse(AcceptError::QueueFull);
            }
        }
        kept
    }
}
