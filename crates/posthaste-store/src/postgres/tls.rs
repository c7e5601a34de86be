//! TLS to the server, as `sslmode` asks.
//!
//! `prefer` encrypts but accepts any certificate, as PostgreSQL itself does: most servers have a self-signed
//! certificate. `require` demands a certificate for this name from a trusted authority.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::refusal::ConnectError;

pub(super) fn connector(mode: SslMode, roots: Option<&Path>) -> Result<MakeRustlsConnect, ConnectError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectError::Tls { what: error.to_string() })?;
    let config = match (mode, roots) {
        (SslMode::Require, None) => {
            let trusted: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
            config.with_root_certificates(trusted)
        }
        (_, Some(path)) => config.with_root_certificates(read(path)?),
        _ => config.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider))),
    };
    Ok(MakeRustlsConnect::new(config.with_no_client_auth()))
}

fn read(path: &Path) -> Result<RootCertStore, ConnectError> {
    let bad = |what: String| ConnectError::Tls {
        what: format!(
            "{} cannot be used: {what}; store.root_certificates must name a PEM file",
            path.display()
        ),
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))? {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    if roots.is_empty() { Err(bad("it holds no certificate".to_owned())) } else { Ok(roots) }
}

/// Accepts any certificate, but checks that the server has its private key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
