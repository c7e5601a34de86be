//! `stall`: PostgreSQL takes commits and does not complete them for longer than every timeout of ours, then does.
//!
//! A synchronous standby that is away does just that: each commit waits until somebody no longer asks for the standby.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};
use posthaste::client::Client;
use posthaste_core::id::NotificationId;
use posthaste_wire::sink::Sink;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Setting;
use super::neighbour::sink;
use super::place::{Place, Store};
use super::server::{Readiness, Server};
use super::verdict::{Verdict, shown};

/// How long commits stall.
const STALL: Duration = Duration::from_secs(25);
/// How long there is load before and after.
const AROUND: Duration = Duration::from_secs(5);
/// How long after the stall everything acknowledged has to be at its end.
const GOAL: Duration = Duration::from_secs(60);
/// How many clients send at a time, and how many notifications in a request.
const CLIENTS: usize = 8;
const BATCH: usize = 10;
/// The pause of a client after each answer.
const PAUSE: Duration = Duration::from_millis(400);
/// The pause before a retry.
const DELAY: Duration = Duration::from_secs(2);

/// Measures with one node and with two.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    if setting.store != Store::Postgres {
        bail!("`stall` is about PostgreSQL: add --store postgres");
    }
    let mut verdict = Verdict::default();
    for nodes in [1, 2] {
        one(setting, nodes, &mut verdict).await?;
    }
    Ok(verdict)
}

async fn one(setting: &Setting, nodes: usize, verdict: &mut Verdict) -> anyhow::Result<()> {
    let (place, sink) = (setting.place().await?, Arc::new(sink(10_000_000).await?));
    let (mut servers, mut watched) = (vec![], vec![]);
    for _ in 0..nodes {
        let server = setting.serve(&place).await?;
        watched.push(Readiness::watch(&server)?);
        servers.push(server);
    }
    let key = servers[0].key_for("b").await?;
    // The other node learns of the key with its next heartbeat.
    sleep(Duration::from_secs(3)).await;
    let load = Load::start(&servers, &key, &sink, "before")?;
    sleep(AROUND).await;
    let mut acknowledged = load.stop().await?;
    // No outcome waits to be recorded when the stall begins: behind one that stalls, what is given back would wait as well,
    // until the commits are complete. What failed is retried during the stall.
    sleep(DELAY / 2).await;
    stall(&place, true)?;
    let load = Load::start(&servers, &key, &sink, "after")?;
    sleep(STALL).await;
    stall(&place, false)?;
    let end = Instant::now();
    let during: Vec<(u32, u32)> = watched.iter().map(Readiness::seen).collect();
    sleep(AROUND).await;
    acknowledged.extend(load.stop().await?);
    let took = ended_after(&place, end).await?;
    let live = ids(&place, "queue")?;
    let left = acknowledged.intersection(&live).count();
    let ended = ids(&place, "ended")?;
    let lost = acknowledged.iter().filter(|id| !live.contains(id) && !ended.contains(id)).count();

    let name = format!("{nodes} node{}", if nodes == 1 { "" } else { "s" });
    let goal = format!("within {}", shown(GOAL));
    let seen = took.map_or_else(|| format!("not after {}", shown(GOAL)), shown);
    verdict.note(format!("{name}: acknowledged"), acknowledged.len().to_string());
    verdict.wanted(format!("{name}: everything ended after the stall"), seen, goal, took.is_some());
    let held = place.sql("select count(*) from queue where node is not null")?;
    let stuck = format!("{left} (in all {} live, {held} held)", live.len());
    verdict.wanted(format!("{name}: acknowledged and stuck"), stuck, "0", left == 0);
    verdict.wanted(format!("{name}: acknowledged and lost"), lost.to_string(), "0", lost == 0);
    let asked: u32 = during.iter().map(|(asked, _)| asked).sum();
    let not: u32 = during.iter().map(|(_, not)| not).sum();
    verdict.note(format!("{name}: /readyz not 200 until the end of the stall"), format!("{not} of {asked}"));
    verdict.note(format!("{name}: /readyz at the end"), readiness(&servers, &key).await?);
    Ok(())
}

