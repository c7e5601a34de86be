//! Opens a connection: resolve the name, check the addresses, connect to a checked one, TLS handshake.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use posthaste_core::notification::Tenant;
use posthaste_core::reply::{Fault, Reply};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::lookups::{Lookup, Lookups, NoSlot, SLOT_TIMEOUT};
use super::protocol::Protocol;
use super::proxy::Proxy;
use super::tls::{ClientAuth, Tls};
use crate::guard::{Guard, Host, Scheme, Target};

/// Delay before the next address is tried in parallel (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);
/// Limit on the addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

pub(super) type Stream = Box<dyn Duplex>;

pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The progress of an exchange, for the text of a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Resolving,
    Connecting,
    /// A proxy was asked for a tunnel.
    Tunnel,
    Handshake,
    Answer,
}

impl Stage {
    pub(super) const fn describe(self) -> &'static str {
        match self {
            Self::Resolving => "the name was still being looked up",
            Self::Connecting => "still connecting",
            Self::Tunnel => "the proxy had not answered CONNECT",
            Self::Handshake => "the TLS handshake was still under way",
            Self::Answer => "connected, but no answer came",
        }
    }
}

/// Why an exchange has no response.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct ExchangeError {
    pub fault: Fault,
    /// The error in words.
    pub text: String,
    /// How far it came.
    pub stage: Stage,
    /// Whether it broke on a connection that had served before, and may have been closed meanwhile.
    pub reused: bool,
}

impl ExchangeError {
    pub fn new(fault: Fault, text: impl Into<String>) -> Self {
        Self { fault, text: text.into(), stage: Stage::Resolving, reused: false }
    }
}

impl From<ExchangeError> for Reply {
    fn from(failure: ExchangeError) -> Self {
        Self::fault(failure.fault, failure.text)
    }
}

pub(super) struct Dialer {
    pub(super) guard: Option<Guard>,
    pub(super) lookups: Arc<Lookups>,
    pub(super) tls: Tls,
    pub(super) proxy: Option<Proxy>,
    pub(super) protocol: Protocol,
}

impl Dialer {
    /// Waits until the lookup of the target's name has started.
    pub(super) async fn prepare(&self, tenant: &Tenant, target: &Target) -> Result<(), ExchangeError> {
        match &self.proxy.as_ref().map_or(target, |proxy| &proxy.target).host {
            Host::Address(_) => Ok(()),
            Host::Name(name) => self.look_up(tenant, name).await.map(drop),
        }
    }

    /// What a response says if it is the proxy's own.
    pub(super) fn refused(&self, target: &Target, status: StatusCode) -> Option<ExchangeError> {
        let proxy = self.proxy.as_ref().filter(|_| target.scheme == Scheme::Http)?;
        proxy.refusal(status)
    }

    /// Opens a connection, and returns what the server asked of this side. `stage` holds the progress if the future is dropped.
    pub(super) async fn dial(
        &self,
        tenant: &Tenant,
        target: &Target,
        stage: &mut Stage,
    ) -> Result<(Stream, ClientAuth), ExchangeError> {
        let mut stream = match &self.proxy {
            None => self.connect(tenant, target, self.guard.as_ref(), stage).await?,
            // The proxy was named by an operator, so the guard does not check it.
            Some(proxy) => self.connect(tenant, &proxy.target, None, stage).await.map_err(|failure| {
                let text = format!("the proxy {proxy} is not reachable: {}", failure.text);
                ExchangeError { text, ..failure }
            })?,
        };
        if let (Some(proxy), Scheme::Https) = (&self.proxy, target.scheme) {
            *stage = Stage::Tunnel;
            proxy.tunnel(&mut stream, target).await?;
        }
        match target.scheme {
            Scheme::Http => Ok((Box::new(stream), ClientAuth::NotAsked)),
            Scheme::Https => {
                *stage = Stage::Handshake;
                let failed = |error| ExchangeError::new(Fault::Tls, format!("TLS handshake failed: {error}"));
                let name = server_name(&target.host).map_err(failed)?;
                let (client_auth, stream) = self.tls.connect(&target.destination, name, stream).await;
                let stream = stream.map_err(|error| {
                    let text = format!("TLS handshake failed: {error}{}", client_auth.hint());
                    ExchangeError::new(Fault::Tls, text)
                })?;
                let agreed = stream.get_ref().1.alpn_protocol();
                if self.protocol == Protocol::Http2 && agreed != Some(self.protocol.alpn()) {
                    return Err(failed(io::Error::other("the server does not speak HTTP/2")));
                }
                Ok((Box::new(stream), client_auth))
            }
        }
    }

