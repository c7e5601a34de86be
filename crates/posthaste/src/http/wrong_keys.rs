//! The answers to wrong keys are held back, the longer the more of them come from one network.
//!
//! Invariant: a key is checked first. What is right never comes here, so it is never refused or delayed.
//!
//! Invariant: an answer that is held back takes nothing that others need: the connection can be closed for another one, the
//! number is bounded, and a stop ends the wait.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthaste_core::wrong_keys::{Verdict, WrongKeys};
use posthaste_engine::log_throttle::LogThrottle;
use tokio::time::Instant;

use super::Api;
use super::open_connections::OpenConnection;
use super::problem::{Kind, Problem, Result};

/// The part of all connections that may wait for an answer to a wrong key.
const SHARE: usize = 16;
/// The most answers that are held back.
const MOST_WAITING: usize = 256;

/// What a node remembers of wrong keys.
pub(super) struct WrongKeyAnswers {
    started: Instant,
    known: Mutex<WrongKeys>,
    at_once: AtomicU64,
    delayed: AtomicU64,
    refused: AtomicU64,
    log: LogThrottle,
}

impl WrongKeyAnswers {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            started: Instant::now(),
            known: Mutex::new(WrongKeys::new((connections / SHARE).clamp(1, MOST_WAITING))),
            at_once: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            log: LogThrottle::new(),
        }
    }

    /// How many were answered at once, after a wait, and with 429.
    pub(super) fn counts(&self) -> [(&'static str, u64); 3] {
        [("at_once", &self.at_once), ("delayed", &self.delayed), ("refused", &self.refused)]
            .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    fn failed(&self, address: IpAddr) -> Verdict {
        let verdict = self.lock().failed(address, self.started.elapsed());
        let count = match verdict {
            Verdict::AtOnce => &self.at_once,
            Verdict::After(_) => &self.delayed,
            Verdict::Refused(_) => &self.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(times) = self.log.count(Instant::now()) {
            tracing::warn!(%address, times, "a wrong API key or token was given; the address is the last one of so many");
        }
        verdict
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, WrongKeys> {
        self.known.lock().expect("no code panics while it counts")
    }
}

/// An answer that is held back. Its place is free again when it is dropped, also with its connection.
struct Waiting<'a> {
    answers: &'a WrongKeyAnswers,
    address: IpAddr,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.answers.lock().answered(self.address);
    }
}

impl Api {
    /// Counts a wrong key, and waits until it may be answered. An error if too many wait already.
    pub(crate) async fn hold_back(&self, address: IpAddr, open: &OpenConnection) -> Result<()> {
        let length = match self.wrong_keys.failed(address) {
            Verdict::AtOnce => return Ok(()),
            Verdict::After(length) => length,
            Verdict::Refused(forgiven) => return Err(too_many(forgiven)),
        };
        let _waiting = Waiting { answers: &self.wrong_keys, address };
        // From here on the connection may be closed for another one.
        open.sending();
        tokio::select! {
            () = tokio::time::sleep(length) => {}
            () = self.stopped() => {}
        }
        Ok(())
    }
}

fn too_many(forgiven: Duration) -> Problem {
    let detail = "too many wrong keys came from this address: check the key; a key that is right is never refused for it";
    // Rounded up.
    let seconds = NonZeroU16::MIN.saturating_add(forgiven.as_secs().try_into().unwrap_or(u16::MAX));
    Problem { retry_after: Some(seconds), ..Problem::new(Kind::TooManyWrongKeys, detail) }
}
