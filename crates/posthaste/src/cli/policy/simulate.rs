//! `posthaste policy simulate`: what an outage would do to a policy.

use std::io;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::PossibleValuesParser;
use posthaste_core::breaker::BreakerSettings;
use posthaste_core::channel::Channel;
use posthaste_core::classify::Overrides;
use posthaste_core::duration;
use posthaste_core::policy::{PolicyLayer, Preset, resolve};
use posthaste_core::simulate::{Asked, Effort, simulate};
use serde_json::{Map, Value, json};

use super::super::listing::{Query, duration_field};
use super::super::output::{Output, Table, harmless, json as print_json, line};
use super::super::reach::ServerArgs;
use super::super::{Exit, WrongUse, input};
use super::scope;

const EXAMPLES: &str = "\
Examples:
  posthaste policy simulate --rate 50 --script '503 for 20m, ok for 1h'
  posthaste policy simulate notify --rate 10 --script 'ok for 5m, 10% timeouts and 5% 500 for 1h'
  posthaste policy simulate '{\"preset\": \"zgw\"}' --rate 2 --script '429 with Retry-After 60 for 5m' --first-break 5m
  posthaste policy simulate @policy.json --rate 100 --script 'ok for 6h, refused for 12h, ok for 6h' --output json
  posthaste policy simulate --scope tenant:acme --rate 10 --script 'timeout for 30m'

A script is phases with commas between them: ANSWER [with Retry-After DURATION] [in DURATION] [for DURATION]. Answers are ok, a
status, timeout, refused, reset, unreachable, dns and tls; several with shares are joined by `and`. After the last phase all is
well. Without --scope it needs no server: nothing is sent, and time is virtual.";

/// The slots of a node as it is configured by default.
const CONCURRENCY: u32 = 256;
/// The most lines of the chart.
const LINES: usize = 30;
/// The widest bars, in characters.
const SENDS: usize = 32;
const PARKED: usize = 16;

/// Show what an outage would do: deliveries, dead letters, and the load on the destination over time
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SimulateArgs {
    /// The policy, or the name of a preset; @FILE reads a file, - reads stdin. By default that of the channel or scope
    #[arg(value_name = "PRESET|JSON|@FILE|-")]
    policy: Option<String>,
    /// New notifications a second
    #[arg(long, value_name = "NUMBER")]
    rate: f64,
    /// What the destination answers, phase after phase
    #[arg(long, value_name = "SCRIPT")]
    script: String,
    /// How long; by default as long as the script, and an hour more if it does not end with `ok for ..`
    #[arg(long, value_name = "DURATION")]
    duration: Option<String>,
    /// Ask the server, with the policy of this scope or with this one in its place
    #[arg(long, value_parser = scope)]
    scope: Option<String>,
    /// Whose answers and default policy count
    #[arg(long, value_parser = PossibleValuesParser::new(Channel::ALL.map(Channel::name)))]
    channel: Option<String>,
    /// The most sends a second to the destination
    #[arg(long, value_name = "NUMBER")]
    destination_rate: Option<f64>,
    /// The most sends at once to the destination
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// So many failed attempts in a row open the breaker
    #[arg(long, value_name = "N")]
    failure_threshold: Option<u32>,
    /// The first break
    #[arg(long, value_name = "DURATION")]
    first_break: Option<String>,
    /// The longest break
    #[arg(long, value_name = "DURATION")]
    break_duration: Option<String>,
    /// How long an answer takes where the script does not say it
    #[arg(long, value_name = "DURATION")]
    response_time: Option<String>,
    /// Each notification expires so long after its acceptance
    #[arg(long, value_name = "DURATION")]
    expires_after: Option<String>,
    /// The same seed gives the same
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
}

pub(super) async fn run(args: SimulateArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let asked = asked(&args)?;
    if let Some(scope) = args.scope {
        let mut query = Query::default();
        query.set("scope", Some(scope));
        query.set("channel", args.channel);
        let session = reach.open()?;
        let answer = session.post(&query.after("/v1/policies/simulate"), asked.to_string()).await?;
        session.print(&answer, shown)?;
        return Ok(Exit::Done);
    }
    let channel: Channel = args.channel.map_or(Ok(Channel::Webhook), |name| name.parse())?;
    let simulated = locally(&asked, channel)?;
    match reach.output {
        Output::Json => print_json(format!("{simulated:#}").as_bytes())?,
        Output::Table => shown(&simulated)?,
    }
    Ok(Exit::Done)
}

