//! A test receiver that fails on request: for tests, for `posthaste sink` and `posthaste dev`, and as the
//! upper limit of the bench.
//!
//! The path of a URL selects the response (`sink/script.rs`). Received requests are kept in a bounded list,
//! which the library returns and `GET /arrivals` shows. `/ok` does as little as possible, for the bench.

mod arrivals;
mod dial;
mod inbox;
mod script;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use posthaste_engine::clock::Clock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::arrivals::Arrivals;
pub use self::arrivals::ReceivedRequest;
use self::dial::Dials;
pub use self::dial::{BadDial, Dial};
pub use self::inbox::Inbox;
pub use self::script::PATHS;
use self::script::{Action, Script, Sequences};
use crate::listener;

/// In bytes.
const MAX_BODY: usize = 16 * 1024 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for open exchanges to end when the sink stops.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause after a failed accept. Accepting fails when the process is out of sockets.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

pub struct SinkOptions {
    /// The source of arrival times.
    pub clock: Arc<dyn Clock>,
    /// Limit on remembered requests; the oldest are dropped. With 0 they are only counted.
    pub keep: usize,
    /// Bytes of each body that are remembered.
    pub excerpt: usize,
    /// Bytes of the headers of each request that are remembered; a header that does not fit is left out.
    pub headers: usize,
    /// Limit on open connections. Further ones wait to be accepted.
    pub connections: usize,
    /// Limit on the time that a connection is idle or sends the head of a request.
    pub idle: Duration,
    /// Seed of the random numbers of `/flaky`, so that a run can be repeated.
    pub seed: u64,
}

impl SinkOptions {
    /// Keeps 1,000 requests with 1 KiB of body each and without headers, and allows 1,024 connections.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let idle = Duration::from_secs(60);
        Self { clock, keep: 1_000, excerpt: 1_024, headers: 0, connections: 1_024, idle, seed: 0 }
    }
}

/// A running receiver. Dropping it closes every connection.
pub struct Sink {
    address: SocketAddr,
    state: Arc<SinkState>,
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
}

struct SinkState {
    options: SinkOptions,
    address: SocketAddr,
    arrivals: Arrivals,
    sequences: Sequences,
    dials: Dials,
    accepted: AtomicU64,
}

impl Sink {
    /// Starts to listen. Port 0 picks a free port. Use a loopback address: every client that can connect can
    /// read the received requests.
    pub async fn start(address: SocketAddr, options: SinkOptions) -> io::Result<Self> {
        let listener = listener::bind(address)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        let state = Arc::new(SinkState {
            arrivals: Arrivals::new(options.keep),
            sequences: Sequences::new(options.seed),
            address,
            dials: Dials::default(),
            accepted: AtomicU64::new(0),
            options,
        });
        let mut running = JoinSet::new();
        running.spawn(listen(listener, state.clone(), stopped));
        Ok(Self { address, state, stop, running })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What a page shows of it, and its dial.
    pub fn inbox(&self) -> Inbox {
        Inbox::new(self.state.clone())
    }

    /// The remembered requests, oldest first.
    pub fn arrivals(&self) -> Vec<ReceivedRequest> {
        self.state.arrivals.list()
    }

    /// Number of requests since the start or the last `clear`, remembered or not.
    pub fn received(&self) -> u64 {
        self.state.arrivals.total()
    }

    /// Number of accepted connections.
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::Relaxed)
    }

    /// Waits until `count` requests have arrived.
    pub async fn wait_for(&self, count: u64) {
        self.state.arrivals.wait_for(count).await;
    }

    /// Forgets all requests and all positions in sequences.
    pub fn clear(&self) {
        self.state.clear();
    }

    /// Stops listening, waits a moment for open exchanges, and closes the rest.
    pub async fn stop(mut self) {
        // The send fails only if the loop has ended already.
        let _ = self.stop.send(true);
        while self.running.join_next().await.is_some() {}
    }
}

impl SinkState {
    fn clear(&self) {
        self.arrivals.clear();
        self.sequences.clear();
    }
}

