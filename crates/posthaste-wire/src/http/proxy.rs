//! A forward proxy: plain requests go through it with their whole URL, TLS through a tunnel (CONNECT).
//!
//! A proxy resolves names itself. So the guard can check the host as it is written, and no address.

use std::fmt;

use http::StatusCode;
use http::header::{HeaderMap, HeaderValue, PROXY_AUTHORIZATION};
use posthaste_core::reply::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;

use super::dial::ExchangeError;
use crate::guard::{Host, Target};

/// Limit on the head of the answer to CONNECT, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// The proxy of a client. Its credentials are never shown.
#[derive(Clone)]
pub struct Proxy {
    pub(super) target: Target,
    authorization: Option<HeaderValue>,
}

/// The text does not repeat the URL, which may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadProxy(&'static str);

const NO_URL: &str = "is not a URL such as http://proxy.example.com:3128";

impl Proxy {
    /// Reads `http://host:port` or `http://user:password@host:port`.
    pub fn parse(text: &str) -> Result<Self, BadProxy> {
        let bad = BadProxy(NO_URL);
        let mut url = Url::parse(text).map_err(|_| bad)?;
        if url.scheme() != "http" {
            return Err(BadProxy("must start with http://: the proxy itself is spoken to in plain"));
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(BadProxy("must hold a host and a port, and no path"));
        }
        let authorization = credentials(&url)?;
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| bad)?;
        let target = Target::parse(url.as_str()).map_err(|_| bad)?;
        Ok(Self { target, authorization })
    }

    /// The same with another password, which may hold any character.
    pub fn with_password(text: &str, password: &str) -> Result<Self, BadProxy> {
        let url = Url::parse(text).map_err(|_| BadProxy(NO_URL))?;
        if url.username().is_empty() || url.password().is_some() {
            return Err(BadProxy("must name a user, and no password, if the password is given apart"));
        }
        let authorization = Some(basic(&decoded(url.username()), password.as_bytes())?);
        Ok(Self { authorization, ..Self::parse(text)? })
    }

    /// Where it listens.
    pub fn host_and_port(&self) -> String {
        self.target.host_and_port()
    }

    /// Adds the credentials to a request that goes to the proxy.
    pub(super) fn authorize(&self, headers: &mut HeaderMap) {
        if let Some(authorization) = &self.authorization {
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
    }

    /// What a proxy says of itself in answer to a plain request. An origin never answers 407.
    pub(super) fn refusal(&self, status: StatusCode) -> Option<ExchangeError> {
        (status == StatusCode::PROXY_AUTHENTICATION_REQUIRED)
            .then(|| self.refused("wants other credentials (407)"))
    }

    /// Asks the proxy for a tunnel to the target. What was sent so far has had no effect on the target, so
    /// no failure is a `Reset`.
    pub(super) async fn tunnel(&self, stream: &mut TcpStream, target: &Target) -> Result<(), ExchangeError> {
        let host = target.host_and_port();
        let mut request = format!("CONNECT {host} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
        if let Some(authorization) = &self.authorization {
            request.extend_from_slice(b"proxy-authorization: ");
            request.extend_from_slice(authorization.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        let broke = |error: std::io::Error| self.refused(&format!("broke the connection: {error}"));
        stream.write_all(&request).await.map_err(broke)?;
        let head = self.read_head(stream).await?;
        match status(&head) {
            Some(200..=299) => Ok(()),
            Some(407) => Err(self.refused("wants other credentials (407 to CONNECT)")),
            Some(status) => Err(self.refused(&format!("answered {status} to CONNECT"))),
            None => Err(self.refused("answered CONNECT with something that is not HTTP/1")),
        }
    }

    /// Reads byte by byte up to the empty line: what follows belongs to the tunnel.
    async fn read_head(&self, stream: &mut TcpStream) -> Result<Vec<u8>, ExchangeError> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == MAX_HEAD {
                return Err(self.refused("answered CONNECT with a head without end"));
            }
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return Err(self.refused("closed the connection before it had answered CONNECT")),
            }
        }
        Ok(head)
    }

    fn refused(&self, what: &str) -> ExchangeError {
        ExchangeError::new(Fault::NoRoute, format!("the proxy {self} {what}"))
    }
}

