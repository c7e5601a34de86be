//! The keys that tokens are verified with: one of the configuration, or those of a JWKS (RFC 7517).

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::key::{Algorithm, Jwk, Key};

/// The most bytes of a JWKS.
pub const MAX_SET: usize = 256 * 1024;
/// The most keys of a JWKS.
const MAX_KEYS: usize = 100;

/// Why a text is no JWKS. The texts follow the name of the file or URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSet {
    #[error("holds no JSON object with a list `keys`")]
    Form,
    #[error("holds {0} keys; the limit is {MAX_KEYS}")]
    TooMany(usize),
}

/// Keys by the name (`kid`) that a token gives. The name only looks up a key; it says nothing else.
pub enum KeySet {
    /// The configured key. Whatever a token calls it, there is no other.
    One(Key),
    Named {
        by_name: HashMap<String, Key>,
        without_name: Vec<Key>,
    },
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

impl KeySet {
    /// No key yet.
    pub(super) fn empty() -> Self {
        Self::Named { by_name: HashMap::new(), without_name: vec![] }
    }

    /// Reads a JWKS. Keys of another kind, algorithm or use are passed over, and of two keys with one name the second.
    pub fn read(algorithm: Algorithm, json: &[u8]) -> Result<Self, BadSet> {
        let document: Document = serde_json::from_slice(json).map_err(|_| BadSet::Form)?;
        if document.keys.len() > MAX_KEYS {
            return Err(BadSet::TooMany(document.keys.len()));
        }
        let (mut by_name, mut without_name) = (HashMap::new(), vec![]);
        for value in document.keys {
            let Ok(jwk) = serde_json::from_value::<Jwk>(value) else { continue };
            let Some(key) = jwk.key(algorithm) else { continue };
            match jwk.kid {
                Some(name) => drop(by_name.entry(name).or_insert(key)),
                None => without_name.push(key),
            }
        }
        Ok(Self::Named { by_name, without_name })
    }

    /// The key that a token names. A token without a name can only mean the one key of a set.
    pub(super) fn find(&self, name: Option<&str>) -> Option<&Key> {
        match (self, name) {
            (Self::One(key), _) => Some(key),
            (Self::Named { by_name, .. }, Some(name)) => by_name.get(name),
            (Self::Named { by_name, without_name }, None) => {
                let mut all = by_name.values().chain(without_name);
                all.next().filter(|_| all.next().is_none())
            }
        }
    }

    /// How many keys can be used.
    pub fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Named { by_name, without_name } => by_name.len() + without_name.len(),
        }
    }
}
