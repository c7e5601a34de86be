//! The sender of the bench: raw HTTP/1.1 connections, one request at a time on each. Bodies are built before,
//! and only the status of a response is read.
//!
//! The same sender measures the bare rate and loads the server, so its cost is part of both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use posthaste_wire::sink::Sink;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Timeout of an exchange; the run is then given up.
const EXCHANGE_WITHIN: Duration = Duration::from_secs(30);
/// Wait of a sender while the maximum is in flight.
const BREATH: Duration = Duration::from_millis(1);

/// A request that is sent repeatedly.
#[derive(Clone)]
pub(super) struct Letter {
    pub(super) path: Uri,
    /// Including `host`.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Notifications in the body.
    pub(super) holds: u64,
    /// The expected status.
    pub(super) wanted: StatusCode,
    /// If set, each request has its own `Idempotency-Key` with this prefix.
    pub(super) keys: Option<String>,
}

#[derive(Clone)]
pub(super) struct Bound {
    pub(super) time: Duration,
    /// The sink that counts deliveries, and the maximum number of notifications in flight; `None` for no
    /// limit.
    pub(super) under_way: Option<(Arc<Sink>, u64)>,
}

pub(super) struct Sent {
    pub(super) started: Instant,
    /// Accepted notifications.
    pub(super) taken: u64,
    /// The duration of each exchange.
    pub(super) took: Vec<Duration>,
    pub(super) failures: Failures,
    /// Notifications that were accepted but not yet delivered when the load ended.
    pub(super) backlog: u64,
}

impl Sent {
    fn since(started: Instant) -> Self {
        Self { started, taken: 0, took: vec![], failures: Failures::default(), backlog: 0 }
    }
}

#[derive(Default, Clone)]
pub(super) struct Failures {
    /// Requests with an unexpected status.
    pub(super) refused: u64,
    /// Requests without a response.
    pub(super) broken: u64,
    /// Text of the first failure.
    pub(super) first: Option<String>,
}

impl Failures {
    pub(super) fn add(&mut self, other: Self) {
        self.refused += other.refused;
        self.broken += other.broken;
        self.first = self.first.take().or(other.first);
    }
}

/// Sends as fast as responses arrive, over that many connections, spread over the addresses.
pub(super) async fn flood(
    to: &[(SocketAddr, &Letter)],
    connections: usize,
    bound: &Bound,
) -> anyhow::Result<Sent> {
    let mut lines = Vec::with_capacity(connections);
    for (address, letter) in to.iter().cycle().take(connections) {
        lines.push((open(*address).await?, (*letter).clone()));
    }
    let start = Instant::now();
    let before = bound.under_way.as_ref().map_or(0, |(sink, _)| sink.received());
    let taken = Arc::new(AtomicU64::new(0));
    let mut senders = JoinSet::new();
    for (number, (connection, letter)) in lines.into_iter().enumerate() {
        let (bound, taken) = (bound.clone(), taken.clone());
        senders.spawn(async move {
            let mut pen = Pen::new(connection, letter, number);
            while start.elapsed() < bound.time && pen.is_open() {
                if let Some((sink, most)) = &bound.under_way
                    && (before + taken.load(Ordering::Relaxed)).saturating_sub(sink.received()) > *most
                {
                    tokio::time::sleep(BREATH).await;
                    continue;
                }
                let from = Instant::now();
                taken.fetch_add(pen.exchange(from).await, Ordering::Relaxed);
            }
            pen.sent
        });
    }
    let mut sent = gather(start, senders).await?;
    if let Some((sink, _)) = &bound.under_way {
        sent.backlog = (before + sent.taken).saturating_sub(sink.received());
    }
    Ok(sent)
}

/// Sends at a fixed rate. Each `every`-th request is the second letter, except during the last `quiet`.
///
/// If a connection was still busy when a request was due, the time counts from when it was due, so that a
/// stalled server does not hide the delay.
pub(super) async fn pace(
    address: SocketAddr,
    connections: usize,
    letters: (&Letter, &Letter),
    every: u64,
    rate: f64,
    (time, quiet): (Duration, Duration),
) -> anyhow::Result<Sent> {
    let mut lines = Vec::with_capacity(connections);
    for _ in 0..connections {
        lines.push(open(address).await?);
    }
    let start = Instant::now() + Duration::from_millis(5);
    let count = connections as u64;
    let mut senders = JoinSet::new();
    for (number, connection) in (0..).zip(lines) {
        let (plain, other) = (letters.0.clone(), letters.1.clone());
        senders.spawn(async move {
            let mut pen = Pen::new(connection, plain.clone(), 0);
            let mut turn: u64 = number;
            while pen.is_open() {
                let after = Duration::from_secs_f64(turn as f64 / rate);
                if after >= time {
                    break;
                }
                let is_other = turn.is_multiple_of(every) && after < time.saturating_sub(quiet);
                pen.letter = if is_other { other.clone() } else { plain.clone() };
                let due = start + after;
                let was_free = Instant::now() <= due;
                tokio::time::sleep_until(due).await;
                let from = if was_free { Instant::now() } else { due };
                pen.exchange(from).await;
                turn += count;
            }
            pen.sent
        });
    }
    gather(start, senders).await
}

