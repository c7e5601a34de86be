//! The webhook channel: one POST to the recipient's own URL.
//!
//! Invariant: no redirect is followed, no proxy is used, and every connection goes to an address that the
//! guard has checked. One deadline covers the exchange, from the DNS lookup to the head of the response. The
//! head decides: the body is an excerpt for people, and failing to read it only costs the connection.

mod connection;
mod dial;
mod fair_slots;
mod headers;
mod lookups;
mod pool;
mod resolve;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use http::{Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use posthaste_core::notification::{Body, Notification, Tenant};
use posthaste_core::reply::{Fault, Reply};
use posthaste_core::retry_after;
use posthaste_engine::channel::{Channel, Delivery};
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use self::connection::{HttpConnection, Unanswered, keep_alive};
use self::dial::{Dialer, ExchangeError, Stage};
pub use self::headers::{BadHeader, check_headers};
use self::lookups::Lookups;
use self::pool::Pool;
pub use self::pool::PoolLimits;
pub use self::resolve::{Resolve, SystemResolver};
use crate::guard::{Guard, RefusedUrl, Target};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const POSTHASTE_ATTEMPT: HeaderName = HeaderName::from_static("posthaste-attempt");
const OUR_USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("Posthaste/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Time limit for reading the body of a response.
const EXCERPT_TIMEOUT: Duration = Duration::from_millis(250);
/// The body is read until this long before the deadline. The engine's own timer for the try started a moment
/// earlier: the reply must arrive before that timer ends the try without a result.
const REPLY_MARGIN: Duration = Duration::from_millis(20);

/// The parts of a webhook channel.
pub struct WebhookOptions {
    pub guard: Guard,
    pub resolver: Arc<dyn Resolve>,
    /// Certificate authorities to trust, in addition to Mozilla's.
    pub roots: Vec<CertificateDer<'static>>,
    pub pool: PoolLimits,
}

impl Default for WebhookOptions {
    /// A guard without exceptions, the resolver of the operating system, Mozilla's certificate authorities.
    fn default() -> Self {
        Self {
            guard: Guard::default(),
            resolver: Arc::new(SystemResolver),
            roots: Vec::new(),
            pool: PoolLimits::default(),
        }
    }
}

/// A certificate authority that rustls refuses.
#[derive(Debug, thiserror::Error)]
#[error("a certificate authority cannot be trusted")]
pub struct BadRoot(#[from] rustls::Error);

/// Sends notifications to the recipients' own URLs.
pub struct WebhookChannel {
    dialer: Dialer,
    pool: Arc<Pool>,
}

impl WebhookChannel {
    pub fn new(options: WebhookOptions) -> Result<Self, BadRoot> {
        let tls = dial::tls(options.roots)?;
        let lookups = Lookups::new(options.resolver);
        let dialer = Dialer { guard: options.guard, lookups, tls };
        Ok(Self { dialer, pool: Pool::new(options.pool) })
    }

    /// Sends the request and waits for the head of the response. `stage` holds the progress if the future is
    /// dropped.
    async fn exchange(&self, delivery: &Delivery, stage: &mut Stage) -> Result<ResponseHead, ExchangeError> {
        let notification = &delivery.notification;
        let target = self.dialer.guard.check_url(&notification.to).map_err(|refused| match refused {
            RefusedUrl::Forbidden(forbidden) => ExchangeError::new(Fault::Forbidden, forbidden.to_string()),
            RefusedUrl::Bad(bad) => ExchangeError::new(Fault::Unsendable, bad.to_string()),
        })?;
        let request = self.request(delivery, &target)?;
        let (connection, response) = self.round_trip(&notification.tenant, &target, request, stage).await?;
        Ok(ResponseHead { destination: target.destination, connection, response })
    }

    /// Turns a response into a reply. The body is read until `until`. A connection whose body was read to its
    /// end is kept.
    async fn reply(&self, head: ResponseHead, until: Instant) -> Reply {
        let ResponseHead { destination, mut connection, response } = head;
        let (head, body) = response.into_parts();
        let mut start = Vec::new();
        if connection.read(body, &mut start, until).await && connection.is_ready().await {
            self.pool.put(&destination, connection, keep_alive(&head.headers));
        }
        Reply::Http {
            status: head.status.as_u16(),
            retry_after: read_retry_after(&head.headers),
            text: printable(&start),
        }
    }

    /// Sends the request over an idle connection or a new one. An idle one may turn out closed: if no byte of
    /// the request was written, which hyper shows by returning it, a new connection takes it.
    async fn round_trip(
        &self,
        tenant: &Tenant,
        target: &Target,
        mut request: Request<Full<Bytes>>,
        stage: &mut Stage,
    ) -> Result<(HttpConnection, Response<Incoming>), ExchangeError> {
        *stage = Stage::Answer;
        if let Some(mut connection) = self.pool.take(&target.destination).await {
            match connection.send(request).await {
                Ok(response) => return Ok((connection, response)),
                Err(Unanswered::Broken(error)) => return Err(broken(&error)),
                Err(Unanswered::Unsent(unsent)) => request = *unsent,
            }
        }
        let stream = self.dialer.dial(tenant, target, stage).await?;
        *stage = Stage::Answer;
        let mut connection = HttpConnection::open(stream).await.map_err(|error| broken(&error))?;
        match connection.send(request).await {
            Ok(response) => Ok((connection, response)),
            Err(Unanswered::Broken(error)) => Err(broken(&error)),
            Err(Unanswered::Unsent(_)) => {
                Err(ExchangeError::new(Fault::Reset, "the connection was closed before the request went out"))
            }
        }
    }

    fn request(&self, delivery: &Delivery, target: &Target) -> Result<Request<Full<Bytes>>, ExchangeError> {
        let notification = &delivery.notification;
        let unsendable = |text: String| ExchangeError::new(Fault::Unsendable, text);
        let mut headers = headers::read_headers(&notification.content.headers)
            .map_err(|bad| unsendable(bad.to_string()))?;
        let value = |text: String| HeaderValue::try_from(text).map_err(|bad| unsendable(bad.to_string()));
        let seconds = delivery.at.as_millis().div_euclid(1_000);
        headers.insert(HOST, value(target.authority())?);
        headers.insert(WEBHOOK_ID, value(notification.id.to_string())?);
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(seconds));
        headers.insert(POSTHASTE_ATTEMPT, HeaderValue::from(delivery.attempt));
        headers.entry(USER_AGENT).or_insert(OUR_USER_AGENT);
        headers.entry(CONTENT_TYPE).or_insert(match notification.content.body {
            Body::Json(_) => JSON,
            Body::Text(_) => TEXT,
        });
        let body = Bytes::from_owner(Message(notification.clone()));
        // Also for an empty body: some receivers refuse a POST without it.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from(target.path.clone());
        *request.headers_mut() = headers;
        Ok(request)
    }
}

#[async_trait]
impl Channel for WebhookChannel {
    /// A try that needs a new connection waits here until the DNS lookup has started.
    async fn ready(&self, notification: &Notification) -> Result<(), Reply> {
        // A bad URL is reported by the try.
        let Ok(target) = self.dialer.guard.check_url(&notification.to) else { return Ok(()) };
        if self.pool.has(&target.destination) {
            return Ok(());
        }
        Ok(self.dialer.prepare(&notification.tenant, &target).await?)
    }

    async fn send(&self, delivery: Delivery) -> Reply {
        let deadline = Instant::now() + delivery.timeout;
        let mut stage = Stage::Resolving;
        let exchange = self.exchange(&delivery, &mut stage);
        match tokio::time::timeout_at(deadline, exchange).await {
            Ok(Ok(head)) => self.reply(head, excerpt_until(Instant::now(), deadline)).await,
            Ok(Err(failure)) => failure.into(),
            Err(_) => {
                let text = format!("no answer within {:?}: {}", delivery.timeout, stage.describe());
                Reply::Fault { fault: Fault::Timeout, text }
            }
        }
    }
}

/// The head of a response, and the connection on which its body arrives.
struct ResponseHead {
    destination: String,
    connection: HttpConnection,
    response: Response<Incoming>,
}

/// The time at which reading a body ends if it starts `now`.
fn excerpt_until(now: Instant, deadline: Instant) -> Instant {
    let in_time = deadline.checked_sub(REPLY_MARGIN).unwrap_or(now);
    in_time.clamp(now, now + EXCERPT_TIMEOUT)
}

/// The body of a notification, sent without a copy.
struct Message(Arc<Notification>);

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        match &self.0.content.body {
            Body::Text(text) | Body::Json(text) => text.as_bytes(),
        }
    }
}

fn read_retry_after(headers: &HeaderMap) -> Option<posthaste_core::reply::RetryAfter> {
    headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(retry_after::parse)
}

/// Converts bytes to text that can be shown and stored anywhere: invalid UTF-8 and control characters become
/// replacement characters, and the trailing line break is cut off.
fn printable(bytes: &[u8]) -> String {
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    String::from_utf8_lossy(bytes).trim_end().replace(control, "\u{fffd}")
}

/// The connection broke after something may have been sent. hyper's own text says little, so the cause is
/// added.
fn broken(error: &hyper::Error) -> ExchangeError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    ExchangeError::new(Fault::Reset, format!("the connection broke: {error}{cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_for_a_moment_and_never_into_the_deadline() {
        let now = Instant::now();
        for (left, read) in
            [(10_000, 250), (270, 250), (269, 249), (150, 130), (21, 1), (20, 0), (5, 0), (0, 0)]
        {
            let deadline = now + Duration::from_millis(left);
            assert_eq!(excerpt_until(now, deadline), now + Duration::from_millis(read), "{left} ms left");
        }
    }
}
