//! A server that says the same to everybody: a receiver with bad manners, or a page of somebody else.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Ends with its value.
pub(super) struct RawServer {
    pub(super) address: SocketAddr,
    _running: JoinSet<()>,
}

impl RawServer {
    pub(super) async fn start(answer: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(exchange(stream, answer.clone()));
            }
        });
        Self { address, _running: running }
    }
}

/// Reads one request to its end, so that closing does not reset the connection, and answers it.
async fn exchange(mut stream: TcpStream, answer: String) {
    let (mut read, mut chunk) = (vec![], [0; 16 * 1024]);
    while !is_whole(&read) {
        match stream.read(&mut chunk).await {
            Ok(length @ 1..) => read.extend_from_slice(&chunk[..length]),
            _ => return,
        }
    }
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    length.is_none_or(|length| body.len() >= length.trim().parse().unwrap())
}

/// An answer over HTTP, for one connection.
pub(super) fn answer(status: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}