fn locally(asked: &Value, channel: Channel) -> anyhow::Result<Value> {
    let wrong = |error: posthaste_core::fields::BadField| WrongUse(harmless(&error.to_string()).into_owned());
    let asked = Asked::from_json(asked).map_err(wrong)?;
    let policy = resolve(Preset::built_in(channel), &asked.policy);
    let place = (channel, Overrides::default());
    let scenario = asked.scenario(policy, place, BreakerSettings::default(), CONCURRENCY).map_err(wrong)?;
    serde_json::to_value(simulate(&scenario, Effort::LARGE)).context("cannot show the simulation")
}

/// What the flags say, in the form of the API.
fn asked(args: &SimulateArgs) -> anyhow::Result<Value> {
    let mut asked = json!({"rate": args.rate, "script": args.script});
    let said = |pairs: &[(&str, Value)]| -> Map<String, Value> {
        pairs
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect()
    };
    let more = said(&[
        ("policy", args.policy.as_deref().map(policy).transpose()?.unwrap_or_default()),
        ("duration", json!(args.duration)),
        ("responseTime", json!(args.response_time)),
        ("expiresAfter", json!(args.expires_after)),
        ("seed", json!(args.seed)),
    ]);
    let limits = said(&[("rate", json!(args.destination_rate)), ("concurrency", json!(args.concurrency))]);
    let breaker = said(&[
        ("failureThreshold", json!(args.failure_threshold)),
        ("firstBreak", json!(args.first_break)),
        ("breakDuration", json!(args.break_duration)),
    ]);
    if let Some(all) = asked.as_object_mut() {
        all.extend(more);
        for (name, part) in [("limits", limits), ("breaker", breaker)] {
            if !part.is_empty() {
                all.insert(name.to_owned(), Value::Object(part));
            }
        }
    }
    Ok(asked)
}

fn policy(given: &str) -> anyhow::Result<Value> {
    if Preset::from_name(given).is_some() {
        return Ok(json!({ "preset": given }));
    }
    let text = input::json("the policy", given)?;
    let policy: Value = serde_json::from_str(text.get()).context("the policy is not JSON")?;
    let wrong = |error: posthaste_core::fields::BadField| {
        WrongUse(harmless(&error.under("policy").to_string()).into_owned())
    };
    PolicyLayer::from_json(&policy).map_err(wrong)?;
    Ok(policy)
}

