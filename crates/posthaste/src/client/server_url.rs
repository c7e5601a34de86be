//! The URL of the server, and how to connect to it.

use std::fmt::Write;
use std::io;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use super::ClientError;
use super::connection::Connection;

pub(super) struct ServerUrl {
    url: String,
    host: String,
    port: u16,
    authority: String,
    prefix: String,
    loopback: bool,
    tls: Option<(TlsConnector, ServerName<'static>)>,
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
        let (name, loopback) = match &host {
            Host::Domain(name) => ((*name).to_owned(), *name == "localhost"),
            Host::Ipv4(address) => (address.to_string(), address.is_loopback()),
            Host::Ipv6(address) => (address.to_string(), address.is_loopback()),
        };
        let tls = if secure {
            let server = ServerName::try_from(name.clone())
                .map_err(|_| bad("has a host name that TLS cannot verify"))?;
            Some((connector(), server))
        } else {
            None
        };
        let authority = url.port().map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
        Ok(Self {
            prefix: url.path().trim_end_matches('/').to_owned(),
            port: url.port_or_known_default().ok_or_else(|| bad("has no port"))?,
            url: url.as_str().trim_end_matches('/').to_owned(),
            host: name,
            authority,
            loopback,
            tls,
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
        self.tls.is_none() && !self.loopback
    }

    pub(super) async fn connect(&self) -> Result<Connection, ClientError> {
        let unreachable = |source| ClientError::Connect { url: self.url.clone(), source };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreachable)?;
        // Without it small requests wait for acknowledgements.
        stream.set_nodelay(true).map_err(unreachable)?;
        let connection = match &self.tls {
            None => Connection::new(TokioIo::new(stream)).await,
            Some((tls, name)) => {
                let stream = tls.connect(name.clone(), stream).await.map_err(unreachable)?;
                Connection::new(TokioIo::new(stream)).await
            }
        };
        connection.map_err(|error| unreachable(io::Error::other(error)))
    }
}

/// TLS that trusts the certificate authorities of browsers.
fn connector() -> TlsConnector {
    let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
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
        assert_eq!((target.host.as_str(), target.port, target.authority()), ("::1", 7780, "[::1]:7780"));
        assert_eq!(target.path("/v1/stats"), "/posthaste/v1/stats");
        assert!(!target.is_exposed());
        let target = ServerUrl::read("https://queue.example.com").unwrap();
        assert_eq!((target.port, target.authority()), (443, "queue.example.com"));
        assert!(target.tls.is_some() && !target.is_exposed());
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