/// Lets commits wait for a standby that does not exist, or no longer.
fn stall(place: &Place, on: bool) -> anyhow::Result<()> {
    place.sql(if on {
        "alter system set synchronous_standby_names = 'nobody'"
    } else {
        "alter system reset synchronous_standby_names"
    })?;
    place.sql("select pg_reload_conf()").map(drop)
}

/// How long after that moment nothing was live any more; none if something still is.
async fn ended_after(place: &Place, end: Instant) -> anyhow::Result<Option<Duration>> {
    while end.elapsed() < GOAL {
        if place.sql("select count(*) from queue")? == "0" {
            return Ok(Some(end.elapsed()));
        }
        sleep(Duration::from_millis(250)).await;
    }
    Ok(None)
}

fn ids(place: &Place, table: &str) -> anyhow::Result<HashSet<NotificationId>> {
    let shown = place.sql(&format!("select replace(id::text, '-', '') from {table}"))?;
    let id = |line: &str| Ok(NotificationId::from_bytes(u128::from_str_radix(line, 16)?.to_be_bytes()));
    shown.lines().map(id).collect()
}

async fn readiness(servers: &[Server], key: &str) -> anyhow::Result<String> {
    let mut all = vec![];
    for server in servers {
        all.push(server.client(key)?.get("/readyz").await?.status.as_u16().to_string());
    }
    Ok(all.join(", "))
}

/// Clients that send each request again, under its key, until it is acknowledged.
struct Load {
    clients: JoinSet<anyhow::Result<Vec<NotificationId>>>,
    stop: Arc<AtomicBool>,
}

impl Load {
    /// Starts to send, under keys that begin with that name.
    fn start(servers: &[Server], key: &str, sink: &Sink, name: &str) -> anyhow::Result<Self> {
        let (mut clients, stop) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        for number in 0..CLIENTS {
            let doors: anyhow::Result<Vec<Client>> = servers
                .iter()
                .map(|server| Ok(server.client(key)?.within(Duration::from_secs(20))))
                .collect();
            // Half of them fail once, so that there are claims as well.
            let to = sink.url(if number % 2 == 0 { "/ok" } else { "/sequence/503,200" });
            clients.spawn(send(doors?, format!("{name}-{number}"), to, stop.clone()));
        }
        Ok(Self { clients, stop })
    }

    /// Lets each client end what it is at, and answers what was acknowledged.
    async fn stop(self) -> anyhow::Result<HashSet<NotificationId>> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = HashSet::new();
        for ids in self.clients.join_all().await {
            all.extend(ids?);
        }
        Ok(all)
    }
}

async fn send(
    doors: Vec<Client>,
    name: String,
    to: String,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Vec<NotificationId>> {
    let policy = json!({
        "strategy": "fixed", "initialDelay": DELAY.as_secs(), "jitter": "none", "maxAttempts": 40,
        "quick": {"tries": 0},
    });
    let letter = json!({"channel": "webhook", "to": to, "body": {}, "policy": policy});
    let body = json!({"notifications": vec![letter; BATCH]}).to_string();
    let (mut ids, mut turn) = (vec![], name.len());
    while !stop.load(Ordering::SeqCst) {
        let key = HeaderValue::from_str(&format!("{name}-{}", ids.len()))?;
        let headers = [(HeaderName::from_static("idempotency-key"), key)];
        let (body, begun) = (Bytes::from(body.clone()), Instant::now());
        let shown: Value = loop {
            turn += 1;
            let door = &doors[turn % doors.len()];
            match door.send(Method::POST, "/v1/notifications/batch", &headers, body.clone()).await {
                Ok(answer) if answer.status == StatusCode::ACCEPTED => break answer.json()?,
                Ok(answer) if answer.status != StatusCode::SERVICE_UNAVAILABLE => {
                    bail!("refused: {}", String::from_utf8_lossy(&answer.body))
                }
                // Too busy, or not answered in time: the same again a little later.
                Ok(_) | Err(_) if begun.elapsed() < STALL + GOAL => sleep(PAUSE).await,
                Ok(_) | Err(_) => bail!("a request was not taken within {} s", (STALL + GOAL).as_secs()),
            }
        };
        for one in shown["accepted"].as_array().context("an answer without a list")? {
            ids.push(one["notificationId"].as_str().context("an acknowledgement without an id")?.parse()?);
        }
        sleep(PAUSE).await;
    }
    Ok(ids)
}
