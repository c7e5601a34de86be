//! Client certificates (mTLS): what this side shows to one origin, and nobody else.

use std::fmt;
use std::sync::Arc;

use posthaste_core::time::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

mod validity;

/// A certificate with its chain and its private key. The key is never shown.
#[derive(Clone)]
pub struct ClientCertificate {
    pub(super) certified: Arc<CertifiedKey>,
    expires_at: Option<Timestamp>,
}

/// Why a certificate or its key cannot be used. The text follows the name of a file and does not repeat what it holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    #[error("holds no certificate in PEM form")]
    NoCertificate,
    #[error("holds no private key in PEM form; a key that is encrypted with a password is not read")]
    NoKey,
    #[error("holds a certificate that cannot be read")]
    Unreadable,
    #[error("holds a private key that cannot be used: RSA, ECDSA (P-256, P-384, P-521) and Ed25519 can")]
    UnusableKey,
    #[error("holds a private key that does not belong to the first certificate")]
    OtherKey,
}

impl BadCertificate {
    /// Whether the fault is one of the key, which may stand in a file of its own.
    pub const fn is_of_key(&self) -> bool {
        match self {
            Self::NoKey | Self::UnusableKey | Self::OtherKey => true,
            Self::NoCertificate | Self::Unreadable => false,
        }
    }
}

impl ClientCertificate {
    /// Reads the certificate and its chain from one PEM text, the private key from another, which may be the same.
    pub fn read(chain: &[u8], key: &[u8]) -> Result<Self, BadCertificate> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|_| BadCertificate::NoCertificate)?;
        let first = chain.first().ok_or(BadCertificate::NoCertificate)?;
        let expires_at = validity::end(first);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| BadCertificate::NoKey)?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let signer = provider.key_provider.load_private_key(key).map_err(|_| BadCertificate::UnusableKey)?;
        let certified = CertifiedKey::new(chain, signer);
        match certified.keys_match() {
            Ok(()) => Ok(Self { certified: Arc::new(certified), expires_at }),
            Err(rustls::Error::InconsistentKeys(_)) => Err(BadCertificate::OtherKey),
            Err(_) => Err(BadCertificate::Unreadable),
        }
    }

    /// The end of its validity; none if the certificate says it in a form that is not known.
    pub const fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }
}

/// Certificates are compared; a certificate names one key.
impl PartialEq for ClientCertificate {
    fn eq(&self, other: &Self) -> bool {
        self.certified.cert == other.certified.cert
    }
}

impl Eq for ClientCertificate {}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClientCertificate").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}
