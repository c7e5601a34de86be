//! Where a URL leads: read once, by the rules of browsers (WHATWG), so that every spelling of an address is one.

use std::net::IpAddr;

use http::uri::PathAndQuery;
use url::Url;

use super::Forbidden;

/// The longest URL that is looked at.
const LONGEST: usize = 8 * 1024;

/// The longest name of a host, and the longest part between two dots of it.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// The two schemes of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// The scheme as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The host of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A name to look up: lower case, ASCII, without the dot of the root at its end.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// Where a URL leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Plain or over TLS.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port, the scheme's own if none was given.
    pub port: u16,
    /// What is asked for.
    pub path: PathAndQuery,
    /// What a breaker guards: `scheme://host:port`.
    pub destination: String,
}

/// A text that is not the URL of a webhook. It does not repeat the URL, which may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the URL {reason}")]
pub struct BadUrl {
    reason: String,
}

/// Why a URL is not sent to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedUrl {
    /// It names an address that is not sent to.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// It is not the URL of a webhook.
    #[error(transparent)]
    Bad(#[from] BadUrl),
}

impl Target {
    /// Reads a URL; whether its address may be connected to is for the guard to say.
    pub(super) fn parse(text: &str) -> Result<Self, BadUrl> {
        let bad = |reason: &str| BadUrl { reason: reason.to_owned() };
        if text.len() > LONGEST {
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
        let port = url.port().unwrap_or(scheme.port());
        if port == 0 {
            return Err(bad("names port 0"));
        }
        let path =
            url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let path = path.parse().map_err(|_| bad("has a path that HTTP cannot carry"))?;
        let destination = format!("{}://{}:{port}", scheme.name(), written(&host));
        Ok(Self { scheme, host, port, path, destination })
    }

    /// The `host` header: the port only where it is not the scheme's own.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.port() {
            return written(&self.host);
        }
        format!("{}:{}", written(&self.host), self.port)
    }
}

/// Refuses what DNS can never find (RFC 1035, 2.3.4): it would fail on every attempt.
fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("names no host");
    }
    if name.len() > LONGEST_NAME {
        return Err("names a host of more than 253 characters");
    }
    for label in name.split('.') {
        match label.len() {
            0 => return Err("names a host with nothing between two dots, or before the first"),
            1..=LONGEST_LABEL => {}
            _ => return Err("names a host with more than 63 characters between two dots"),
        }
    }
    Ok(())
}

fn written(host: &Host) -> String {
    match host {
        Host::Name(name) => name.clone(),
        Host::Address(IpAddr::V4(address)) => address.to_string(),
        Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
    }
}
