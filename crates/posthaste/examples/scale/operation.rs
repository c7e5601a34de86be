//! `operation`: a retry operation of 100,000 dead letters while single sends to the same destination go on, a few and then at half load.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use posthaste::client::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::Setting;
use super::load::{Rig, Way};
use super::neighbour::{KEEP, Neighbour, Pace, since_send, sink};
use super::server::Server;
use super::verdict::{Times, Verdict, shown};

const ITEMS: u64 = 100_000;
/// The longest that the dead letters may take to appear, and the operation to end.
const PATIENCE: Duration = Duration::from_secs(900);
/// How often a single notification is sent beside the operation.
const EVERY: Duration = Duration::from_millis(10);
/// How long single sends are measured without an operation.
const ALONE: Duration = Duration::from_secs(10);
const TIME_GOAL: Duration = Duration::from_secs(20);
const ACCEPT_GOAL: Duration = Duration::from_millis(50);
/// The sends at half load whose way to the receiver is measured.
const SAMPLE: Pace = Pace { count: 1_000, over: Duration::from_secs(10) };
/// How much longer than alone the way may take beside an operation, unless it takes at most twice as long.
const DELAY_GOAL: Duration = Duration::from_millis(50);

/// Measures how long the operation takes, and how long sends take to be answered meanwhile.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let (items, mut verdict) = (setting.size.unwrap_or(ITEMS), Verdict::default());
    let (place, receiver) = (setting.place().await?, sink(0).await?);
    let server = setting.serve(&place).await?;
    let client = server.admin()?;
    make_dead_letters(&client, &receiver.url("/sequence/400,200"), items).await?;
    let alone = sends(&client, &receiver.url("/ok"), sleep(ALONE)).await?;
    let begun = Instant::now();
    let started: Value = client.post("/v1/retry-operations", &json!({"all": true})).await?.json()?;
    let id = started["id"].as_str().context("the operation was not started")?.to_owned();
    let ended = ended(&client, &id);
    let mut shown_at_end = Value::Null;
    let beside = sends(&client, &receiver.url("/ok"), async { shown_at_end = ended.await }).await?;
    let took = begun.elapsed();
    ensure!(shown_at_end["forwarded"] == items, "it ended as {shown_at_end}");
    let name = format!("{items} dead letters");
    verdict.wanted(
        format!("{name}: marked, staged and forwarded"),
        shown(took),
        format!("under {}", shown(TIME_GOAL)),
        took < TIME_GOAL,
    );
    verdict.note("answer to a send without it: 99th percentile", shown(percentile(alone)));
    let beside = percentile(beside);
    verdict.wanted(
        "answer to a send meanwhile: 99th percentile",
        shown(beside),
        format!("under {}", shown(ACCEPT_GOAL)),
        beside < ACCEPT_GOAL,
    );
    drop(server);
    at_half_load(setting, items, &mut verdict).await?;
    Ok(verdict)
}

/// Measures how long notifications are under way to the destination to which an operation sends too.
async fn at_half_load(setting: &Setting, items: u64, verdict: &mut Verdict) -> anyhow::Result<()> {
    let (place, mut rig) = (setting.place().await?, Rig::keeping(KEEP).await?);
    let server = setting.serve(&place).await?;
    let client = server.admin()?;
    let rate = rig.load(&[&server], &place, Way::Single).await?.rate / 2.0;
    make_dead_letters(&client, &rig.sink.url("/sequence/400,200"), items).await?;
    let alone = sample(&rig, &server, rate).await?;
    let started: Value = client.post("/v1/retry-operations", &json!({"all": true})).await?.json()?;
    let id = started["id"].as_str().context("the operation was not started")?.to_owned();
    let beside = sample(&rig, &server, rate).await?;
    let half_way: Value = client.get(&format!("/v1/retry-operations/{id}")).await?.json()?;
    verdict.note("forwarded when the sample ended", half_way["forwarded"].to_string());
    let ended = ended(&client, &id).await;
    ensure!(ended["forwarded"] == items, "it ended as {ended}");
    let (before, during) = (alone.quantile(0.99), beside.quantile(0.99));
    let goal = (before * 2).max(before + DELAY_GOAL);
    let name = format!("half load ({rate:.0}/s)");
    verdict.note(format!("{name}: send to arrival, alone"), alone.described());
    verdict.wanted(
        format!("{name}: send to arrival, meanwhile"),
        beside.described(),
        format!("p99 at most {}", shown(goal)),
        beside.is_complete() && during <= goal,
    );
    Ok(())
}

/// The times from send to arrival of some notifications among the load.
pub(crate) async fn sample(rig: &Rig, server: &Server, rate: f64) -> anyhow::Result<Times> {
    let (neighbour, letter) =
        (Neighbour::with_key(server, server.0.key.clone())?, rig.letter(server, Way::Single)?);
    rig.sink.clear();
    let load = rig.sender.pace(&letter, rate, SAMPLE.over + Duration::from_secs(1));
    let to = json!({"to": rig.sink.url("/ok")});
    let (sent, sampled) = tokio::join!(load, neighbour.send(SAMPLE, &to));
    let failures = sent?.failures;
    ensure!(failures.first.is_none(), "{}", failures.text().unwrap_or_default());
    // What is under way when the load ends arrives within moments, or is shown as not arrived.
    sleep(Duration::from_secs(1)).await;
    Ok(since_send(&sampled?, &rig.sink.arrivals()))
}

/// Makes dead letters: the first attempt at `to` has to fail for good.
pub(crate) async fn make_dead_letters(client: &Client, to: &str, items: u64) -> anyhow::Result<()> {
    let one = json!({"channel": "webhook", "to": to, "body": "x", "policy": {"maxAttempts": 1, "quick": {"tries": 0}}});
    let mut left = items;
    while left > 0 {
        let count = left.min(500);
        let batch = json!({"notifications": vec![&one; usize::try_from(count)?]});
        let answer = client.post("/v1/notifications/batch", &batch).await?;
        ensure!(answer.status.is_success(), "{}", String::from_utf8_lossy(&answer.body));
        left -= count;
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let stats: Value = client.get("/v1/stats").await?.json()?;
        if stats["inDeadLetter"] == items {
            return Ok(());
        }
        ensure!(Instant::now() < until, "not everything died: {stats}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// The operation once it is finished.
async fn ended(client: &Client, id: &str) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = client.get(&format!("/v1/retry-operations/{id}")).await;
        let found: Value = answer.ok().and_then(|answer| answer.json().ok()).unwrap_or_default();
        if found["finishedAt"].is_string() || Instant::now() > until {
            return found;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Sends single notifications until the other thing is over; returns how long each answer took.
pub(crate) async fn sends(
    client: &Client,
    to: &str,
    other: impl Future<Output = ()>,
) -> anyhow::Result<Vec<Duration>> {
    let one = json!({"channel": "webhook", "to": to, "body": "x"});
    let (mut times, mut clock) = (vec![], interval(EVERY));
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    tokio::pin!(other);
    loop {
        tokio::select! {
            biased;
            () = &mut other => return Ok(times),
            _ = clock.tick() => {}
        }
        let begun = Instant::now();
        let answer = client.post("/v1/notifications", &one);
        tokio::select! {
            answer = answer => ensure!(answer?.status.is_success(), "a send was refused"),
            () = &mut other => return Ok(times),
        }
        times.push(begun.elapsed());
    }
}

pub(crate) fn percentile(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len().saturating_mul(99) / 100).copied().unwrap_or_default()
}
