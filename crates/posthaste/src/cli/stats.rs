//! `posthaste stats`: numbers of notifications by state, and what happened over time.

use std::io;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use posthaste_core::channel::Channel;
use posthaste_core::series::Step;
use serde_json::Value;

use super::Exit;
use super::filter::{TenantFilter, past};
use super::listing::{Query, field};
use super::output::{Table, line, seconds_in_words};
use super::reach::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  posthaste stats
  posthaste stats --tenant acme
  posthaste stats series --since 1d
  posthaste stats --output json";
const SERIES_EXAMPLES: &str = "\
Examples:
  posthaste stats series
  posthaste stats series --since 1h --step 1m --channel webhook
  posthaste stats series --since 7d --step 1h --tenant acme --output json
  posthaste stats series --destination https://hooks.acme.example --tenant acme";

/// Show how many notifications wait, are being sent, are retried and are dead letters
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct StatsArgs {
    #[command(subcommand)]
    over: Option<StatsCommand>,
    #[command(flatten)]
    tenant: TenantFilter,
}

#[derive(Subcommand)]
enum StatsCommand {
    /// Show what happened over time
    #[command(after_help = SERIES_EXAMPLES)]
    Series {
        #[command(flatten)]
        tenant: TenantFilter,
        /// Over this channel
        #[arg(long, value_parser = PossibleValuesParser::new(Channel::ALL.map(Channel::name)))]
        channel: Option<String>,
        /// To this destination, by the hour, while it is one of the 1,000 busiest of its tenant; a URL stands for its origin
        #[arg(long)]
        destination: Option<String>,
        /// Since then: a time, a date, or how long ago; a day by default
        #[arg(long, value_name = "TIME", value_parser = past)]
        since: Option<String>,
        /// Until then: a time, a date, or how long ago; now by default
        #[arg(long, value_name = "TIME", value_parser = past)]
        until: Option<String>,
        /// The distance between two points; 5m by default, 1h with a destination; at most 1,500 points are shown
        #[arg(long, value_parser = PossibleValuesParser::new(Step::ALL.map(Step::name)))]
        step: Option<String>,
    },
}

pub(crate) async fn run(args: StatsArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    let mut query = Query::default();
    match args.over {
        None => {
            args.tenant.add_to(&mut query);
            let answer = session.get(&query.after("/v1/stats")).await?;
            session.print(&answer, show)?;
        }
        Some(StatsCommand::Series { tenant, channel, destination, since, until, step }) => {
            tenant.add_to(&mut query);
            query.set("channel", channel.as_ref());
            query.set("destination", destination.as_ref());
            query.set("since", since.as_ref());
            query.set("until", until.as_ref());
            query.set("step", step.as_ref());
            let answer = session.get(&query.after("/v1/stats/series")).await?;
            session.print(&answer, show_series)?;
        }
    }
    Ok(Exit::Done)
}

const SERIES: [(&str, &str); 12] = [
    ("AT", "at"),
    ("ACCEPTED", "accepted"),
    ("DELIVERED", "delivered"),
    ("FIRST TRY", "firstTry"),
    ("RETRIED", "retried"),
    ("DEAD LETTERS", "deadLettered"),
    ("FAILED", "failed"),
    ("EXPIRED", "expired"),
    ("CANCELLED", "cancelled"),
    ("P50 MS", "p50Ms"),
    ("P95 MS", "p95Ms"),
    ("P99 MS", "p99Ms"),
];

/// The steps in which something happened, under a line of bars of what was accepted and delivered in each step.
fn show_series(series: &Value) -> io::Result<()> {
    let none = vec![];
    let points = series["data"].as_array().unwrap_or(&none);
    for (words, name) in [("accepted", "accepted"), ("delivered", "delivered")] {
        let counts: Vec<u64> = points.iter().map(|point| point[name].as_u64().unwrap_or(0)).collect();
        line(&format!("{words:9}  {}  {}", bars(&counts), counts.iter().sum::<u64>()))?;
    }
    let happened = |point: &&Value| SERIES[1..9].iter().any(|(_, name)| point[name].as_u64() > Some(0));
    let mut table = Table::new(&SERIES.map(|(title, _)| title));
    let busy: Vec<&Value> = points.iter().filter(happened).collect();
    if busy.is_empty() {
        return line("nothing happened");
    }
    for point in busy {
        table.row(SERIES.map(|(_, name)| field(point, name)));
    }
    line("")?;
    table.print()
}

/// Bars of at most this many characters, each for as many steps as it takes.
const WIDTH: usize = 72;

/// Each character is a number, from a space for 0 to a full block for the greatest.
pub(crate) fn bars(counts: &[u64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let together = counts.len().div_ceil(WIDTH).max(1);
    let sums: Vec<u64> = counts
        .chunks(together)
        .map(|some| some.iter().fold(0, |sum: u64, one| sum.saturating_add(*one)))
        .collect();
    let most = sums.iter().copied().max().unwrap_or(0).max(1);
    let bar = |sum: &u64| match (u128::from(*sum) * 8).div_ceil(most.into()) {
        0 => ' ',
        height => BARS[usize::try_from(height - 1).map_or(7, |place| place.min(7))],
    };
    sums.iter().map(bar).collect()
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
    let rate = stats["firstTryRate24h"].as_f64().map(|rate| format!("{:.2} %", rate * 100.0));
    table.row(["delivered by the first try".to_owned(), rate.unwrap_or_else(|| "nothing ended".to_owned())]);
    let times = &stats["timeToDeliverMs"];
    let times = times.is_object().then(|| {
        let shown = |name: &str| seconds_in_words(times[name].as_f64().unwrap_or(0.0) / 1_000.0);
        format!("{}, 95 % in {}, 99 % in {}", shown("p50"), shown("p95"), shown("p99"))
    });
    table.row(["time to deliver".to_owned(), times.unwrap_or_else(|| "nothing was delivered".to_owned())]);
    for reason in stats["topReasons"].as_array().into_iter().flatten() {
        table.row([field(reason, "reasonCode"), field(reason, "count")]);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_numbers_and_fit_on_a_line() {
        assert_eq!(bars(&[0, 1, 4, 8]), " ▁▄█");
        assert_eq!(bars(&[0, 0]), "  ");
        assert_eq!(bars(&[]), "");
        assert_eq!(bars(&[1, 1_000_000]), "▁█", "what is not zero is seen");
        assert_eq!(bars(&vec![1; 1_500]).chars().count(), 72);
        assert_eq!(bars(&[u64::MAX]), "█");
    }
}
