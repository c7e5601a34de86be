//! TLS: whom a client trusts, and which certificate it shows to which origin.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, RwLock};

use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{AlertDescription, ClientConfig, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client_certificate::ClientCertificate;
use super::protocol::Protocol;

/// The trust is the same for all origins. Each origin with a certificate has a configuration of its own, and with it sessions
/// of its own: one that was resumed elsewhere would carry the certificate along.
pub(super) struct Tls {
    verifier: Arc<WebPkiServerVerifier>,
    protocol: Protocol,
    /// For origins without a certificate.
    bare: Arc<ClientConfig>,
    /// By origin, `https://host:port`.
    certified: RwLock<BTreeMap<String, Arc<ClientConfig>>>,
}

tokio::task_local! {
    /// Whether the server of the handshake that is under way asked for a certificate.
    static ASKED: Cell<bool>;
}

/// What the server asked of this side in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientAuth {
    NotAsked,
    /// A certificate is asked for, and none is set for this origin.
    Missing,
    Shown,
}

impl Tls {
    /// Trusts Mozilla's certificate authorities, which are compiled in, and `roots`.
    pub(super) fn new(
        roots: Vec<CertificateDer<'static>>,
        certificates: BTreeMap<String, ClientCertificate>,
        protocol: Protocol,
    ) -> Result<Self, rustls::Error> {
        let mut trusted = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        for root in roots {
            trusted.add(root)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), provider)
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let bare = config(&verifier, protocol, None)?;
        let tls = Self { verifier, protocol, bare, certified: RwLock::default() };
        for (origin, certificate) in certificates {
            tls.show(origin, &certificate)?;
        }
        Ok(tls)
    }

    /// New connections to the origin show this certificate.
    pub(super) fn show(&self, origin: String, certificate: &ClientCertificate) -> Result<(), rustls::Error> {
        let config = config(&self.verifier, self.protocol, Some(certificate))?;
        self.certified
            .write()
            .expect("no code panics while it replaces a certificate")
            .insert(origin, config);
        Ok(())
    }

    fn certified(&self, origin: &str) -> Option<Arc<ClientConfig>> {
        self.certified.read().expect("no code panics while it replaces a certificate").get(origin).cloned()
    }

    /// Makes the handshake. The other values are what the server asked, and how the handshake failed.
    pub(super) async fn connect(
        &self,
        origin: &str,
        name: ServerName<'static>,
        stream: TcpStream,
    ) -> (ClientAuth, io::Result<TlsStream<TcpStream>>) {
        if let Some(config) = self.certified(origin) {
            return (ClientAuth::Shown, TlsConnector::from(config).connect(name, stream).await);
        }
        let handshake = async {
            let stream = TlsConnector::from(self.bare.clone()).connect(name, stream).await;
            let client_auth = if ASKED.with(Cell::get) { ClientAuth::Missing } else { ClientAuth::NotAsked };
            (client_auth, stream)
        };
        ASKED.scope(Cell::new(false), handshake).await
    }
}

fn config(
    verifier: &Arc<WebPkiServerVerifier>,
    protocol: Protocol,
    certificate: Option<&ClientCertificate>,
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_webpki_verifier(verifier.clone());
    let mut config = match certificate {
        None => config.with_client_cert_resolver(Arc::new(NoCertificate)),
        Some(certificate) => {
            config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certificate.certified.clone())))
        }
    };
    config.alpn_protocols = vec![protocol.alpn().to_vec()];
    Ok(Arc::new(config))
}

/// Has no certificate, and notes that one was asked for. There is one for all connections, because a session is resumed only under
/// the resolver that it began with.
#[derive(Debug)]
struct NoCertificate;

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        // A handshake that nobody asks about is none of ours.
        let _ = ASKED.try_with(|asked| asked.set(true));
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

impl ClientAuth {
    /// What a person who reads that a connection broke should know. With TLS 1.3 a server says only after the handshake that it
    /// wants a certificate, or another one.
    pub(super) const fn hint(self) -> &'static str {
        match self {
            Self::NotAsked => "",
            Self::Missing => {
                "; the server asks for a client certificate, and this destination has none (client_certificate)"
            }
            Self::Shown => "; a client certificate was shown",
        }
    }
}

/// The alert with which the other side refused the handshake, somewhere among the causes of an error.
pub(super) fn refused_handshake(
    error: &(dyn std::error::Error + 'static),
) -> Option<impl fmt::Debug + use<>> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(rustls::Error::AlertReceived(alert)) =
            inner.and_then(|inner| inner.downcast_ref::<rustls::Error>())
        {
            return is_of_handshake(*alert).then_some(*alert);
        }
        cause = error.source();
    }
    None
}

/// Alerts that are sent in place of the end of a handshake: the server has read no request.
const fn is_of_handshake(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::HandshakeFailure
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired
    )
}
