//! Counts of what this process did since its start: for metrics, never for decisions.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthaste_core::attempt::{Attempt, Outcome};
use posthaste_core::channel::Channel;
use posthaste_core::destination::EventKind;
use posthaste_core::failure::FailureType;
use posthaste_core::job::{Job, RunOutcome};
use posthaste_core::operation::OperationState;
use posthaste_core::retention::Kind;
use posthaste_core::state::{Lane, State};

use crate::engine::Engine;
use crate::store::{Next, Settled, Settlement};

/// Numbers since the start of the process. What a store did without saying so is not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    /// Notifications that were stored as new.
    pub accepted: u64,
    /// Notifications that an inbound limit deferred.
    pub deferred: u64,
    /// Notifications that were refused because the queue was full.
    pub refused_queue_full: u64,
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
    /// How often a listener was told that it missed changes.
    pub changes_missed: u64,
    /// Runs of jobs that ended on this node: done and failed.
    pub job_runs: [(Job, u64, u64); Job::ALL.len()],
    /// Rows that retention removed on this node.
    pub removed: [(Kind, u64); Kind::ALL.len()],
    /// Items that operations of this node have forwarded.
    pub operation_items: u64,
    /// Operations that ended on this node, for each state that this leads to.
    pub operations_ended: [(OperationState, u64); 3],
    /// What happened to destinations by itself, as far as this node wrote it.
    pub destination_events: [(EventKind, u64); 4],
    /// How late first attempts began.
    pub lateness_main: Histogram,
    /// How late retries began.
    pub lateness_retry: Histogram,
}

/// The states in which an operation ends.
const OPERATION_ENDS: [OperationState; 3] =
    [OperationState::Completed, OperationState::Cancelled, OperationState::Failed];

/// What happens to destinations by itself.
const DESTINATION_EVENTS: [EventKind; 4] =
    [EventKind::Opened, EventKind::Probed, EventKind::Closed, EventKind::Paused];

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

/// How long the tries over one channel with one outcome took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendTimes {
    pub channel: Channel,
    pub outcome: Outcome,
    pub times: Histogram,
}

impl Engine {
    /// What this process did since its start.
    pub fn metrics(&self) -> Metrics {
        self.shared.counts.read()
    }

    /// How long tries took since the start of the process, for each channel and outcome that there was.
    pub fn send_times(&self) -> Vec<SendTimes> {
        self.shared.counts.send_times()
    }
}

/// The ends in the order that they are told.
const ENDS: [State; 5] =
    [State::Succeeded, State::Failed, State::DeadLetter, State::Cancelled, State::Expired];

/// The numbers while they grow. None of them orders anything, so relaxed memory ordering is enough.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    accepted: Count,
    deferred: Count,
    refused_queue_full: Count,
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
    changes_missed: Count,
    jobs_done: [Count; Job::ALL.len()],
    jobs_failed: [Count; Job::ALL.len()],
    /// In the order of the kinds.
    removed: [Count; Kind::ALL.len()],
    operation_items: Count,
    operations_ended: [Count; 3],
    destination_events: [Count; 4],
    lateness_main: Times,
    lateness_retry: Times,
    /// By the code of the channel; a delivery first, then the failure types by their codes.
    sends: [[Times; OUTCOMES]; Channel::ALL.len()],
}

/// How many outcomes a try can have.
const OUTCOMES: usize = 1 + FailureType::ALL.len();

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
struct Times {
    counts: [Count; 12],
    micros: AtomicU64,
}

