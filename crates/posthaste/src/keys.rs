//! API keys: they identify the caller, its tenant and its role.
//!
//! The SHA-256 of a key is a setting in the store (`key:<id>`), so every node knows it. The key itself is
//! shown once, when it is created. A key of 256 random bits cannot be guessed, so a slow hash is not needed.

mod kept;
pub(crate) mod last_used;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use posthaste_core::id::KeyId;
use posthaste_core::notification::Tenant;
use posthaste_core::role::Role;
use posthaste_core::time::Timestamp;
use posthaste_engine::acts::{ActError, Actor};
use posthaste_engine::engine::Engine;
use posthaste_engine::store::{KeyUse, Settings};

pub use self::kept::{KeptKey, PREFIX, Secret, all, one};
use crate::http::hex;

/// The prefix of all keys.
const KEY_PREFIX: &str = "phk_";
/// Characters of a key that are stored, to recognize it.
const SHOWN_LENGTH: usize = 12;
/// Minimum length of an admin key that is set by the operator.
pub const MIN_ADMIN_KEY: usize = 32;
/// How often a rotation is tried while others change the key.
const MAX_ROTATION_TRIES: usize = 10;
/// The tenant of notifications that an admin sends.
const DEFAULT_TENANT: &str = "default";

#[derive(Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name in the audit log.
    pub name: String,
    /// `None` for all tenants.
    pub tenant: Option<Tenant>,
    pub credential: Credential,
    pub role: Role,
}

/// How a caller showed who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// By the admin key that the process was given.
    Given,
    /// By a key of the store.
    Key(KeyId),
    /// By an access token, whose subject is the caller's name.
    Token {
        /// Whose notifications it sends; none if the token does not say.
        module: Option<String>,
    },
}

impl Caller {
    /// The id of its key; none for the admin key that the process was given, and for access tokens.
    pub const fn key(&self) -> Option<KeyId> {
        match self.credential {
            Credential::Key(id) => Some(id),
            Credential::Given | Credential::Token { .. } => None,
        }
    }

    /// The one module that it sends for, if it is bound to one.
    pub fn module(&self) -> Option<&str> {
        match &self.credential {
            Credential::Token { module } => module.as_deref(),
            Credential::Given | Credential::Key(_) => None,
        }
    }

    /// The tenant of the notifications that it sends.
    pub fn sends_for(&self) -> Tenant {
        self.tenant.clone().unwrap_or_else(|| DEFAULT_TENANT.parse().expect("the name is plain and short"))
    }

    pub fn actor(&self) -> Actor {
        let key_id = self.key().map(|id| id.to_string());
        Actor { key_id, ..Actor::local(&self.name, self.tenant.clone()) }
    }
}

/// What a new key is for.
#[derive(Debug)]
pub struct KeyOrder {
    /// Chosen by the user.
    pub name: String,
    /// `None` for all tenants.
    pub tenant: Option<Tenant>,
    /// `None` for a tenant's key without a role.
    pub role: Option<Role>,
    pub expires_at: Option<Timestamp>,
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

pub(crate) type Hash = [u8; 32];

#[derive(Default)]
struct KeyCache {
    version: Option<i64>,
    callers: HashMap<Hash, Known>,
    uses: Uses,
}

/// The last use of each key, in microseconds.
type Uses = HashMap<KeyId, Arc<AtomicI64>>;
const NEVER: i64 = i64::MIN;

/// A caller, and until when its key is valid.
struct Known {
    caller: Arc<Caller>,
    until: Option<Timestamp>,
    used: Arc<AtomicI64>,
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
        let caller = || {
            Arc::new(Caller {
                name: "admin".to_owned(),
                tenant: None,
                credential: Credential::Given,
                role: Role::Admin,
            })
        };
        let given = admin.map(|key| (hash(key), caller()));
        Ok(Self { given, cache: RwLock::default() })
    }

    /// The caller with this key.
    pub fn find(&self, engine: &Engine, key: &str) -> Option<Arc<Caller>> {
        self.find_hash(engine, hash(key))
    }

    /// The caller whose key has this hash.
    pub(crate) fn find_hash(&self, engine: &Engine, hash: Hash) -> Option<Arc<Caller>> {
        if let Some((given, caller)) = &self.given
            && *given == hash
        {
            return Some(caller.clone());
        }
        self.find_kept(&engine.settings(), &hash, engine.now())
    }

