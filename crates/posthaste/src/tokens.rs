//! Access tokens (JWT) of an identity provider: they identify a caller as an API key does.
//!
//! Invariant: the configuration alone says how a token is verified. From the header of a token only the name of the key is
//! taken, and that only looks up a map. Nothing that a token names is fetched. The claims are read after the signature was
//! verified.

mod claims;
mod form;
mod key;
mod key_set;
mod reading;
mod source;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_wire::http::BadRoot;

use self::claims::Claims;
pub use self::claims::Rules;
use self::form::Form;
pub use self::key::{Algorithm, BadKey, Key};
pub use self::key_set::{BadSet, KeySet, MAX_SET};
use self::reading::Reading;
pub(crate) use self::source::read_file;
pub use self::source::{KeySource, Unreadable};
use crate::config::{Jwt, JwtKeys};
use crate::keys::{Caller, Credential, Hash};

/// Verified tokens that are remembered, in each of two generations.
const REMEMBERED: usize = 5_000;

/// Why a token is refused. The caller is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is too long.
    Size,
    /// It is not three parts of base64url with JSON objects in them.
    Form,
    /// Its header asks for something that is not done.
    Header,
    /// It is signed in another way than the configured one.
    Algorithm,
    /// No key has the name that it gives.
    Key,
    Signature,
    Expired,
    NotYetValid,
    Issuer,
    Audience,
    /// A claim is missing, or of the wrong type.
    Claims,
    /// There can be no tenant of that name.
    Tenant,
    /// There is no such role.
    Role,
}

impl Refusal {
    pub const ALL: [Self; 13] = [
        Self::Size,
        Self::Form,
        Self::Header,
        Self::Algorithm,
        Self::Key,
        Self::Signature,
        Self::Expired,
        Self::NotYetValid,
        Self::Issuer,
        Self::Audience,
        Self::Claims,
        Self::Tenant,
        Self::Role,
    ];

    /// For the log and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Form => "form",
            Self::Header => "header",
            Self::Algorithm => "algorithm",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::Claims => "claims",
            Self::Tenant => "tenant",
            Self::Role => "role",
        }
    }
}

/// A token that was verified.
pub(crate) struct Verified {
    claims: Claims,
    /// The version of the keys that it was verified with.
    version: u64,
}

impl Verified {
    pub(crate) const fn tenant(&self) -> &Tenant {
        &self.claims.tenant
    }

    fn caller(&self) -> Caller {
        Caller {
            name: self.claims.subject.clone(),
            tenant: Some(self.claims.tenant.clone()),
            credential: Credential::Token { module: self.claims.module.clone() },
            role: self.claims.role,
        }
    }
}

/// Verifies tokens.
pub struct Tokens {
    algorithm: Algorithm,
    rules: Rules,
    known: RwLock<Known>,
    /// None if the key is part of the configuration.
    reading: Option<Reading>,
    refused: [AtomicU64; Refusal::ALL.len()],
}

/// The keys, and what was verified with them.
struct Known {
    keys: Arc<KeySet>,
    /// How often the keys have changed.
    version: u64,
    /// By the hash of the token. When `young` is full it becomes `old`, and what was `old` is forgotten.
    young: HashMap<Hash, Remembered>,
    old: HashMap<Hash, Remembered>,
}

struct Remembered {
    caller: Arc<Caller>,
    end: Timestamp,
}

impl Tokens {
    /// By the configuration, whose keys were checked when it was read.
    pub fn new(config: &Jwt) -> Result<Self, BadRoot> {
        let keys = match &config.keys {
            JwtKeys::Secret(secret) => KeySet::One(Key::secret(secret.reveal().as_bytes())),
            JwtKeys::PublicKey(pem) => {
                Key::from_pem(config.algorithm, pem).map_or(KeySet::empty(), KeySet::One)
            }
            JwtKeys::File(_) | JwtKeys::Url { .. } => KeySet::empty(),
        };
        let reading = KeySource::of(&config.keys)?.map(Reading::new);
        let known = Known { keys: Arc::new(keys), version: 0, young: HashMap::new(), old: HashMap::new() };
        Ok(Self {
            algorithm: config.algorithm,
            rules: config.rules.clone(),
            known: RwLock::new(known),
            reading,
            refused: Default::default(),
        })
    }

    /// The caller of a token that was verified before and is still valid.
    pub(crate) fn find(&self, hash: &Hash, now: Timestamp) -> Option<Arc<Caller>> {
        let known = self.known();
        let found = known.young.get(hash).or_else(|| known.old.get(hash))?;
        (now < found.end).then(|| found.caller.clone())
    }

    /// Verifies a token.
    pub(crate) fn verify(&self, token: &str, now: Timestamp) -> Result<Verified, Refusal> {
        let form = Form::read(token, self.algorithm)?;
        let (keys, version) = {
            let known = self.known();
            (known.keys.clone(), known.version)
        };
        let key = keys.find(form.key.as_deref()).ok_or(Refusal::Key)?;
        if !key.verifies(form.signed, &form.signature) {
            return Err(Refusal::Signature);
        }
        let claims = self.rules.check(&form::object(&form.claims)?, now)?;
        Ok(Verified { claims, version })
    }

    /// Waits, for a bounded time, until the keys were read again because a token named an unknown one; not at all if that
    /// was done a moment ago.
    pub(crate) async fn reread(&self) {
        if let Some(reading) = &self.reading {
            reading.ask().await;
        }
    }

    /// Remembers a caller until its token expires, unless the keys have changed since it was verified.
    pub(crate) fn remember(&self, hash: Hash, verified: &Verified) -> Arc<Caller> {
        let caller = Arc::new(verified.caller());
        let mut known = self.known_mut();
        if known.version == verified.version {
            if known.young.len() >= REMEMBERED {
                known.old = std::mem::take(&mut known.young);
            }
            let remembered = Remembered { caller: caller.clone(), end: verified.claims.end };
            known.young.insert(hash, remembered);
        }
        caller
    }

    /// Counts a refusal and logs it, without the token.
    pub(crate) fn refuse(&self, refusal: Refusal) {
        self.refused[refusal as usize].fetch_add(1, Ordering::Relaxed);
        tracing::debug!(reason = refusal.name(), "an access token is refused");
    }

    /// How many tokens were refused for each reason.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> {
        Refusal::ALL.into_iter().zip(self.refused.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// How many keys can be used.
    pub(crate) fn key_count(&self) -> usize {
        self.known().keys.count()
    }

    /// Whether the keys are read from time to time.
    pub(crate) const fn are_read(&self) -> bool {
        self.reading.is_some()
    }

    /// How often the keys could be read, and how often not. None if they are part of the configuration.
    pub(crate) fn readings(&self) -> Option<[u64; 2]> {
        self.reading.as_ref().map(Reading::counts)
    }

    /// Puts other keys in force. What was verified with those before is verified again.
    fn replace(&self, keys: KeySet) {
        let mut known = self.known_mut();
        known.keys = Arc::new(keys);
        known.version += 1;
        known.young.clear();
        known.old.clear();
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().expect("no code panics while it holds the tokens")
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().expect("no code panics while it holds the tokens")
    }
}
