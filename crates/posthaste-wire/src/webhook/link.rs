//! One HTTP/1.1 connection and the exchanges on it.
//!
//! The connection is driven by whoever uses it, not by a task of its own: dropping the exchange closes the socket, and
//! nothing is left running behind it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::dial::Stream;

/// How much of an answer is kept for people.
const EXCERPT: usize = 4 * 1024;
/// How much more of it is read to keep the connection. A longer answer closes it.
const DRAIN: u64 = 64 * 1024;
/// The most bytes of an answer's head.
const LARGEST_HEAD: usize = 64 * 1024;

type Wire = Connection<TokioIo<Stream>, Full<Bytes>>;

/// An open connection.
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// Gone as soon as it has ended, so that it is not asked again.
    wire: Option<Wire>,
    born: Instant,
}

/// Why a request got no answer.
pub(super) enum Unanswered {
    /// The connection was closed before any byte of the request went out; here it is again.
    Unsent(Box<Request<Full<Bytes>>>),
    /// The connection broke, and what the other side saw cannot be known.
    Broken(hyper::Error),
}

impl Link {
    /// Starts HTTP on an open connection.
    pub(super) async fn open(stream: Stream) -> hyper::Result<Self> {
        let mut builder = http1::Builder::new();
        let (sender, wire) = builder.max_buf_size(LARGEST_HEAD).handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, wire: Some(wire), born: Instant::now() })
    }

    /// When it was opened.
    pub(super) const fn born(&self) -> Instant {
        self.born
    }

    /// Whether it can take a request now. It looks at the socket, so it sees what happened while nobody did.
    pub(super) async fn is_ready(&mut self) -> bool {
        let (sender, wire) = (&mut self.sender, &mut self.wire);
        let ready = drive(wire, poll_fn(|context| Poll::Ready(sender.poll_ready(context)))).await;
        matches!(ready, Poll::Ready(Ok(()))) && self.wire.is_some()
    }

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn ask(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let answer = self.sender.try_send_request(request);
        drive(&mut self.wire, answer).await.map_err(|mut error| match error.take_message() {
            Some(request) => Unanswered::Unsent(Box::new(request)),
            None => Unanswered::Broken(error.into_error()),
        })
    }

    /// Reads the start of a body into `start`, and the rest of it to keep the connection, until a point in time. Returns
    /// whether the body was read to its end. A body that breaks off or does not end leaves in `start` what arrived of it.
    pub(super) async fn read(&mut self, body: Incoming, start: &mut Vec<u8>, until: Instant) -> bool {
        tokio::time::timeout_at(until, self.read_whole(body, start)).await.unwrap_or(false)
    }

    async fn read_whole(&mut self, mut body: Incoming, start: &mut Vec<u8>) -> bool {
        while start.len() < EXCERPT {
            let Some(frame) = drive(&mut self.wire, body.frame()).await else { return true };
            let Ok(frame) = frame else { return false };
            if let Some(data) = frame.data_ref() {
                start.extend_from_slice(&data[..data.len().min(EXCERPT - start.len())]);
            }
        }
        self.drain(body).await
    }

    async fn drain(&mut self, mut body: Incoming) -> bool {
        let mut left = DRAIN;
        loop {
            if body.size_hint().lower() > left {
                return false;
            }
            let Some(frame) = drive(&mut self.wire, body.frame()).await else { return true };
            let Ok(frame) = frame else { return false };
            left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
            if left == 0 {
                return false;
            }
        }
    }
}

/// How long the other side says it keeps an idle connection (`keep-alive: timeout=5`).
pub(super) fn keeps_for(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("keep-alive")?.to_str().ok()?;
    let seconds = value.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// Waits for `future` while driving the connection that it depends on. When the connection ends it is dropped, and with
/// it whatever `future` could still have waited for.
async fn drive<F: Future>(wire: &mut Option<Wire>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Some(open) = wire.as_mut()
            && Pin::new(open).poll(context).is_ready()
        {
            *wire = None;
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

    async fn link() -> (Link, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1_024);
        (Link::open(Box::new(ours)).await.unwrap(), theirs)
    }

    fn request() -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::from("hello"));
        request.headers_mut().insert("x-a", HeaderValue::from_static("1"));
        request
    }

    #[tokio::test]
    async fn a_request_to_a_connection_that_has_ended_comes_back_whole() {
        let (mut link, theirs) = link().await;
        assert!(link.is_ready().await);
        drop(theirs);
        let Err(Unanswered::Unsent(unsent)) = link.ask(request()).await else { panic!() };
        assert_eq!(unsent.headers()["x-a"], "1");
        assert_eq!(unsent.into_body().collect().await.unwrap().to_bytes(), "hello");
        assert!(!link.is_ready().await);
    }

    #[tokio::test]
    async fn a_request_of_which_a_byte_went_out_does_not_come_back() {
        let (mut link, mut theirs) = link().await;
        let peer = async {
            theirs.read_exact(&mut [0]).await.unwrap();
            drop(theirs);
        };
        let (answer, ()) = tokio::join!(link.ask(request()), peer);
        assert!(matches!(answer, Err(Unanswered::Broken(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_a_little_slow_is_read_to_its_end_and_a_slower_one_is_not() {
        let limit = Duration::from_millis(250);
        for (pause, whole) in [(0, true), (240, true), (260, false), (60_000, false)] {
            let (mut link, mut theirs) = link().await;
            let peer = async {
                theirs.read_exact(&mut [0; 20]).await.unwrap();
                theirs.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await.unwrap();
                tokio::time::sleep(Duration::from_millis(pause)).await;
                theirs.write_all(b"def").await.unwrap();
            };
            let us = async {
                let Ok(answer) = link.ask(request()).await else { panic!() };
                let mut start = Vec::new();
                let read = link.read(answer.into_body(), &mut start, Instant::now() + limit).await;
                (read, start.len(), read && link.is_ready().await)
            };
            let (told, ()) = tokio::join!(us, peer);
            assert_eq!(told, if whole { (true, 6, true) } else { (false, 3, false) }, "{pause} ms");
        }
    }

    #[tokio::test]
    async fn a_connection_that_speaks_unasked_is_not_ready() {
        let (mut link, mut theirs) = link().await;
        theirs.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.unwrap();
        assert!(!link.is_ready().await);
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
            assert_eq!(keeps_for(&headers), seconds.map(Duration::from_secs), "{value}");
        }
    }
}
