//! HTTP/1.1 and HTTP/2 behind one sender and one driver.
//!
//! HTTP/2 is spoken as HTTP/1.1 is: one exchange at a time on a connection that the caller drives. So a pool, a
//! deadline and a dropped future mean the same for both.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;

use super::dial::Stream;

/// Limit on the bytes of a response's head.
const MAX_HEAD: u32 = 64 * 1024;

/// Which version of HTTP a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    #[default]
    Http1,
    /// Over TLS only. A server that does not speak it is refused.
    Http2,
}

impl Protocol {
    /// The name in a TLS handshake (ALPN).
    pub(super) const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

type Body = Full<Bytes>;
type Outcome = Result<Response<Incoming>, TrySendError<Request<Body>>>;

pub(super) enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// Moves the bytes of a connection while it is polled.
#[expect(clippy::large_enum_variant, reason = "nearly every connection is of the large variant")]
pub(super) enum Driver {
    Http1(http1::Connection<TokioIo<Stream>, Body>),
    Http2(Box<http2::Connection<TokioIo<Stream>, Body, Tasks>>, Tasks),
}

/// Starts HTTP on an open stream.
pub(super) async fn open(stream: Stream, protocol: Protocol) -> hyper::Result<(Sender, Driver)> {
    let stream = TokioIo::new(stream);
    match protocol {
        Protocol::Http1 => {
            let mut builder = http1::Builder::new();
            let (sender, driver) = builder.max_buf_size(MAX_HEAD as usize).handshake(stream).await?;
            Ok((Sender::Http1(sender), Driver::Http1(driver)))
        }
        Protocol::Http2 => {
            let tasks = Tasks::default();
            let mut builder = http2::Builder::new(tasks.clone());
            let (sender, driver) = builder.max_header_list_size(MAX_HEAD).handshake(stream).await?;
            Ok((Sender::Http2(sender), Driver::Http2(Box::new(driver), tasks)))
        }
    }
}

impl Sender {
    pub(super) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        match self {
            Self::Http1(sender) => sender.poll_ready(context),
            Self::Http2(sender) => sender.poll_ready(context),
        }
    }

    pub(super) async fn send(&mut self, request: Request<Body>) -> Outcome {
        match self {
            Self::Http1(sender) => sender.try_send_request(request).await,
            Self::Http2(sender) => sender.try_send_request(request).await,
        }
    }
}

impl Driver {
    /// Returns whether the connection has ended. Then it must not be polled again.
    pub(super) fn has_ended(&mut self, context: &mut Context<'_>) -> bool {
        match self {
            Self::Http1(connection) => Pin::new(connection).poll(context).is_ready(),
            Self::Http2(connection, tasks) => {
                // The tasks read from the socket, so the connection sees a close only after them.
                tasks.poll(context);
                let has_ended = Pin::new(connection).poll(context).is_ready();
                tasks.poll(context);
                has_ended
            }
        }
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The parts of an HTTP/2 connection, which hyper would like to be spawned. The driver polls them instead, so that
/// nothing runs once the connection is dropped.
#[derive(Clone, Default)]
pub(super) struct Tasks(Arc<Mutex<Vec<Task>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.lock().expect("no code panics while it holds the tasks").push(Box::pin(task));
    }
}

impl Tasks {
    /// Polls all of them, also those that are added meanwhile.
    fn poll(&self, context: &mut Context<'_>) {
        let mut pending = Vec::new();
        loop {
            // A task may add others while it is polled, so the lock is not held meanwhile.
            let Some(mut task) = self.0.lock().expect("no code panics while it holds the tasks").pop() else {
                break;
            };
            if task.as_mut().poll(context).is_pending() {
                pending.push(task);
            }
        }
        *self.0.lock().expect("no code panics while it holds the tasks") = pending;
    }
}
