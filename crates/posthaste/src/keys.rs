//! API keys: who calls, and whose notifications they may touch.
//!
//! A key is kept as its SHA-256 among the settings of the store (`key:<id>`), so it reaches every node. The key itself
//! is shown once, when it is made. A key of 256 random bits needs no slow hash: there is nothing to guess.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, RwLock};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use posthaste_core::id::KeyId;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::acts::{ActError, Actor};
use posthaste_engine::engine::Engine;
use posthaste_engine::settings::Kept;
use serde::{Deserialize, Serialize};

use crate::http::hex;

/// What the names of keys among the settings begin with.
pub const PREFIX: &str = "key:";
/// What every key that we make begins with.
const START: &str = "phk_";
/// How much of a key is kept to know it by.
const SHOWN: usize = 12;
/// The fewest characters of an admin key that is given.
pub const SHORTEST_ADMIN_KEY: usize = 32;
/// The tenant that an admin's own sends belong to.
const DEFAULT_TENANT: &str = "default";

/// Who calls.
#[derive(Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name in the audit.
    pub name: String,
    /// Whose notifications it may touch; none for an admin, who may touch all.
    pub tenant: Option<Tenant>,
    /// The id of its key; none for the admin key that the process was given.
    pub key: Option<KeyId>,
}

impl Caller {
    /// Whose notifications its sends become.
    pub fn sends_for(&self) -> Tenant {
        self.tenant.clone().unwrap_or_else(|| DEFAULT_TENANT.parse().expect("the name is plain and short"))
    }

    /// Whether it may do what concerns every tenant.
    pub fn is_admin(&self) -> bool {
        self.tenant.is_none()
    }

    /// Whether it sees what belongs to this tenant.
    pub fn sees(&self, tenant: &Tenant) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }

    /// The caller as the engine knows it.
    pub fn actor(&self) -> Actor {
        let key_id = self.key.map(|id| id.to_string());
        Actor { key_id, ..Actor::local(&self.name, self.tenant.clone()) }
    }
}

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptKey {
    /// The name that people gave it.
    pub name: String,
    /// Whose key it is; none for an admin's.
    pub tenant: Option<String>,
    /// The SHA-256 of the key, in hexadecimal digits.
    pub hash: String,
    /// How it begins, to know it by.
    pub start: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: String,
}

/// A key that was just made: the only time that it is seen.
pub struct NewKey {
    /// Its name.
    pub id: KeyId,
    /// The key.
    pub secret: String,
}

/// The keys in force.
pub struct Keys {
    /// The admin key that the process was given, by its hash. It is not kept in the store.
    given: Option<(Hash, Arc<Caller>)>,
    known: RwLock<Known>,
}

type Hash = [u8; 32];

#[derive(Default)]
struct Known {
    version: Option<i64>,
    callers: HashMap<Hash, Arc<Caller>>,
}

/// Why an admin key is not taken.
#[derive(Debug, thiserror::Error)]
pub enum BadAdminKey {
    /// It could be guessed.
    #[error(
        "the admin key has {length} characters; it needs at least {SHORTEST_ADMIN_KEY} (`openssl rand -hex 32` makes one)"
    )]
    Short {
        /// How many characters it has.
        length: usize,
    },
    /// A header is trimmed before it is read.
    #[error(
        "the admin key begins or ends with a space or a line break, so that no request could carry it: take that away"
    )]
    Padded,
    /// A header holds visible ASCII characters only.
    #[error(
        "the admin key holds `{}`, which no request could carry: it must be made of visible ASCII characters \
         (`openssl rand -hex 32` makes such a key)",
        .character.escape_default()
    )]
    Unsayable {
        /// The first such character.
        character: char,
    },
}

impl BadAdminKey {
    fn look_for(key: &str) -> Result<(), Self> {
        if key.trim() != key {
            return Err(Self::Padded);
        }
        if let Some(character) = key.chars().find(|one| !one.is_ascii_graphic() && *one != ' ') {
            return Err(Self::Unsayable { character });
        }
        match key.len() {
            length if length < SHORTEST_ADMIN_KEY => Err(Self::Short { length }),
            _ => Ok(()),
        }
    }
}

