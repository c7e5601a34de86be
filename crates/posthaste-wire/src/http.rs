//! The HTTP client of webhooks, providers and the command line.
//!
//! Invariant: no redirect is followed. With a guard, every connection goes to an address that the guard has
//! checked, or to the configured proxy. One deadline covers the exchange, from the DNS lookup to the head of
//! the response.

mod client_certificate;
mod connection;
mod dial;
mod fair_slots;
mod lookups;
mod pool;
mod protocol;
mod proxy;
mod resolve;
mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use posthaste_core::notification::Tenant;
use posthaste_core::reply::Fault;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::Instant;

pub use self::client_certificate::{BadCertificate, ClientCertificate};
pub use self::connection::Unread;
use self::connection::{HttpConnection, Unanswered, keep_alive};
use self::dial::Dialer;
pub use self::dial::{ExchangeError, Stage};
use self::lookups::Lookups;
use self::pool::Pool;
pub use self::pool::PoolLimits;
pub use self::protocol::Protocol;
pub use self::proxy::{BadProxy, Proxy};
pub use self::resolve::{Resolve, SystemResolver};
use self::tls::{ClientAuth, Tls, refused_handshake};
use crate::guard::{Guard, RefusedUrl, Scheme, Target};

/// The certificate of an authority.
pub type Root = CertificateDer<'static>;

/// The parts of a client.
pub struct HttpOptions {
    /// Which addresses may be connected to. `None` for servers that an operator has named: any.
    pub guard: Option<Guard>,
    pub resolver: Arc<dyn Resolve>,
    /// Certificate authorities to trust, in addition to Mozilla's.
    pub roots: Vec<Root>,
    /// What is shown to single origins, `https://host:port`, and to no other.
    pub certificates: BTreeMap<String, ClientCertificate>,
    pub proxy: Option<Proxy>,
    pub protocol: Protocol,
    pub pool: PoolLimits,
}

impl Default for HttpOptions {
    /// A guard without exceptions, the resolver of the operating system, Mozilla's certificate authorities,
    /// no proxy, HTTP/1.1.
    fn default() -> Self {
        Self {
            guard: Some(Guard::default()),
            resolver: Arc::new(SystemResolver),
            roots: Vec::new(),
            certificates: BTreeMap::new(),
            proxy: None,
            protocol: Protocol::default(),
            pool: PoolLimits::default(),
        }
    }
}

/// Reads the certificates of a PEM file, such as a private certificate authority.
pub fn roots_in(pem: &[u8]) -> Result<Vec<Root>, BadPem> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| BadPem)?;
    if found.is_empty() { Err(BadPem) } else { Ok(found) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("holds no certificate in PEM form")]
pub struct BadPem;

