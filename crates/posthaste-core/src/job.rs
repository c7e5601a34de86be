//! Jobs: background work by cron expressions in UTC, and when each is to run.

use std::fmt;
use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

use crate::time::Timestamp;

/// The jobs that there are. The names are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// Soft-deletes dead letters that have outlived their period, and purges those that were soft-deleted long ago.
    DeadLetterCleanup,
    /// Discards pending dead letters that are older than a configured age.
    ExpireFailed,
    /// Gives a fingerprint to dead letters that have none, and removes failure groups that are empty.
    FailureGroups,
    /// Removes every other row that has outlived its period.
    Retention,
    /// Ends what has expired and takes back leases of dead nodes.
    RetryExpire,
    /// Looks for due work that no wake-up has found.
    RetryProcessor,
}

impl Job {
    /// In the order of their names.
    pub const ALL: [Self; 6] = [
        Self::DeadLetterCleanup,
        Self::ExpireFailed,
        Self::FailureGroups,
        Self::Retention,
        Self::RetryExpire,
        Self::RetryProcessor,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::DeadLetterCleanup => "dead-letter-cleanup",
            Self::ExpireFailed => "expire-failed",
            Self::FailureGroups => "failure-groups",
            Self::Retention => "retention",
            Self::RetryExpire => "retry-expire",
            Self::RetryProcessor => "retry-processor",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|job| job.name() == name)
    }
}

impl fmt::Display for Job {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// When a job runs: a cron expression of five fields, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    cron: Box<Cron>,
    text: String,
}

/// Why a cron expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSchedule {
    #[error("`{0}` is not a cron expression of five fields such as `0 2 * * *`")]
    Form(String),
    #[error("`{0}` never fires: there is no such day")]
    Never(String),
}

impl Schedule {
    /// Reads an expression. One that never fires, such as one for 30 February, is refused.
    pub fn parse(text: &str) -> Result<Self, BadSchedule> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let text = fields.join(" ");
        let shown = || text.chars().take(64).collect::<String>();
        // Names such as `@daily` would pass the parser with fewer fields.
        if fields.len() != 5 || text.len() > 256 {
            return Err(BadSchedule::Form(shown()));
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(&text).map_err(|_| BadSchedule::Form(shown()))?;
        let schedule = Self { cron: Box::new(cron), text: text.clone() };
        if schedule.next_after(Timestamp::EPOCH).is_none() {
            return Err(BadSchedule::Never(shown()));
        }
        Ok(schedule)
    }

    /// The first time after this one; none only at the end of the calendar.
    pub fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        let next = self.cron.find_next_occurrence(&now.to_civil(), false).ok()?;
        Timestamp::from_civil(next)
    }

    /// The expression, with single spaces.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// How a job stands, as far as the decision to run it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub paused: bool,
    /// When it is to run next; none if it has no schedule.
    pub next_run: Option<Timestamp>,
    /// The run that is under way, or was when its node died.
    pub running: Option<Running>,
}

/// A run that is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    pub started_at: Timestamp,
    /// Whether the node that runs it lives.
    pub alive: bool,
}

/// How long after its start an interrupted run is repeated. A job that ends its process is not repeated without a pause.
pub const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// When the job is to be started by itself; none if it is not.
///
/// A time that has passed while no node ran is due at once, and only once: the next time is counted from the start of the
/// run. A run whose node died is repeated. A paused job does neither.
pub fn due(standing: &Standing) -> Option<Timestamp> {
    if standing.paused {
        return None;
    }
    match standing.running {
        None => standing.next_run,
        Some(running) if running.alive => None,
        Some(running) => Some(running.started_at.later(REPEAT_AFTER)),
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// It did all there was to do: this many.
    Done { count: u64 },
    /// It stopped at an error, after this many.
    Failed { count: u64, error: String },
    /// Its node stopped or died.
    Interrupted,
}

impl RunOutcome {
    /// The longest error that is kept, in characters.
    const MAX_ERROR: usize = 500;

    pub fn failed(count: u64, error: &str) -> Self {
        Self::Failed { count, error: error.chars().take(Self::MAX_ERROR).collect() }
    }

    /// The word in the API and in stores.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
            Self::Interrupted => "interrupted",
        }
    }

    /// How many it did, and the error; as stores keep them.
    pub fn parts(&self) -> (u64, Option<&str>) {
        match self {
            Self::Done { count } => (*count, None),
            Self::Failed { count, error } => (*count, Some(error)),
            Self::Interrupted => (0, None),
        }
    }

    /// The outcome of a word, a count and an error; none if there is no such word.
    pub fn from_parts(word: &str, count: u64, error: Option<String>) -> Option<Self> {
        match word {
            "done" => Some(Self::Done { count }),
            "failed" => Some(Self::Failed { count, error: error.unwrap_or_default() }),
            "interrupted" => Some(Self::Interrupted),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
