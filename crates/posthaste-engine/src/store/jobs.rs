//! Jobs: when each runs, who runs it, and what came of its runs.

use posthaste_core::job::{RunOutcome, Running, Standing};
use posthaste_core::lease::NodeId;
use posthaste_core::time::Timestamp;

use super::acts::Audit;
use super::reads::Page;
use super::slice::slice;

slice! {
    /// Jobs and their runs. A job has at most one run that is not finished.
    pub trait Jobs {
        /// Makes these jobs known. A job that is known with the same expression stays as it is; one with another gets the new one
        /// and its next time.
        write Plan: fn plan_jobs(plans: Vec<JobPlan>) -> ();

        /// Every known job, by name (as bytes). `now` tells which nodes live.
        read List: fn jobs(now: Timestamp) -> Vec<JobView>;

        /// Starts a run, unless one is under way on a node that lives. One of a dead node is recorded as interrupted first.
        /// `audit` is written if the run was started.
        write Begin: fn begin_job(start: JobStart, audit: Option<Audit>, now: Timestamp) -> Begun;

        /// Records the end of a run. False if it was taken for interrupted meanwhile: then nothing is changed.
        write Finish: fn finish_job(run: i64, outcome: RunOutcome, now: Timestamp) -> bool;

        /// Keeps the job from running by itself, or lets it again, with its next time. False if there is no such job; else
        /// the audit row is written.
        write Pause: fn pause_job(
            name: String,
            paused: bool,
            next_run: Option<Timestamp>,
            audit: Audit,
        ) -> bool;

        /// The runs of a job, newest first; `before` is the number of the last run seen.
        read Runs: fn job_runs(name: String, before: Option<i64>, limit: usize) -> Page<JobRun, i64>;
    }
}

/// When a job is to run, by the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPlan {
    /// Which job.
    pub name: String,
    /// The cron expression; none if it runs only when it is asked for.
    pub cron: Option<String>,
    /// The first time, if the job is new or had another expression.
    pub next_run: Option<Timestamp>,
}

/// A run that is to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStart {
    /// Of which job.
    pub name: String,
    /// On which node.
    pub node: NodeId,
    /// What the node calls itself; kept with the run, because nodes are forgotten.
    pub node_name: String,
    /// Why it starts.
    pub why: Why,
}

/// Why a run starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It is time. The run starts only while the job is not paused and its next time is still the one that was seen.
    Time {
        /// The next time as the node has seen it.
        seen: Option<Timestamp>,
        /// The time after this run.
        next_run: Option<Timestamp>,
    },
    /// Somebody asked for it. The next time by schedule stays.
    Asked {
        /// Who.
        by: String,
    },
}

/// What came of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// It started.
    Started {
        /// The number of the run.
        run: i64,
    },
    /// It is under way already.
    Running,
    /// It is paused, or not to run at that time any more: another node was first.
    NotDue,
    /// There is no such job.
    Unknown,
}

/// A job as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// Which job.
    pub name: String,
    /// The cron expression; none if it runs only when it is asked for.
    pub cron: Option<String>,
    /// Whether it is kept from running by itself.
    pub paused: bool,
    /// When it runs next by its schedule.
    pub next_run: Option<Timestamp>,
    /// The run that is not finished.
    pub running: Option<UnfinishedRun>,
    /// The last run that is finished.
    pub last_run: Option<JobRun>,
}

/// A run that is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedRun {
    /// The run.
    pub run: JobRun,
    /// Whether its node lives.
    pub alive: bool,
}

impl JobView {
    /// What the decision to run it asks.
    pub fn standing(&self) -> Standing {
        let running = self.running.as_ref();
        Standing {
            paused: self.paused,
            next_run: self.next_run,
            running: running
                .map(|UnfinishedRun { run, alive }| Running { started_at: run.started_at, alive: *alive }),
        }
    }
}

/// One run of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRun {
    /// Counts up over all jobs.
    pub number: i64,
    /// When it started.
    pub started_at: Timestamp,
    /// How it ended; none while it is under way.
    pub end: Option<RunEnd>,
    /// On which node.
    pub node: NodeId,
    /// What the node called itself.
    pub node_name: String,
    /// Who asked for it; none if it ran by itself.
    pub started_by: Option<String>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// When.
    pub at: Timestamp,
    /// How.
    pub outcome: RunOutcome,
}
