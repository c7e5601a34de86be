//! When a JWKS is read: now and then, and when a token names a key that is not known.
//!
//! Everybody may send tokens with made-up names, so such a reading begins at most once in [`PAUSE`], and all requests share
//! it. Keys that are known stay in force while the set cannot be read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::Tokens;
use super::key_set::KeySet;
use super::source::{KeySource, Unreadable};

/// Minimum pause between two readings because of unknown keys.
pub(super) const PAUSE: Duration = Duration::from_secs(10);
/// How long a request waits for a reading.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(3);
/// How often a URL is read without being asked.
pub(super) const URL_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// How often a file is looked at without being asked.
const FILE_INTERVAL: Duration = Duration::from_secs(10);
/// When a set that could not be read is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(30);

/// The source of a JWKS, and what is going on with it.
pub(super) struct Reading {
    source: KeySource,
    pace: Mutex<Pace>,
    /// A reading is wanted now.
    wanted: Notify,
    /// How many have ended.
    ended: watch::Sender<u64>,
    read: AtomicU64,
    failed: AtomicU64,
}

#[derive(Default)]
struct Pace {
    /// A reading is under way, or will be at once.
    running: bool,
    /// When the last one was asked for.
    asked: Option<Instant>,
}

impl Pace {
    /// Whether a request should wait for a reading, and whether that has to be started.
    fn ask(&mut self, now: Instant) -> (bool, bool) {
        if self.running {
            return (true, false);
        }
        if self.asked.is_some_and(|last| now < last + PAUSE) {
            return (false, false);
        }
        (self.running, self.asked) = (true, Some(now));
        (true, true)
    }
}

impl Reading {
    pub(super) fn new(source: KeySource) -> Self {
        Self {
            source,
            // The first reading begins with the server.
            pace: Mutex::new(Pace { running: true, asked: None }),
            wanted: Notify::new(),
            ended: watch::Sender::new(0),
            read: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Waits until a reading has ended, if one is under way or may begin.
    pub(super) async fn ask(&self) {
        let mut ended = self.ended.subscribe();
        let (wait, start) = self.pace().ask(Instant::now());
        if start {
            self.wanted.notify_one();
        }
        if wait {
            // The token is looked up again in any case.
            let _ = timeout(MAX_WAIT, ended.changed()).await;
        }
    }

    /// How often the set could be read, and how often not.
    pub(super) fn counts(&self) -> [u64; 2] {
        [&self.read, &self.failed].map(|count| count.load(Ordering::Relaxed))
    }

    const fn interval(&self) -> Duration {
        match self.source {
            KeySource::File(_) => FILE_INTERVAL,
            KeySource::Url(_) => URL_INTERVAL,
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().expect("no code panics while it holds the pace")
    }
}

impl Tokens {
    /// Keeps the keys current until the server stops.
    pub(crate) async fn keep(&self, stopped: watch::Receiver<bool>) {
        if let Some(reading) = &self.reading {
            self.keep_from(reading, || reading.source.read(), stopped).await;
        }
    }

    pub(super) async fn keep_from<F: Future<Output = Result<Vec<u8>, Unreadable>>>(
        &self,
        reading: &Reading,
        read: impl Fn() -> F,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut last = vec![];
        loop {
            reading.pace().running = true;
            let found = tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => return,
                found = read() => found,
            };
            let pause = if self.learn(reading, found, &mut last) { reading.interval() } else { RETRY };
            reading.pace().running = false;
            reading.ended.send_modify(|ended| *ended += 1);
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => return,
                () = reading.wanted.notified() => {}
                () = sleep_until(Instant::now() + pause) => {}
            }
        }
    }

    /// Puts the keys of a set in force if it differs from the last one. Returns whether it could be read.
    fn learn(&self, reading: &Reading, found: Result<Vec<u8>, Unreadable>, last: &mut Vec<u8>) -> bool {
        let source = reading.source.name();
        let read = found.map_err(|error| error.to_string()).and_then(|found| {
            if found == *last {
                return Ok(());
            }
            let keys = KeySet::read(self.algorithm, &found).map_err(|bad| bad.to_string())?;
            let (count, algorithm) = (keys.count(), self.algorithm.name());
            match count {
                0 => tracing::warn!(
                    source,
                    algorithm,
                    "the set of keys has no key for the algorithm: all access tokens are refused"
                ),
                _ => tracing::info!(source, algorithm, keys = count, "the keys of access tokens were read"),
            }
            self.replace(keys);
            *last = found;
            Ok(())
        });
        match &read {
            Ok(()) => reading.read.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                let keys = self.key_count();
                tracing::warn!(
                    source,
                    error,
                    keys,
                    "the keys of access tokens cannot be read: those that are known stay in force"
                );
                reading.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
        read.is_ok()
    }
}
