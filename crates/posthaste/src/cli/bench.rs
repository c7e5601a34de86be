//! `posthaste bench`: what this machine can do.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::output::{self, Output, Table, line, note};
use super::{Exit, WrongUse, serve};
use crate::bench::load::MAX_CONNECTIONS;
use crate::bench::{self, Report, Requested, Settings};

const EXAMPLES: &str = "\
Examples:
  posthaste bench
  posthaste bench --seconds 10 --output json
  posthaste bench --store postgres                     PostgreSQL beside SQLite
  posthaste bench --rows 1000000                       with a million waiting, a million finished, a million dead

Sender, server and sink share this machine, so nothing else should run on it.
Exit codes: 0 measured (whether or not the goals are met), 1 failed, 2 wrong use";

/// Measure how many notifications a second are accepted, delivered and recorded on this machine
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// How long each measurement takes
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// How often everything is measured; the median is shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// Compare with a store that holds so many rows of each kind (waiting, finished, dead)
    #[arg(long, value_name = "N", default_value_t = 0)]
    rows: u64,
    /// How many connections send notifications at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CONNECTIONS)))]
    connections: u16,
    /// How many notifications are in a batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=500))]
    batch: u16,
    /// `postgres` measures PostgreSQL beside SQLite, on a server of its own that is gone at the end;
    /// `postgres://..` in that database, which has to be empty and is not emptied afterwards
    #[arg(long, value_name = "postgres|URL")]
    store: Option<String>,
    /// Where the SQLite files are made, which are gone at the end. By default in the directory for temporary
    /// files
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: BenchArgs, output: Output) -> anyhow::Result<Exit> {
    let settings = Settings {
        time: Duration::from_secs(args.seconds),
        rounds: args.rounds.into(),
        rows: args.rows,
        connections: args.connections.into(),
        batch: args.batch.into(),
        directory: args.directory,
        postgres: args.store.as_deref().map(requested).transpose()?,
    };
    let report = serve::runtime()?.block_on(bench::run(settings, &note))?;
    match output {
        Output::Json => output::json(&serde_json::to_vec(&report)?)?,
        Output::Table => print(&report)?,
    }
    Ok(Exit::Done)
}

/// The text is not repeated in an error, because it may contain a password.
fn requested(store: &str) -> Result<Requested, WrongUse> {
    if store == "postgres" {
        return Ok(Requested::Own);
    }
    if store.starts_with("postgres://") || store.starts_with("postgresql://") {
        return Ok(Requested::Given(store.to_owned()));
    }
    let text = "--store is `postgres` or `postgres://..`: SQLite is always measured, in the directory of --directory";
    Err(WrongUse(text.to_owned()))
}

fn print(report: &Report) -> std::io::Result<()> {
    line(&report.machine())?;
    let mut table = Table::new(&["FIGURE", "MEDIAN", "LEAST..MOST", "OF BARE", "OF EMPTY"]);
    for row in report.figures() {
        table.row(row);
    }
    table.print()?;
    line("")?;
    let mut table = Table::new(&["GOAL", "WANTED", "SEEN", ""]);
    for row in report.goals() {
        table.row(row);
    }
    table.print()?;
    for remark in report.remarks() {
        line(&format!("\n{remark}"))?;
    }
    Ok(())
}
