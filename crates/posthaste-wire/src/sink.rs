//! A receiver that fails as told: for the tests, for `posthaste sink` and `dev`, and as the limit of the bench.
//!
//! What it answers is written in the path (`sink/script.rs`). What arrived, and when, is kept in a bounded list that the
//! library hands out and that `GET /arrivals` shows. The plain `/ok` does no more than it must.

mod arrivals;
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

pub use self::arrivals::Arrival;
use self::arrivals::Arrivals;
pub use self::script::PATHS;
use self::script::{Script, Step, Turns};

/// The largest body that is taken.
const LARGEST_BODY: usize = 16 * 1024 * 1024;
/// How long a request's body may take.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// How long open exchanges may take to end when the sink is stopped.
const GRACE: Duration = Duration::from_millis(500);
/// How long to wait when no connection can be accepted, which is when the program is out of sockets.
const BREATH: Duration = Duration::from_millis(50);

/// What a sink is made of.
pub struct SinkOptions {
    /// Tells when something arrived.
    pub clock: Arc<dyn Clock>,
    /// The most arrivals that are remembered; the oldest make room. With 0 they are only counted.
    pub keep: usize,
    /// The most bytes of each body that are remembered.
    pub excerpt: usize,
    /// The most connections at a time; more wait to be accepted.
    pub connections: usize,
    /// How long a connection may take to send a request's head, or wait idle.
    pub idle: Duration,
    /// Where the draws of `/flaky` start, so that a run can be repeated.
    pub seed: u64,
}

impl SinkOptions {
    /// A thousand arrivals with 1 KiB of body each, a thousand connections.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let idle = Duration::from_secs(60);
        Self { clock, keep: 1_000, excerpt: 1_024, connections: 1_024, idle, seed: 0 }
    }
}

/// A running receiver. Dropping it closes every connection.
pub struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
}

struct Shared {
    options: SinkOptions,
    arrivals: Arrivals,
    turns: Turns,
    accepted: AtomicU64,
}

impl Sink {
    /// Starts to listen. Port 0 is any free one. Whoever can reach the address can read what arrived, so it should be a
    /// loopback address.
    pub async fn start(address: SocketAddr, options: SinkOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared {
            arrivals: Arrivals::new(options.keep),
            turns: Turns::new(options.seed),
            accepted: AtomicU64::new(0),
            options,
        });
        let mut running = JoinSet::new();
        running.spawn(listen(listener, shared.clone(), stopped));
        Ok(Self { address, shared, stop, running })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What arrived, the oldest first.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.arrivals.list()
    }

    /// How many notifications arrived, remembered or not, since the start or the last `clear`.
    pub fn received(&self) -> u64 {
        self.shared.arrivals.total()
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Waits until that many notifications have arrived.
    pub async fn wait_for(&self, count: u64) {
        self.shared.arrivals.wait_for(count).await;
    }

    /// Forgets what arrived, and every place in a sequence.
    pub fn clear(&self) {
        self.shared.clear();
    }

    /// Stops to listen, lets open exchanges end for a moment, and closes what is left.
    pub async fn stop(mut self) {
        // Nobody listens any more if the loop has ended already.
        let _ = self.stop.send(true);
        while self.running.join_next().await.is_some() {}
    }
}

impl Shared {
    fn clear(&self) {
        self.arrivals.clear();
        self.turns.clear();
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let room = connections.len() < shared.options.connections;
        tokio::select! {
            biased;
            _ = stopped.changed() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if room => match accepted {
                Ok((stream, _)) => {
                    shared.accepted.fetch_add(1, Ordering::Relaxed);
                    connections.spawn(serve(stream, shared.clone(), stopped.clone()));
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // What does not end in time is closed as the set is dropped.
    let _ = tokio::time::timeout(GRACE, ended).await;
}

/// A connection that is to be cut off without an answer.
#[derive(Debug, thiserror::Error)]
#[error("cut off as told")]
struct Cut;

async fn serve(stream: TcpStream, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    // Answers are small; without it they would wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(shared.options.idle);
    let service = service_fn(|request| answer(&shared, request));
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
        // With nothing to linger for, closing the socket resets the connection.
        let _ = connection.into_parts().io.into_inner().set_zero_linger();
    }
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Cut> {
    if request.uri().path() == "/arrivals" {
        return Ok(arrivals(shared, request.method()));
    }
    let Some(script) = Script::read(request.uri()) else {
        return Ok(text(StatusCode::NOT_FOUND, script::PATHS));
    };
    let (head, body) = request.into_parts();
    let excerpt = match tokio::time::timeout(BODY_WITHIN, read(body, shared.options.excerpt)).await {
        Ok(Ok(excerpt)) => excerpt,
        Ok(Err(refused)) => return Ok(refused),
        Err(_) => return Ok(text(StatusCode::REQUEST_TIMEOUT, "the body took too long\n")),
    };
    let step = script.step(&shared.turns, head.uri.path(), id(&head.headers));
    shared.arrivals.note(|| Arrival {
        id: id(&head.headers).map(str::to_owned),
        attempt: header(&head.headers, "posthaste-attempt").and_then(|attempt| attempt.parse().ok()),
        timestamp: header(&head.headers, "webhook-timestamp").and_then(|seconds| seconds.parse().ok()),
        path: head.uri.path().to_owned(),
        status: step.status(),
        at: shared.options.clock.now(),
        body: String::from_utf8_lossy(&excerpt).into_owned(),
    });
    if let Some(delay) = script.delay {
        tokio::time::sleep(delay).await;
    }
    match step {
        Step::Status(status) => Ok(scripted(status, script.retry_after)),
        Step::Reset => Err(Cut),
        Step::Hang => {
            let never: Infallible = std::future::pending().await;
            match never {}
        }
    }
}

/// The start of a body; the rest is read and forgotten.
async fn read(body: Incoming, excerpt: usize) -> Result<Vec<u8>, Response<Full<Bytes>>> {
    let mut body = pin!(body);
    let (mut start, mut total) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| text(StatusCode::BAD_REQUEST, "the body broke off\n"))?;
        let Ok(data) = frame.into_data() else { continue };
        total += data.len();
        if total > LARGEST_BODY {
            return Err(text(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 16 MiB\n"));
        }
        start.extend_from_slice(&data[..data.len().min(excerpt - start.len())]);
    }
    Ok(start)
}

fn arrivals(shared: &Shared, method: &Method) -> Response<Full<Bytes>> {
    if *method == Method::GET {
        let mut response = Response::new(Full::from(shared.arrivals.json()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        return response;
    }
    if *method == Method::DELETE {
        shared.clear();
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
    response
}

fn id(headers: &HeaderMap) -> Option<&str> {
    header(headers, "webhook-id")
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
