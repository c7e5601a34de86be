//! The other tenant, who does nothing unusual: what it sends and when that arrives.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::StatusCode;
use posthaste::client::Client;
use posthaste::clock::SystemClock;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock as _;
use posthaste_wire::sink::{ReceivedRequest, Sink, SinkOptions};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::server::Server;
use super::verdict::Times;

/// How many connections it sends over.
const CONNECTIONS: u64 = 8;
/// How long after the last send an arrival is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before the retry of what failed once.
const DELAY: Duration = Duration::from_secs(1);

/// How many arrivals a receiver remembers: more than any measurement sends.
pub(crate) const KEEP: usize = 1_000_000;

/// A receiver in this process.
pub(crate) async fn sink(keep: usize) -> anyhow::Result<Sink> {
    let options = SinkOptions { keep, excerpt: 0, ..SinkOptions::new(Arc::new(SystemClock)) };
    Ok(Sink::start("127.0.0.1:0".parse()?, options).await?)
}

/// A tenant with a key. Each measurement has a receiver of its own, so that nothing late counts for the next one.
pub(crate) struct Neighbour {
    key: String,
    clients: Vec<Arc<Client>>,
}

/// What was sent over how long.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) count: u64,
    /// Zero to send as fast as the answers come.
    pub(crate) over: Duration,
}

/// How late the retries were, and how long first attempts took from the send.
pub(crate) struct Retried {
    pub(crate) first: Times,
    pub(crate) late: Times,
}

impl Neighbour {
    /// A tenant of that server.
    pub(crate) async fn of(server: &Server) -> anyhow::Result<Self> {
        let key = server.key_for("b").await?;
        Self::with_key(server, key)
    }

    /// The tenant of that key.
    pub(crate) fn with_key(server: &Server, key: String) -> anyhow::Result<Self> {
        let clients: anyhow::Result<_> =
            (0..CONNECTIONS).map(|_| server.client(&key).map(Arc::new)).collect();
        Ok(Self { clients: clients?, key })
    }

    /// Its key.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// One of its connections.
    pub(crate) fn client(&self) -> &Client {
        &self.clients[0]
    }

    /// The times from the begin of each send to its arrival at a receiver that is well.
    pub(crate) async fn sends(&self, pace: Pace) -> anyhow::Result<Times> {
        let sink = sink(KEEP).await?;
        let sent = self.send(pace, &json!({"to": sink.url("/ok")})).await?;
        // What has not arrived by then is told as such.
        let _ = timeout(PATIENCE, sink.wait_for(pace.count)).await;
        Ok(since_send(&sent, &sink.arrivals()))
    }

    /// Sends to a receiver that fails once, and measures how late the second attempt is.
    pub(crate) async fn retries(&self, pace: Pace) -> anyhow::Result<Retried> {
        let policy = json!({
            "strategy": "fixed", "initialDelay": DELAY.as_secs(), "jitter": "none", "quick": {"tries": 0},
            "maxAttempts": 3,
        });
        let sink = sink(KEEP).await?;
        let sent = self.send(pace, &json!({"to": sink.url("/sequence/503,200"), "policy": policy})).await?;
        let _ = timeout(PATIENCE, sink.wait_for(2 * pace.count)).await;
        let (first, second): (Vec<ReceivedRequest>, Vec<ReceivedRequest>) =
            sink.arrivals().into_iter().partition(|arrival| arrival.attempt == Some(1));
        let due: HashMap<String, Timestamp> =
            first.iter().filter_map(|arrival| Some((arrival.id.clone()?, arrival.at.later(DELAY)))).collect();
        Ok(Retried { first: since_send(&sent, &first), late: since_send(&due, &second) })
    }

    /// Sends that many, and answers when the request of each id began.
    pub(crate) async fn send(&self, pace: Pace, what: &Value) -> anyhow::Result<HashMap<String, Timestamp>> {
        let mut body = json!({"channel": "webhook", "body": {"order": 4711}});
        body.as_object_mut().context("an object")?.extend(what.as_object().context("an object")?.clone());
        let (start, body) = (Instant::now(), Arc::new(body));
        let mut senders = JoinSet::new();
        for (number, client) in (0..).zip(&self.clients) {
            let (client, body) = (client.clone(), body.clone());
            senders.spawn(async move {
                let mut sent = vec![];
                for turn in (number..pace.count).step_by(CONNECTIONS as usize) {
                    sleep_until(start + pace.over.mul_f64(turn as f64 / pace.count as f64)).await;
                    let began = SystemClock.now();
                    let answer = client.post("/v1/notifications", &body).await?;
                    let shown: Value = answer.json()?;
                    let id =
                        shown["notificationId"].as_str().filter(|_| answer.status == StatusCode::ACCEPTED);
                    sent.push((id.with_context(|| format!("not taken: {shown}"))?.to_owned(), began));
                }
                anyhow::Ok(sent)
            });
        }
        let mut all = HashMap::new();
        for sent in senders.join_all().await {
            all.extend(sent?);
        }
        Ok(all)
    }
}

/// The time from when an id was to come to its arrival. What has not arrived counts with the time until now.
pub(crate) fn since_send(from: &HashMap<String, Timestamp>, arrivals: &[ReceivedRequest]) -> Times {
    let mut open = from.clone();
    let mut ended = vec![];
    for arrival in arrivals {
        let from = arrival.id.as_ref().and_then(|id| open.remove(id));
        ended.extend(from.map(|from| arrival.at.since(from)));
    }
    let now = SystemClock.now();
    Times::of(ended, open.values().map(|from| now.since(*from)).collect())
}
