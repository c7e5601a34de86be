//! The webhook channel: one POST to the recipient's own URL.
//!
//! Invariant: no redirect is followed, no proxy is used, and every connection goes to an address that the guard has seen.
//! One deadline covers the exchange, from the lookup of the name to the head of the answer. The head is the verdict: the
//! body is an excerpt for people, and failing to read it costs the connection only.

mod dial;
mod headers;
mod link;
mod lookups;
mod places;
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

use self::dial::{Dialer, Failure, Stage};
pub use self::headers::{BadHeader, check_headers};
use self::link::{Link, Unanswered, keeps_for};
use self::lookups::Lookups;
use self::pool::Pool;
pub use self::pool::PoolLimits;
pub use self::resolve::{Resolve, SystemResolver};
use crate::guard::{Guard, RefusedUrl, Target};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const POSTHASTE_ATTEMPT: HeaderName = HeaderName::from_static("posthaste-attempt");
const OUR_NAME: HeaderValue = HeaderValue::from_static(concat!("Posthaste/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// How long the body of an answer is read. Neither an excerpt nor a connection is worth more.
const EXCERPT_FOR: Duration = Duration::from_millis(250);
/// How long before the deadline the reading of a body ends at the latest. The engine measures the try by a timer of its
/// own, which started a moment earlier: the reply must be there before that timer ends the try without a verdict.
const HAND_OVER: Duration = Duration::from_millis(20);

/// What a webhook channel is made of.
pub struct WebhookOptions {
    /// Which addresses may be connected to.
    pub guard: Guard,
    /// Looks up names.
    pub resolver: Arc<dyn Resolve>,
    /// Certificate authorities to trust besides those of Mozilla.
    pub roots: Vec<CertificateDer<'static>>,
    /// How many connections are kept.
    pub pool: PoolLimits,
}

impl Default for WebhookOptions {
    /// A guard without exceptions, names from the operating system, Mozilla's roots.
    fn default() -> Self {
        Self {
            guard: Guard::default(),
            resolver: Arc::new(SystemResolver),
            roots: Vec::new(),
            pool: PoolLimits::default(),
        }
    }
}

/// A certificate authority that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("a certificate authority cannot be trusted")]
pub struct BadRoot(#[from] rustls::Error);

/// Sends notifications to the recipients' own URLs.
pub struct WebhookChannel {
    dialer: Dialer,
    pool: Arc<Pool>,
}

impl WebhookChannel {
    /// A channel without a connection yet.
    pub fn new(options: WebhookOptions) -> Result<Self, BadRoot> {
        let tls = dial::tls(options.roots)?;
        let lookups = Lookups::new(options.resolver);
        let dialer = Dialer { guard: options.guard, lookups, tls };
        Ok(Self { dialer, pool: Pool::new(options.pool) })
    }

    /// Sends the request and waits for the head of the answer. `stage` says how far it came when the future is dropped.
    async fn exchange(&self, delivery: &Delivery, stage: &mut Stage) -> Result<Answered, Failure> {
        let notification = &delivery.notification;
        let target = self.dialer.guard.check_url(&notification.to).map_err(|refused| match refused {
            RefusedUrl::Forbidden(forbidden) => Failure::new(Fault::Forbidden, forbidden.to_string()),
            RefusedUrl::Bad(bad) => Failure::new(Fault::Unsendable, bad.to_string()),
        })?;
        let request = self.request(delivery, &target)?;
        let (link, answer) = self.ask(&notification.tenant, &target, request, stage).await?;
        Ok(Answered { destination: target.destination, link, answer })
    }

    /// Makes a reply of an answer. Its body is read until a point in time; a connection whose body was read to its end
    /// is kept.
    async fn reply(&self, answered: Answered, until: Instant) -> Reply {
        let Answered { destination, mut link, answer } = answered;
        let (head, body) = answer.into_parts();
        let mut start = Vec::new();
        if link.read(body, &mut start, until).await && link.is_ready().await {
            self.pool.put(&destination, link, keeps_for(&head.headers));
        }
        Reply::Http {
            status: head.status.as_u16(),
            retry_after: read_retry_after(&head.headers),
            text: readable(&start),
        }
    }

    /// Sends the request over a waiting connection or a new one. A waiting one may turn out closed: if no byte of the
    /// request went out, which hyper shows by handing it back, a new one takes it.
    async fn ask(
        &self,
        tenant: &Tenant,
        target: &Target,
        mut request: Request<Full<Bytes>>,
        stage: &mut Stage,
    ) -> Result<(Link, Response<Incoming>), Failure> {
        *stage = Stage::Answer;
        if let Some(mut link) = self.pool.take(&target.destination).await {
            match link.ask(request).await {
                Ok(answer) => return Ok((link, answer)),
                Err(Unanswered::Broken(error)) => return Err(broken(&error)),
                Err(Unanswered::Unsent(unsent)) => request = *unsent,
            }
        }
        let stream = self.dialer.dial(tenant, target, stage).await?;
        *stage = Stage::Answer;
        let mut link = Link::open(stream).await.map_err(|error| broken(&error))?;
        match link.ask(request).await {
            Ok(answer) => Ok((link, answer)),
            Err(Unanswered::Broken(error)) => Err(broken(&error)),
            Err(Unanswered::Unsent(_)) => {
                Err(Failure::new(Fault::Reset, "the connection was closed before the request went out"))
            }
        }
    }

    fn request(&self, delivery: &Delivery, target: &Target) -> Result<Request<Full<Bytes>>, Failure> {
        let notification = &delivery.notification;
        let unsendable = |text: String| Failure::new(Fault::Unsendable, text);
        let mut headers = headers::read_headers(&notification.content.headers)
            .map_err(|bad| unsendable(bad.to_string()))?;
        let value = |text: String| HeaderValue::try_from(text).map_err(|bad| unsendable(bad.to_string()));
        let seconds = delivery.at.as_millis().div_euclid(1_000);
        headers.insert(HOST, value(target.authority())?);
        headers.insert(WEBHOOK_ID, value(notification.id.to_string())?);
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(seconds));
        headers.insert(POSTHASTE_ATTEMPT, HeaderValue::from(delivery.attempt));
        headers.entry(USER_AGENT).or_insert(OUR_NAME);
        headers.entry(CONTENT_TYPE).or_insert(match notification.content.body {
            Body::Json(_) => JSON,
            Body::Text(_) => TEXT,
        });
        let body = Bytes::from_owner(Message(notification.clone()));
        // Said for an empty body too: there are receivers that refuse a POST without it.
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
    /// A try that needs a new connection waits here until the lookup of its name has begun.
    async fn ready(&self, notification: &Notification) -> Result<(), Reply> {
        // What is wrong with the URL is for the try to report.
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
            Ok(Ok(answered)) => self.reply(answered, excerpt_until(Instant::now(), deadline)).await,
            Ok(Err(failure)) => failure.into(),
            Err(_) => {
                let text = format!("no answer within {:?}: {}", delivery.timeout, stage.words());
                Reply::Fault { fault: Fault::Timeout, text }
            }
        }
    }
}

/// The head of an answer, and the connection on which its body arrives.
struct Answered {
    destination: String,
    link: Link,
    answer: Response<Incoming>,
}

/// When the reading of a body ends that can be read from `now` on.
fn excerpt_until(now: Instant, deadline: Instant) -> Instant {
    let in_time = deadline.checked_sub(HAND_OVER).unwrap_or(now);
    in_time.clamp(now, now + EXCERPT_FOR)
}

/// The body of a notification, sent from where it lies.
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

/// Bytes as text that can be shown and stored anywhere: what is no text, and NUL and its like, become question marks. The
/// line break that ends most answers is no part of what they say.
fn readable(bytes: &[u8]) -> String {
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    String::from_utf8_lossy(bytes).trim_end().replace(control, "\u{fffd}")
}

/// The connection broke after something may have been sent. The cause says more than hyper's own words.
fn broken(error: &hyper::Error) -> Failure {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::new(Fault::Reset, format!("the connection broke: {error}{cause}"))
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
