//! Where a JWKS is read from: a file, or a URL of the identity provider.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::Full;
use posthaste_core::notification::Tenant;
use posthaste_wire::guard::Target;
use posthaste_wire::http::{BadRoot, Exchange, ExchangeError, HttpClient, HttpOptions, Unread};

use super::key_set::MAX_SET;
use crate::config::JwtKeys;

/// Limit on a whole exchange, from the DNS lookup to the last byte of the set.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a JWKS cannot be read. The texts follow the name of the file or URL.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("cannot be read: {0}")]
    File(#[from] io::Error),
    #[error("does not answer: {0}")]
    Exchange(#[from] ExchangeError),
    #[error("answers {}{}", .0.as_u16(), if .0.is_redirection() { ": redirects are not followed, give the final URL" } else { "" })]
    Status(StatusCode),
    #[error("does not end its answer: {0}")]
    Body(#[from] Unread),
    #[error("is larger than {} KiB", MAX_SET / 1024)]
    TooLarge,
}

pub enum KeySource {
    File(PathBuf),
    Url(Box<Remote>),
}

/// A URL of an operator, so the guard does not check its address.
pub struct Remote {
    client: HttpClient,
    target: Target,
    /// Whose lookups they are.
    tenant: Tenant,
}

impl KeySource {
    /// None if the key is part of the configuration.
    pub fn of(keys: &JwtKeys) -> Result<Option<Self>, BadRoot> {
        match keys {
            JwtKeys::Secret(_) | JwtKeys::PublicKey(_) => Ok(None),
            JwtKeys::File(path) => Ok(Some(Self::File(path.clone()))),
            JwtKeys::Url { target, roots } => {
                let options = HttpOptions { guard: None, roots: roots.clone(), ..HttpOptions::default() };
                let tenant = Tenant::RESERVED[0].parse().expect("a reserved name is a name");
                let remote = Remote { client: HttpClient::new(options)?, target: target.clone(), tenant };
                Ok(Some(Self::Url(Box::new(remote))))
            }
        }
    }

    /// The set as it is now, of at most [`MAX_SET`] bytes.
    pub async fn read(&self) -> Result<Vec<u8>, Unreadable> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
                read.map_err(io::Error::other)?
            }
            Self::Url(remote) => remote.read().await,
        }
    }

    /// For people: the file or URL.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Url(remote) => format!("{}{}", remote.target.destination, remote.target.path.path()),
        }
    }
}

/// Reads a file of at most [`MAX_SET`] bytes.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let mut bytes = vec![];
    std::fs::File::open(path)?.take(MAX_SET as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_SET { Err(Unreadable::TooLarge) } else { Ok(bytes) }
}

impl Remote {
    async fn read(&self) -> Result<Vec<u8>, Unreadable> {
        let exchange = match self.exchange().await {
            // The kept connection was closed by the other side meanwhile.
            Err(failure) if failure.reused => self.exchange().await,
            exchange => exchange,
        }?;
        match exchange.status() {
            StatusCode::OK => {}
            status => return Err(Unreadable::Status(status)),
        }
        match exchange.whole(MAX_SET).await {
            Ok(response) => Ok(response.into_body().to_vec()),
            Err(Unread::TooLong) => Err(Unreadable::TooLarge),
            Err(unread) => Err(unread.into()),
        }
    }

    async fn exchange(&self) -> Result<Exchange, ExchangeError> {
        let mut request = Request::new(Full::new(Bytes::new()));
        let headers = request.headers_mut();
        headers.insert(HOST, self.target.authority().parse().expect("a host is a value of a header"));
        headers.insert(ACCEPT, "application/json".parse().expect("the text is a value of a header"));
        let agent = concat!("posthaste/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, agent.parse().expect("the text is a value of a header"));
        self.client.exchange(&self.tenant, self.target.clone(), request, TIMEOUT).await
    }
}