/// The address, without credentials.
impl fmt::Display for Proxy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.target.destination)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Proxy({self})")
    }
}

impl PartialEq for Proxy {
    fn eq(&self, other: &Self) -> bool {
        (&self.target, &self.authorization) == (&other.target, &other.authorization)
    }
}

impl Eq for Proxy {}

fn credentials(url: &Url) -> Result<Option<HeaderValue>, BadProxy> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    basic(&decoded(url.username()), &decoded(url.password().unwrap_or_default())).map(Some)
}

fn basic(user: &[u8], password: &[u8]) -> Result<HeaderValue, BadProxy> {
    let plain = [user, b":", password].concat();
    let mut value = HeaderValue::from_str(&format!("Basic {}", base64(&plain)))
        .map_err(|_| BadProxy("holds credentials that cannot be sent"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reverts the percent-encoding of a URL.
fn decoded(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(text).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// The status of a response's head.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next().filter(|status| status.len() == 3)?.parse().ok()
}

/// The authority of a target, as CONNECT names it: always with its port.
impl Target {
    fn host_and_port(&self) -> String {
        match &self.host {
            Host::Name(name) => format!("{name}:{}", self.port),
            Host::Address(address) => std::net::SocketAddr::new(*address, self.port).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_read_and_its_credentials_are_not_shown() {
        let proxy = Proxy::parse("http://me:s%40crets@proxy.example.com:3128").unwrap();
        assert_eq!(proxy.to_string(), "http://proxy.example.com:3128");
        assert_eq!(format!("{proxy:?}"), "Proxy(http://proxy.example.com:3128)");
        let mut headers = HeaderMap::new();
        proxy.authorize(&mut headers);
        assert_eq!(headers[PROXY_AUTHORIZATION], format!("Basic {}", base64(b"me:s@crets")));
        assert!(headers[PROXY_AUTHORIZATION].is_sensitive());
        assert_eq!(Proxy::parse("http://[::1]:80").unwrap().to_string(), "http://[::1]:80");
    }

    #[test]
    fn a_password_may_be_given_apart_and_hold_any_character() {
        let proxy = Proxy::with_password("http://me@proxy.example.com:3128", "a:b@c/%41 ü").unwrap();
        let mut headers = HeaderMap::new();
        proxy.authorize(&mut headers);
        assert_eq!(headers[PROXY_AUTHORIZATION], format!("Basic {}", base64("me:a:b@c/%41 ü".as_bytes())));
        for text in ["http://proxy.example.com:3128", "http://me:secret@proxy.example.com:3128", "x"] {
            assert!(Proxy::with_password(text, "secret").is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_proxy_is_refused_without_repeating_it() {
        for (text, reason) in [
            ("proxy:3128", "must start with http://"),
            ("https://me:secret@proxy:3128", "must start with http://"),
            ("socks5://proxy:1080", "must start with http://"),
            ("http://proxy:3128/path", "no path"),
            ("http://me:secret@", "is not a URL"),
            ("http://me:secret@proxy:0", "is not a URL"),
            ("", "is not a URL"),
        ] {
            let error = Proxy::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn the_status_of_an_answer_is_read() {
        for (head, read) in [
            ("HTTP/1.1 200 Connection established\r\n\r\n", Some(200)),
            ("HTTP/1.0 407\r\n\r\n", Some(407)),
            ("SSH-2.0-x\r\n\r\n", None),
            ("HTTP/1.1 20 x\r\n\r\n", None),
            ("\r\n\r\n", None),
        ] {
            assert_eq!(status(head.as_bytes()), read, "{head:?}");
        }
    }
}
