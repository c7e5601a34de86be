//! The body of an answer, watched: whether it makes progress, and whether it has to end because the server
//! stops.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::watch;

use super::open_connections::OpenConnection;
use super::server::set;

/// A body that the connection sends.
pub(super) enum AnswerBody {
    /// One whose length is known. It is complete, so it is sent even if the server stops.
    Whole { body: Body, _sending: Sending },
    /// One without a known end, such as server-sent events.
    Stream(Stream),
    /// The end of HTTP on this connection.
    Upgrade(Body),
}

/// Tells the connection when the body is complete, which is when the body is dropped.
pub(super) struct Sending(Arc<OpenConnection>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.phase().sent();
    }
}

pub(super) struct Stream {
    body: Body,
    sending: Sending,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl AnswerBody {
    pub(super) fn new(body: Body, open: &Arc<OpenConnection>, stop: &watch::Receiver<bool>) -> Self {
        open.sending();
        let sending = Sending(open.clone());
        if body.size_hint().exact().is_some() {
            return Self::Whole { body, _sending: sending };
        }
        let mut stop = stop.clone();
        let stopped = Box::pin(async move { set(&mut stop).await });
        Self::Stream(Stream { body, sending, stopped })
    }
}

impl Stream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // The connection asks for more only when the client has read what came before.
        self.sending.0.phase().sending();
        if self.stopped.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Whole { body, .. } | Self::Upgrade(body) => Pin::new(body).poll_frame(cx),
            Self::Stream(stream) => stream.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole { body, .. } | Self::Upgrade(body) => body.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole { body, .. } | Self::Upgrade(body) => body.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
