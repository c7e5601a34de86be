//! API keys: they identify the caller and its tenant.
//!
//! The SHA-256 of a key is a setting in the store (`key:<id>`), so every node knows it. The key itself is
//! shown once, when it is created. A key of 256 random bits cannot be guessed, so a slow hash is not needed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, RwLock};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use posthaste_core::id::KeyId;
use posthaste_core::notification::Tenant;
use posthaste_core::role::Role;
use posthaste_core::time::Timestamp;
use posthaste_engine::acts::{ActError, Actor};
use posthaste_engine::engine::Engine;
use posthaste_engine::store::Settings;
use serde::{Deserialize, Serialize};

use crate::http::hex;

/// The prefix of settings that hold keys.
pub const PREFIX: &str = "key:";
/// The prefix of all keys.
const KEY_PREFIX: &str = "phk_";
/// Characters of a key that are stored, to recognize it.
const SHOWN_LENGTH: usize = 12;
/// Minimum length of an admin key that is set by the operator.
pub const MIN_ADMIN_KEY: usize = 32;
/// The tenant of notifications that an admin sends.
const DEFAULT_TENANT: &str = "default";

#[derive(Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name in the audit log.
    pub name: String,
    /// `None` for an admin, who may access all tenants.
    pub tenant: Option<Tenant>,
    /// The id of its key; none for the admin key that the process was given.
    pub key: Option<KeyId>,
    pub role: Role,
}

impl Caller {
    /// The tenant of the notifications that it sends.
    pub fn sends_for(&self) -> Tenant {
        self.tenant.clone().unwrap_or_else(|| DEFAULT_TENANT.parse().expect("the name is plain and short"))
    }

    pub fn actor(&self) -> Actor {
        let key_id = self.key.map(|id| id.to_string());
        Actor { key_id, ..Actor::local(&self.name, self.tenant.clone()) }
    }
}

/// A key as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptKey {
    /// Chosen by the user.
    pub name: String,
    /// `None` for an admin key.
    pub tenant: Option<String>,
    /// SHA-256 of the key, in hexadecimal digits.
    pub hash: String,
    /// The first characters of the key, to recognize it.
    pub start: String,
    pub created_at: Timestamp,
    pub created_by: String,
}

/// A new key. Its secret is not available later.
pub struct NewKey {
    pub id: KeyId,
    pub secret: String,
}

pub struct Keys {
    /// The hash of the admin key of this process, which is not in the store.
    given: Option<(Hash, Arc<Caller>)>,
    cache: RwLock<KeyCache>,
}

type Hash = [u8; 32];

#[derive(Default)]
struct KeyCache {
    version: Option<i64>,
    callers: HashMap<Hash, Arc<Caller>>,
}

/// Why an admin key is refused.
#[derive(Debug, thiserror::Error)]
pub enum BadAdminKey {
    /// Too short to be safe.
    #[error(
        "the admin key has {length} characters; it needs at least {MIN_ADMIN_KEY} (`openssl rand -hex 32` makes one)"
    )]
    Short { length: usize },
    /// HTTP removes white space around a header's value.
    #[error(
        "the admin key begins or ends with a space or a line break, which no request can carry: remove it"
    )]
    Padded,
    /// A header can hold only visible ASCII characters.
    #[error(
        "the admin key contains `{}`, which no request can carry: use only visible ASCII characters \
         (`openssl rand -hex 32` makes such a key)",
        .character.escape_default()
    )]
    NotAscii { character: char },
}

impl BadAdminKey {
    fn check(key: &str) -> Result<(), Self> {
        if key.trim() != key {
            return Err(Self::Padded);
        }
        if let Some(character) = key.chars().find(|one| !one.is_ascii_graphic() && *one != ' ') {
            return Err(Self::NotAscii { character });
        }
        match key.len() {
            length if length < MIN_ADMIN_KEY => Err(Self::Short { length }),
            _ => Ok(()),
        }
    }
}

impl Keys {
    /// `admin` is the admin key of this process, if any.
    pub fn new(admin: Option<&str>) -> Result<Self, BadAdminKey> {
        admin.map_or(Ok(()), BadAdminKey::check)?;
        let caller =
            || Arc::new(Caller { name: "admin".to_owned(), tenant: None, key: None, role: Role::Admin });
        let given = admin.map(|key| (hash(key), caller()));
        Ok(Self { given, cache: RwLock::default() })
    }

    /// The caller with this key.
    pub fn find(&self, engine: &Engine, key: &str) -> Option<Arc<Caller>> {
        let hash = hash(key);
        if let Some((given, caller)) = &self.given
            && *given == hash
        {
            return Some(caller.clone());
        }
        self.find_kept(&engine.settings(), &hash)
    }

