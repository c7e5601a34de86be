//! Counts of what this process did since its start: for metrics, never for decisions.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthaste_core::attempt::{Attempt, Outcome};
use posthaste_core::failure::FailureType;
use posthaste_core::state::{Lane, State};

use crate::engine::Engine;
use crate::store::{Next, Settled, Settlement};

/// Numbers since the start of the process. What a store did without saying so is not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    /// Notifications that were stored as new.
    pub accepted: u64,
    /// Attempts that delivered.
    pub attempts_delivered: u64,
    /// Attempts that failed, for each type, whether or not their outcome could be recorded.
    pub attempts_failed: [(FailureType, u64); 9],
    /// Notifications that left the queue, for each state that this leads to.
    pub ends: [(State, u64); 5],
    /// Tries that were repeated within an attempt.
    pub quick_tries: u64,
    /// Retries that were scheduled.
    pub retries_scheduled: u64,
    /// Outcomes that came to nothing because the lease was no longer held.
    pub leases_lost: u64,
    /// Leases that were taken back from dead nodes.
    pub leases_taken_back: u64,
    /// Leases that this node held without knowing of them, because the call was answered as an error, and gave back.
    pub leases_given_back: u64,
    /// Calls of the loops that the store did not serve.
    pub store_errors: u64,
    /// How late first attempts began.
    pub lateness_main: Histogram,
    /// How late retries began.
    pub lateness_retry: Histogram,
}

/// How often a time fell between which bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram {
    /// How many were at most the bound of the same place and more than the one before; the last were beyond all bounds.
    pub counts: [u64; 12],
    /// All of them together.
    pub sum: Duration,
}

impl Histogram {
    /// The bounds of every count but the last.
    pub const BOUNDS: [Duration; 11] = [
        Duration::from_millis(1),
        Duration::from_millis(5),
        Duration::from_millis(10),
        Duration::from_millis(25),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(250),
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_secs(5),
        Duration::from_secs(30),
    ];

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Engine {
    /// What this process did since its start.
    pub fn metrics(&self) -> Metrics {
        self.shared.counts.read()
    }
}

/// The ends in the order that they are told.
const ENDS: [State; 5] =
    [State::Succeeded, State::Failed, State::DeadLetter, State::Cancelled, State::Expired];

/// The numbers while they grow. None of them orders anything, so they are counted in whatever order is cheapest.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    accepted: Count,
    attempts_delivered: Count,
    attempts_failed: [Count; 9],
    /// By the code of the state; live states are never counted.
    ends: [Count; 9],
    quick_tries: Count,
    retries_scheduled: Count,
    leases_lost: Count,
    leases_taken_back: Count,
    leases_given_back: Count,
    store_errors: Count,
    lateness_main: Lateness,
    lateness_retry: Lateness,
}

#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self, count: usize) {
        self.0.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Lateness {
    counts: [Count; 12],
    micros: AtomicU64,
}

impl Lateness {
    fn read(&self) -> Histogram {
        Histogram {
            counts: array::from_fn(|place| self.counts[place].read()),
            sum: Duration::from_micros(self.micros.load(Ordering::Relaxed)),
        }
    }
}

impl Counts {
    /// So many notifications were stored as new.
    pub(crate) fn accepted(&self, count: usize) {
        self.accepted.add(count);
    }

    /// The first try of an attempt begins, so much later than it was due.
    pub(crate) fn began(&self, lane: Lane, late: Duration) {
        let lateness = match lane {
            Lane::Main => &self.lateness_main,
            Lane::Retry => &self.lateness_retry,
        };
        let place = Histogram::BOUNDS.partition_point(|bound| *bound < late);
        lateness.counts[place].add(1);
        let micros = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        lateness.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// An attempt was made.
    pub(crate) fn attempted(&self, attempt: &Attempt) {
        match attempt.outcome {
            Outcome::Delivered => self.attempts_delivered.add(1),
            Outcome::Failed(failure_type) => self.attempts_failed[usize::from(failure_type.code())].add(1),
        }
        self.quick_tries.add(attempt.quick_tries.len());
    }

    /// The store answered to an outcome.
    pub(crate) fn settled(&self, settlement: &Settlement, answer: Settled) {
        match (answer, &settlement.next) {
            (Settled::Applied, Next::Retry { .. }) => self.retries_scheduled.add(1),
            (Settled::Applied, Next::End(ending)) => self.ended(ending.state(), 1),
            (Settled::LeaseLost, _) => self.leases_lost.add(1),
            (Settled::CancelRequested, _) => {}
        }
    }

    /// So many notifications left the queue for that state.
    pub(crate) fn ended(&self, state: State, count: usize) {
        self.ends[usize::from(state.code())].add(count);
    }

    /// So many leases were taken back from a dead node.
    pub(crate) fn taken_back(&self, count: usize) {
        self.leases_taken_back.add(count);
    }

    /// So many leases were given back that this node did not know of.
    pub(crate) fn given_back(&self, count: usize) {
        self.leases_given_back.add(count);
    }

    /// The store did not serve a loop.
    pub(crate) fn store_error(&self) {
        self.store_errors.add(1);
    }

    fn read(&self) -> Metrics {
        Metrics {
            accepted: self.accepted.read(),
            attempts_delivered: self.attempts_delivered.read(),
            attempts_failed: FailureType::ALL
                .map(|failure| (failure, self.attempts_failed[usize::from(failure.code())].read())),
            ends: ENDS.map(|state| (state, self.ends[usize::from(state.code())].read())),
            quick_tries: self.quick_tries.read(),
            retries_scheduled: self.retries_scheduled.read(),
            leases_lost: self.leases_lost.read(),
            leases_taken_back: self.leases_taken_back.read(),
            leases_given_back: self.leases_given_back.read(),
            store_errors: self.store_errors.read(),
            lateness_main: self.lateness_main.read(),
            lateness_retry: self.lateness_retry.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_under_the_first_bound_that_it_does_not_exceed() {
        let counts = Counts::default();
        let tick = Duration::from_nanos(1);
        for bound in Histogram::BOUNDS {
            counts.began(Lane::Main, bound);
            counts.began(Lane::Retry, bound + tick);
        }
        counts.began(Lane::Main, Duration::ZERO);
        counts.began(Lane::Retry, Duration::from_secs(3_600));
        let Metrics { lateness_main, lateness_retry, .. } = counts.read();
        assert_eq!(lateness_main.counts, [2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(lateness_retry.counts, [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
        assert_eq!(lateness_main.sum, Histogram::BOUNDS.iter().sum());
        assert_eq!((lateness_main.count(), lateness_retry.count()), (12, 12));
    }

    #[test]
    fn every_end_is_told_and_no_live_state_is() {
        for state in State::ALL {
            assert_eq!(ENDS.contains(&state), state.is_end(), "{state}");
        }
    }
}
