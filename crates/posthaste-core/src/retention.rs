//! Retention: how long each kind of row is kept, and which rows have outlived that.
//!
//! Rows are removed in passes. A pass walks one kind from its oldest row to the first that is too young, in chunks, and the
//! next pass begins at the oldest again. So what ended long after its acceptance, or was resolved late, is found by a later
//! pass. What a pass leaves behind is little: live notifications, and what is named by a dead letter.

use std::fmt;
use std::time::Duration;

use crate::dead_letter::DeadLetterStatus;
use crate::state::State;
use crate::time::Timestamp;

/// What is removed by a pass of its own. The names are part of the audit and of the metrics.
///
/// A kind that another feature adds is one more variant; the matches over this enum say what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The attempts of what has ended.
    Attempts,
    /// Delivered notifications with their events.
    Delivered,
    /// Failed ones.
    Failed,
    /// Cancelled ones.
    Cancelled,
    /// Expired ones.
    Expired,
    Audit,
    JobRuns,
    /// The kept counters of an hour.
    Counters,
    /// The roll-ups of a minute or an hour.
    Series,
    /// The items of retry operations that are finished.
    OperationItems,
    /// Retry operations that are finished, once their items are gone.
    Operations,
    /// The hours of the busiest destinations.
    DestinationHours,
    /// Requeued dead letters; they are soft-deleted.
    RequeuedLetters,
    /// Discarded and replaced dead letters; they are soft-deleted.
    DiscardedLetters,
    /// Soft-deleted dead letters; they are removed for good.
    DeletedLetters,
}

impl Kind {
    pub const ALL: [Self; 15] = [
        Self::Attempts,
        Self::Delivered,
        Self::Failed,
        Self::Cancelled,
        Self::Expired,
        Self::Audit,
        Self::JobRuns,
        Self::Counters,
        Self::Series,
        Self::OperationItems,
        Self::Operations,
        Self::DestinationHours,
        Self::RequeuedLetters,
        Self::DiscardedLetters,
        Self::DeletedLetters,
    ];

    /// What the job `retention` removes.
    pub const ROWS: [Self; 12] = [
        Self::Attempts,
        Self::Delivered,
        Self::Failed,
        Self::Cancelled,
        Self::Expired,
        Self::Audit,
        Self::JobRuns,
        Self::Counters,
        Self::Series,
        Self::OperationItems,
        Self::Operations,
        Self::DestinationHours,
    ];

