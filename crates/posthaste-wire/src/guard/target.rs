//! Parsing of a webhook's URL by the rules of browsers (WHATWG), so that all spellings of an address are
//! equal.

use std::net::IpAddr;

use http::uri::PathAndQuery;
use url::Url;

use super::Forbidden;

/// In bytes.
const MAX_URL: usize = 8 * 1024;

/// Limits of DNS (RFC 1035, 2.3.4): a whole name, and the part between two dots.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// Lower case, ASCII, without the trailing dot.
    Name(String),
    Address(IpAddr),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub scheme: Scheme,
    pub host: Host,
    /// The scheme's default if the URL names none.
    pub port: u16,
    pub path: PathAndQuery,
    /// `scheme://host:port`: the key of flows and breakers.
    pub destination: String,
}

/// The text does not repeat the URL, which may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the URL {reason}")]
pub struct BadUrl {
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedUrl {
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error(transparent)]
    Bad(#[from] BadUrl),
}

impl Target {
    /// Parses a URL. The address is not checked: the guard does that.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        let bad = |reason: &str| BadUrl { reason: reason.to_owned() };
        if text.len() > MAX_URL {
            return Err(bad("is longer than 8 KiB"));
        }
        let url = Url::parse(text).map_err(|error| bad(&format!("cannot be read: {error}")))?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(bad("must start with http:// or https://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("must not hold a user name or password"));
        }
        let host = match url.host() {
            Some(url::Host::Ipv4(address)) => Host::Address(address.into()),
            Some(url::Host::Ipv6(address)) => Host::Address(address.into()),
            Some(url::Host::Domain(name)) => Host::Name(name.strip_suffix('.').unwrap_or(name).to_owned()),
            None => return Err(bad("names no host")),
        };
        if let Host::Name(name) = &host {
            check_name(name).map_err(bad)?;
        }
        let port = url.port().unwrap_or(scheme.default_port());
        if port == 0 {
            return Err(bad("names port 0"));
        }
        let path =
            url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let path = path.parse().map_err(|_| bad("has a path that HTTP cannot carry"))?;
        let destination = format!("{}://{}:{port}", scheme.name(), host_text(&host));
        Ok(Self { scheme, host, port, path, destination })
    }

    /// The `host` header: the port is left out if it is the scheme's default.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            return host_text(&self.host);
        }
        format!("{}:{}", host_text(&self.host), self.port)
    }
}

/// Refuses names that DNS cannot hold: they would fail on every attempt.
fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("names no host");
    }
    if name.len() > MAX_NAME {
        return Err("names a host of more than 253 characters");
    }
    for label in name.split('.') {
        match label.len() {
            0 => return Err("names a host with nothing between two dots, or before the first"),
            1..=MAX_LABEL => {}
            _ => return Err("names a host with more than 63 characters between two dots"),
        }
    }
    Ok(())
}

fn host_text(host: &Host) -> String {
    match host {
        Host::Name(name) => name.clone(),
        Host::Address(IpAddr::V4(address)) => address.to_string(),
        Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
    }
}
