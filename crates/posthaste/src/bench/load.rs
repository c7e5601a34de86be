//! The sender: requests that are built once, sent over many connections, one at a time on each.
//!
//! The same sender measures the bare rate and loads the server, so its cost is part of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use posthaste_core::notification::Tenant;
use posthaste_wire::guard::Target;
use posthaste_wire::http::{HttpClient, HttpOptions, PoolLimits};
use posthaste_wire::sink::Sink;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The payload of each notification.
pub const BODY: &str = r#"{"event":"order.paid","order":{"id":4711,"total":"129.90","currency":"EUR","customer":"cus_0d1f7a3c9b5e2468"},"note":"thank you for your order thank you for your order thank you for your order"}"#;
/// Maximum number of accepted and not yet delivered notifications. The sender waits beyond it.
pub const UNDER_WAY: u64 = 2_000;
/// Timeout of an exchange. A sender whose exchange fails stops.
const EXCHANGE_WITHIN: Duration = Duration::from_secs(30);
/// Upper bound on the connections that are kept open.
pub const MAX_CONNECTIONS: u16 = 1_000;
/// Maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 1024 * 1024;

/// A request that is sent repeatedly.
#[derive(Clone)]
pub struct Letter {
    target: Target,
    headers: HeaderMap,
    body: Bytes,
    /// Notifications in the body.
    pub holds: u64,
    expected: StatusCode,
    /// If set, each request has its own `Idempotency-Key` with this prefix.
    key_prefix: Option<String>,
}

impl Letter {
    /// A delivery as the sink receives it, sent without a server between.
    pub fn bare(sink: &Sink) -> anyhow::Result<Self> {
        let mut letter = Self::new(&sink.url("/ok"), BODY.to_owned(), 1, StatusCode::OK)?;
        for (name, value) in [
            ("webhook-id", "ntf_01jrq3v9zk8n2m4p6r8t0w2y4a"),
            ("webhook-timestamp", "1800000000"),
            ("posthaste-attempt", "1"),
        ] {
            letter.headers.insert(name, HeaderValue::from_static(value));
        }
        Ok(letter)
    }

    /// One notification for `to`, sent to the server at that URL.
    pub fn single(server: &str, key: &str, to: &str) -> anyhow::Result<Self> {
        Self::accepted(&format!("{server}/v1/notifications"), key, notification(to, ""), 1)
    }

    /// A batch of notifications.
    pub fn batch(server: &str, key: &str, notifications: &[String]) -> anyhow::Result<Self> {
        let body = format!(r#"{{"notifications":[{}]}}"#, notifications.join(","));
        let url = format!("{server}/v1/notifications/batch");
        Self::accepted(&url, key, body, notifications.len() as u64)
    }

    /// The same with an `Idempotency-Key` of its own on each request.
    #[must_use]
    pub fn with_idempotency(self, prefix: &str) -> Self {
        Self { key_prefix: Some(prefix.to_owned()), ..self }
    }

    fn accepted(url: &str, key: &str, body: String, holds: u64) -> anyhow::Result<Self> {
        let mut letter = Self::new(url, body, holds, StatusCode::ACCEPTED)?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {key}"))?;
        bearer.set_sensitive(true);
        letter.headers.insert(AUTHORIZATION, bearer);
        Ok(letter)
    }

    fn new(url: &str, body: String, holds: u64, expected: StatusCode) -> anyhow::Result<Self> {
        let target = Target::parse(url)?;
        let agent = HeaderValue::from_static(concat!("posthaste/", env!("CARGO_PKG_VERSION")));
        let headers = HeaderMap::from_iter([
            (HOST, HeaderValue::from_str(&target.authority())?),
            (USER_AGENT, agent),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ]);
        Ok(Self { target, headers, body: Bytes::from(body), holds, expected, key_prefix: None })
    }

    fn request(&self, number: u64) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = self.headers.clone();
        if let Some(prefix) = &self.key_prefix {
            let key = HeaderValue::from_str(&format!("{prefix}-{number}"));
            let key = key.expect("a prefix is made of letters and digits");
            request.headers_mut().insert(HeaderName::from_static("idempotency-key"), key);
        }
        request
    }
}

