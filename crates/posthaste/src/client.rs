//! A small HTTP client for the commands that speak the API, and for the bench.
//!
//! One connection, kept open and used for one exchange at a time. The whole exchange has a deadline,
//! responses have a size limit, and redirects are not followed, so that the key goes only to this server.

mod connection;
mod problem;
mod server_url;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::time::timeout;

use self::connection::Connection;
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
    Connect { url: String, source: io::Error },
    /// The connection broke before the response was complete.
    #[error("the exchange with {url} broke off")]
    Exchange { url: String, source: hyper::Error },
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
    open: Mutex<Option<Connection>>,
}

impl Client {
    /// Creates a client for the server at `url`, which may have a path prefix. Does not connect yet.
    pub fn new(url: &str, key: Option<&str>) -> Result<Self, ClientError> {
        let authorization = key.map(bearer).transpose()?;
        Ok(Self { server: ServerUrl::read(url)?, authorization, within: TIMEOUT, open: Mutex::new(None) })
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
        let request = self.request(method, path, headers, body)?;
        // Other callers wait here while an exchange is running.
        let mut open = self.open.lock().await;
        // The connection is taken out, so that an abandoned exchange leaves no half-used one behind.
        let kept = open.take();
        let within = timeout(self.within, self.exchange(kept, request)).await;
        let late = |_| ClientError::Timeout { url: self.url().to_owned(), within: self.within };
        let (answer, connection) = within.map_err(late)??;
        *open = Some(connection);
        Ok(answer)
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

    async fn exchange(
        &self,
        kept: Option<Connection>,
        request: Request<Full<Bytes>>,
    ) -> Result<(ClientResponse, Connection), ClientError> {
        let request = match kept.filter(Connection::is_open) {
            None => request,
            Some(mut connection) => {
                // The server may close an idle connection at this moment. A request that was not sent, or
                // that only reads, is sent again over a new one.
                let copy = (*request.method() == Method::GET).then(|| request.clone());
                match connection.send(request).await {
                    Ok(response) => return self.read(response, connection).await,
                    Err((error, unsent)) => unsent.or(copy).ok_or_else(|| self.broken(error))?,
                }
            }
        };
        let mut connection = self.server.connect().await?;
        let response = connection.send(request).await.map_err(|(error, _)| self.broken(error))?;
        self.read(response, connection).await
    }

    async fn read(
        &self,
        response: http::Response<hyper::body::Incoming>,
        connection: Connection,
    ) -> Result<(ClientResponse, Connection), ClientError> {
        let (head, body) = response.into_parts();
        let body = match Limited::new(body, MAX_RESPONSE).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => {
                return Err(match error.downcast::<hyper::Error>() {
                    Ok(error) => self.broken(*error),
                    Err(other) => {
                        debug_assert!(
                            other.is::<LengthLimitError>(),
                            "nothing else goes wrong here: {other}"
                        );
                        ClientError::TooLarge { url: self.url().to_owned() }
                    }
                });
            }
        };
        Ok((ClientResponse { status: head.status, headers: head.headers, body }, connection))
    }

    fn broken(&self, source: hyper::Error) -> ClientError {
        ClientError::Exchange { url: self.url().to_owned(), source }
    }
}

fn bearer(key: &str) -> Result<HeaderValue, ClientError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim())).map_err(|_| ClientError::Key)?;
    value.set_sensitive(true);
    Ok(value)
}
