//! `posthaste bench`: what this machine can do.

use std::time::Duration;

use clap::Args;

use super::output::{self, Output, Table, line, note};
use super::{Exit, WrongUse, serve};
use crate::bench::{self, Asked, Endurance, Report, Settings};

const EXAMPLES: &str = "\
Examples:
  posthaste bench
  posthaste bench --seconds 10 --output json
  posthaste bench --store postgres                     PostgreSQL beside SQLite
  posthaste bench --store postgres --endure 3600       whether its tables level off in an hour
  posthaste bench --rows 1000000                       with a million waiting, a million finished, a million dead

Sender, server and sink share this machine, so nothing else should run on it.
Exit codes: 0 measured (whether or not the goals are met), 1 failed, 2 wrong use";

/// Measure how many notifications a second are accepted, delivered and recorded on this machine
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// How long each measurement takes
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) seconds: u64,
    /// How often everything is measured; the median is shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) rounds: u16,
    /// Compare with a store that holds so many rows of each kind (waiting, finished, dead)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rows: u64,
    /// How many connections send notifications at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) connections: u16,
    /// How many notifications are in a batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub(crate) batch: u16,
    /// `postgres` measures PostgreSQL beside SQLite, on a server of its own that is gone at the end;
    /// `postgres://..` in that database, which has to be empty and is not emptied afterwards. Anything else
    /// is the SQLite file, with --rows that of the filled store; one that an earlier bench made is not filled
    /// again, and it stays. Any other that is there is refused. Without it files in the directory for
    /// temporary ones, gone at the end
    #[arg(long, value_name = "PATH|postgres|URL")]
    pub(crate) store: Option<String>,
    /// Instead of all that, send at half load for so long and see whether the tables of PostgreSQL level off;
    /// needs --store postgres
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(4..=604_800))]
    pub(crate) endure: Option<u64>,
}

pub(crate) fn run(args: BenchArgs, output: Output) -> anyhow::Result<Exit> {
    let settings = Settings {
        time: Duration::from_secs(args.seconds),
        rounds: args.rounds.into(),
        rows: args.rows,
        connections: args.connections.into(),
        batch: args.batch.into(),
        store: Asked::parse(args.store.as_deref()),
    };
    if let Some(seconds) = args.endure {
        if matches!(settings.store, Asked::Nothing | Asked::File(_)) {
            return Err(WrongUse("--endure is about PostgreSQL: add --store postgres".to_owned()).into());
        }
        let time = Duration::from_secs(seconds);
        let report = serve::runtime()?.block_on(bench::endure(settings, time, &note))?;
        return print_endurance(&report, output);
    }
    let report = serve::runtime()?.block_on(bench::run(settings, &note))?;
    match output {
        Output::Json => output::json(report.json().to_string().as_bytes())?,
        Output::Table => print(&report)?,
    }
    Ok(Exit::Done)
}

fn print_endurance(report: &Endurance, output: Output) -> anyhow::Result<Exit> {
    match output {
        Output::Json => output::json(report.json().to_string().as_bytes())?,
        Output::Table => {
            line(&report.machine())?;
            let head = ["TABLE", "MOST DEAD, 1ST HALF", "2ND HALF", "MOST BYTES, 1ST HALF", "2ND HALF", ""];
            let mut table = Table::new(&head);
            for row in report.lines() {
                table.row(row);
            }
            table.print()?;
        }
    }
    Ok(Exit::Done)
}

fn print(report: &Report) -> std::io::Result<()> {
    line(&report.machine())?;
    let mut table = Table::new(&["FIGURE", "MEDIAN", "LEAST..MOST", "OF BARE"]);
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
