//! `posthaste stats`: how much waits, is sent, failed.

use std::io;

use clap::Args;
use serde_json::Value;

use super::Outcome;
use super::listing::field;
use super::output::Table;
use super::reach::Reach;

const EXAMPLES: &str = "\
Examples:
  posthaste stats
  posthaste stats --output json";

/// Show how much waits, is being sent, is retried and died
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatsArgs {}

/// Prints the figures.
pub(crate) async fn run(_args: StatsArgs, reach: &Reach) -> anyhow::Result<Outcome> {
    let session = reach.open()?;
    let answer = session.get("/v1/stats").await?;
    session.print(&answer, show)?;
    Ok(Outcome::Done)
}

fn show(stats: &Value) -> io::Result<()> {
    let mut table = Table::untitled();
    for (words, name) in [
        ("queued", "queued"),
        ("sending", "sending"),
        ("in retry", "inRetry"),
        ("in dead letter", "inDeadLetter"),
    ] {
        table.row([words.to_owned(), field(stats, name)]);
    }
    let rate = stats["successRate24h"].as_f64().map(|rate| format!("{:.2} %", rate * 100.0));
    table.row([
        "delivered of what ended in 24 h".to_owned(),
        rate.unwrap_or_else(|| "nothing ended".to_owned()),
    ]);
    let oldest = stats["oldestDueSeconds"].as_f64().map(|seconds| format!("{seconds} s"));
    table.row(["overdue at most".to_owned(), oldest.unwrap_or_else(|| "nothing is".to_owned())]);
    table.print()
}
