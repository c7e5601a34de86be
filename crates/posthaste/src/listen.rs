//! Where to listen: an address or the name of a host, with a port.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

use tokio::net::lookup_host;

/// In bytes, as in DNS.
const MAX_HOST: usize = 253;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddr {
    Address(SocketAddr),
    /// The name is looked up at the start.
    Name {
        host: String,
        port: u16,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("give an address and a port such as 127.0.0.1:7780 or localhost:7780")]
pub struct BadListenAddr;

impl ListenAddr {
    /// Port 0 means any free port.
    pub const fn port(&self) -> u16 {
        match self {
            Self::Address(address) => address.port(),
            Self::Name { port, .. } => *port,
        }
    }

    /// The address to bind: of a name its first IPv4 address, or its first address if it has no other. Clients
    /// are told 127.0.0.1 by default, which `localhost` must mean as well.
    pub async fn resolve(&self) -> io::Result<SocketAddr> {
        let (host, port) = match self {
            Self::Address(address) => return Ok(*address),
            Self::Name { host, port } => (host.as_str(), *port),
        };
        let found: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
        let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
        first.copied().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
    }
}

impl FromStr for ListenAddr {
    type Err = BadListenAddr;

    fn from_str(text: &str) -> Result<Self, BadListenAddr> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or(BadListenAddr)?;
        let is_name = host.len() <= MAX_HOST
            && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
            // Digits and dots alone are an address with a mistake in it.
            && host.contains(|c: char| c.is_ascii_alphabetic());
        let port = port.parse().map_err(|_| BadListenAddr)?;
        if is_name { Ok(Self::Name { host: host.to_owned(), port }) } else { Err(BadListenAddr) }
    }
}

impl From<SocketAddr> for ListenAddr {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(out),
            Self::Name { host, port } => write!(out, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_a_name_is_read_and_shown_as_it_was_written() {
        for text in ["127.0.0.1:7780", "[::1]:0", "0.0.0.0:80", "localhost:7780", "node-1.example.com:7780"] {
            assert_eq!(text.parse::<ListenAddr>().unwrap().to_string(), text);
        }
        let name = ListenAddr::Name { host: "localhost".to_owned(), port: 7780 };
        assert_eq!("localhost:7780".parse(), Ok(name));
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in ["", ":", "7780", ":7780", "localhost", "localhost:", "localhost:70000", "127.0.0.256:1"]
        {
            assert_eq!(text.parse::<ListenAddr>(), Err(BadListenAddr), "{text}");
        }
        for text in ["http://localhost:7780", "a b:1", "::1:7780", "me@localhost:1", "127.0.0.1:x"] {
            assert_eq!(text.parse::<ListenAddr>(), Err(BadListenAddr), "{text}");
        }
    }

    #[tokio::test]
    async fn localhost_is_where_clients_look_for_it() {
        let found = "localhost:7780".parse::<ListenAddr>().unwrap().resolve().await.unwrap();
        assert_eq!(found, SocketAddr::from(([127, 0, 0, 1], 7780)));
    }
}
