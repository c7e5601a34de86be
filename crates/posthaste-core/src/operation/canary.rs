//! The canary: the first items of an operation show whether the rest is worth sending.

use serde::{Deserialize, Serialize};

use super::Action;
use crate::act::{Seen, Standing};
use crate::state::State;

/// The first `size` items are forwarded and looked at before the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    pub size: u32,
    /// The operation is stopped if more than this share of their first attempts fails.
    pub max_failure_percent: u32,
}

impl Canary {
    pub const MOST: u32 = 1_000;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CanaryState {
    #[default]
    Running,
    Passed,
    Failed,
    /// The operation ended before there was a verdict.
    NotNeeded,
}

impl CanaryState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotNeeded => "notNeeded",
        }
    }
}

/// What became of the first attempt after the act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstAttempt {
    /// It is not over.
    Awaited,
    Delivered,
    Failed,
    /// The notification ended without it.
    NotMade,
}

/// What the canary shows so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Wait { failed: u32 },
    Passed { failed: u32 },
    Failed { failed: u32 },
}

/// What became of the first attempt of a notification that stood as `seen` before the act.
pub fn first_attempt(action: Action, seen: Seen, standing: &Standing) -> FirstAttempt {
    let (generation, attempt) = match action {
        Action::Requeue => (seen.generation.saturating_add(1), 1),
        Action::Discard | Action::Restore | Action::RetryNow | Action::Cancel => {
            (seen.generation, seen.attempt)
        }
    };
    let now = standing.progress;
    if now.generation > generation {
        return FirstAttempt::Failed;
    }
    match standing.state {
        State::Pending | State::Processing | State::RetryScheduled | State::Retrying => {
            if now.attempt > attempt { FirstAttempt::Failed } else { FirstAttempt::Awaited }
        }
        State::Succeeded if now.attempt <= attempt => FirstAttempt::Delivered,
        State::Succeeded | State::Failed | State::DeadLetter => FirstAttempt::Failed,
        State::Cancelled | State::Expired => {
            if now.attempt >= attempt {
                FirstAttempt::Failed
            } else {
                FirstAttempt::NotMade
            }
        }
    }
}

/// Judges the canary by the first attempts of all its items. `complete` says that no more of them are to come.
pub fn judge(canary: Canary, attempts: &[FirstAttempt], complete: bool) -> Verdict {
    let count = |wanted| attempts.iter().filter(|one| **one == wanted).count() as u64;
    let (failed, awaited) = (count(FirstAttempt::Failed), count(FirstAttempt::Awaited));
    let shown = u32::try_from(failed).unwrap_or(u32::MAX);
    let too_many = |of: u64| failed * 100 > u64::from(canary.max_failure_percent) * of;
    if too_many(u64::from(canary.size)) {
        return Verdict::Failed { failed: shown };
    }
    if awaited > 0 || !complete {
        return Verdict::Wait { failed: shown };
    }
    if too_many(attempts.len() as u64) {
        Verdict::Failed { failed: shown }
    } else {
        Verdict::Passed { failed: shown }
    }
}
