//! The webhook channel: one POST to the recipient's own URL.
//!
//! Invariant: the head of the response decides. The body is an excerpt for people, and failing to read it
//! only costs the connection.

mod headers;
mod sign;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use http::{Method, Request};
use http_body_util::Full;
use posthaste_core::notification::{Body, Notification};
use posthaste_core::reply::{Fault, Reply};
use posthaste_core::retry_after;
use posthaste_engine::channel::{Channel, Delivery};
use tokio::time::Instant;

pub use self::headers::{BadHeader, check_headers};
use crate::guard::{RefusedUrl, Target};
use crate::http::{BadRoot, ClientCertificate, Exchange, ExchangeError, HttpClient, HttpOptions};
use crate::printable::printable;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
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

/// Sends notifications to the recipients' own URLs.
pub struct WebhookChannel {
    client: HttpClient,
}

impl WebhookChannel {
    pub fn new(options: HttpOptions) -> Result<Self, BadRoot> {
        Ok(Self { client: HttpClient::new(options)? })
    }

    /// New connections to the origin show this certificate.
    pub fn show_certificate(&self, origin: String, certificate: &ClientCertificate) -> Result<(), BadRoot> {
        self.client.show_certificate(origin, certificate)
    }

    /// Sends the request and waits for the head of the response.
    async fn exchange(&self, delivery: &Delivery) -> Result<Exchange, ExchangeError> {
        let notification = &delivery.notification;
        let target = self.client.target(&notification.to).map_err(|refused| match refused {
            RefusedUrl::Forbidden(forbidden) => ExchangeError::new(Fault::Forbidden, forbidden.to_string()),
            RefusedUrl::Bad(bad) => ExchangeError::new(Fault::Unsendable, bad.to_string()),
        })?;
        let request = self.request(delivery, &target)?;
        self.client.exchange(&notification.tenant, target, request, delivery.timeout).await
    }

    fn request(&self, delivery: &Delivery, target: &Target) -> Result<Request<Full<Bytes>>, ExchangeError> {
        let notification = &delivery.notification;
        let unsendable = |text: String| ExchangeError::new(Fault::Unsendable, text);
        let sealed = delivery.opened.headers.iter().flat_map(|headers| headers.reveal());
        let given = notification.content.headers.iter().chain(sealed);
        let mut headers = headers::read_headers(given).map_err(|bad| unsendable(bad.to_string()))?;
        let value = |text: String| HeaderValue::try_from(text).map_err(|bad| unsendable(bad.to_string()));
        let seconds = delivery.at.as_millis().div_euclid(1_000);
        headers.insert(HOST, value(target.authority())?);
        let id = notification.id.to_string();
        let body = Bytes::from_owner(Message(notification.clone()));
        if let Some(signature) = sign::signature(delivery, &id, seconds, &body) {
            headers.insert(WEBHOOK_SIGNATURE, signature);
        }
        headers.insert(WEBHOOK_ID, value(id)?);
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(seconds));
        headers.insert(POSTHASTE_ATTEMPT, HeaderValue::from(delivery.attempt));
        headers.entry(USER_AGENT).or_insert(OUR_USER_AGENT);
        headers.entry(CONTENT_TYPE).or_insert(match notification.content.body {
            Body::Json(_) => JSON,
            Body::Text(_) => TEXT,
        });
        // Also for an empty body: some receivers refuse a POST without it.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

#[async_trait]
impl Channel for WebhookChannel {
    /// A try that needs a new connection waits here until the DNS lookup has started.
    async fn ready(&self, notification: &Notification) -> Result<(), Reply> {
        if self.client.has_idle(&notification.destination) {
            return Ok(());
        }
        // A bad URL is reported by the try.
        let Ok(target) = self.client.target(&notification.to) else { return Ok(()) };
        Ok(self.client.prepare(&notification.tenant, &target).await?)
    }

    async fn send(&self, delivery: Delivery) -> Reply {
        match self.exchange(&delivery).await {
            Ok(exchange) => reply(exchange).await,
            Err(failure) => failure.into(),
        }
    }
}

/// Turns a response into a reply. The head decides: the body is an excerpt for people.
async fn reply(exchange: Exchange) -> Reply {
    let until = excerpt_until(Instant::now(), exchange.deadline());
    let mut start = Vec::new();
    let (status, headers) = exchange.excerpt(&mut start, until).await;
    let text = printable(&start);
    let content_type = headers.get(CONTENT_TYPE).filter(|_| !text.is_empty());
    let content_type = content_type.map(|value| printable(value.as_bytes()));
    Reply { text, content_type, ..Reply::http_after(status.as_u16(), read_retry_after(&headers)) }
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