async fn gather(started: Instant, mut senders: JoinSet<Sent>) -> anyhow::Result<Sent> {
    let mut all = Sent::since(started);
    while let Some(sent) = senders.join_next().await {
        let sent = sent.context("a sender task failed")?;
        all.taken += sent.taken;
        all.took.extend(sent.took);
        all.failures.add(sent.failures);
    }
    Ok(all)
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<()>,
}

async fn open(address: SocketAddr) -> anyhow::Result<Connection> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        // The exchange that waits for a response gets the error.
        let _ = connection.await;
    });
    Ok(Connection { sender, _driver: driver })
}

/// The sender on one connection.
struct Pen {
    connection: Option<Connection>,
    letter: Letter,
    number: usize,
    written: u64,
    sent: Sent,
}

impl Pen {
    fn new(connection: Connection, letter: Letter, number: usize) -> Self {
        Self { connection: Some(connection), letter, number, written: 0, sent: Sent::since(Instant::now()) }
    }

    fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Sends the letter once. Returns the number of accepted notifications.
    async fn exchange(&mut self, from: Instant) -> u64 {
        let request = self.request();
        let Some(connection) = &mut self.connection else { return 0 };
        let answer = tokio::time::timeout(EXCHANGE_WITHIN, ask(&mut connection.sender, request)).await;
        let status = match answer {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => return self.broke(format!("the exchange failed: {error}")),
            Err(_) => return self.broke(format!("no response within {} s", EXCHANGE_WITHIN.as_secs())),
        };
        self.sent.took.push(from.elapsed());
        if status != self.letter.wanted {
            self.sent.failures.refused += 1;
            self.sent.failures.first.get_or_insert_with(|| format!("answered {status}"));
            return 0;
        }
        self.sent.taken += self.letter.holds;
        self.letter.holds
    }

    fn broke(&mut self, what: String) -> u64 {
        self.sent.failures.broken += 1;
        self.sent.failures.first.get_or_insert(what);
        self.connection = None;
        0
    }

    fn request(&mut self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.letter.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.letter.path.clone();
        *request.headers_mut() = self.letter.headers.clone();
        self.written += 1;
        if let Some(start) = &self.letter.keys {
            let key = format!("{start}-{}-{}", self.number, self.written);
            let key = HeaderValue::from_str(&key).expect("letters, digits and dashes can stand in a header");
            request.headers_mut().insert(HeaderName::from_static("idempotency-key"), key);
        }
        request
    }
}

async fn ask(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<StatusCode, hyper::Error> {
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(status)
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

    fn letter(path: &'static str) -> Letter {
        Letter {
            path: Uri::from_static(path),
            headers: HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static("sink"))]),
            body: Bytes::from_static(b"{}"),
            holds: 1,
            wanted: StatusCode::OK,
            keys: None,
        }
    }

    #[tokio::test]
    async fn what_was_refused_is_counted_and_is_not_among_what_was_taken() {
        let sink = sink().await;
        let bound = Bound { time: Duration::from_millis(200), under_way: None };
        let sent = flood(&[(sink.address(), &letter("/flaky/30"))], 4, &bound).await.unwrap();
        assert!(sent.taken > 0 && sent.failures.refused > 0);
        assert_eq!(sent.taken + sent.failures.refused, sink.received());
        assert_eq!(sent.failures.broken, 0);
        assert_eq!(sent.failures.first.as_deref(), Some("answered 503 Service Unavailable"));
    }

    #[tokio::test]
    async fn a_connection_that_breaks_off_is_counted_and_ends_its_sender() {
        let sink = sink().await;
        let bound = Bound { time: Duration::from_secs(60), under_way: None };
        let sent = flood(&[(sink.address(), &letter("/reset"))], 4, &bound).await.unwrap();
        assert_eq!((sent.taken, sent.failures.refused, sent.failures.broken), (0, 0, 4));
    }

    #[tokio::test]
    async fn a_pace_is_kept_and_every_tenth_is_the_other_letter_until_it_is_quiet() {
        let sink = sink().await;
        let (time, quiet) = (Duration::from_millis(400), Duration::from_millis(200));
        let letters = (&letter("/ok"), &letter("/status/503"));
        let sent = pace(sink.address(), 4, letters, 10, 500.0, (time, quiet)).await.unwrap();
        assert!(sent.started.elapsed() >= Duration::from_millis(350));
        assert_eq!((sent.taken, sent.failures.refused), (190, 10));
    }
}
