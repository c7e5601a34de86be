//! A client of the API, for the commands and the bench, over the HTTP client of the wire.
//!
//! The whole exchange has a deadline, responses have a size limit, and redirects are not followed, so that the
//! key goes only to this server.

mod events;
mod problem;
mod server_url;

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use posthaste_core::notification::Tenant;
use posthaste_core::reply::Fault;
use posthaste_wire::http::{Exchange, ExchangeError, HttpClient, HttpOptions, Stage, Unread};
use serde::de::DeserializeOwned;

pub use self::events::{EventStream, Opened, ServerEvent};
pub use self::problem::ApiProblem;
use self::server_url::ServerUrl;
pub use self::server_url::encode;

/// Limit on a whole exchange, from the DNS lookup to the last byte of the response.
const TIMEOUT: Duration = Duration::from_secs(30);
/// In bytes.
const MAX_RESPONSE: usize = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL of the server cannot be used.
    #[error("the URL `{url}` {reason}")]
    Url { url: String, reason: &'static str },
    #[error("the key holds characters that no key has")]
    Key,
    #[error("`{path}` is not a path that can be asked for")]
    Path { path: String },
    #[error("cannot connect to {url}")]
    Connect { url: String, source: ExchangeError },
    /// The connection broke before the response was complete.
    #[error("the exchange with {url} broke off")]
    Exchange { url: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{url} did not answer within {} s", .within.as_secs_f64())]
    Timeout { url: String, within: Duration },
    #[error("the answer of {url} is larger than {} MiB", MAX_RESPONSE / 1024 / 1024)]
    TooLarge { url: String },
}

/// A response of any status.
#[derive(Debug, Clone)]
pub struct ClientResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl ClientResponse {
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// The response if its status is a success, its problem otherwise.
    pub fn ok(self) -> Result<Self, Box<ApiProblem>> {
        if self.status.is_success() { Ok(self) } else { Err(Box::new(ApiProblem::read(&self))) }
    }
}

pub struct Client {
    server: ServerUrl,
    authorization: Option<HeaderValue>,
    within: Duration,
    http: HttpClient,
    /// Whose lookups they are.
    tenant: Tenant,
}

impl Client {
    /// Creates a client for the server at `url`, which may have a path prefix. Does not connect yet.
    pub fn new(url: &str, key: Option<&str>) -> Result<Self, ClientError> {
        let authorization = key.map(bearer).transpose()?;
        let http = HttpClient::new(HttpOptions { guard: None, ..HttpOptions::default() });
        let http = http.expect("without further roots there is none to refuse");
        let tenant = Tenant::RESERVED[0].parse().expect("a reserved name is a name");
        Ok(Self { server: ServerUrl::read(url)?, authorization, within: TIMEOUT, http, tenant })
    }

    /// Sets the time limit for an exchange.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// Whether requests can be read on the way: plain HTTP to another machine.
    pub fn is_exposed(&self) -> bool {
        self.server.is_exposed()
    }

    pub async fn get(&self, path: &str) -> Result<ClientResponse, ClientError> {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    pub async fn post(&self, path: &str, json: &serde_json::Value) -> Result<ClientResponse, ClientError> {
        self.send(Method::POST, path, &[], Bytes::from(json.to_string())).await
    }

    /// One exchange. A body is sent as JSON unless `headers` has another content type.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<ClientResponse, ClientError> {
        let exchange = self.begin(method, path, headers, body).await?;
        self.whole(exchange).await
    }

    /// Asks for events. Only the head of the answer has a time limit.
    pub async fn open(
        &self,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Opened<'_>, ClientError> {
        let exchange = self.begin(Method::GET, path, headers, Bytes::new()).await?;
        if EventStream::is_one(&exchange) {
            return Ok(Opened::Events(Box::new(EventStream::new(self, exchange))));
        }
        Ok(Opened::Answer(self.whole(exchange).await?))
    }

    /// Sends a request and waits for the head of the response.
    async fn begin(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Exchange, ClientError> {
        let request = self.request(method, path, headers, body)?;
        // The server may close an idle connection at this moment. A request that only reads is sent again.
        let copy = (*request.method() == Method::GET).then(|| request.clone());
        let exchange = match (self.exchange(request).await, copy) {
            (Err(failure), Some(copy)) if failure.reused => self.exchange(copy).await,
            (answer, _) => answer,
        };
        exchange.map_err(|failure| self.unanswered(failure))
    }

    async fn whole(&self, exchange: Exchange) -> Result<ClientResponse, ClientError> {
        let response = exchange.whole(MAX_RESPONSE).await.map_err(|unread| self.unread(unread))?;
        let (head, body) = response.into_parts();
        Ok(ClientResponse { status: head.status, headers: head.headers, body })
    }

    /// Sends the request over a kept connection or a new one.
    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Exchange, ExchangeError> {
        let target = self.server.target(request.uri())?;
        self.http.exchange(&self.tenant, target, request, self.within).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.server.path(path))
            .header(HOST, self.server.authority())
            .header(USER_AGENT, concat!("posthaste/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json");
        if !body.is_empty() && headers.iter().all(|(name, _)| *name != CONTENT_TYPE) {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(Full::new(body)).map_err(|_| ClientError::Path { path: path.to_owned() })
    }

    fn unanswered(&self, source: ExchangeError) -> ClientError {
        let url = self.url().to_owned();
        match (source.fault, source.stage) {
            (Fault::Timeout, _) => ClientError::Timeout { url, within: self.within },
            (_, Stage::Answer) => ClientError::Exchange { url, source: source.into() },
            (_, Stage::Resolving | Stage::Connecting | Stage::Tunnel | Stage::Handshake) => {
                // The error begins with the same words.
                let cause = source.text.strip_prefix("cannot connect: ").unwrap_or(&source.text).to_owned();
                ClientError::Connect { url, source: ExchangeError { text: cause, ..source } }
            }
        }
    }

    fn unread(&self, unread: Unread) -> ClientError {
        let url = self.url().to_owned();
        match unread {
            Unread::Broken(source) => ClientError::Exchange { url, source: source.into() },
            Unread::TooLong => ClientError::TooLarge { url },
            Unread::Late => ClientError::Timeout { url, within: self.within },
        }
    }
}

fn bearer(key: &str) -> Result<HeaderValue, ClientError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim())).map_err(|_| ClientError::Key)?;
    value.set_sensitive(true);
    Ok(value)
}