/// The figures in words, and the load as a chart.
fn shown(told: &Value) -> io::Result<()> {
    for text in words(told) {
        line(&harmless(&text))?;
    }
    line("")?;
    chart(told).print()?;
    line("# sent and taken   x sent and failed   = parked")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// A count with separators.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

fn words(told: &Value) -> Vec<String> {
    let of = |name: &str| count(number(&told[name]));
    let mut words = vec![format!(
        "{} arrived in {}: {} delivered, {} dead, {} failed, {} expired, {} waiting at the end",
        of("arrived"),
        duration_field(told, "duration"),
        of("delivered"),
        of("dead"),
        of("failed"),
        of("expired"),
        of("waiting")
    )];
    for (reason, dead) in told["deadByReason"].as_object().into_iter().flatten() {
        words.push(format!("  {reason}: {}", count(number(dead))));
    }
    words.push(format!(
        "{} attempts, {} of them retries, and {} quick tries",
        of("attempts"),
        of("retries"),
        of("quickTries")
    ));
    let breaker = &told["breaker"];
    words.push(match number(&breaker["opened"]) {
        0 => "the breaker did not open".to_owned(),
        times => format!(
            "the breaker opened {}, sent {}, and was open for {}",
            times_of(times, "time"),
            times_of(number(&breaker["probes"]), "probe"),
            duration_field(breaker, "openFor")
        ),
    });
    if !told["outageEndedAt"].is_null() {
        let after = |name: &str, never: &str| match &told[name] {
            Value::Null => never.to_owned(),
            _ => format!("{} later", duration_field(told, name)),
        };
        words.push(format!("the outage ended at {}", duration_field(told, "outageEndedAt")));
        words.push(format!(
            "  nothing waited any more that was due: {}",
            after("drainedAfter", "not before the end")
        ));
        words.push(format!(
            "  everything from before had ended: {}",
            after("settledAfter", "not before the end")
        ));
    }
    let peak = |name: &str| {
        format!("{} at {}", count(number(&told[name]["count"])), duration_field(&told[name], "at"))
    };
    words.push(format!("most parked: {}; most waiting: {}", peak("mostParked"), peak("mostWaiting")));
    words.push(format!("most sends in a second: {}", peak("busiestSecond")));
    if !told["slowestDelivery"].is_null() {
        words.push(format!("the slowest delivery took {}", duration_field(told, "slowestDelivery")));
    }
    if number(&told["standsFor"]) > 1 {
        words.push(format!("thinned: each notification that was simulated stands for {}", of("standsFor")));
    }
    words
}

fn times_of(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Several steps in one line of the chart.
#[derive(Default)]
struct Row {
    at: Duration,
    arrivals: u64,
    sends: u64,
    failures: u64,
    /// At the end.
    parked: u64,
    waiting: u64,
}

fn rows(told: &Value) -> Vec<Row> {
    let steps = told["load"].as_array().map(Vec::as_slice).unwrap_or_default();
    let together = steps.len().div_ceil(LINES).max(1);
    let row = |steps: &[Value]| {
        let sum = |name: &str| steps.iter().map(|step| number(&step[name])).sum();
        let last = |name: &str| steps.last().map_or(0, |step| number(&step[name]));
        let at = steps.first().and_then(|step| duration::from_json(&step["at"]).ok()).unwrap_or_default();
        let (arrivals, sends, failures) = (sum("arrivals"), sum("sends"), sum("failures"));
        Row { at, arrivals, sends, failures, parked: last("parked"), waiting: last("waiting") }
    };
    steps.chunks(together).map(row).collect()
}

fn chart(told: &Value) -> Table {
    let rows = rows(told);
    let most = |of: fn(&Row) -> u64| rows.iter().map(of).max().unwrap_or(0);
    let (most_sends, most_parked) = (most(|row| row.sends), most(|row| row.parked));
    let mut table = Table::new(&["FROM", "ARRIVALS", "SENDS", "FAILED", "PARKED", "WAITING", ""]);
    for row in &rows {
        let sends = bar(row.sends, most_sends, SENDS);
        let failed =
            if row.sends == 0 { 0 } else { (sends * share(row.failures, row.sends)).ceil() as usize };
        let taken = (sends.ceil() as usize).saturating_sub(failed);
        let parked = bar(row.parked, most_parked, PARKED).ceil() as usize;
        let drawn = format!("{}{} {}", "#".repeat(taken), "x".repeat(failed.min(SENDS)), "=".repeat(parked));
        let numbers = [row.arrivals, row.sends, row.failures, row.parked, row.waiting].map(count);
        let [arrivals, sends, failures, parked, waiting] = numbers;
        let from = if row.at.is_zero() { "0s".to_owned() } else { duration::words(row.at) };
        table.row([from, arrivals, sends, failures, parked, waiting, drawn]);
    }
    table
}

fn bar(number: u64, most: u64, widest: usize) -> f64 {
    share(number, most) * widest as f64
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_has_few_lines_and_bars_that_fit() {
        let asked = json!({"rate": 20, "script": "ok for 1h, 503 for 2h, ok for 3h"});
        let told = locally(&asked, Channel::Webhook).unwrap();
        let text = chart(&told).render();
        assert!((20..=LINES + 1).contains(&text.lines().count()), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
        assert!(text.contains("======"), "{text}");
        let rows = rows(&told);
        assert_eq!(rows.iter().map(|row| row.arrivals).sum::<u64>(), 432_000);
        let words = words(&told).join("\n");
        for part in
            ["432,000 arrived in 6h: ", "the breaker opened ", "the outage ended at 3h", "most parked: 14"]
        {
            assert!(words.contains(part), "{words}");
        }
        assert!(!words.contains("thinned"));
    }

    #[test]
    fn numbers_have_separators() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
    }
}
