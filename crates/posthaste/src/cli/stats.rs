//! `posthaste stats`: numbers of notifications by state.

use std::io;

use clap::Args;
use serde_json::Value;

use super::Exit;
use super::filter::TenantFilter;
use super::listing::{Query, field};
use super::output::{Table, line, seconds_in_words};
use super::reach::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  posthaste stats
  posthaste stats --tenant acme
  posthaste stats --output json";

/// Show how many notifications wait, are being sent, are retried and are dead letters
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    tenant: TenantFilter,
}

pub(crate) async fn run(args: StatsArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    let mut query = Query::default();
    args.tenant.add_to(&mut query);
    let answer = session.get(&query.after("/v1/stats")).await?;
    session.print(&answer, show)?;
    Ok(Exit::Done)
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
    let oldest = stats["oldestDueSeconds"].as_f64().map(seconds_in_words);
    table.row(["longest overdue".to_owned(), oldest.unwrap_or_else(|| "nothing is".to_owned())]);
    table.print()?;
    let Some(channels) = stats["channels"].as_object().filter(|channels| channels.len() > 1) else {
        return Ok(());
    };
    line("")?;
    let mut table = Table::new(&["CHANNEL", "QUEUED", "SENDING", "IN RETRY", "IN DEAD LETTER"]);
    for (channel, figures) in channels {
        let figures = ["queued", "sending", "inRetry", "inDeadLetter"].map(|name| field(figures, name));
        table.row(std::iter::once(channel.clone()).chain(figures));
    }
    table.print()
}
