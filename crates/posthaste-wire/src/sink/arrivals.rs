//! The bounded list of received requests.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard};

use posthaste_core::time::Timestamp;
use serde::Serialize;
use tokio::sync::Notify;

/// One request that the sink has received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceivedRequest {
    /// Its `webhook-id`.
    pub id: Option<String>,
    /// Its `posthaste-attempt`.
    pub attempt: Option<u32>,
    /// Its `webhook-timestamp`: when it was sent, in seconds since 1970.
    pub timestamp: Option<i64>,
    pub method: String,
    pub path: String,
    /// Names and values of its headers, as far as they are remembered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The status of the response; `None` if there is no response.
    pub status: Option<u16>,
    /// When the whole request had arrived.
    pub at: Timestamp,
    /// The start of its body.
    pub body: String,
}

/// The latest requests, and the number of all.
pub(super) struct Arrivals {
    keep: usize,
    log: Mutex<ArrivalLog>,
    arrived: Notify,
}

#[derive(Default)]
struct ArrivalLog {
    latest: VecDeque<ReceivedRequest>,
    total: u64,
}

/// The JSON of `GET /arrivals`.
#[derive(Serialize)]
struct ArrivalsJson<'a> {
    total: u64,
    arrivals: &'a VecDeque<ReceivedRequest>,
}

impl Arrivals {
    pub(super) fn new(keep: usize) -> Self {
        Self { keep, log: Mutex::default(), arrived: Notify::new() }
    }

    /// Counts a request, and remembers it unless `keep` is 0.
    pub(super) fn record(&self, arrival: impl FnOnce() -> ReceivedRequest) {
        if self.keep == 0 {
            self.lock().total += 1;
        } else {
            let arrival = arrival();
            let mut log = self.lock();
            log.total += 1;
            if log.latest.len() == self.keep {
                log.latest.pop_front();
            }
            log.latest.push_back(arrival);
        }
        self.arrived.notify_waiters();
    }

    pub(super) fn list(&self) -> Vec<ReceivedRequest> {
        self.lock().latest.iter().cloned().collect()
    }

    /// The remembered requests, oldest first, and the number of all.
    pub(super) fn list_and_total(&self) -> (Vec<ReceivedRequest>, u64) {
        let log = self.lock();
        (log.latest.iter().cloned().collect(), log.total)
    }

    pub(super) fn json(&self) -> String {
        let log = self.lock();
        let json = ArrivalsJson { total: log.total, arrivals: &log.latest };
        serde_json::to_string(&json).expect("text and numbers can be written as JSON")
    }

    pub(super) fn total(&self) -> u64 {
        self.lock().total
    }

    pub(super) fn clear(&self) {
        *self.lock() = ArrivalLog::default();
    }

    pub(super) async fn wait_for(&self, count: u64) {
        loop {
            let mut arrived = pin!(self.arrived.notified());
            // Registers the waiter before the check. Otherwise a request in between would be missed.
            arrived.as_mut().enable();
            if self.total() >= count {
                return;
            }
            arrived.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ArrivalLog> {
        self.log.lock().expect("no code panics while it holds the arrivals")
    }
}
