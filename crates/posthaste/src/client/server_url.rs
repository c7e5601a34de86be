//! The URL of the server.

use std::fmt::Write;

use http::Uri;
use posthaste_core::reply::Fault;
use posthaste_wire::guard::Target;
use posthaste_wire::http::ExchangeError;
use url::{Host, Url};

use super::ClientError;

pub(super) struct ServerUrl {
    url: String,
    /// Its path is that of the prefix.
    target: Target,
    authority: String,
    prefix: String,
    secure: bool,
    loopback: bool,
}

impl ServerUrl {
    pub(super) fn read(text: &str) -> Result<Self, ClientError> {
        let bad = |reason| ClientError::Url { url: text.to_owned(), reason };
        let url = Url::parse(text).map_err(|_| bad("is not one such as http://127.0.0.1:7780"))?;
        let secure = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(bad("starts with neither http:// nor https://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("holds a user; a key is given with --key or POSTHASTE_KEY"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("holds more than an address and a path"));
        }
        let host = url.host().ok_or_else(|| bad("has no host"))?;
        let loopback = match &host {
            Host::Domain(name) => *name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        };
        let authority = url.port().map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
        Ok(Self {
            target: Target::parse(url.as_str()).map_err(|_| bad("names a host that does not exist"))?,
            prefix: url.path().trim_end_matches('/').to_owned(),
            url: url.as_str().trim_end_matches('/').to_owned(),
            authority,
            secure,
            loopback,
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    pub(super) fn is_exposed(&self) -> bool {
        !self.secure && !self.loopback
    }

    /// Where a request with this path goes.
    pub(super) fn target(&self, uri: &Uri) -> Result<Target, ExchangeError> {
        let none = || ExchangeError::new(Fault::Unsendable, "the request has no path");
        let path = uri.path_and_query().ok_or_else(none)?.clone();
        Ok(Target { path, ..self.target.clone() })
    }
}

/// Percent-encodes a text for one segment of a path or one value of a query.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a String does not fail");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart() {
        let target = ServerUrl::read("http://[::1]:7780/posthaste/").unwrap();
        assert_eq!(
            (target.target.destination.as_str(), target.authority()),
            ("http://[::1]:7780", "[::1]:7780")
        );
        assert_eq!(target.path("/v1/stats"), "/posthaste/v1/stats");
        assert!(!target.is_exposed());
        let target = ServerUrl::read("https://queue.example.com").unwrap();
        assert_eq!((target.target.port, target.authority()), (443, "queue.example.com"));
        assert!(target.secure && !target.is_exposed());
        assert!(ServerUrl::read("http://queue.example.com").unwrap().is_exposed());
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_with_the_reason() {
        for (url, reason) in [
            ("127.0.0.1:7780", "such as http://"),
            ("", "such as http://"),
            ("ftp://example.com", "neither http:// nor https://"),
            ("http://me:secret@example.com", "--key"),
            ("http://example.com/?a=1", "more than an address"),
        ] {
            let error = ServerUrl::read(url).err().unwrap().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn a_part_of_a_path_cannot_become_another_path() {
        assert_eq!(encode("ntf_01k"), "ntf_01k");
        assert_eq!(encode("a/b?c#d e%\r\nü"), "a%2Fb%3Fc%23d%20e%25%0D%0A%C3%BC");
        assert_eq!(encode("tenant:acme"), "tenant:acme");
    }
}
