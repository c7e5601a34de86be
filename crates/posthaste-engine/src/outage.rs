//! What is said while the store does not serve: a line a second at most, and one when it serves again.

use std::error::Error;
use std::sync::{Mutex, MutexGuard};

use tokio::time::Instant;

use crate::engine::Shared;
use crate::sparing::Sparing;
use crate::store::StoreError;

/// Whether the store serves, as the loops see it.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<Failing>>);

#[derive(Debug)]
struct Failing {
    since: Instant,
    lines: Sparing,
}

impl Outage {
    fn lock(&self) -> MutexGuard<'_, Option<Failing>> {
        self.0.lock().expect("no code panics while it notes an outage")
    }

    /// Notes a call that failed; answers how many there were since the last line, if it is time for one.
    fn note(&self) -> Option<u64> {
        let now = Instant::now();
        self.lock().get_or_insert_with(|| Failing { since: now, lines: Sparing::new() }).lines.count(now)
    }
}

impl Shared {
    /// A loop could not do this, and will ask again.
    pub(crate) fn store_failed(&self, what: &'static str, error: &StoreError) {
        self.counts.store_error();
        if let Some(calls) = self.outage.note() {
            tracing::warn!(what, calls, error = %causes(error), "the store does not serve; it is asked again");
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

/// An error with everything beneath it, in one line. Only the first line of each: what follows may quote what is kept.
fn causes(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut beneath = error.source();
    while let Some(error) = beneath {
        let more = error.to_string();
        let more = more.lines().next().unwrap_or_default();
        if !text.contains(more) {
            text = format!("{text}: {more}");
        }
        beneath = error.source();
    }
    text
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

    #[test]
    fn a_cause_is_told_once_and_without_what_it_quotes() {
        let beneath = std::io::Error::other("relation is missing\nDETAIL: Key (a)=(secret)");
        let error = StoreError::Unavailable { what: "refused".to_owned(), source: Some(Box::new(beneath)) };
        assert_eq!(causes(&error), "the store cannot serve now: refused: relation is missing");
    }
}
