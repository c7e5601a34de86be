//! An open connection and the task that drives it.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use tokio::task::JoinSet;

/// Dropping it closes the connection.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<()>,
}

/// The error, and the request if it surely was not sent.
type Unanswered = (hyper::Error, Option<Request<Full<Bytes>>>);

impl Connection {
    /// Starts HTTP on a stream.
    pub(super) async fn new<S>(stream: S) -> Result<Self, hyper::Error>
    where
        S: Read + Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(stream).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // The caller that waits for the response gets the error.
            let _ = connection.await;
        });
        Ok(Self { sender, _driver: driver })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unanswered> {
        if let Err(error) = self.sender.ready().await {
            return Err((error, Some(request)));
        }
        self.sender.try_send_request(request).await.map_err(|mut failed| {
            let unsent = failed.take_message();
            (failed.into_error(), unsent)
        })
    }
}