/// A certificate authority that rustls refuses.
#[derive(Debug, thiserror::Error)]
#[error("a certificate authority cannot be trusted")]
pub struct BadRoot(#[from] rustls::Error);

/// Makes exchanges over pooled connections. Dropping the future of an exchange ends it.
pub struct HttpClient {
    dialer: Dialer,
    pool: Arc<Pool>,
}

impl HttpClient {
    pub fn new(options: HttpOptions) -> Result<Self, BadRoot> {
        let tls = Tls::new(options.roots, options.certificates, options.protocol)?;
        let lookups = Lookups::new(options.resolver);
        let guard = match options.proxy {
            Some(_) => options.guard.map(Guard::behind_proxy),
            None => options.guard,
        };
        let dialer = Dialer { guard, lookups, tls, proxy: options.proxy, protocol: options.protocol };
        Ok(Self { dialer, pool: Pool::new(options.pool) })
    }

    /// New connections to the origin show this certificate. Those that are kept are used for five minutes more at most.
    pub fn show_certificate(&self, origin: String, certificate: &ClientCertificate) -> Result<(), BadRoot> {
        Ok(self.dialer.tls.show(origin, certificate)?)
    }

    /// Parses a URL, and checks its host as far as that is possible without a lookup.
    pub fn target(&self, url: &str) -> Result<Target, RefusedUrl> {
        match &self.dialer.guard {
            Some(guard) => guard.check_url(url),
            None => Ok(Target::parse(url)?),
        }
    }

    /// Whether an idle connection to the destination exists. It may turn out closed.
    pub fn has_idle(&self, destination: &str) -> bool {
        self.pool.has(destination)
    }

    /// Waits until the lookup that a new connection needs has started. Its slot is shared with other tries.
    pub async fn prepare(&self, tenant: &Tenant, target: &Target) -> Result<(), ExchangeError> {
        self.dialer.prepare(tenant, target).await
    }

    /// Sends the request and waits for the head of the response, for `within` at most. The request has its
    /// `host` header; its URI is set here.
    pub async fn exchange(
        &self,
        tenant: &Tenant,
        target: Target,
        request: Request<Full<Bytes>>,
        within: Duration,
    ) -> Result<Exchange, ExchangeError> {
        let deadline = Instant::now() + within;
        let mut stage = Stage::Resolving;
        let answer = self.round_trip(tenant, &target, request, &mut stage);
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok((_, response))) if let Some(refused) = self.dialer.refused(&target, response.status()) => {
                Err(ExchangeError { stage, ..refused })
            }
            Ok(Ok((connection, response))) => {
                Ok(Exchange { pool: self.pool.clone(), target, connection, response, deadline })
            }
            Ok(Err(mut failure)) => {
                failure.stage = stage;
                Err(failure)
            }
            Err(_) => {
                let text = format!("no answer within {within:?}: {}", stage.describe());
                Err(ExchangeError { stage, ..ExchangeError::new(Fault::Timeout, text) })
            }
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
        request = self.address(target, request)?;
        *stage = Stage::Answer;
        if let Some(mut connection) = self.pool.take(&target.destination).await {
            match connection.send(request).await {
                Ok(response) => return Ok((connection, response)),
                Err(Unanswered::Broken(error)) => {
                    return Err(ExchangeError { reused: true, ..broken(&error, ClientAuth::NotAsked) });
                }
                Err(Unanswered::Unsent(unsent)) => request = *unsent,
            }
        }
        // Boxed: the state of a handshake is large, and most exchanges need none.
        let (mut connection, client_auth) = Box::pin(self.connect(tenant, target, stage)).await?;
        match connection.send(request).await {
            Ok(response) => Ok((connection, response)),
            Err(Unanswered::Broken(error)) => Err(broken(&error, client_auth)),
            Err(Unanswered::Unsent(_)) => {
                Err(ExchangeError::new(Fault::Reset, "the connection was closed before the request went out"))
            }
        }
    }

    /// Opens a connection.
    async fn connect(
        &self,
        tenant: &Tenant,
        target: &Target,
        stage: &mut Stage,
    ) -> Result<(HttpConnection, ClientAuth), ExchangeError> {
        let (stream, client_auth) = self.dialer.dial(tenant, target, stage).await?;
        *stage = Stage::Answer;
        let connection = HttpConnection::open(stream, self.dialer.protocol).await;
        Ok((connection.map_err(|error| broken(&error, client_auth))?, client_auth))
    }

    /// Sets the URI: the path, or for HTTP/2, and for a proxy of a plain target, the whole URL.
    fn address(
        &self,
        target: &Target,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Request<Full<Bytes>>, ExchangeError> {
        let unsendable = |text: String| ExchangeError::new(Fault::Unsendable, text);
        let whole = || {
            let text = format!("{}://{}{}", target.scheme.name(), target.authority(), target.path);
            text.parse::<Uri>().map_err(|bad| unsendable(bad.to_string()))
        };
        match (self.dialer.protocol, &self.dialer.proxy, target.scheme) {
            (Protocol::Http2, _, Scheme::Https) => {
                // The URL says it.
                request.headers_mut().remove(HOST);
                *request.uri_mut() = whole()?;
            }
            (Protocol::Http2, _, Scheme::Http) => {
                return Err(unsendable(
                    "HTTP/2 is spoken over TLS alone: the URL must start with https://".to_owned(),
                ));
            }
            (Protocol::Http1, Some(proxy), Scheme::Http) => {
                let (Parts { method, mut headers, .. }, body) = request.into_parts();
                proxy.authorize(&mut headers);
                request = Request::new(body);
                let uri = whole()?;
                (*request.method_mut(), *request.headers_mut(), *request.uri_mut()) = (method, headers, uri);
            }
            (Protocol::Http1, None, _) | (Protocol::Http1, Some(_), Scheme::Https) => {
                *request.uri_mut() = Uri::from(target.path.clone());
            }
        }
        Ok(request)
    }
}

/// The head of a response, and the connection on which its body arrives.
pub struct Exchange {
    pool: Arc<Pool>,
    target: Target,
    connection: HttpConnection,
    response: Response<Incoming>,
    deadline: Instant,
}

impl Exchange {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The end of the time that the exchange was given.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Reads the start of the body into `start` until `until`. A connection whose body was read to its end
    /// is kept. Returns the head.
    pub async fn excerpt(self, start: &mut Vec<u8>, until: Instant) -> (StatusCode, HeaderMap) {
        let Self { pool, target, mut connection, response, .. } = self;
        let (head, body) = response.into_parts();
        if connection.read(body, start, until).await && connection.is_ready().await {
            pool.put(&target.destination, connection, keep_alive(&head.headers));
        }
        (head.status, head.headers)
    }

    /// Reads the whole body, of at most `limit` bytes, before the deadline. The connection is kept.
    pub async fn whole(self, limit: usize) -> Result<Response<Bytes>, Unread> {
        let Self { pool, target, mut connection, response, deadline } = self;
        let (head, body) = response.into_parts();
        let reading = connection.read_all(body, limit);
        let body = tokio::time::timeout_at(deadline, reading).await.map_err(|_| Unread::Late)??;
        if connection.is_ready().await {
            pool.put(&target.destination, connection, keep_alive(&head.headers));
        }
        Ok(Response::from_parts(head, body))
    }

    /// The next piece of a body that has no end, such as a stream of events; `None` at its end. The deadline
    /// does not count.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Unread> {
        self.connection.chunk(self.response.body_mut()).await
    }
}

/// The connection broke after something may have been sent, or the server refused the handshake after our side of it had ended
/// (TLS 1.3): then it has read no request. hyper's own text says little, so the cause is added.
fn broken(error: &hyper::Error, client_auth: ClientAuth) -> ExchangeError {
    if let Some(alert) = refused_handshake(error) {
        let text = format!("the server refused the TLS handshake ({alert:?}){}", client_auth.hint());
        return ExchangeError::new(Fault::Tls, text);
    }
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    let text = format!("the connection broke: {error}{cause}{}", client_auth.hint());
    ExchangeError::new(Fault::Reset, text)
}