    /// Uses the newest settings seen so far: a request may still hold older ones, with a key that has been
    /// revoked since.
    fn find_kept(&self, kept: &Settings, hash: &Hash) -> Option<Arc<Caller>> {
        let cache = self.cache.read().expect("no code panics while it replaces the keys");
        if cache.version >= Some(kept.version) {
            return cache.callers.get(hash).cloned();
        }
        drop(cache);
        let fresh = KeyCache::of(kept);
        let mut cache = self.cache.write().expect("no code panics while it replaces the keys");
        if cache.version < fresh.version {
            *cache = fresh;
        }
        cache.callers.get(hash).cloned()
    }
}

impl KeyCache {
    fn of(kept: &Settings) -> Self {
        let mut callers = HashMap::new();
        for (id, key) in all(kept) {
            let tenant = key.tenant.as_deref().map(str::parse::<Tenant>).transpose();
            let (Ok(tenant), Some(hash)) = (tenant, crate::http::unhex(&key.hash)) else { continue };
            let Ok(hash) = Hash::try_from(hash.as_slice()) else { continue };
            let name = format!("{} ({id})", key.name);
            let role = if tenant.is_none() { Role::Admin } else { Role::Tenant };
            callers.insert(hash, Arc::new(Caller { name, tenant, key: Some(id), role }));
        }
        Self { version: Some(kept.version), callers }
    }
}

/// All stored keys. An unreadable one is left out.
pub fn all(kept: &Settings) -> Vec<(KeyId, KeptKey)> {
    let from = kept.values.range(PREFIX.to_owned()..);
    let keys = from.take_while(|(name, _)| name.starts_with(PREFIX));
    keys.filter_map(|(name, value)| {
        let id = name.strip_prefix(PREFIX)?.parse().ok()?;
        Some((id, serde_json::from_str(value).ok()?))
    })
    .collect()
}

/// Creates a key and stores its hash. `tenant` is `None` for an admin key.
pub async fn create(
    engine: &Engine,
    name: &str,
    tenant: Option<&Tenant>,
    actor: &Actor,
) -> Result<NewKey, ActError> {
    let (now, secret) = (engine.now(), fresh());
    let random = u128::from_be_bytes(random());
    let id = KeyId::new(now, random);
    let kept = KeptKey {
        name: name.to_owned(),
        tenant: tenant.map(ToString::to_string),
        hash: hex(&hash(&secret)),
        start: secret[..SHOWN_LENGTH].to_owned(),
        created_at: now,
        created_by: actor.name.clone(),
    };
    let value = serde_json::to_string(&kept).expect("a kept key is made of texts");
    engine.put_setting(&format!("{PREFIX}{id}"), Some(value), "create-key", &id.to_string(), actor).await?;
    Ok(NewKey { id, secret })
}

pub async fn revoke(engine: &Engine, id: KeyId, actor: &Actor) -> Result<(), ActError> {
    engine.put_setting(&format!("{PREFIX}{id}"), None, "revoke-key", &id.to_string(), actor).await
}

/// A new random key.
pub fn fresh() -> String {
    KEY_PREFIX.to_owned() + &hex(&random::<32>())
}

/// Random bytes from the operating system.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("the operating system has random bytes");
    bytes
}

fn hash(key: &str) -> Hash {
    digest(&SHA256, key.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl fmt::Debug for NewKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "NewKey({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of a version, with these keys in force.
    fn kept(version: i64, keys: &[&str]) -> Settings {
        let setting = |(number, key): (usize, &&str)| {
            let kept = KeptKey {
                name: (*key).to_owned(),
                tenant: None,
                hash: hex(&hash(key)),
                start: String::new(),
                created_at: Timestamp::from_millis(0),
                created_by: String::new(),
            };
            let id = KeyId::new(Timestamp::from_millis(0), number as u128);
            (format!("{PREFIX}{id}"), serde_json::to_string(&kept).unwrap())
        };
        Settings { version, values: keys.iter().enumerate().map(setting).collect() }
    }

    #[test]
    fn an_older_look_at_the_settings_brings_no_revoked_key_back() {
        let keys = Keys::new(None).unwrap();
        let finds = |kept: &Settings, key: &str| keys.find_kept(kept, &hash(key)).is_some();
        let (before, after) = (kept(1, &["a", "b"]), kept(2, &["b"]));
        assert!(finds(&before, "a") && finds(&before, "b"));
        assert!(!finds(&after, "a") && finds(&after, "b"));
        // A request that took the older settings just before the newer ones came.
        assert!(!finds(&before, "a") && finds(&before, "b"));
        assert!(!finds(&after, "a") && finds(&after, "b"));
        // One that is made anew is cache at once.
        assert!(finds(&kept(3, &["a"]), "a"));
        assert!(!finds(&after, "b"));
    }
}