    /// Uses the newest settings seen so far: a request may still hold older ones, with a key that has been
    /// revoked since.
    fn find_kept(&self, kept: &Settings, hash: &Hash, now: Timestamp) -> Option<Arc<Caller>> {
        let cache = self.cache.read().expect("no code panics while it replaces the keys");
        if cache.version >= Some(kept.version) {
            return cache.find(hash, now);
        }
        drop(cache);
        let mut cache = self.cache.write().expect("no code panics while it replaces the keys");
        if cache.version < Some(kept.version) {
            *cache = KeyCache::of(kept, &cache.uses);
        }
        cache.find(hash, now)
    }

    /// The last use of each stored key that was used on this node since its start.
    pub fn uses(&self) -> Vec<KeyUse> {
        let cache = self.cache.read().expect("no code panics while it replaces the keys");
        let uses = cache.uses.iter().map(|(key, at)| (*key, at.load(Ordering::Relaxed)));
        uses.filter(|(_, at)| *at > NEVER)
            .map(|(key, at)| KeyUse { key, at: Timestamp::from_micros(at) })
            .collect()
    }
}

impl KeyCache {
    /// From settings, with the uses that `before` knows of.
    fn of(kept: &Settings, before: &Uses) -> Self {
        let (mut callers, mut uses) = (HashMap::new(), Uses::new());
        for (id, key) in all(kept) {
            let Some(tenant) = key.owner() else { continue };
            let name = format!("{} ({id})", key.name);
            let caller = Arc::new(Caller {
                name,
                tenant,
                credential: Credential::Key(id),
                role: key.effective_role(),
            });
            let used = before.get(&id).cloned().unwrap_or_else(|| Arc::new(AtomicI64::new(NEVER)));
            uses.insert(id, used.clone());
            for secret in &key.secrets {
                let hash = crate::http::unhex(&secret.hash).and_then(|hash| Hash::try_from(hash).ok());
                let until = key.end_of(secret);
                callers.extend(
                    hash.map(|hash| (hash, Known { caller: caller.clone(), until, used: used.clone() })),
                );
            }
        }
        Self { version: Some(kept.version), callers, uses }
    }

    fn find(&self, hash: &Hash, now: Timestamp) -> Option<Arc<Caller>> {
        let known = self.callers.get(hash)?;
        if known.until.is_some_and(|end| now >= end) {
            return None;
        }
        known.used.store(now.as_micros(), Ordering::Relaxed);
        Some(known.caller.clone())
    }
}

/// Creates a key and stores its hash.
pub async fn create(engine: &Engine, order: KeyOrder, actor: &Actor) -> Result<NewKey, ActError> {
    let (now, secret) = (engine.now(), fresh());
    let random = u128::from_be_bytes(random());
    let id = KeyId::new(now, random);
    let kept = KeptKey {
        name: order.name,
        tenant: order.tenant.map(|tenant| tenant.to_string()),
        role: order.role,
        expires_at: order.expires_at,
        secrets: vec![current(&secret)],
        created_at: now,
        created_by: actor.name.clone(),
    };
    let value = serde_json::to_string(&kept).expect("a kept key is made of texts");
    engine.put_setting(&kept::setting(id), Some(value), "create-key", &id.to_string(), actor).await?;
    Ok(NewKey { id, secret })
}

/// The id of the key that a first start makes. It is the same for all nodes, so that they make one.
fn first_id() -> KeyId {
    KeyId::new(Timestamp::from_micros(0), 0)
}

/// Creates an admin key for all tenants, unless another node has made it at the same time.
pub(crate) async fn create_first(engine: &Engine, secret: &str, actor: &Actor) -> Result<bool, ActError> {
    let key = KeptKey {
        name: "first admin key".to_owned(),
        tenant: None,
        role: Some(Role::Admin),
        expires_at: None,
        secrets: vec![current(secret)],
        created_at: engine.now(),
        created_by: actor.name.clone(),
    };
    let value = serde_json::to_string(&key).expect("a kept key is made of texts");
    let (id, change) = (first_id(), (None, value));
    engine.swap_setting(&kept::setting(id), change, "create-key", &id.to_string(), actor).await
}

/// What became of a rotation.
#[derive(Debug)]
pub enum Rotated {
    Done(KeptKey, NewKey),
    /// There is no such key, or there is none any more.
    Missing,
    /// A new secret would be refused as well.
    Expired(Timestamp),
    /// It was changed each time.
    Busy,
}

