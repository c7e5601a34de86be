//! From a target to an open connection: look up, check, connect to what was checked, shake hands.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::notification::Tenant;
use posthaste_core::reply::{Fault, Reply};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::lookups::{LONGEST_WAIT, Lookup, Lookups, NoPlace};
use crate::guard::{Guard, Host, Scheme, Target};

/// How long an address is tried alone before the next one is tried beside it.
const HEAD_START: Duration = Duration::from_millis(250);
/// The most addresses of one name that are tried.
const MOST_ADDRESSES: usize = 8;

/// An open connection, plain or over TLS.
pub(super) type Stream = Box<dyn Duplex>;

/// Bytes both ways.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// How far an exchange has come, for the words of a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Resolving,
    Connecting,
    Handshake,
    Answer,
}

impl Stage {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Resolving => "the name was still being looked up",
            Self::Connecting => "still connecting",
            Self::Handshake => "the TLS handshake was still under way",
            Self::Answer => "connected, but no answer came",
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(fault: Fault, text: impl Into<String>) -> Self {
        Self { fault, text: text.into() }
    }
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        Self::Fault { fault: failure.fault, text: failure.text }
    }
}

/// Opens connections to addresses that the guard has seen.
pub(super) struct Dialer {
    pub(super) guard: Guard,
    pub(super) lookups: Arc<Lookups>,
    pub(super) tls: TlsConnector,
}

impl Dialer {
    /// Begins what a connection has to wait for before it can be opened: the lookup of the target's name.
    pub(super) async fn prepare(&self, tenant: &Tenant, target: &Target) -> Result<(), Failure> {
        match &target.host {
            Host::Address(_) => Ok(()),
            Host::Name(name) => self.look_up(tenant, name).await.map(drop),
        }
    }

    /// Opens a connection. `stage` says how far it came when the future is dropped.
    pub(super) async fn dial(
        &self,
        tenant: &Tenant,
        target: &Target,
        stage: &mut Stage,
    ) -> Result<Stream, Failure> {
        *stage = Stage::Resolving;
        let addresses = self.addresses(tenant, &target.host).await?;
        *stage = Stage::Connecting;
        let sockets: Vec<SocketAddr> =
            addresses.into_iter().map(|address| SocketAddr::new(address, target.port)).collect();
        let stream = connect(&sockets).await.map_err(|error| not_connected(&error))?;
        // Without it small requests wait for acknowledgements; with it failing they still arrive.
        let _ = stream.set_nodelay(true);
        match target.scheme {
            Scheme::Http => Ok(Box::new(stream)),
            Scheme::Https => {
                *stage = Stage::Handshake;
                let failed = |error| Failure::new(Fault::Tls, format!("TLS handshake failed: {error}"));
                let name = server_name(&target.host).map_err(failed)?;
                Ok(Box::new(self.tls.connect(name, stream).await.map_err(failed)?))
            }
        }
    }

    /// The addresses of a host, all of them checked: one forbidden address among them forbids the name.
    async fn addresses(&self, tenant: &Tenant, host: &Host) -> Result<Vec<IpAddr>, Failure> {
        let name = match host {
            Host::Address(address) => {
                self.guard
                    .check(*address)
                    .map_err(|forbidden| Failure::new(Fault::Forbidden, forbidden.to_string()))?;
                return Ok(vec![*address]);
            }
            Host::Name(name) => name,
        };
        let mut found =
            self.look_up(tenant, name).await?.answer().await.map_err(|error| unresolved(name, &error))?;
        if found.is_empty() {
            return Err(Failure::new(Fault::Dns, format!("{name} has no address")));
        }
        for address in &found {
            // The address itself stays untold: the sender may not be one who should learn what lies in our network.
            self.guard.check(*address).map_err(|forbidden| {
                let text = format!("{name} leads to an address that is not sent to ({})", forbidden.range);
                Failure::new(Fault::Forbidden, text)
            })?;
        }
        found.truncate(MOST_ADDRESSES);
        Ok(found)
    }

    async fn look_up(&self, tenant: &Tenant, name: &str) -> Result<Lookup, Failure> {
        self.lookups.begin(tenant, name).await.map_err(|NoPlace| {
            let wait = format!("too many lookups are under way, and none ended within {LONGEST_WAIT:?}");
            unresolved(name, &wait)
        })
    }
}

/// TLS with the roots of Mozilla, which are part of the program, and with those given.
pub(super) fn tls(roots: Vec<CertificateDer<'static>>) -> Result<TlsConnector, rustls::Error> {
    let mut trusted = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for root in roots {
        trusted.add(root)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn unresolved(name: &str, why: &str) -> Failure {
    Failure::new(Fault::Dns, format!("cannot resolve {name}: {why}"))
}

fn server_name(host: &Host) -> io::Result<ServerName<'static>> {
    match host {
        Host::Address(address) => Ok(ServerName::from(*address)),
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(io::Error::other),
    }
}

/// Connects to the first address that answers, each with a head start over the next.
async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    if let [address] = addresses {
        return TcpStream::connect(address).await;
    }
    let mut waiting = addresses.iter().copied();
    let mut running = JoinSet::new();
    let mut told: Option<io::Error> = None;
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
            else => return Err(told.unwrap_or_else(|| io::ErrorKind::HostUnreachable.into())),
        };
        // A machine without IPv6 has no route to half of the world; what the other half said tells more.
        if told.as_ref().is_none_or(|told| fault_of(told) == Fault::NoRoute) {
            told = Some(error);
        }
    }
}

fn not_connected(error: &io::Error) -> Failure {
    Failure::new(fault_of(error), format!("cannot connect: {error}"))
}

/// What an error of `connect` means. Nothing has been sent, whichever it is, so none of them is `Reset`.
fn fault_of(error: &io::Error) -> Fault {
    use io::ErrorKind as Kind;
    match (error.kind(), error.raw_os_error()) {
        (Kind::ConnectionRefused | Kind::ConnectionReset | Kind::ConnectionAborted, _) => Fault::Refused,
        (Kind::TimedOut, _) => Fault::Timeout,
        // Out of memory or of sockets (ENFILE, EMFILE, ENOBUFS): ours to mend.
        (Kind::OutOfMemory, _) | (_, Some(23 | 24 | 105)) => Fault::Broken,
        // Unreachable, no address of our own to send from, no such family of addresses, a packet filter that says no.
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
            assert_eq!(fault_of(&error), fault, "{error}");
        }
    }

    /// Errors as Linux numbers them.
    fn libc_code(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }
}