    async fn connect(
        &self,
        tenant: &Tenant,
        target: &Target,
        guard: Option<&Guard>,
        stage: &mut Stage,
    ) -> Result<TcpStream, ExchangeError> {
        *stage = Stage::Resolving;
        let addresses = self.addresses(tenant, &target.host, guard).await?;
        *stage = Stage::Connecting;
        let sockets: Vec<SocketAddr> =
            addresses.into_iter().map(|address| SocketAddr::new(address, target.port)).collect();
        let stream = connect(&sockets).await.map_err(|error| not_connected(&error))?;
        // Without it small requests wait for acknowledgements. A failure is harmless.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// The checked addresses of a host. One forbidden address forbids the whole name.
    async fn addresses(
        &self,
        tenant: &Tenant,
        host: &Host,
        guard: Option<&Guard>,
    ) -> Result<Vec<IpAddr>, ExchangeError> {
        let check = |address| guard.map_or(Ok(()), |guard| guard.check(address));
        let name = match host {
            Host::Address(address) => {
                check(*address)
                    .map_err(|forbidden| ExchangeError::new(Fault::Forbidden, forbidden.to_string()))?;
                return Ok(vec![*address]);
            }
            Host::Name(name) => name,
        };
        let mut found =
            self.look_up(tenant, name).await?.addresses().await.map_err(|error| unresolved(name, &error))?;
        if found.is_empty() {
            return Err(ExchangeError::new(Fault::Dns, format!("{name} has no address")));
        }
        for address in &found {
            // The text leaves out the address: the sender may have no right to learn about our network.
            check(*address).map_err(|forbidden| {
                let text = format!("{name} leads to a forbidden address ({})", forbidden.range);
                ExchangeError::new(Fault::Forbidden, text)
            })?;
        }
        found.truncate(MAX_ADDRESSES);
        Ok(found)
    }

    async fn look_up(&self, tenant: &Tenant, name: &str) -> Result<Lookup, ExchangeError> {
        self.lookups.start(tenant, name).await.map_err(|NoSlot| {
            let wait = format!("too many lookups are under way, and none ended within {SLOT_TIMEOUT:?}");
            unresolved(name, &wait)
        })
    }
}

fn unresolved(name: &str, why: &str) -> ExchangeError {
    ExchangeError::new(Fault::Dns, format!("cannot resolve {name}: {why}"))
}

fn server_name(host: &Host) -> io::Result<ServerName<'static>> {
    match host {
        Host::Address(address) => Ok(ServerName::from(*address)),
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(io::Error::other),
    }
}

/// Connects to the first address that answers (RFC 8305, "happy eyeballs").
async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    if let [address] = addresses {
        return TcpStream::connect(address).await;
    }
    let mut waiting = addresses.iter().copied();
    let mut running = JoinSet::new();
    let mut reported: Option<io::Error> = None;
    loop {
        if let Some(address) = waiting.next() {
            running.spawn(TcpStream::connect(address));
        }
        let error = tokio::select! {
            Some(joined) = running.join_next() => match joined.map_err(io::Error::other).flatten() {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            },
            () = tokio::time::sleep(HEAD_START), if waiting.len() > 0 => continue,
            else => return Err(reported.unwrap_or_else(|| io::ErrorKind::HostUnreachable.into())),
        };
        // On a machine without IPv6 every IPv6 address fails with "no route". The error of the IPv4 addresses
        // is more useful.
        if reported.as_ref().is_none_or(|reported| connect_fault(reported) == Fault::NoRoute) {
            reported = Some(error);
        }
    }
}

fn not_connected(error: &io::Error) -> ExchangeError {
    ExchangeError::new(connect_fault(error), format!("cannot connect: {error}"))
}

/// The fault for an error of `connect`. Nothing has been sent yet, so none of them is `Reset`.
fn connect_fault(error: &io::Error) -> Fault {
    use io::ErrorKind as Kind;
    match (error.kind(), error.raw_os_error()) {
        (Kind::ConnectionRefused | Kind::ConnectionReset | Kind::ConnectionAborted, _) => Fault::Refused,
        (Kind::TimedOut, _) => Fault::Timeout,
        // Out of memory or of sockets (ENFILE, EMFILE, ENOBUFS): a problem of this machine.
        (Kind::OutOfMemory, _) | (_, Some(23 | 24 | 105)) => Fault::Broken,
        // Unreachable, no local address, unsupported address family, or blocked by a packet filter.
        _ => Fault::NoRoute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_connect_are_told_apart() {
        let cases = [
            (libc_code(111), Fault::Refused),
            (libc_code(104), Fault::Refused),
            (libc_code(101), Fault::NoRoute),
            (libc_code(113), Fault::NoRoute),
            (libc_code(100), Fault::NoRoute),
            (libc_code(99), Fault::NoRoute),
            (libc_code(97), Fault::NoRoute),
            (libc_code(22), Fault::NoRoute),
            (libc_code(13), Fault::NoRoute),
            (libc_code(1), Fault::NoRoute),
            (libc_code(110), Fault::Timeout),
            (libc_code(12), Fault::Broken),
            (libc_code(23), Fault::Broken),
            (libc_code(24), Fault::Broken),
            (libc_code(105), Fault::Broken),
        ];
        for (error, fault) in cases {
            assert_eq!(connect_fault(&error), fault, "{error}");
        }
    }

    /// Linux error numbers.
    fn libc_code(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }
}
