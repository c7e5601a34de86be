//! An identity provider: it signs what a test says, with each of the four algorithms, and serves its keys.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
};
use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use posthaste::tokens::Algorithm;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What the tests configure.
pub(crate) const ISSUER: &str = "https://id.example";
pub(crate) const AUDIENCE: &str = "posthaste";

/// A key that signs, under the name that tokens give it.
pub(crate) struct Signer {
    pub(crate) name: String,
    key: SigningKey,
}

enum SigningKey {
    Hs256(Vec<u8>),
    Rs256(RsaKeyPair),
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

impl Signer {
    /// A new key.
    pub(crate) fn new(algorithm: Algorithm, name: &str) -> Self {
        let key = match algorithm {
            Algorithm::Hs256 => SigningKey::Hs256(b"a secret that is 32 bytes long, or more".to_vec()),
            Algorithm::Rs256 => SigningKey::Rs256(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()),
            Algorithm::Es256 => {
                SigningKey::Es256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
            }
            Algorithm::EdDsa => SigningKey::EdDsa(Ed25519KeyPair::generate().unwrap()),
        };
        Self { name: name.to_owned(), key }
    }

    /// One that signs as HS256 does, with any bytes as the secret.
    pub(crate) fn with_secret(secret: &[u8]) -> Self {
        Self { name: "k".to_owned(), key: SigningKey::Hs256(secret.to_vec()) }
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        match self.key {
            SigningKey::Hs256(_) => Algorithm::Hs256,
            SigningKey::Rs256(_) => Algorithm::Rs256,
            SigningKey::Es256(_) => Algorithm::Es256,
            SigningKey::EdDsa(_) => Algorithm::EdDsa,
        }
    }

    pub(crate) fn secret(&self) -> &[u8] {
        let SigningKey::Hs256(secret) = &self.key else { panic!("only HS256 has a secret") };
        secret
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        match &self.key {
            SigningKey::Hs256(secret) => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message).as_ref().to_vec()
            }
            SigningKey::Rs256(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
                signature
            }
            SigningKey::Es256(key) => key.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec(),
            SigningKey::EdDsa(key) => key.sign(message).as_ref().to_vec(),
        }
    }

    /// The public key as a SubjectPublicKeyInfo.
    pub(crate) fn der(&self) -> Vec<u8> {
        let der: PublicKeyX509Der<'_> = match &self.key {
            SigningKey::Hs256(_) => panic!("HS256 has no public key"),
            SigningKey::Rs256(key) => key.public_key().as_der().unwrap(),
            SigningKey::Es256(key) => key.public_key().as_der().unwrap(),
            SigningKey::EdDsa(key) => key.public_key().as_der().unwrap(),
        };
        der.as_ref().to_vec()
    }

    pub(crate) fn pem(&self) -> String {
        pem("PUBLIC KEY", &self.der())
    }

    /// The key as one of a JWKS.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &self.key {
            SigningKey::Hs256(secret) => json!({"kty": "oct", "k": part(secret)}),
            SigningKey::Rs256(key) => {
                // RFC 8017: a sequence of two numbers, of 2048 and of 17 bits.
                let bare = key.public_key().as_ref();
                json!({"kty": "RSA", "n": part(&bare[9..265]), "e": part(&bare[267..])})
            }
            SigningKey::Es256(key) => {
                let point = key.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": part(&point[1..33]), "y": part(&point[33..])})
            }
            SigningKey::EdDsa(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": part(key.public_key().as_ref())})
            }
        };
        jwk["kid"] = json!(self.name);
        jwk["use"] = json!("sig");
        jwk["alg"] = json!(self.algorithm().name());
        jwk
    }

    pub(crate) fn header(&self) -> Value {
        json!({"alg": self.algorithm().name(), "typ": "JWT", "kid": self.name})
    }

    /// A token that says this.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(&self.header(), claims)
    }

    /// A token with this header.
    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        self.token_of(&header.to_string(), &claims.to_string())
    }

    /// A token with these texts in place of JSON.
    pub(crate) fn token_of(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", part(header.as_bytes()), part(claims.as_bytes()));
        let signature = self.sign(signed.as_bytes());
        format!("{signed}.{}", part(&signature))
    }
}

/// base64url without padding.
pub(crate) fn part(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn pem(what: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", lines.join("\n"))
}

pub(crate) fn jwks<'s>(signers: impl IntoIterator<Item = &'s Signer>) -> String {
    let keys: Vec<Value> = signers.into_iter().map(Signer::jwk).collect();
    json!({ "keys": keys }).to_string()
}

/// Seconds since 1970.
pub(crate) fn seconds() -> i64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// What a good token says.
pub(crate) fn claims(tenant: &str, role: &str) -> Value {
    let now = seconds();
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": format!("{role} of {tenant}"), "tenant": tenant, "role": role,
        "iat": now, "nbf": now, "exp": now + 600,
        // Claims that nothing is made of.
        "jti": part(&random()), "scope": "openid", "custom": {"nested": [1, null]}
    })
}

fn random() -> [u8; 8] {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).unwrap();
    bytes
}

/// A server of keys.
pub(crate) struct KeyServer {
    pub(crate) url: String,
    shared: Arc<Served>,
    _accepting: JoinSet<()>,
}

struct Served {
    answer: Mutex<String>,
    down: AtomicBool,
    asked: AtomicUsize,
}

impl KeyServer {
    pub(crate) async fn start(body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let shared = Arc::new(Served {
            answer: Mutex::new(String::new()),
            down: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
        });
        let mut accepting = JoinSet::new();
        let served = shared.clone();
        accepting.spawn(async move {
            loop {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                served.asked.fetch_add(1, Ordering::SeqCst);
                if served.down.load(Ordering::SeqCst) {
                    continue;
                }
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let answer = served.answer.lock().unwrap().clone();
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let server = Self { url, shared, _accepting: accepting };
        server.serve(body);
        server
    }

    /// From here on it answers with this.
    pub(crate) fn serve(&self, body: &str) {
        self.answer(&format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        ));
    }

    /// From here on it answers with these bytes.
    pub(crate) fn answer(&self, text: &str) {
        *self.shared.answer.lock().unwrap() = text.to_owned();
    }

    /// From here on it closes every connection.
    pub(crate) fn fall(&self) {
        self.shared.down.store(true, Ordering::SeqCst);
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }
}
