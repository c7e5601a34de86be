//! The phases of a connection, each with a limit: here the answer, which takes too long to be made or to be read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use posthaste::http::server::{self, Limits};
use posthaste_wire::listener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::program::PATIENCE;

/// Longer than a test waits.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(200);
const LIMITS: Limits = Limits { connections: 10, head: LONG, answer: LONG, idle: LONG };

/// More than the buffers of a connection take.
const LARGE: usize = 64 * 1024 * 1024;

/// A body that tells when it is let go.
struct Body {
    bytes: Vec<u8>,
    let_go: Arc<Notify>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.let_go.notify_one();
    }
}

fn slow(let_go: Arc<Notify>) -> Router {
    let large = async move || {
        let body = Body { bytes: vec![b'x'; LARGE], let_go };
        Bytes::from_owner(body)
    };
    Router::new().route("/never", get(std::future::pending::<()>)).route("/large", get(large))
}

/// A server with such limits. It ends when the set is dropped.
async fn start(limits: Limits, let_go: Arc<Notify>) -> (SocketAddr, JoinSet<()>) {
    let listener = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (_stop, stopped) = watch::channel(false);
        server::serve(listener, slow(let_go), limits, stopped, Duration::ZERO).await;
    });
    (address, tasks)
}

async fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_request_that_is_never_answered_is_cut_off() {
    let (address, _tasks) = start(Limits { answer: SHORT, ..LIMITS }, Arc::default()).await;
    let mut stream = ask(address, "/never").await;
    let mut heard = vec![];
    // The end may come as an error; there is one in any case.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("it is cut off");
    assert!(heard.is_empty(), "{}", String::from_utf8_lossy(&heard));
}

#[tokio::test]
async fn a_client_that_does_not_read_a_large_answer_is_cut_off_and_the_answer_let_go() {
    let let_go = Arc::new(Notify::new());
    let (address, _tasks) = start(Limits { idle: SHORT, ..LIMITS }, let_go.clone()).await;
    let stream = ask(address, "/large").await;
    timeout(PATIENCE, stream.readable()).await.expect("the answer begins").unwrap();
    timeout(PATIENCE, let_go.notified()).await.expect("it is cut off");
}