/// One notification as JSON. `more` is further fields, each after a comma.
pub fn notification(to: &str, more: &str) -> String {
    format!(r#"{{"channel":"webhook","to":"{to}","body":{BODY}{more}}}"#)
}

/// The result of a load.
pub struct Sent {
    pub started: Instant,
    /// Accepted notifications.
    pub accepted: u64,
    /// The duration of each exchange.
    pub took: Vec<Duration>,
    pub failures: Failures,
}

#[derive(Default, Clone, Serialize)]
pub struct Failures {
    /// Requests with an unexpected status.
    #[serde(rename = "notAccepted")]
    pub refused: u64,
    /// Requests without a response.
    #[serde(rename = "brokenOff")]
    pub broken: u64,
    /// Text of the first failure.
    pub first: Option<String>,
}

impl Failures {
    pub fn add(&mut self, other: Self) {
        self.refused += other.refused;
        self.broken += other.broken;
        self.first = self.first.take().or(other.first);
    }

    /// The failures as a sentence, if there are any.
    pub fn text(&self) -> Option<String> {
        let first = self.first.as_deref()?;
        Some(format!("{} requests failed; the first: {first}", self.refused + self.broken))
    }
}

/// The end of a load.
#[derive(Clone, Copy)]
pub enum Bound {
    Time(Duration),
    Requests(u64),
}

impl Bound {
    fn is_reached(self, start: Instant, sent: u64) -> bool {
        match self {
            Self::Time(time) => start.elapsed() >= time,
            Self::Requests(count) => sent >= count,
        }
    }
}

/// A client for loads.
#[derive(Clone)]
pub struct Sender {
    http: Arc<HttpClient>,
    /// The tenant that the client counts its lookups for.
    tenant: Tenant,
    connections: usize,
}

impl Sender {
    /// `connections` is the number of connections of each load.
    pub fn new(connections: usize) -> anyhow::Result<Self> {
        let (most, idle) = (MAX_CONNECTIONS.into(), Duration::from_secs(20));
        let pool = PoolLimits { idle, per_destination: most, total: 4 * most };
        let http = HttpClient::new(HttpOptions { guard: None, pool, ..HttpOptions::default() })?;
        Ok(Self { http: Arc::new(http), tenant: "default".parse()?, connections })
    }

    /// The same client with another number of connections.
    #[must_use]
    pub fn over(&self, connections: usize) -> Self {
        Self { connections, ..self.clone() }
    }

    /// Sends as fast as responses arrive until the bound is reached. The connections take turns with the
    /// letters. If a sink is given, at most `UNDER_WAY` notifications are accepted and have not arrived
    /// there.
    pub async fn flood(
        &self,
        letters: &[Letter],
        bound: Bound,
        sink: Option<&Arc<Sink>>,
    ) -> anyhow::Result<Sent> {
        let (start, accepted) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let before = sink.map_or(0, |sink| sink.received());
        let mut connections = JoinSet::new();
        for (number, letter) in (0..).zip(letters.iter().cycle().take(self.connections)) {
            let (mut connection, letter) = (Connection::new(self, number), letter.clone());
            let (accepted, sink) = (accepted.clone(), sink.cloned());
            connections.spawn(async move {
                while connection.is_open && !bound.is_reached(start, connection.next) {
                    if let Some(sink) = &sink
                        && (before + accepted.load(Ordering::Relaxed)).saturating_sub(sink.received())
                            > UNDER_WAY
                    {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        continue;
                    }
                    let count = connection.exchange(&letter, Instant::now()).await;
                    accepted.fetch_add(count, Ordering::Relaxed);
                }
                connection.sent
            });
        }
        gather(start, connections).await
    }

    /// Sends at a fixed rate.
    ///
    /// If a connection was still busy when a request was due, the time counts from when it was due, so that a
    /// stalled server does not hide the delay.
    pub async fn pace(&self, letter: &Letter, rate: f64, time: Duration) -> anyhow::Result<Sent> {
        let start = Instant::now() + Duration::from_millis(5);
        let mut connections = JoinSet::new();
        for number in 0..self.connections as u64 {
            let (mut connection, letter) = (Connection::new(self, number), letter.clone());
            connections.spawn(async move {
                loop {
                    let after = Duration::from_secs_f64(connection.next as f64 / rate);
                    if after >= time || !connection.is_open {
                        return connection.sent;
                    }
                    let due = start + after;
                    let was_free = Instant::now() <= due;
                    tokio::time::sleep_until(due).await;
                    connection.exchange(&letter, if was_free { Instant::now() } else { due }).await;
                }
            });
        }
        gather(start, connections).await
    }
}

async fn gather(started: Instant, mut connections: JoinSet<Sent>) -> anyhow::Result<Sent> {
    let mut all = Sent { started, accepted: 0, took: vec![], failures: Failures::default() };
    while let Some(sent) = connections.join_next().await {
        let sent = sent.context("a sender task failed")?;
        all.accepted += sent.accepted;
        all.took.extend(sent.took);
        all.failures.add(sent.failures);
    }
    Ok(all)
}

/// One connection of a load.
struct Connection {
    sender: Sender,
    /// The number of the next request, among those of all connections of a load.
    next: u64,
    step: u64,
    is_open: bool,
    sent: Sent,
}

impl Connection {
    fn new(sender: &Sender, number: u64) -> Self {
        let sent = Sent { started: Instant::now(), accepted: 0, took: vec![], failures: Failures::default() };
        Self { sender: sender.clone(), next: number, step: sender.connections as u64, is_open: true, sent }
    }

    /// Sends the letter once. Returns the number of accepted notifications.
    async fn exchange(&mut self, letter: &Letter, from: Instant) -> u64 {
        let request = letter.request(self.next);
        self.next += self.step;
        let Sender { http, tenant, .. } = &self.sender;
        let failures = &mut self.sent.failures;
        let exchange = http.exchange(tenant, letter.target.clone(), request, EXCHANGE_WITHIN).await;
        let answer = match exchange {
            Ok(exchange) => exchange.whole(MAX_RESPONSE).await.map_err(|unread| unread.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                failures.broken += 1;
                failures.first.get_or_insert(error);
                self.is_open = false;
                return 0;
            }
        };
        self.sent.took.push(from.elapsed());
        if answer.status() != letter.expected {
            failures.refused += 1;
            failures.first.get_or_insert_with(|| format!("answered {}", answer.status()));
            return 0;
        }
        self.sent.accepted += letter.holds;
        letter.holds
    }
}

#[cfg(test)]
mod tests {
    use posthaste_wire::sink::SinkOptions;

    use super::*;
    use crate::clock::SystemClock;

    async fn sink() -> Sink {
        let options = SinkOptions { keep: 0, ..SinkOptions::new(Arc::new(SystemClock)) };
        Sink::start("127.0.0.1:0".parse().unwrap(), options).await.unwrap()
    }

    fn letter(sink: &Sink, path: &str) -> Letter {
        Letter::new(&sink.url(path), "{}".to_owned(), 1, StatusCode::OK).unwrap()
    }

    #[tokio::test]
    async fn a_refused_request_is_counted_as_such_and_not_as_accepted() {
        let (sink, sender) = (sink().await, Sender::new(4).unwrap());
        let sent = sender.flood(&[letter(&sink, "/flaky/30")], Bound::Requests(203), None).await.unwrap();
        assert!(sent.accepted > 0 && sent.failures.refused > 0);
        assert_eq!((sent.accepted + sent.failures.refused, sink.received()), (203, 203));
        assert_eq!(sent.failures.broken, 0);
        assert_eq!(sent.failures.first.as_deref(), Some("answered 503 Service Unavailable"));
    }

    #[tokio::test]
    async fn a_connection_that_breaks_off_is_counted_and_ends_its_sender() {
        let (sink, sender) = (sink().await, Sender::new(4).unwrap());
        let bound = Bound::Time(Duration::from_secs(60));
        let sent = sender.flood(&[letter(&sink, "/reset")], bound, None).await.unwrap();
        assert_eq!((sent.accepted, sent.failures.refused, sent.failures.broken), (0, 0, 4));
    }

    #[tokio::test]
    async fn a_pace_is_kept() {
        let (sink, sender) = (sink().await, Sender::new(4).unwrap());
        let sent = sender.pace(&letter(&sink, "/ok"), 500.0, Duration::from_millis(400)).await.unwrap();
        assert!(sent.started.elapsed() >= Duration::from_millis(350));
        assert_eq!((sent.accepted, sent.took.len()), (200, 200));
    }
}
