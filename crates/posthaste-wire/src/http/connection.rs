//! One connection and the exchanges on it.
//!
//! No task of its own drives the connection, only the caller: dropping the exchange closes the socket and
//! leaves nothing running.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use tokio::time::Instant;

use super::dial::Stream;
use super::protocol::{self, Driver, Protocol, Sender};

/// Bytes of a response that are kept for people.
const MAX_EXCERPT: usize = 4 * 1024;
/// Further bytes that are read to keep the connection open. A longer response closes it.
const MAX_DRAIN: u64 = 64 * 1024;

pub(super) struct HttpConnection {
    sender: Sender,
    /// `None` once it has ended: it must not be polled again.
    driver: Option<Driver>,
    opened_at: Instant,
}

/// Why a request got no response.
pub(super) enum Unanswered {
    /// The connection was closed before any byte of the request was written.
    Unsent(Box<Request<Full<Bytes>>>),
    /// The connection broke, and the request may have arrived.
    Broken(hyper::Error),
}

/// Why a body was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    #[error("the connection broke")]
    Broken(#[from] hyper::Error),
    #[error("the body is too long")]
    TooLong,
    #[error("the body did not end in time")]
    Late,
}

impl HttpConnection {
    /// Starts HTTP on an open stream.
    pub(super) async fn open(stream: Stream, protocol: Protocol) -> hyper::Result<Self> {
        let (sender, driver) = protocol::open(stream, protocol).await?;
        Ok(Self { sender, driver: Some(driver), opened_at: Instant::now() })
    }

    pub(super) const fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// Returns whether the connection can take a request. Polls the socket, so that it sees a close by the
    /// other side.
    pub(super) async fn is_ready(&mut self) -> bool {
        let (sender, driver) = (&mut self.sender, &mut self.driver);
        let ready = drive(driver, poll_fn(|context| Poll::Ready(sender.poll_ready(context)))).await;
        matches!(ready, Poll::Ready(Ok(()))) && self.driver.is_some()
    }

    /// Sends a request and waits for the head of the response.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let response = self.sender.send(request);
        drive(&mut self.driver, response).await.map_err(|mut error| match error.take_message() {
            Some(request) => Unanswered::Unsent(Box::new(request)),
            None => Unanswered::Broken(error.into_error()),
        })
    }

    /// Reads the start of a body into `start`, and drains the rest to keep the connection, until `until`.
    /// Returns whether the body was read to its end. If not, `start` holds what has arrived.
    pub(super) async fn read(&mut self, body: Incoming, start: &mut Vec<u8>, until: Instant) -> bool {
        tokio::time::timeout_at(until, self.read_whole(body, start)).await.unwrap_or(false)
    }

    async fn read_whole(&mut self, mut body: Incoming, start: &mut Vec<u8>) -> bool {
        while start.len() < MAX_EXCERPT {
            let Some(frame) = drive(&mut self.driver, body.frame()).await else { return true };
            let Ok(frame) = frame else { return false };
            if let Some(data) = frame.data_ref() {
                start.extend_from_slice(&data[..data.len().min(MAX_EXCERPT - start.len())]);
            }
        }
        self.drain(body).await
    }

    /// Reads a body of at most `limit` bytes to its end.
    pub(super) async fn read_all(&mut self, mut body: Incoming, limit: usize) -> Result<Bytes, Unread> {
        let mut whole = BytesMut::new();
        while let Some(data) = self.chunk(&mut body).await? {
            if data.len() > limit - whole.len() {
                return Err(Unread::TooLong);
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }

    /// The next piece of a body; `None` at its end.
    pub(super) async fn chunk(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, Unread> {
        loop {
            let Some(frame) = drive(&mut self.driver, body.frame()).await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
    }

    async fn drain(&mut self, mut body: Incoming) -> bool {
        let mut left = MAX_DRAIN;
        loop {
            if body.size_hint().lower() > left {
                return false;
            }
            let Some(frame) = drive(&mut self.driver, body.frame()).await else { return true };
            let Ok(frame) = frame else { return false };
            left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
            if left == 0 {
                return false;
            }
        }
    }
}

/// How long the server keeps an idle connection (`keep-alive: timeout=5`).
pub(super) fn keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("keep-alive")?.to_str().ok()?;
    let seconds = value.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// Waits for `future` while driving the connection that it depends on. The connection is dropped when it
/// ends, which also ends `future`.
async fn drive<F: Future>(driver: &mut Option<Driver>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Some(open) = driver.as_mut()
            && open.has_ended(context)
        {
            *driver = None;
        }
        future.as_mut().poll(context)
    })
    .await
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    async fn connection() -> (HttpConnection, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1_024);
        (HttpConnection::open(Box::new(ours), Protocol::Http1).await.unwrap(), theirs)
    }

    fn request() -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::from("hello"));
        request.headers_mut().insert("x-a", HeaderValue::from_static("1"));
        request
    }

    #[tokio::test]
    async fn a_request_to_a_connection_that_has_ended_comes_back_whole() {
        let (mut connection, theirs) = connection().await;
        assert!(connection.is_ready().await);
        drop(theirs);
        let Err(Unanswered::Unsent(unsent)) = connection.send(request()).await else { panic!() };
        assert_eq!(unsent.headers()["x-a"], "1");
        assert_eq!(unsent.into_body().collect().await.unwrap().to_bytes(), "hello");
        assert!(!connection.is_ready().await);
    }

    #[tokio::test]
    async fn a_request_of_which_a_byte_went_out_does_not_come_back() {
        let (mut connection, mut theirs) = connection().await;
        let peer = async {
            theirs.read_exact(&mut [0]).await.unwrap();
            drop(theirs);
        };
        let (answer, ()) = tokio::join!(connection.send(request()), peer);
        assert!(matches!(answer, Err(Unanswered::Broken(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_a_little_slow_is_read_to_its_end_and_a_slower_one_is_not() {
        let limit = Duration::from_millis(250);
        for (pause, whole) in [(0, true), (240, true), (260, false), (60_000, false)] {
            let (mut connection, mut theirs) = connection().await;
            let peer = async {
                theirs.read_exact(&mut [0; 20]).await.unwrap();
                theirs.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await.unwrap();
                tokio::time::sleep(Duration::from_millis(pause)).await;
                theirs.write_all(b"def").await.unwrap();
            };
            let us = async {
                let Ok(answer) = connection.send(request()).await else { panic!() };
                let mut start = Vec::new();
                let read = connection.read(answer.into_body(), &mut start, Instant::now() + limit).await;
                (read, start.len(), read && connection.is_ready().await)
            };
            let (seen, ()) = tokio::join!(us, peer);
            assert_eq!(seen, if whole { (true, 6, true) } else { (false, 3, false) }, "{pause} ms");
        }
    }

    #[tokio::test]
    async fn a_connection_that_speaks_unasked_is_not_ready() {
        let (mut connection, mut theirs) = connection().await;
        theirs.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.unwrap();
        assert!(!connection.is_ready().await);
    }

    #[test]
    fn the_hint_of_the_other_side_is_read() {
        for (value, seconds) in [
            ("timeout=5", Some(5)),
            ("max=100, timeout=5", Some(5)),
            ("timeout=x", None),
            ("max=1", None),
            ("timeout=99999999999999999999", None),
        ] {
            let headers =
                HeaderMap::from_iter([("keep-alive".parse().unwrap(), HeaderValue::from_static(value))]);
            assert_eq!(keep_alive(&headers), seconds.map(Duration::from_secs), "{value}");
        }
    }
}
