//! `posthaste bench`: what this machine can do.

use std::path::PathBuf;

use clap::Args;

use super::Outcome;
use super::output::Output;

const EXAMPLES: &str = "\
Examples:
  posthaste bench
  posthaste bench --seconds 30 --output json
  posthaste bench --rows 1000000                       with a million waiting, a million finished, a million dead

Exit codes: 0 measured, 1 failed, 2 wrong use";

/// Measure how many notifications a second are accepted, delivered and recorded on this machine
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// How long each measurement takes
    #[arg(long, value_name = "S", default_value_t = 10)]
    pub(crate) seconds: u64,
    /// How many rows of each kind (waiting, finished, dead) the store holds before
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rows: u64,
    /// How many connections hand in notifications at a time
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) connections: u32,
    /// How many notifications are in a batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) batch: u32,
    /// The SQLite file; without it one that is gone at the end
    #[arg(long, value_name = "PATH")]
    pub(crate) store: Option<PathBuf>,
}

/// Measures and says what came out.
pub(crate) fn run(args: BenchArgs, output: Output) -> anyhow::Result<Outcome> {
    let BenchArgs { seconds: _, rows: _, connections: _, batch: _, store: _ } = args;
    let (Output::Table | Output::Json) = output;
    anyhow::bail!("`posthaste bench` is not built yet")
}
