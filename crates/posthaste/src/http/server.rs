//! The accept loop: a bounded number of connections, each with a limit on how long it may take for what.
//!
//! Invariant: no connection lives for longer than its phase allows without making progress. A client that
//! sends nothing, sends its head a byte at a time, goes idle or does not read its answer is cut off.
//!
//! Invariant: no answer outlasts the drain. A stream ends when the server stops.
//!
//! Invariant: connections that wait for a request keep nobody out; one of them is closed for a new one
//! (`open_connections`).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::{Request, StatusCode};
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
use super::open_connections::{OpenConnection, OpenConnections};

/// How long a connection may take for what.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most connections at a time. While all of them have a request under way, others wait.
    pub connections: usize,
    /// From the connection to its first byte, and from the first byte of a request to the end of its head.
    pub head: Duration,
    /// From the end of a head to the answer.
    pub answer: Duration,
    /// Between an answer and the next request; the client has to read the answer in this time, and what is on
    /// its way of a stream. A stream has to send something more often than this.
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

/// Number of checks of a connection within its shortest limit.
const CHECKS_PER_LIMIT: u32 = 4;
/// Pause after a connection could not be accepted, which is when the program is out of sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop` is set, then lets the exchanges under way end within `grace` and closes what is left.
pub async fn serve<A: Answer>(
    listener: TcpListener,
    answer: A,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
    grace: Duration,
) {
    let (mut connections, open) = (JoinSet::new(), OpenConnections::new(limits.connections));
    let told = stop.clone();
    let (mut failures, crowds) = (LogThrottle::new(), LogThrottle::new());
    // One connection more than there may be, which waits for its place, and whether one is being closed for
    // it.
    let (mut waits, mut has_room) = (None, true);
    loop {
        if connections.len() < limits.connections
            && let Some(stream) = waits.take()
        {
            has_room = true;
            let (stream, peer) = stream;
            let caller = Connection { open: Arc::new(open.add()), peer };
            connections.spawn(serve_connection(stream, caller, answer.clone(), limits, told.clone()));
        }
        tokio::select! {
            biased;
            () = set(&mut stop) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = open.closable(), if !has_room => has_room = make_room(&open, &crowds),
            accepted = listener.accept(), if waits.is_none() => match accepted {
                Ok(stream) => {
                    if failures.recovered() {
                        tracing::info!("connections are accepted again");
                    }
                    waits = Some(stream);
                    has_room = connections.len() < limits.connections || make_room(&open, &crowds);
                }
                Err(error) => {
                    if let Some(times) = failures.count(Instant::now()) {
                        tracing::warn!(%error, times, "no connection can be accepted");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // What does not end in time is closed as the set is dropped.
    let _ = tokio::time::timeout(grace, ended).await;
}

/// Closes a connection for another, and returns whether there is one that can be closed.
fn make_room(open: &OpenConnections, crowds: &LogThrottle) -> bool {
    let closed = open.close_one();
    if closed && let Some(times) = crowds.count(Instant::now()) {
        tracing::warn!(
            times,
            "all server.connections are open: one that waits for a request is closed for another"
        );
    }
    closed
}

/// A connection, as handlers see it.
#[derive(Debug, Clone)]
pub struct Connection {
    pub(super) open: Arc<OpenConnection>,
    pub(super) peer: SocketAddr,
}

async fn serve_connection<A: Answer>(
    stream: TcpStream,
    caller: Connection,
    answer: A,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    // Answers are small; without it they would wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let open = caller.open.clone();
    let stopped = stop.clone();
    let service = service_fn(|request: Request<Incoming>| {
        let (answer, caller, stopped) = (&answer, &caller, &stopped);
        let comes_in_time = caller.open.phase().request();
        async move {
            if !comes_in_time {
                // The connection is being closed. What is not answered must not be done either.
                return std::future::pending().await;
            }
            let response = answer.answer(request.map(Body::new), caller).await;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                caller.open.phase().upgraded();
                return Ok::<_, Infallible>(response.map(AnswerBody::Upgrade));
            }
            Ok(response.map(|body| AnswerBody::new(body, &caller.open, stopped)))
        }
    });
    let (held, released) = oneshot::channel();
    let io = TokioIo::new(ObservedStream { stream, open: open.clone(), _held: held });
    let mut builder = http1::Builder::new();
    builder.keep_alive(true).max_buf_size(64 * 1024);
    let mut connection = Box::pin(builder.serve_connection(io, service).with_upgrades());
    let mut check = tokio::time::interval(limits.head.min(limits.answer).min(limits.idle) / CHECKS_PER_LIMIT);
    let mut stopping = false;
    loop {
        tokio::select! {
            _ = connection.as_mut() => break,
            _ = check.tick() => if open.phase().is_over(&limits) { return },
            () = open.closed() => return,
            () = set(&mut stop), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
    drop(connection);
    // An upgraded connection keeps its place until its handler drops it. Such a handler ends when the server
    // stops.
    let _ = released.await;
}

/// Waits for the signal to stop. If its sender is gone, that counts as the signal.
pub(super) async fn set(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// A stream that records when bytes arrive, and when all have been sent.
struct ObservedStream {
    stream: TcpStream,
    open: Arc<OpenConnection>,
    /// Dropped with the stream, which tells `serve_connection` that it is gone.
    _held: oneshot::Sender<()>,
}

impl AsyncRead for ObservedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.open.phase().received();
        }
        read
    }
}

impl AsyncWrite for ObservedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        // hyper flushes only when it has written all that it holds.
        if let Poll::Ready(Ok(())) = flushed {
            self.open.flushed();
        }
        flushed
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