impl Keys {
    /// The keys of the store, and the admin key that the process was given, if any.
    pub fn new(admin: Option<&str>) -> Result<Self, BadAdminKey> {
        admin.map_or(Ok(()), BadAdminKey::look_for)?;
        let caller = || Arc::new(Caller { name: "admin".to_owned(), tenant: None, key: None });
        let given = admin.map(|key| (hash(key), caller()));
        Ok(Self { given, known: RwLock::default() })
    }

    /// Whose key this is.
    pub fn find(&self, engine: &Engine, key: &str) -> Option<Arc<Caller>> {
        let hash = hash(key);
        if let Some((given, caller)) = &self.given
            && *given == hash
        {
            return Some(caller.clone());
        }
        self.find_kept(&engine.settings(), &hash)
    }

    /// The caller by the newest settings that were seen: a request may still hold older ones, in which a key that was revoked
    /// since is in force.
    fn find_kept(&self, kept: &Kept, hash: &Hash) -> Option<Arc<Caller>> {
        let known = self.known.read().expect("no code panics while it replaces the keys");
        if known.version >= Some(kept.version) {
            return known.callers.get(hash).cloned();
        }
        drop(known);
        let fresh = Known::of(kept);
        let mut known = self.known.write().expect("no code panics while it replaces the keys");
        if known.version < fresh.version {
            *known = fresh;
        }
        known.callers.get(hash).cloned()
    }
}

impl Known {
    fn of(kept: &Kept) -> Self {
        let mut callers = HashMap::new();
        for (id, key) in all(kept) {
            let tenant = key.tenant.as_deref().map(str::parse::<Tenant>).transpose();
            let (Ok(tenant), Some(hash)) = (tenant, crate::http::unhex(&key.hash)) else { continue };
            let Ok(hash) = Hash::try_from(hash.as_slice()) else { continue };
            let name = format!("{} ({id})", key.name);
            callers.insert(hash, Arc::new(Caller { name, tenant, key: Some(id) }));
        }
        Self { version: Some(kept.version), callers }
    }
}

/// Every kept key. One that cannot be read opens nothing.
pub fn all(kept: &Kept) -> Vec<(KeyId, KeptKey)> {
    let from = kept.values.range(PREFIX.to_owned()..);
    let keys = from.take_while(|(name, _)| name.starts_with(PREFIX));
    keys.filter_map(|(name, value)| {
        let id = name.strip_prefix(PREFIX)?.parse().ok()?;
        Some((id, serde_json::from_str(value).ok()?))
    })
    .collect()
}

/// Makes a key and keeps its hash. `tenant` is none for an admin's key.
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
        start: secret[..SHOWN].to_owned(),
        created_at: now,
        created_by: actor.name.clone(),
    };
    let value = serde_json::to_string(&kept).expect("a kept key is made of texts");
    engine.put_setting(&format!("{PREFIX}{id}"), Some(value), "create-key", &id.to_string(), actor).await?;
    Ok(NewKey { id, secret })
}

/// Takes a key out of force.
pub async fn revoke(engine: &Engine, id: KeyId, actor: &Actor) -> Result<(), ActError> {
    engine.put_setting(&format!("{PREFIX}{id}"), None, "revoke-key", &id.to_string(), actor).await
}

/// A key that nobody has seen.
pub fn fresh() -> String {
    START.to_owned() + &hex(&random::<32>())
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
    fn kept(version: i64, keys: &[&str]) -> Kept {
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
        Kept { version, values: keys.iter().enumerate().map(setting).collect() }
    }

    #[test]
    fn an_older_look_at_the_settings_brings_no_revoked_key_back() {
        let keys = Keys::new(None).unwrap();
        let finds = |kept: &Kept, key: &str| keys.find_kept(kept, &hash(key)).is_some();
        let (before, after) = (kept(1, &["a", "b"]), kept(2, &["b"]));
        assert!(finds(&before, "a") && finds(&before, "b"));
        assert!(!finds(&after, "a") && finds(&after, "b"));
        // A request that took the older settings just before the newer ones came.
        assert!(!finds(&before, "a") && finds(&before, "b"));
        assert!(!finds(&after, "a") && finds(&after, "b"));
        // One that is made anew is known at once.
        assert!(finds(&kept(3, &["a"]), "a"));
        assert!(!finds(&after, "b"));
    }
}