    /// What the job `dead-letter-cleanup` removes. What it soft-deletes is purged by a later run, not by the same one.
    pub const LETTERS: [Self; 3] = [Self::DeletedLetters, Self::RequeuedLetters, Self::DiscardedLetters];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Audit => "audit",
            Self::JobRuns => "job-runs",
            Self::Counters => "counters",
            Self::Series => "series",
            Self::OperationItems => "operation-items",
            Self::Operations => "operations",
            Self::DestinationHours => "destination-hours",
            Self::RequeuedLetters => "requeued-dead-letters",
            Self::DiscardedLetters => "discarded-dead-letters",
            Self::DeletedLetters => "deleted-dead-letters",
        }
    }

    /// What the audit says that was done.
    pub const fn action(self) -> &'static str {
        match self {
            Self::Attempts
            | Self::Delivered
            | Self::Failed
            | Self::Cancelled
            | Self::Expired
            | Self::Audit
            | Self::JobRuns
            | Self::Counters
            | Self::Series
            | Self::OperationItems
            | Self::Operations
            | Self::DestinationHours => "remove",
            Self::RequeuedLetters | Self::DiscardedLetters => "delete",
            Self::DeletedLetters => "purge",
        }
    }

    /// The state of the notifications that it removes; none for what is no notification.
    pub const fn state(self) -> Option<State> {
        match self {
            Self::Delivered => Some(State::Succeeded),
            Self::Failed => Some(State::Failed),
            Self::Cancelled => Some(State::Cancelled),
            Self::Expired => Some(State::Expired),
            Self::Attempts
            | Self::Audit
            | Self::JobRuns
            | Self::Counters
            | Self::Series
            | Self::OperationItems
            | Self::Operations
            | Self::DestinationHours
            | Self::RequeuedLetters
            | Self::DiscardedLetters
            | Self::DeletedLetters => None,
        }
    }

    /// The status of the dead letters that it soft-deletes.
    pub const fn letters(self) -> Option<DeadLetterStatus> {
        match self {
            Self::RequeuedLetters => Some(DeadLetterStatus::Requeued),
            Self::DiscardedLetters => Some(DeadLetterStatus::Cancelled),
            Self::Attempts
            | Self::Delivered
            | Self::Failed
            | Self::Cancelled
            | Self::Expired
            | Self::Audit
            | Self::JobRuns
            | Self::Counters
            | Self::Series
            | Self::OperationItems
            | Self::Operations
            | Self::DestinationHours
            | Self::DeletedLetters => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// How long each kind is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periods {
    /// From the end of the notification.
    pub attempts: Duration,
    pub delivered: Duration,
    pub failed: Duration,
    /// Cancelled and expired ones.
    pub finished: Duration,
    /// Resolved dead letters, from their death.
    pub dead_letters: Duration,
    /// Soft-deleted ones.
    pub dead_letters_restorable: Duration,
    /// Pending ones, from their death; `None` for ever.
    pub purge_pending_after: Option<Duration>,
    pub audit: Duration,
    pub job_runs: Duration,
    /// Hourly counters and the hours of the busiest destinations; at least a day more than figures look back.
    pub counters: Duration,
    /// At least a day more than figures look back.
    pub series: Duration,
    /// From their end.
    pub operations: Duration,
    /// From the end of their operation.
    pub operation_items: Duration,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Default for Periods {
    fn default() -> Self {
        Self {
            attempts: DAY * 30,
            delivered: DAY * 90,
            failed: DAY * 180,
            finished: DAY * 7,
            dead_letters: DAY * 90,
            dead_letters_restorable: DAY * 30,
            purge_pending_after: None,
            audit: DAY * 400,
            job_runs: DAY * 90,
            counters: DAY * 35,
            series: DAY * 30,
            operations: DAY * 400,
            operation_items: DAY * 7,
        }
    }
}

impl Periods {
    pub fn of(&self, kind: Kind) -> Duration {
        match kind {
            Kind::Attempts => self.attempts,
            Kind::Delivered => self.delivered,
            Kind::Failed => self.failed,
            Kind::Cancelled | Kind::Expired => self.finished,
            Kind::Audit => self.audit,
            Kind::JobRuns => self.job_runs,
            Kind::Counters | Kind::DestinationHours => self.counters,
            Kind::Series => self.series,
            // An operation goes only once its items are gone.
            Kind::OperationItems => self.operation_items.min(self.operations),
            Kind::Operations => self.operations,
            Kind::RequeuedLetters | Kind::DiscardedLetters => self.dead_letters,
            Kind::DeletedLetters => self.dead_letters_restorable,
        }
    }

    /// What ended before this time has outlived its period.
    pub fn cut_off(&self, kind: Kind, now: Timestamp) -> Timestamp {
        now.earlier(self.of(kind))
    }

    /// Pending dead letters that died before this time are soft-deleted; `None` for never.
    pub fn pending_cut_off(&self, now: Timestamp) -> Option<Timestamp> {
        self.purge_pending_after.map(|after| now.earlier(after))
    }
}

/// Whether a notification that ended may be removed. `named` is whether a dead letter or an operation that is not finished
/// names it.
pub fn is_removable(kind: Kind, state: State, ended_at: Timestamp, named: bool, cut_off: Timestamp) -> bool {
    kind.state() == Some(state) && ended_at < cut_off && !named
}

/// Whether a dead letter may be soft-deleted. One that was restored counts from then.
pub fn is_deletable(
    kind: Kind,
    status: DeadLetterStatus,
    died_at: Timestamp,
    restored_at: Option<Timestamp>,
    cut_off: Timestamp,
) -> bool {
    kind.letters() == Some(status) && restored_at.map_or(died_at, |at| at.max(died_at)) < cut_off
}

/// Whether an operation that ended then, or has not ended, or its items, may be removed.
pub fn is_over(finished_at: Option<Timestamp>, cut_off: Timestamp) -> bool {
    finished_at.is_some_and(|at| at < cut_off)
}

/// The rows that a chunk looks at for each one that it may remove.
pub const LOOKED_AT: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: u64) -> Timestamp {
        Timestamp::EPOCH.later(DAY * u32::try_from(day).unwrap())
    }

    /// The table of section 6, written down a second time.
    #[test]
    fn what_is_kept_for_how_long_is_what_the_specification_says() {
        let periods = Periods::default();
        for (kind, days) in [
            (Kind::Attempts, 30),
            (Kind::Delivered, 90),
            (Kind::Failed, 180),
            (Kind::Cancelled, 7),
            (Kind::Expired, 7),
            (Kind::Audit, 400),
            (Kind::JobRuns, 90),
            (Kind::Counters, 35),
            (Kind::Series, 30),
            (Kind::OperationItems, 7),
            (Kind::Operations, 400),
            (Kind::DestinationHours, 35),
            (Kind::RequeuedLetters, 90),
            (Kind::DiscardedLetters, 90),
            (Kind::DeletedLetters, 30),
        ] {
            assert_eq!(periods.of(kind), DAY * days, "{kind}");
            assert_eq!(periods.cut_off(kind, at(500)), at(500 - u64::from(days)));
        }
        assert_eq!(periods.pending_cut_off(at(500)), None);
        let short = Periods { operations: DAY * 3, ..periods };
        assert_eq!(short.of(Kind::OperationItems), DAY * 3, "no longer than the operation");
        assert_eq!(Kind::ALL.len(), Kind::ROWS.len() + Kind::LETTERS.len());
        assert!(Kind::ALL.iter().all(|kind| Kind::ROWS.contains(kind) != Kind::LETTERS.contains(kind)));
    }

    #[test]
    fn the_outcome_and_the_age_of_the_end_decide() {
        for kind in Kind::ALL {
            for state in State::ALL {
                let wanted = kind.state() == Some(state);
                assert_eq!(is_removable(kind, state, at(9), false, at(10)), wanted, "{kind} {state}");
                assert!(!is_removable(kind, state, at(10), false, at(10)), "it is not older");
                assert!(!is_removable(kind, state, at(9), true, at(10)), "a dead letter names it");
            }
        }
    }

    #[test]
    fn no_kind_removes_what_lives_or_is_a_dead_letter() {
        let states: Vec<State> = Kind::ALL.iter().filter_map(|kind| kind.state()).collect();
        assert!(states.iter().all(|state| state.is_end() && *state != State::DeadLetter));
        assert!(Kind::ALL.iter().all(|kind| kind.letters() != Some(DeadLetterStatus::Pending)));
    }

    #[test]
    fn only_an_operation_that_ended_long_ago_is_removed() {
        assert!(is_over(Some(at(9)), at(10)));
        assert!(!is_over(Some(at(10)), at(10)) && !is_over(None, at(10)));
    }

    #[test]
    fn a_restored_dead_letter_counts_from_its_restoration() {
        let (kind, status) = (Kind::DiscardedLetters, DeadLetterStatus::Cancelled);
        assert!(is_deletable(kind, status, at(1), None, at(10)));
        assert!(!is_deletable(kind, status, at(1), Some(at(10)), at(10)));
        assert!(is_deletable(kind, status, at(1), Some(at(9)), at(10)));
        assert!(!is_deletable(kind, DeadLetterStatus::Requeued, at(1), None, at(10)));
    }
}