async fn listen(listener: TcpListener, state: Arc<SinkState>, mut stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let room = connections.len() < state.options.connections;
        tokio::select! {
            biased;
            _ = stopped.changed() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if room => match accepted {
                Ok((stream, _)) => {
                    state.accepted.fetch_add(1, Ordering::Relaxed);
                    connections.spawn(serve(stream, state.clone(), stopped.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // The rest is closed when the set is dropped.
    let _ = tokio::time::timeout(STOP_TIMEOUT, ended).await;
}

/// Ends a connection without a response.
#[derive(Debug, thiserror::Error)]
#[error("cut off on request")]
struct Cut;

async fn serve(stream: TcpStream, state: Arc<SinkState>, mut stopped: watch::Receiver<bool>) {
    // Without it small responses wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(state.options.idle);
    let service = service_fn(|request| answer(&state, request));
    let mut connection = builder.serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = &mut connection => Some(ended),
        _ = stopped.changed() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    let cut = ended.is_err_and(|error| error.is_user());
    if cut {
        // With zero linger, closing the socket resets the connection.
        let _ = connection.into_parts().io.into_inner().set_zero_linger();
    }
}

async fn answer(state: &SinkState, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Cut> {
    if request.uri().path() == "/arrivals" {
        return Ok(arrivals(state, request.method()));
    }
    let Some(script) = Script::read(request.uri()) else {
        return Ok(text(StatusCode::NOT_FOUND, script::PATHS));
    };
    let (head, body) = request.into_parts();
    let excerpt = match tokio::time::timeout(BODY_TIMEOUT, read(body, state.options.excerpt)).await {
        Ok(Ok(excerpt)) => excerpt,
        Ok(Err(refused)) => return Ok(refused),
        Err(_) => return Ok(text(StatusCode::REQUEST_TIMEOUT, "the body took too long\n")),
    };
    let dial = state.dials.take();
    let by_path = || script.action(&state.sequences, head.uri.path(), id(&head.headers));
    let dialled = dial.and_then(|dial| dial.action());
    let action = dialled.unwrap_or_else(by_path);
    state.arrivals.record(|| ReceivedRequest {
        id: id(&head.headers).map(str::to_owned),
        attempt: header(&head.headers, "posthaste-attempt").and_then(|attempt| attempt.parse().ok()),
        timestamp: header(&head.headers, "webhook-timestamp").and_then(|seconds| seconds.parse().ok()),
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        headers: first_headers(&head.headers, state.options.headers),
        status: action.status(),
        at: state.options.clock.now(),
        body: String::from_utf8_lossy(&excerpt).into_owned(),
    });
    if let Some(delay) = dial.and_then(|dial| dial.delay()).or(script.delay) {
        tokio::time::sleep(delay).await;
    }
    match action {
        Action::Status(status) => Ok(scripted(status, script.retry_after.filter(|_| dialled.is_none()))),
        Action::Reset => Err(Cut),
        Action::Hang => {
            let never: Infallible = std::future::pending().await;
            match never {}
        }
    }
}

/// The headers that fit into so many bytes.
fn first_headers(headers: &HeaderMap, most: usize) -> Vec<(String, String)> {
    let (mut kept, mut bytes) = (vec![], 0);
    for (name, value) in headers.iter().filter(|_| most > 0) {
        bytes += name.as_str().len() + value.len();
        if bytes > most {
            break;
        }
        kept.push((name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    }
    kept
}

/// Returns the start of a body. The rest is read and dropped.
async fn read(body: Incoming, excerpt: usize) -> Result<Vec<u8>, Response<Full<Bytes>>> {
    let mut body = pin!(body);
    let (mut start, mut total) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| text(StatusCode::BAD_REQUEST, "the body broke off\n"))?;
        let Ok(data) = frame.into_data() else { continue };
        total += data.len();
        if total > MAX_BODY {
            return Err(text(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 16 MiB\n"));
        }
        start.extend_from_slice(&data[..data.len().min(excerpt - start.len())]);
    }
    Ok(start)
}

fn arrivals(state: &SinkState, method: &Method) -> Response<Full<Bytes>> {
    if *method == Method::GET {
        let mut response = Response::new(Full::from(state.arrivals.json()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        return response;
    }
    if *method == Method::DELETE {
        state.clear();
        return text(StatusCode::NO_CONTENT, "");
    }
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "GET shows what arrived, DELETE forgets it\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, DELETE"));
    response
}

fn scripted(status: StatusCode, retry_after: Option<HeaderValue>) -> Response<Full<Bytes>> {
    let body = match status {
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED => "",
        _ if status.is_success() => "ok\n",
        _ => "failed as told\n",
    };
    let mut response = text(status, body);
    if let Some(retry_after) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, retry_after);
    }
    response
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    if !body.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    }
    response
}

fn id(headers: &HeaderMap) -> Option<&str> {
    header(headers, "webhook-id")
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
