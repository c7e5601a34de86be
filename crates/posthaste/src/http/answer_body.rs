//! The body of an answer, watched: whether it makes progress, and whether it has to end because the server stops.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::watch;

use super::server::{Phase, set};

/// A body that the connection sends.
pub(super) enum AnswerBody {
    /// One whose length is known. It is complete, so it is sent even if the server stops.
    Whole(Body),
    /// One without a known end, such as server-sent events.
    Stream(Stream),
}

pub(super) struct Stream {
    body: Body,
    phase: Arc<Phase>,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl AnswerBody {
    pub(super) fn new(body: Body, phase: &Arc<Phase>, stop: &watch::Receiver<bool>) -> Self {
        if body.size_hint().exact().is_some() {
            phase.enter(Phase::IDLE);
            return Self::Whole(body);
        }
        phase.enter(Phase::STREAM);
        let mut stop = stop.clone();
        let stopped = Box::pin(async move { set(&mut stop).await });
        Self::Stream(Stream { body, phase: phase.clone(), stopped })
    }
}

impl Stream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // The connection asks for more only when the client has read what came before.
        self.phase.enter(Phase::STREAM);
        if self.stopped.as_mut().poll(cx).is_ready() {
            self.phase.enter(Phase::IDLE);
            return Poll::Ready(None);
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = frame {
            self.phase.enter(Phase::IDLE);
        }
        frame
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
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Stream(stream) => stream.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
