//! The bounded list of what arrived.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard};

use posthaste_core::time::Timestamp;
use serde::Serialize;
use tokio::sync::Notify;

/// One notification as it arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Arrival {
    /// Its `webhook-id`.
    pub id: Option<String>,
    /// Its `posthaste-attempt`.
    pub attempt: Option<u32>,
    /// Its `webhook-timestamp`: when it was sent, in seconds since 1970.
    pub timestamp: Option<i64>,
    /// The path it was sent to.
    pub path: String,
    /// The status that it is answered with; none where no answer is given.
    pub status: Option<u16>,
    /// When it was there as a whole.
    pub at: Timestamp,
    /// The start of its body.
    pub body: String,
}

/// What arrived: the latest in full, all of it by number.
pub(super) struct Arrivals {
    keep: usize,
    seen: Mutex<Seen>,
    came: Notify,
}

#[derive(Default)]
struct Seen {
    latest: VecDeque<Arrival>,
    total: u64,
}

/// The list as `GET /arrivals` shows it.
#[derive(Serialize)]
struct Shown<'a> {
    total: u64,
    arrivals: &'a VecDeque<Arrival>,
}

impl Arrivals {
    pub(super) fn new(keep: usize) -> Self {
        Self { keep, seen: Mutex::default(), came: Notify::new() }
    }

    /// Counts an arrival, and remembers it where any are remembered.
    pub(super) fn note(&self, arrival: impl FnOnce() -> Arrival) {
        if self.keep == 0 {
            self.lock().total += 1;
        } else {
            let arrival = arrival();
            let mut seen = self.lock();
            seen.total += 1;
            if seen.latest.len() == self.keep {
                seen.latest.pop_front();
            }
            seen.latest.push_back(arrival);
        }
        self.came.notify_waiters();
    }

    pub(super) fn list(&self) -> Vec<Arrival> {
        self.lock().latest.iter().cloned().collect()
    }

    pub(super) fn json(&self) -> String {
        let seen = self.lock();
        let shown = Shown { total: seen.total, arrivals: &seen.latest };
        serde_json::to_string(&shown).expect("text and numbers can be written as JSON")
    }

    pub(super) fn total(&self) -> u64 {
        self.lock().total
    }

    pub(super) fn clear(&self) {
        *self.lock() = Seen::default();
    }

    pub(super) async fn wait_for(&self, count: u64) {
        loop {
            let mut came = pin!(self.came.notified());
            // It must be heard from before the look, or an arrival in between would be missed.
            came.as_mut().enable();
            if self.total() >= count {
                return;
            }
            came.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no code panics while it holds the arrivals")
    }
}
