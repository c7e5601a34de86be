//! `posthaste jobs`: background work by cron expressions.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::listing::{self, Column, Paging, Query, field, short};
use super::reach::ServerArgs;
use super::{Exit, acts};
use crate::client::encode;

const EXAMPLES: &str = "\
Examples:
  posthaste jobs list
  posthaste jobs runs retry-expire
  posthaste jobs run retry-expire

Times are in UTC. One node at a time runs a job. Needs a key for all tenants.";

const LIST_EXAMPLES: &str = "\
Examples:
  posthaste jobs list
  posthaste jobs list --output json";
const RUNS_EXAMPLES: &str = "\
Examples:
  posthaste jobs runs retry-expire";
const RUN_EXAMPLES: &str = "\
Examples:
  posthaste jobs run retry-expire";
const PAUSE_EXAMPLES: &str = "\
Examples:
  posthaste jobs pause retry-expire";
const RESUME_EXAMPLES: &str = "\
Examples:
  posthaste jobs resume retry-expire";

/// List, run, pause and resume background jobs
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct JobsArgs {
    #[command(subcommand)]
    act: JobsCommand,
}

#[derive(Subcommand)]
enum JobsCommand {
    /// List them with their next time and their last run
    #[command(after_help = LIST_EXAMPLES)]
    List,
    /// List the runs of a job, the newest first
    #[command(after_help = RUNS_EXAMPLES)]
    Runs {
        /// The job, such as retry-expire
        job: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// Start a run now, also of a paused job
    #[command(after_help = RUN_EXAMPLES)]
    Run {
        /// The job, such as retry-expire
        job: String,
    },
    /// Keep a job from running by itself
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause {
        /// The job, such as retry-expire
        job: String,
    },
    /// Let a job run by itself again, from its next time on
    #[command(after_help = RESUME_EXAMPLES)]
    Resume {
        /// The job, such as retry-expire
        job: String,
    },
}

const COLUMNS: [Column; 6] = [
    ("JOB", |row| field(row, "id")),
    ("CRON", |row| field(row, "cron")),
    ("STATE", state),
    ("NEXT RUN", |row| field(row, "nextRunAt")),
    ("LAST RUN", |row| field(&row["lastRun"], "startedAt")),
    ("OUTCOME", |row| outcome(&row["lastRun"])),
];

const RUN_COLUMNS: [Column; 7] = [
    ("RUN", |row| field(row, "number")),
    ("STARTED", |row| field(row, "startedAt")),
    ("FINISHED", |row| field(row, "finishedAt")),
    ("OUTCOME", outcome),
    ("COUNT", |row| field(row, "count")),
    ("NODE", |row| short(row, "node")),
    ("STARTED BY", |row| short(row, "startedBy")),
];

fn state(row: &Value) -> String {
    let words = match (row["running"] == true, row["paused"] == true) {
        (true, true) => "running, paused",
        (true, false) => "running",
        (false, true) => "paused",
        (false, false) => "waiting",
    };
    words.to_owned()
}

/// The outcome, with the error of a run that failed.
fn outcome(row: &Value) -> String {
    match row["error"].as_str() {
        Some(_) => format!("{}: {}", field(row, "outcome"), short(row, "error")),
        None => field(row, "outcome"),
    }
}

pub(crate) async fn run(args: JobsArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    let act = async |job: String, act: &str| acts::each(&session, "jobs", act, &[job]).await;
    match args.act {
        JobsCommand::List => listing::print_whole(&session, "/v1/jobs", &COLUMNS).await,
        JobsCommand::Runs { job, paging } => {
            let path = format!("/v1/jobs/{}/runs", encode(&job));
            listing::print(&session, &path, &Query::default(), &paging, &RUN_COLUMNS).await
        }
        JobsCommand::Run { job } => act(job, "run").await,
        JobsCommand::Pause { job } => act(job, "pause").await,
        JobsCommand::Resume { job } => act(job, "resume").await,
    }
}
