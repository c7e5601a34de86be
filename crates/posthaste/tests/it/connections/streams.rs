//! Answers without an end, and upgraded connections: they end when the server stops, and a reader that stops reading is closed.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use hyper_util::rt::TokioIo;
use posthaste::http::server::{self, Limits};
use posthaste_wire::listener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::program::PATIENCE;

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(200);

/// A body that never ends: quiet after its first piece, or as fast as it is read.
enum Endless {
    Quiet { said: bool },
    Fast,
}

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Quiet { said: true } => Poll::Pending,
            Self::Quiet { said } => {
                *said = true;
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"data: hello\n\n")))))
            }
            Self::Fast => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16 * 1024]))))),
        }
    }
}

/// Sends back what comes, until the server stops.
async fn echo(State(mut stop): State<watch::Receiver<bool>>, request: Request) -> Response {
    let upgraded = hyper::upgrade::on(request);
    #[expect(clippy::disallowed_methods, reason = "a test joins it by the end of the connection")]
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        let mut bytes = [0; 64];
        loop {
            tokio::select! {
                () = async { drop(stop.wait_for(|stop| *stop).await) } => return,
                read = stream.read(&mut bytes) => match read {
                    Ok(1..) => stream.write_all(&bytes).await.unwrap(),
                    _ => return,
                },
            }
        }
    });
    (StatusCode::SWITCHING_PROTOCOLS, [("connection", "upgrade"), ("upgrade", "echo")]).into_response()
}

struct Served {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Served {
    async fn start(idle: Duration) -> Self {
        let listener = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let router = Router::new()
            .route("/quiet", get(async || Body::new(Endless::Quiet { said: false })))
            .route("/fast", get(async || Body::new(Endless::Fast)))
            .route("/echo", get(echo))
            .with_state(stopped.clone());
        let limits = Limits { connections: 10, head: LONG, answer: LONG, idle };
        let mut tasks = JoinSet::new();
        tasks.spawn(server::serve(listener, router, limits, stopped, LONG));
        Self { address, stop, tasks }
    }

    async fn ask(&self, path: &str, more: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{more}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    /// The server stops, long before it would close what is open.
    async fn drain(mut self) {
        self.stop.send(true).unwrap();
        timeout(PATIENCE, self.tasks.join_next()).await.expect("the drain ends").unwrap().unwrap();
    }
}

async fn heard(stream: &mut TcpStream, wanted: &str) -> String {
    let mut heard = String::new();
    while !heard.contains(wanted) {
        let mut bytes = [0; 4096];
        let read = timeout(PATIENCE, stream.read(&mut bytes)).await.expect("it goes on").unwrap();
        assert!(read > 0, "it ended: {heard}");
        heard.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    heard
}

#[tokio::test]
async fn an_open_stream_ends_properly_when_the_server_stops() {
    let served = Served::start(LONG).await;
    let mut stream = served.ask("/quiet", "").await;
    let head = heard(&mut stream, "data: hello").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("transfer-encoding: chunked"), "{head}");
    served.drain().await;
    let mut rest = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut rest)).await.unwrap().unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "the body has its end: {rest:?}");
}

#[tokio::test]
async fn a_stream_whose_reader_stops_reading_is_closed() {
    let served = Served::start(SHORT).await;
    let mut stream = served.ask("/fast", "").await;
    heard(&mut stream, "xxx").await;
    // Nothing is read until the server has given up. What it had sent by then is followed by the end of the connection.
    let closed = async {
        let mut bytes = vec![0; 1024 * 1024];
        tokio::time::sleep(SHORT * 5).await;
        while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    };
    timeout(PATIENCE, closed).await.expect("the connection is closed");
    served.drain().await;
}

#[tokio::test]
async fn an_upgraded_connection_works_and_ends_with_the_server() {
    let served = Served::start(LONG).await;
    let mut stream = served.ask("/echo", "connection: upgrade\r\nupgrade: echo\r\n").await;
    let head = heard(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    stream.write_all(b"ping").await.unwrap();
    heard(&mut stream, "ping").await;
    served.drain().await;
    let mut rest = vec![];
    let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it is closed");
}
