//! The program behind `scripts/scale`: faults that only show at their real size, measured on the built binary.
//!
//! A scenario starts `posthaste serve` as a process of its own on an empty or filled store, sends to it over HTTP from this
//! process, and compares what it sees from outside with the goals. It is run by hand: it takes minutes, and its figures
//! depend on what else the machine does. docs/testing.md describes the scenarios.

#![allow(clippy::print_stdout, reason = "a program that prints what it measured")]

mod burials;
mod compare;
mod costs;
mod destinations;
mod endure;
mod fairness;
mod fill;
mod flows;
mod groups;
mod hanging;
mod keys;
mod lists;
mod load;
mod neighbour;
mod nodes;
mod operation;
mod pages;
mod parked;
mod place;
mod retention;
mod server;
mod stall;
mod stats;
mod streams;
mod verdict;
mod waiting;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use self::place::{Place, Store};
use self::server::Server;
use self::verdict::Verdict;

/// Upper bound on the time of a scenario.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Measure at their real size what the tests only count
#[derive(Parser)]
#[command(
    name = "scripts/scale",
    after_help = "Exit codes: 0 every goal is met, 1 a goal is missed or it failed, 2 wrong use"
)]
struct Args {
    /// What to measure
    scenario: Scenario,
    /// The store that the server uses: a SQLite file, or a PostgreSQL server of its own
    #[arg(long, value_enum, default_value_t = Store::Sqlite)]
    store: Store,
    /// The server to measure, such as an older build [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// How many rows, flows, destinations, keys, streams or seconds, instead of what the goal names
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    size: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scenario {
    /// One tenant's destinations hang, another tenant sends to a healthy one
    Hanging,
    /// One tenant has work due in hundreds of thousands of flows, another retries
    Flows,
    /// Sends to 200,000 destinations, and to one
    Destinations,
    /// PostgreSQL completes no commit for 25 s
    Stall,
    /// One tenant with 100,000 destinations asks for figures, or searches, over 32 connections
    Stats,
    /// Millions of notifications wait for a day far away
    Waiting,
    /// Millions of idempotency keys are forgotten at midnight
    Keys,
    /// The first page of each list, behind a million rows of others
    Lists,
    /// What one notification costs: processor time, bytes written, bytes kept; and how late retries are
    Costs,
    /// An older build (`--binary`) and the present one in turn: rates and processor time of the present one as shares of the older
    Compare,
    /// Two nodes on one PostgreSQL, compared with one
    Nodes,
    /// Half load for some minutes: the tables of PostgreSQL must level off
    Endure,
    /// Rows are removed under load: the store levels off, and the rate stays
    Retention,
    /// A retry operation of 100,000 dead letters beside single sends to the same destination
    Operation,
    /// Each page of the dashboard, with a million dead letters and a million notifications that wait
    Pages,
    /// Failure groups of a million dead letters: the job that fills them, their lists, and what they cost a settlement
    Groups,
    /// 100,000 notifications behind one destination that is down: what that costs an idle server, and one with other traffic
    Parked,
    /// A quiet tenant beside a destination that hangs, a million queued, and 100,000 retries due in one second
    Fairness,
    /// 500 streams of the counters, or of a quiet tenant, beside single sends and batches
    Streams,
}

/// What every scenario needs to know.
struct Setting {
    binary: PathBuf,
    store: Store,
    size: Option<u64>,
}

impl Setting {
    /// An empty store with the schema of the binary.
    async fn place(&self) -> anyhow::Result<Place> {
        Place::new(self.store, &self.binary).await
    }

    /// A server on that store.
    async fn serve(&self, place: &Place) -> anyhow::Result<Server> {
        Server::start(&self.binary, place).await
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match measure(args).await {
        Ok(verdict) => {
            verdict.print();
            if verdict.is_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("scripts/scale: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the scenario. A signal ends it as an error does, so that every server it started is ended too.
async fn measure(args: Args) -> anyhow::Result<Verdict> {
    let binary = args.binary.map_or_else(built, Ok)?;
    let binary = binary.canonicalize().with_context(|| format!("there is no {}", binary.display()))?;
    let setting = Setting { binary, store: args.store, size: args.size };
    println!("{} on {}", setting.binary.display(), setting.store);
    let scenario = async {
        match args.scenario {
            Scenario::Hanging => hanging::run(&setting).await,
            Scenario::Flows => flows::run(&setting).await,
            Scenario::Destinations => destinations::run(&setting).await,
            Scenario::Stall => stall::run(&setting).await,
            Scenario::Stats => stats::run(&setting).await,
            Scenario::Waiting => waiting::run(&setting).await,
            Scenario::Keys => keys::run(&setting).await,
            Scenario::Lists => lists::run(&setting).await,
            Scenario::Costs => costs::run(&setting).await,
            Scenario::Compare => compare::run(&setting).await,
            Scenario::Nodes => nodes::run(&setting).await,
            Scenario::Endure => endure::run(&setting).await,
            Scenario::Retention => retention::run(&setting).await,
            Scenario::Operation => operation::run(&setting).await,
            Scenario::Pages => pages::run(&setting).await,
            Scenario::Groups => groups::run(&setting).await,
            Scenario::Parked => parked::run(&setting).await,
            Scenario::Fairness => fairness::run(&setting).await,
            Scenario::Streams => streams::run(&setting).await,
        }
    };
    let (mut terminate, mut hang_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    tokio::select! {
        ended = tokio::time::timeout(LONGEST, scenario) => {
            ended.with_context(|| format!("given up after {} s", LONGEST.as_secs()))?
        }
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
        _ = hang_up.recv() => bail!("the terminal was closed"),
    }
}

/// The server that cargo built beside this program.
fn built() -> anyhow::Result<PathBuf> {
    let example = std::env::current_exe().context("this program cannot be found")?;
    let profile = example.parent().and_then(|examples| examples.parent());
    Ok(profile
        .context("this program is not where cargo puts it: name the server with --binary")?
        .join("posthaste"))
}
