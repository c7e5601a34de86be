//! Runs of jobs, as both stores keep them, and whether one may start.

use posthaste_core::job::RunOutcome;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Begun, RunEnd, Why};

/// The end of a run from its columns: none while it is under way, `Err` if they make no sense.
pub(crate) fn end(
    finished_at: Option<Timestamp>,
    outcome: Option<&str>,
    count: Option<i64>,
    error: Option<String>,
) -> Result<Option<RunEnd>, String> {
    let Some(word) = outcome else { return Ok(None) };
    let count = count.unwrap_or_default().unsigned_abs();
    let outcome = RunOutcome::from_parts(word, count, error);
    match finished_at.zip(outcome) {
        Some((at, outcome)) => Ok(Some(RunEnd { at, outcome })),
        None => Err(format!("a run of a job ended as `{word}`")),
    }
}

/// How a job stands when a run of it is to start.
pub(crate) struct Found {
    pub(crate) paused: bool,
    pub(crate) next_run: Option<Timestamp>,
    /// The run that is not finished, and whether its node lives.
    pub(crate) running: Option<(i64, bool)>,
}

impl Found {
    /// Why no run may start; none if one may.
    pub(crate) fn refusal(&self, why: &Why) -> Option<Begun> {
        if self.running.is_some_and(|(_, alive)| alive) {
            return Some(Begun::Running);
        }
        match why {
            Why::Time { seen, .. } if self.paused || self.next_run != *seen => Some(Begun::NotDue),
            Why::Time { .. } | Why::Asked { .. } => None,
        }
    }

    /// The next time by schedule once the run has started.
    pub(crate) fn next_run(&self, why: &Why) -> Option<Timestamp> {
        match why {
            Why::Time { next_run, .. } => *next_run,
            Why::Asked { .. } => self.next_run,
        }
    }
}

/// Who asked for a run.
pub(crate) fn started_by(why: &Why) -> Option<&str> {
    match why {
        Why::Time { .. } => None,
        Why::Asked { by } => Some(by),
    }
}
