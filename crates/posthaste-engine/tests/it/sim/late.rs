//! Commits that stand still: a call is answered as an error when its caller's patience is over, and happens later.
//!
//! What happens later belongs to the world: it happens though the process that asked is paused or dead by then.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::time::Timestamp;

use super::world::World;

/// How long a caller waits for a commit.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// When a call that changes something happens, counted from the asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commit {
    /// At once.
    Now,
    /// After that time, and it is answered then.
    Delayed(Duration),
    /// It is answered as an error at `told` and happens at `done`.
    Late { told: Duration, done: Duration },
}

impl World {
    /// Draws when a call that changes something happens.
    pub(super) fn commit(&self) -> Commit {
        let faults = *self.faults.lock().unwrap();
        if let Some(left) = faults.stalled_until.and_then(|until| left(until, self.now())) {
            let done = left + self.millis(0..1_000);
            return if done < PATIENCE {
                Commit::Delayed(done)
            } else {
                Commit::Late { told: PATIENCE, done }
            };
        }
        if self.strikes(faults.late) {
            let told = self.millis(0..15_000);
            return Commit::Late { told, done: told + self.millis(5_000..30_000) };
        }
        Commit::Now
    }

    /// Lets a call happen later, whatever becomes of the process that asked for it.
    pub(super) fn happens_later(
        self: &Arc<Self>,
        wait: Duration,
        call: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut open = self.open.lock().unwrap();
        while open.try_join_next().is_some() {}
        open.spawn(async move {
            tokio::time::sleep(wait).await;
            call.await;
        });
        drop(open);
        self.ledger.lock().unwrap().late += 1;
    }

    /// Whether calls that were answered as an error may still happen.
    pub(super) fn has_open_calls(&self) -> bool {
        let mut open = self.open.lock().unwrap();
        while open.try_join_next().is_some() {}
        !open.is_empty()
    }

    fn millis(&self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.draw(|chance| chance.u64(range)))
    }
}

fn left(until: Timestamp, now: Timestamp) -> Option<Duration> {
    (now < until).then(|| until.since(now))
}