/// Gives a key a new secret; the old one stays valid for the overlap. The key is changed only if it is as it was read: what
/// was revoked at the same moment, maybe on another node, stays revoked.
pub async fn rotate(
    engine: &Engine,
    id: KeyId,
    overlap: Duration,
    actor: &Actor,
) -> Result<Rotated, ActError> {
    let setting = kept::setting(id);
    for _ in 0..MAX_ROTATION_TRIES {
        let settings = engine.settings();
        let Some(from) = settings.values.get(&setting) else { return Ok(Rotated::Missing) };
        let Ok(mut key) = serde_json::from_str::<KeptKey>(from) else { return Ok(Rotated::Missing) };
        let (now, secret) = (engine.now(), fresh());
        if let Some(end) = key.expires_at.filter(|_| key.has_expired(now)) {
            return Ok(Rotated::Expired(end));
        }
        key.rotate(current(&secret), now, now.later(overlap));
        let to = serde_json::to_string(&key).expect("a kept key is made of texts");
        let change = (Some(from.clone()), to);
        if engine.swap_setting(&setting, change, "rotate-key", &id.to_string(), actor).await? {
            return Ok(Rotated::Done(key, NewKey { id, secret }));
        }
    }
    Ok(Rotated::Busy)
}

pub async fn revoke(engine: &Engine, id: KeyId, actor: &Actor) -> Result<(), ActError> {
    engine.put_setting(&kept::setting(id), None, "revoke-key", &id.to_string(), actor).await
}

/// What is stored of a new secret.
fn current(secret: &str) -> Secret {
    Secret { hash: hex(&hash(secret)), start: secret[..SHOWN_LENGTH].to_owned(), until: None }
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

/// Whether a text looks like a key, and so is no access token.
pub(crate) fn is_key(text: &str) -> bool {
    text.starts_with(KEY_PREFIX)
}

/// What a key is known by.
pub(crate) fn hash(key: &str) -> Hash {
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

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    /// The settings of a version, with these keys in force.
    fn kept(version: i64, keys: &[(&str, Option<i64>)]) -> Settings {
        let setting = |(number, (key, expires_at)): (usize, &(&str, Option<i64>))| {
            let kept = KeptKey {
                name: (*key).to_owned(),
                tenant: None,
                role: Some(Role::Admin),
                expires_at: expires_at.map(at),
                secrets: vec![
                    Secret { hash: hex(&hash(key)), start: String::new(), until: None },
                    Secret {
                        hash: hex(&hash(&format!("old {key}"))),
                        start: String::new(),
                        until: Some(at(5)),
                    },
                ],
                created_at: at(0),
                created_by: String::new(),
            };
            let id = KeyId::new(at(0), number as u128);
            (kept::setting(id), serde_json::to_string(&kept).unwrap())
        };
        Settings { version, values: keys.iter().enumerate().map(setting).collect() }
    }

    #[test]
    fn an_older_look_at_the_settings_brings_no_revoked_key_back() {
        let keys = Keys::new(None).unwrap();
        let finds = |kept: &Settings, key: &str| keys.find_kept(kept, &hash(key), at(0)).is_some();
        let (before, after) = (kept(1, &[("a", None), ("b", None)]), kept(2, &[("b", None)]));
        assert!(finds(&before, "a") && finds(&before, "b"));
        assert!(!finds(&after, "a") && finds(&after, "b"));
        // A request that took the older settings just before the newer ones came.
        assert!(!finds(&before, "a") && finds(&before, "b"));
        assert!(!finds(&after, "a") && finds(&after, "b"));
        // Newer settings replace the cache at once: a key that they have again is found, one that they lack is not.
        assert!(finds(&kept(3, &[("a", None)]), "a"));
        assert!(!finds(&after, "b"));
    }

    #[test]
    fn a_key_is_known_until_it_expires_and_an_old_secret_until_its_overlap_ends() {
        let keys = Keys::new(None).unwrap();
        let kept = kept(1, &[("a", Some(9)), ("b", Some(3)), ("c", None)]);
        let finds = |key: &str, second| keys.find_kept(&kept, &hash(key), at(second)).is_some();
        for (key, last) in [("a", 8), ("old a", 4), ("b", 2), ("old b", 2), ("old c", 4)] {
            assert!(finds(key, last) && !finds(key, last + 1), "{key}");
        }
        assert!(finds("c", 1_000_000));
    }
}
