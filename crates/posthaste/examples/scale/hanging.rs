//! `hanging`: destinations of tenant a take the connection and never answer; tenant b sends to a healthy one.

use std::time::Duration;

use anyhow::{Context as _, bail};
use http::StatusCode;
use posthaste::client::Client;
use posthaste_wire::sink::Sink;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Setting;
use super::neighbour::{Neighbour, Pace, sink};
use super::server::Readiness;
use super::verdict::Verdict;

/// How many notifications tenant a has, over all its destinations.
const PILE: u64 = 4_000;
/// How many of them are in a request.
const BATCH: usize = 500;
/// How many notifications tenant b sends.
const SENDS: u64 = 1_000;
const GOAL: Duration = Duration::from_secs(1);

/// Measures with 8 and with 200 hanging destinations, with a usual and with the longest timeout.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::default();
    let destinations = setting.size.map_or(vec![8, 200], |size| vec![size]);
    for count in destinations {
        for timeout in [Timeout::Usual, Timeout::Longest] {
            one(setting, count, timeout, &mut verdict).await?;
        }
    }
    Ok(verdict)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Timeout {
    Usual,
    Longest,
}

async fn one(setting: &Setting, count: u64, timeout: Timeout, verdict: &mut Verdict) -> anyhow::Result<()> {
    let place = setting.place().await?;
    let server = setting.serve(&place).await?;
    let client = server.client(&server.key_for("a").await?)?;
    let mut sinks = vec![];
    for _ in 0..count {
        sinks.push(sink(0).await?);
    }
    let (seconds, pause) = match timeout {
        // So that retries hang as well.
        Timeout::Usual => (10, Duration::from_secs(13)),
        Timeout::Longest => (longest(&client, &sinks[0]).await?, Duration::from_secs(3)),
    };
    let letters: Vec<Value> =
        sinks.iter().cycle().take(PILE.max(count) as usize).map(|sink| letter(sink, seconds)).collect();
    for batch in letters.chunks(BATCH) {
        let answer = client.post("/v1/notifications/batch", &json!({"notifications": batch})).await?;
        if answer.status != StatusCode::ACCEPTED {
            bail!("the pile was not taken: {}", String::from_utf8_lossy(&answer.body));
        }
    }
    sleep(pause).await;
    let (neighbour, readiness) = (Neighbour::of(&server).await?, Readiness::watch(&server)?);
    let name = format!("{count} hanging, timeout {seconds} s");
    let under_way: u64 = sinks.iter().map(Sink::received).sum();
    verdict.note(format!("{name}: attempts of a so far"), under_way.to_string());
    for (how, over) in [("over 10 s", Duration::from_secs(10)), ("at once", Duration::ZERO)] {
        let times = neighbour.sends(Pace { count: SENDS, over }).await?;
        verdict.below(format!("{name}: slowest of b's {SENDS}, {how}"), &times, GOAL);
    }
    let (asked, not) = readiness.seen();
    verdict.wanted(format!("{name}: /readyz not 200"), format!("{not} of {asked}"), "never", not == 0);
    Ok(())
}

fn letter(sink: &Sink, seconds: u64) -> Value {
    json!({
        "channel": "webhook", "to": sink.url("/hang"), "body": {},
        "policy": {
            "strategy": "fixed", "initialDelay": "1s", "jitter": "none", "maxAttempts": 100, "quick": {"tries": 0},
            "timeout": seconds,
        },
    })
}

/// The longest timeout that a message may ask for.
async fn longest(client: &Client, sink: &Sink) -> anyhow::Result<u64> {
    for seconds in [600, 60] {
        let answer = client.post("/v1/notifications", &letter(sink, seconds)).await?;
        if answer.status == StatusCode::ACCEPTED {
            return Ok(seconds);
        }
    }
    None.context("no timeout of 60 s or more is taken")
}
