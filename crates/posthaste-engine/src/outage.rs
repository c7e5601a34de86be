//! What is logged while the store does not serve: a line a second at most, and one when it serves again.

use std::sync::{Mutex, MutexGuard};

use tokio::time::Instant;

use crate::engine::Shared;
use crate::log_throttle::LogThrottle;
use crate::store::StoreError;

/// Whether the store serves, as the loops see it.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<Failing>>);

#[derive(Debug)]
struct Failing {
    since: Instant,
    lines: LogThrottle,
}

impl Outage {
    fn lock(&self) -> MutexGuard<'_, Option<Failing>> {
        self.0.lock().expect("no code panics while it notes an outage")
    }

    /// Counts a call that failed; returns the number since the last line, if it is time for one.
    fn note(&self) -> Option<u64> {
        let now = Instant::now();
        self.lock().get_or_insert_with(|| Failing { since: now, lines: LogThrottle::new() }).lines.count(now)
    }
}

impl Shared {
    /// A loop could not do this, and will ask again.
    pub(crate) fn store_failed(&self, what: &'static str, error: &StoreError) {
        self.counts.store_error();
        if let Some(calls) = self.outage.note() {
            tracing::warn!(what, calls, error = %error.causes(), "the store does not serve; it is asked again");
        }
    }

    /// The store answered a heartbeat.
    pub(crate) fn store_served(&self) {
        if let Some(failing) = self.outage.lock().take() {
            let seconds = failing.since.elapsed().as_secs_f64();
            tracing::info!(seconds, "the store serves again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_a_second_with_the_number_of_calls() {
        let outage = Outage::default();
        let mut said = vec![];
        for _ in 0..25 {
            said.extend(outage.note());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(said, [1, 10, 10]);
    }
}
