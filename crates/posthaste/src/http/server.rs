//! The accept loop: a bounded number of connections, each with a limit on how long it may take for what.
//!
//! Invariant: no connection lives for longer than its phase allows without making progress. A client that sends
//! nothing, sends its head a byte at a time, goes idle or does not read its answer is cut off.
//!
//! Invariant: no answer outlasts the drain. A stream ends when the server stops.
//!
//! Invariant: connections that have not shown a valid key keep nobody out; the oldest of them makes room (`guests`).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_service::Service as _;

use posthaste_engine::log_throttle::LogThrottle;

use super::answer_body::AnswerBody;
use super::guests::{Guest, Guests};

/// How long a connection may take for what.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most connections at a time. Where all of them have shown a valid key, others wait.
    pub connections: usize,
    /// From the connection to its first byte, and from the first byte of a request to the end of its head.
    pub head: Duration,
    /// From the end of a head to the answer.
    pub answer: Duration,
    /// Between an answer and the next request; the client has to read the answer in this time, and what is on its way of a
    /// stream. A stream has to send something more often than this.
    pub idle: Duration,
}

/// What answers requests.
pub trait Answer: Clone + Send + Sync + 'static {
    fn answer(&self, request: Request<Body>, from: &Connection) -> impl Future<Output = Response> + Send;
}

impl Answer for Router {
    async fn answer(&self, request: Request<Body>, _: &Connection) -> Response {
        self.clone().call(request).await.unwrap_or_else(|never| match never {})
    }
}

/// How often a connection is looked at, as a part of the shortest limit.
const LOOKS: u32 = 4;
/// How long to wait when no connection can be accepted, which is when the program is out of sockets.
const BREATH: Duration = Duration::from_millis(50);

/// Serves until `stop` is set, then lets the exchanges under way end within `grace` and closes what is left.
pub async fn serve<A: Answer>(
    listener: TcpListener,
    answer: A,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
    grace: Duration,
) {
    let (mut connections, guests) = (JoinSet::new(), Arc::<Guests>::default());
    let told = stop.clone();
    let (mut failures, crowds) = (LogThrottle::new(), LogThrottle::new());
    // One connection more than there may be, which waits for its place, and whether one is being closed for it.
    let (mut waits, mut has_room) = (None, true);
    loop {
        if connections.len() < limits.connections
            && let Some(stream) = waits.take()
        {
            has_room = true;
            let (stream, peer) = stream;
            let caller = Connection { guest: Arc::new(guests.enter()), peer };
            connections.spawn(converse(stream, caller, answer.clone(), limits, told.clone()));
        }
        tokio::select! {
            biased;
            () = set(&mut stop) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = guests.more(), if !has_room => has_room = make_room(&guests, &crowds),
            accepted = listener.accept(), if waits.is_none() => match accepted {
                Ok(stream) => {
                    if failures.recovered() {
                        tracing::info!("connections are accepted again");
                    }
                    waits = Some(stream);
                    has_room = connections.len() < limits.connections || make_room(&guests, &crowds);
                }
                Err(error) => {
                    if let Some(times) = failures.count(Instant::now()) {
                        tracing::warn!(%error, times, "no connection can be accepted");
                    }
                    tokio::time::sleep(BREATH).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // What does not end in time is closed as the set is dropped.
    let _ = tokio::time::timeout(grace, ended).await;
}

/// Closes a connection without a key, and returns whether there is one.
fn make_room(guests: &Guests, crowds: &LogThrottle) -> bool {
    let closed = guests.close_oldest();
    if closed && let Some(times) = crowds.count(Instant::now()) {
        tracing::warn!(
            times,
            "all server.connections are open: one without a valid key is closed for another"
        );
    }
    closed
}

/// Who is at the other end.
#[derive(Debug, Clone)]
pub struct Connection {
    pub(super) guest: Arc<Guest>,
    pub(super) peer: SocketAddr,
}

async fn converse<A: Answer>(
    stream: TcpStream,
    caller: Connection,
    answer: A,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    // Answers are small; without it they would wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let (phase, guest) = (Arc::new(Phase::new()), caller.guest.clone());
    let stopped = stop.clone();
    let service = service_fn(|request: Request<Incoming>| {
        phase.enter(Phase::ANSWER);
        let (answer, caller, phase, stopped) = (&answer, &caller, &phase, &stopped);
        async move {
            let response = answer.answer(request.map(Body::new), caller).await;
            Ok::<_, Infallible>(response.map(|body| AnswerBody::new(body, phase, stopped)))
        }
    });
    let (held, released) = oneshot::channel();
    let io = TokioIo::new(Watched { stream, phase: phase.clone(), _held: held });
    let mut builder = http1::Builder::new();
    builder.keep_alive(true).max_buf_size(64 * 1024);
    let mut connection = Box::pin(builder.serve_connection(io, service).with_upgrades());
    let mut look = tokio::time::interval(limits.head.min(limits.answer).min(limits.idle) / LOOKS);
    let mut stopping = false;
    loop {
        tokio::select! {
            _ = connection.as_mut() => break,
            _ = look.tick() => if phase.is_over(&limits) { return },
            () = guest.closed() => return,
            () = set(&mut stop), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
    drop(connection);
    // An upgraded connection keeps its place until its handler drops it. Such a handler ends when the server stops.
    let _ = released.await;
}

/// Waits until it is time to stop; whoever could have said so may be gone, which is the same.
pub(super) async fn set(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// What a connection is at, and since when: two bits and milliseconds since it was accepted, in one word.
pub(super) struct Phase {
    accepted: Instant,
    word: AtomicU64,
}

impl Phase {
    /// Nothing has come yet, or a head is coming.
    const HEAD: u64 = 0;
    /// A request is being answered.
    const ANSWER: u64 = 1;
    /// The answer is out, or on its way, and no further request has begun.
    pub(super) const IDLE: u64 = 2;
    /// An answer without an end is on its way.
    pub(super) const STREAM: u64 = 3;

    fn new() -> Self {
        Self { accepted: Instant::now(), word: AtomicU64::new(Self::HEAD) }
    }

    pub(super) fn enter(&self, phase: u64) {
        let millis = u64::try_from(self.accepted.elapsed().as_millis()).unwrap_or(u64::MAX >> 2);
        self.word.store(millis << 2 | phase, Ordering::Relaxed);
    }

    /// Bytes came: after an answer they are the head of the next request.
    fn heard(&self) {
        if self.word.load(Ordering::Relaxed) & 3 == Self::IDLE {
            self.enter(Self::HEAD);
        }
    }

    fn is_over(&self, limits: &Limits) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let limit = match word & 3 {
            Self::ANSWER => limits.answer,
            Self::IDLE | Self::STREAM => limits.idle,
            _ => limits.head,
        };
        self.accepted.elapsed().saturating_sub(Duration::from_millis(word >> 2)) > limit
    }
}

/// A stream that tells when bytes come.
struct Watched {
    stream: TcpStream,
    phase: Arc<Phase>,
    /// Dropped with the stream, which tells `converse` that it is gone.
    _held: oneshot::Sender<()>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.phase.heard();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