impl Times {
    fn add(&self, time: Duration) {
        let place = Histogram::BOUNDS.partition_point(|bound| *bound < time);
        self.counts[place].add(1);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

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

    /// So many of them have to wait for an inbound limit.
    pub(crate) fn deferred(&self, count: usize) {
        self.deferred.add(count);
    }

    /// So many were refused, for the queue was full.
    pub(crate) fn queue_full(&self, count: usize) {
        self.refused_queue_full.add(count);
    }

    /// The first try of an attempt begins, so much later than it was due.
    pub(crate) fn began(&self, lane: Lane, late: Duration) {
        match lane {
            Lane::Main => self.lateness_main.add(late),
            Lane::Retry => self.lateness_retry.add(late),
        }
    }

    /// A channel was asked for a try, and this came of it after so long.
    pub(crate) fn sent(&self, channel: Channel, outcome: Outcome, took: Duration) {
        let place = outcome.failure_type().map_or(0, |failure_type| 1 + usize::from(failure_type.code()));
        self.sends[usize::from(channel.code())][place].add(took);
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

    /// A listener was told that it missed changes.
    pub(crate) fn missed(&self) {
        self.changes_missed.add(1);
    }

    fn send_times(&self) -> Vec<SendTimes> {
        let mut all = Vec::new();
        for (channel, of_channel) in Channel::ALL.into_iter().zip(&self.sends) {
            let outcomes =
                [Outcome::Delivered].into_iter().chain(FailureType::ALL.into_iter().map(Outcome::Failed));
            for (outcome, times) in outcomes.zip(of_channel) {
                let times = times.read();
                if times.count() > 0 {
                    all.push(SendTimes { channel, outcome, times });
                }
            }
        }
        all
    }

    /// A run of a job ended.
    pub(crate) fn job_ended(&self, job: Job, outcome: &RunOutcome) {
        let counts = match outcome {
            RunOutcome::Done { .. } => &self.jobs_done,
            RunOutcome::Failed { .. } | RunOutcome::Interrupted => &self.jobs_failed,
        };
        counts[job as usize].add(1);
    }

    /// An operation has forwarded items.
    pub(crate) fn operation_items(&self, count: usize) {
        self.operation_items.add(count);
    }

    /// An operation ended.
    pub(crate) fn operation_ended(&self, state: OperationState) {
        if let Some(place) = OPERATION_ENDS.iter().position(|end| *end == state) {
            self.operations_ended[place].add(1);
        }
    }

    /// Something happened to a destination.
    pub(crate) fn destination(&self, event: EventKind) {
        if let Some(place) = DESTINATION_EVENTS.iter().position(|known| *known == event) {
            self.destination_events[place].add(1);
        }
    }

    /// Grows with what arrives and with what is sent.
    pub(crate) fn work(&self) -> u64 {
        let failed = self.attempts_failed.iter().map(Count::read).sum::<u64>();
        self.accepted.read() + self.attempts_delivered.read() + failed
    }

    /// Notifications that were accepted since the start.
    pub(crate) fn accepted_so_far(&self) -> u64 {
        self.accepted.read()
    }

    /// Retention removed rows.
    pub(crate) fn removed(&self, kind: Kind, rows: u64) {
        self.removed[kind as usize].add(usize::try_from(rows).unwrap_or(usize::MAX));
    }

    fn read(&self) -> Metrics {
        Metrics {
            accepted: self.accepted.read(),
            deferred: self.deferred.read(),
            refused_queue_full: self.refused_queue_full.read(),
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
            changes_missed: self.changes_missed.read(),
            job_runs: Job::ALL
                .map(|job| (job, self.jobs_done[job as usize].read(), self.jobs_failed[job as usize].read())),
            removed: Kind::ALL.map(|kind| (kind, self.removed[kind as usize].read())),
            operation_items: self.operation_items.read(),
            operations_ended: array::from_fn(|place| {
                (OPERATION_ENDS[place], self.operations_ended[place].read())
            }),
            destination_events: array::from_fn(|place| {
                (DESTINATION_EVENTS[place], self.destination_events[place].read())
            }),
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
    fn a_try_is_counted_under_its_channel_and_outcome() {
        let counts = Counts::default();
        assert_eq!(counts.send_times(), []);
        let outcomes = || [Outcome::Delivered].into_iter().chain(FailureType::ALL.map(Outcome::Failed));
        let mut wanted = Vec::new();
        for channel in Channel::ALL {
            for outcome in outcomes() {
                let took = Duration::from_micros(wanted.len() as u64);
                counts.sent(channel, outcome, took);
                wanted.push((channel, outcome, took));
            }
        }
        let told: Vec<_> =
            counts.send_times().into_iter().map(|one| (one.channel, one.outcome, one.times.sum)).collect();
        assert_eq!(told, wanted);
    }

    #[test]
    fn every_end_is_told_and_no_live_state_is() {
        for state in State::ALL {
            assert_eq!(ENDS.contains(&state), state.is_end(), "{state}");
        }
    }
}
