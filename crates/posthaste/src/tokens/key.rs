//! Keys that verify signatures. A key belongs to one algorithm, so a token cannot choose how it is verified.

use aws_lc_rs::hmac;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaParameters,
    RsaPublicKeyComponents, VerificationAlgorithm,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use serde::Deserialize;

use super::form::base64;

/// The length of a coordinate of P-256 and of a key of Ed25519, in bytes.
const POINT: usize = 32;
/// The first byte of a point that is not compressed.
const UNCOMPRESSED: u8 = 4;

/// How tokens are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Hs256,
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub const ALL: [Self; 4] = [Self::Hs256, Self::Rs256, Self::Es256, Self::EdDsa];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The kind of key that it needs, in words.
    const fn key(self) -> &'static str {
        match self {
            Self::Hs256 => "a secret",
            Self::Rs256 => "an RSA key",
            Self::Es256 => "an EC key on P-256",
            Self::EdDsa => "an Ed25519 key",
        }
    }

    /// How public keys of this algorithm are parsed. A secret is none.
    fn public(self) -> Option<&'static dyn VerificationAlgorithm> {
        match self {
            Self::Hs256 => None,
            Self::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
            Self::Es256 => Some(&ECDSA_P256_SHA256_FIXED),
            Self::EdDsa => Some(&ED25519),
        }
    }
}

/// Why a file holds no key that can be used. The texts follow the name of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("holds no public key in PEM form (-----BEGIN PUBLIC KEY-----)")]
    NotPem,
    #[error("holds a private key: give the public key alone")]
    Private,
    #[error("holds more than one public key: give one, or a JWKS")]
    Several,
    #[error("holds {}, and {} needs {}", .held.map_or("a key of another kind", Algorithm::key), .wanted.name(), .wanted.key())]
    OtherKind { wanted: Algorithm, held: Option<Algorithm> },
    #[error("holds an RSA key of {bits} bits, and RS256 needs 2048 to 8192")]
    Size { bits: u32 },
}

/// A key that verifies signatures.
pub enum Key {
    Secret(Box<hmac::Key>),
    Public(ParsedPublicKey),
}

impl Key {
    /// The secret of HS256.
    pub fn secret(secret: &[u8]) -> Self {
        Self::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// The one public key of a PEM file.
    pub fn from_pem(algorithm: Algorithm, pem: &[u8]) -> Result<Self, BadKey> {
        if PrivateKeyDer::from_pem_slice(pem).is_ok() {
            return Err(BadKey::Private);
        }
        let mut keys = SubjectPublicKeyInfoDer::pem_slice_iter(pem);
        let first = keys.next().and_then(Result::ok).ok_or(BadKey::NotPem)?;
        if keys.next().is_some() {
            return Err(BadKey::Several);
        }
        let parsed = parse(algorithm, &first).ok_or_else(|| BadKey::OtherKind {
            wanted: algorithm,
            held: Algorithm::ALL.into_iter().find(|other| parse(*other, &first).is_some()),
        })?;
        if algorithm == Algorithm::Rs256 {
            check_size(&first)?;
        }
        Ok(Self::Public(parsed))
    }

    /// Whether the signature is one of this key over the message.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Secret(secret) => hmac::verify(secret, message, signature).is_ok(),
            Self::Public(key) => key.verify_sig(message, signature).is_ok(),
        }
    }
}

fn parse(algorithm: Algorithm, der: &[u8]) -> Option<ParsedPublicKey> {
    ParsedPublicKey::new(algorithm.public()?, der).ok()
}

/// aws-lc refuses signatures of shorter keys too, but an operator is told at the start.
fn check_size(der: &[u8]) -> Result<(), BadKey> {
    let bare = rsa::PublicKey::from_der(der).map_err(|_| BadKey::NotPem)?;
    let bits = RsaParameters::public_modulus_len(bare.as_ref()).map_err(|_| BadKey::NotPem)?;
    let limits = RSA_PKCS1_2048_8192_SHA256.min_modulus_len()..=RSA_PKCS1_2048_8192_SHA256.max_modulus_len();
    if limits.contains(&bits) { Ok(()) } else { Err(BadKey::Size { bits }) }
}

/// A key of a JWKS (RFC 7517), as far as it is looked at.
#[derive(Deserialize)]
pub(super) struct Jwk {
    kty: String,
    pub(super) kid: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    /// The key, if it is one that verifies signatures of this algorithm.
    pub(super) fn key(&self, algorithm: Algorithm) -> Option<Key> {
        let verifies = self.r#use.as_deref().is_none_or(|used| used == "sig")
            && self.key_ops.as_ref().is_none_or(|acts| acts.iter().any(|act| act == "verify"))
            && self.alg.as_deref().is_none_or(|alg| is_named(algorithm, alg));
        if !verifies {
            return None;
        }
        let curve = |kty: &str, crv: &str| self.kty == kty && self.crv.as_deref() == Some(crv);
        match algorithm {
            Algorithm::Rs256 if self.kty == "RSA" => self.rsa(),
            Algorithm::Es256 if curve("EC", "P-256") => {
                let point = [&[UNCOMPRESSED], &*coordinate(&self.x)?, &*coordinate(&self.y)?].concat();
                parse(algorithm, &point).map(Key::Public)
            }
            Algorithm::EdDsa if curve("OKP", "Ed25519") => {
                parse(algorithm, &coordinate(&self.x)?).map(Key::Public)
            }
            Algorithm::Hs256 | Algorithm::Rs256 | Algorithm::Es256 | Algorithm::EdDsa => None,
        }
    }

    fn rsa(&self) -> Option<Key> {
        let number = |text: &Option<String>| {
            let bytes = base64(text.as_deref()?)?;
            let start = bytes.iter().position(|byte| *byte != 0)?;
            Some(bytes[start..].to_vec())
        };
        let (n, e) = (number(&self.n)?, number(&self.e)?);
        let bits = u32::try_from(n.len()).ok()?.checked_mul(8)? - n.first()?.leading_zeros();
        let limits =
            RSA_PKCS1_2048_8192_SHA256.min_modulus_len()..=RSA_PKCS1_2048_8192_SHA256.max_modulus_len();
        if !limits.contains(&bits) {
            return None;
        }
        let parsed = RsaPublicKeyComponents { n, e }.to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256);
        parsed.ok().map(Key::Public)
    }
}

/// RFC 9864 gives EdDSA on Ed25519 a name of its own, which some sets use.
fn is_named(algorithm: Algorithm, alg: &str) -> bool {
    algorithm.name() == alg || (algorithm == Algorithm::EdDsa && alg == "Ed25519")
}

fn coordinate(text: &Option<String>) -> Option<Vec<u8>> {
    base64(text.as_deref()?).filter(|bytes| bytes.len() == POINT)
}
