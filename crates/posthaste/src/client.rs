//! A small HTTP client for the commands that speak the API, and for the bench.
//!
//! One connection, kept open and used for one exchange at a time; a deadline over the whole exchange; answers of a
//! bounded size; no redirects, so that the key goes nowhere but to the server it was meant for.

mod connection;
mod problem;
mod target;

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
pub use self::problem::Problem;
use self::target::Target;
pub use self::target::encode;

/// How long an exchange may take, from the first look at the name to the last byte of the answer.
const WITHIN: Duration = Duration::from_secs(30);
/// The largest answer that is read.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address of the server cannot be used.
    #[error("the URL `{url}` {reason}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The key cannot be sent.
    #[error("the key holds characters that no key has")]
    Key,
    /// The path cannot be asked for.
    #[error("`{path}` is not a path that can be asked for")]
    Path {
        /// What was given.
        path: String,
    },
    /// Nobody answers at the address.
    #[error("cannot connect to {url}")]
    Connect {
        /// The address of the server.
        url: String,
        /// What the system says.
        source: io::Error,
    },
    /// There was a connection, but no whole answer came over it.
    #[error("the exchange with {url} broke off")]
    Exchange {
        /// The address of the server.
        url: String,
        /// What went wrong.
        source: hyper::Error,
    },
    /// It took too long.
    #[error("{url} did not answer within {} s", .within.as_secs_f64())]
    Timeout {
        /// The address of the server.
        url: String,
        /// How long was waited.
        within: Duration,
    },
    /// There is more of it than is read.
    #[error("the answer of {url} is larger than {} MiB", LARGEST_ANSWER / 1024 / 1024)]
    TooLarge {
        /// The address of the server.
        url: String,
    },
}

/// What the server answered, whatever the status.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The body read as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// The answer if it says that all went well, the problem it tells of if not.
    pub fn ok(self) -> Result<Self, Box<Problem>> {
        if self.status.is_success() { Ok(self) } else { Err(Box::new(Problem::read(&self))) }
    }
}

/// A client of one server.
pub struct Client {
    target: Target,
    authorization: Option<HeaderValue>,
    within: Duration,
    open: Mutex<Option<Connection>>,
}

impl Client {
    /// A client for the server at `url`, which may have a path that everything is under. Nothing is connected yet.
    pub fn new(url: &str, key: Option<&str>) -> Result<Self, ClientError> {
        let authorization = key.map(bearer).transpose()?;
        Ok(Self { target: Target::read(url)?, authorization, within: WITHIN, open: Mutex::new(None) })
    }

    /// The same client with another bound on how long an exchange may take.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// The address of the server.
    pub fn url(&self) -> &str {
        self.target.url()
    }

    /// Whether what is sent can be read on the way: plain HTTP to another machine.
    pub fn is_exposed(&self) -> bool {
        self.target.is_exposed()
    }

    /// Asks for a path.
    pub async fn get(&self, path: &str) -> Result<Answer, ClientError> {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    /// Hands in JSON.
    pub async fn post(&self, path: &str, json: &serde_json::Value) -> Result<Answer, ClientError> {
        self.send(Method::POST, path, &[], Bytes::from(json.to_string())).await
    }

    /// One exchange. A body is sent as JSON unless `headers` say otherwise.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Answer, ClientError> {
        let request = self.request(method, path, headers, body)?;
        // Whoever comes while an exchange is under way waits for the connection.
        let mut open = self.open.lock().await;
        // It is taken out for the exchange: after one that was given up, nobody finds it half used.
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
            .uri(self.target.path(path))
            .header(HOST, self.target.authority())
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
    ) -> Result<(Answer, Connection), ClientError> {
        let request = match kept.filter(Connection::is_open) {
            None => request,
            Some(mut connection) => {
                // A server may close a connection that lay idle just as it is used. What was surely not sent, or only
                // asks, is sent once more over a new one.
                let copy = (*request.method() == Method::GET).then(|| request.clone());
                match connection.send(request).await {
                    Ok(response) => return self.read(response, connection).await,
                    Err((error, unsent)) => unsent.or(copy).ok_or_else(|| self.broken(error))?,
                }
            }
        };
        let mut connection = self.target.connect().await?;
        let response = connection.send(request).await.map_err(|(error, _)| self.broken(error))?;
        self.read(response, connection).await
    }

    async fn read(
        &self,
        response: http::Response<hyper::body::Incoming>,
        connection: Connection,
    ) -> Result<(Answer, Connection), ClientError> {
        let (head, body) = response.into_parts();
        let body = match Limited::new(body, LARGEST_ANSWER).collect().await {
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
        Ok((Answer { status: head.status, headers: head.headers, body }, connection))
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
