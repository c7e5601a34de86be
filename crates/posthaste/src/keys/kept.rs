//! API keys as they are stored.
//!
//! Two shapes of JSON. The plain one has `hash` and is what nodes of the version before read: such a node takes a key with a
//! tenant for one that may do what [`Role::Tenant`] may, and a key without a tenant for an admin, for ever. It would pass over a
//! `role` or an `expiresAt` beside these fields. So a key with one of them has the other shape, which has `secrets` in place of
//! `hash`: an older node cannot read it and refuses the key (401). A key is never worth more on an older node.

use posthaste_core::id::KeyId;
use posthaste_core::notification::Tenant;
use posthaste_core::role::Role;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::Settings;
use serde::{Deserialize, Serialize};

/// The prefix of settings that hold keys.
pub const PREFIX: &str = "key:";
/// The most secrets of a key: the current one, and older ones until their overlap ends.
const MOST_SECRETS: usize = 4;

/// An API key, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Shape", into = "Shape")]
pub struct KeptKey {
    /// Chosen by the user.
    pub name: String,
    /// `None` for all tenants.
    pub tenant: Option<String>,
    /// `None` for a tenant's key that was made without a role.
    pub role: Option<Role>,
    /// From then on it is refused.
    pub expires_at: Option<Timestamp>,
    /// The current one first.
    pub secrets: Vec<Secret>,
    pub created_at: Timestamp,
    pub created_by: String,
}

/// What a secret is known by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// Its SHA-256, in hexadecimal digits.
    pub hash: String,
    /// Its first characters, to recognize it.
    pub start: String,
    /// Until when it is valid; none for the current one.
    pub until: Option<Timestamp>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Shape {
    Plain(PlainKey),
    Limited(LimitedKey),
}

/// Known to all versions.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlainKey {
    name: String,
    /// `None` for an admin key.
    tenant: Option<String>,
    hash: String,
    start: String,
    created_at: Timestamp,
    created_by: String,
}

/// Not known to nodes of the version before.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LimitedKey {
    name: String,
    tenant: Option<String>,
    role: Option<Role>,
    expires_at: Option<Timestamp>,
    secrets: Vec<Secret>,
    created_at: Timestamp,
    created_by: String,
}

impl From<Shape> for KeptKey {
    fn from(shape: Shape) -> Self {
        match shape {
            Shape::Plain(key) => Self {
                name: key.name,
                role: key.tenant.is_none().then_some(Role::Admin),
                tenant: key.tenant,
                expires_at: None,
                secrets: vec![Secret { hash: key.hash, start: key.start, until: None }],
                created_at: key.created_at,
                created_by: key.created_by,
            },
            Shape::Limited(key) => Self {
                name: key.name,
                tenant: key.tenant,
                role: key.role,
                expires_at: key.expires_at,
                secrets: key.secrets,
                created_at: key.created_at,
                created_by: key.created_by,
            },
        }
    }
}

impl From<KeptKey> for Shape {
    fn from(key: KeptKey) -> Self {
        let role_is_plain = key.role == key.tenant.is_none().then_some(Role::Admin);
        match (key.secrets.as_slice(), key.expires_at, role_is_plain) {
            ([Secret { hash, start, until: None }], None, true) => Self::Plain(PlainKey {
                hash: hash.clone(),
                start: start.clone(),
                name: key.name,
                tenant: key.tenant,
                created_at: key.created_at,
                created_by: key.created_by,
            }),
            _ => Self::Limited(LimitedKey {
                name: key.name,
                tenant: key.tenant,
                role: key.role,
                expires_at: key.expires_at,
                secrets: key.secrets,
                created_at: key.created_at,
                created_by: key.created_by,
            }),
        }
    }
}

impl KeptKey {
    /// Whose key it is: `Some(None)` for all tenants, `None` if it cannot be understood.
    pub(super) fn owner(&self) -> Option<Option<Tenant>> {
        self.tenant.as_deref().map(str::parse).transpose().ok()
    }

    /// What it may do.
    pub const fn effective_role(&self) -> Role {
        match (self.role, &self.tenant) {
            (Some(role), _) => role,
            (None, Some(_)) => Role::Tenant,
            // A key for all tenants is always made with a role. One without is not trusted with more than looking.
            (None, None) => Role::Reader,
        }
    }

    /// Whether it may do everything for all tenants, now.
    pub fn is_admin_for_all(&self, now: Timestamp) -> bool {
        self.tenant.is_none() && self.effective_role() == Role::Admin && !self.has_expired(now)
    }

    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| now >= end)
    }

    /// Until when one of its secrets is valid; none for ever.
    pub(super) fn end_of(&self, secret: &Secret) -> Option<Timestamp> {
        secret.until.into_iter().chain(self.expires_at).min()
    }

    /// Until when the secret before the current one is valid, if it still is.
    pub fn previous_until(&self) -> Option<Timestamp> {
        self.secrets.get(1).and_then(|secret| self.end_of(secret))
    }

    /// How its current secret begins.
    pub fn start(&self) -> &str {
        self.secrets.first().map_or("", |secret| &secret.start)
    }

    /// Gives it a new secret. No older one is valid beyond `until`, also none of an earlier rotation.
    pub(super) fn rotate(&mut self, fresh: Secret, now: Timestamp, until: Timestamp) {
        for old in &mut self.secrets {
            old.until = Some(old.until.map_or(until, |end| end.min(until)));
        }
        self.secrets.retain(|old| old.until.is_none_or(|end| now < end));
        self.secrets.insert(0, fresh);
        self.secrets.truncate(MOST_SECRETS);
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

/// The key with this id.
pub fn one(kept: &Settings, id: KeyId) -> Option<KeptKey> {
    serde_json::from_str(kept.values.get(&setting(id))?).ok()
}

/// The name of its setting.
pub(super) fn setting(id: KeyId) -> String {
    format!("{PREFIX}{id}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    fn secret(name: &str, until: Option<i64>) -> Secret {
        Secret { hash: name.to_owned(), start: String::new(), until: until.map(at) }
    }

    fn key(tenant: Option<&str>, role: Option<Role>) -> KeptKey {
        KeptKey {
            name: "x".to_owned(),
            tenant: tenant.map(str::to_owned),
            role,
            expires_at: None,
            secrets: vec![secret("a", None)],
            created_at: at(0),
            created_by: "y".to_owned(),
        }
    }

    #[test]
    fn a_key_from_before_keeps_what_it_may_do() {
        let kept = |tenant: Value| json!({"name": "x", "tenant": tenant, "hash": "a", "start": "", "createdAt": at(0), "createdBy": "y"});
        let read = |value: Value| serde_json::from_value::<KeptKey>(value).unwrap();
        assert_eq!(read(kept(json!("acme"))), key(Some("acme"), None));
        assert_eq!(read(kept(json!("acme"))).effective_role(), Role::Tenant);
        assert_eq!(read(kept(Value::Null)), key(None, Some(Role::Admin)));
        // What has no limit is written as it was before.
        assert_eq!(serde_json::to_value(key(Some("acme"), None)).unwrap(), kept(json!("acme")));
        assert_eq!(serde_json::to_value(key(None, Some(Role::Admin))).unwrap(), kept(Value::Null));
    }

    #[test]
    fn a_key_with_a_limit_has_no_hash_that_an_older_node_would_read() {
        let expiring = KeptKey { expires_at: Some(at(9)), ..key(Some("acme"), None) };
        let rotated =
            KeptKey { secrets: vec![secret("b", None), secret("a", Some(9))], ..key(Some("a"), None) };
        let readers = key(None, Some(Role::Reader));
        let senders = key(Some("acme"), Some(Role::Sender));
        let admins = key(Some("acme"), Some(Role::Admin));
        for limited in [expiring, rotated, readers, senders, admins] {
            let value = serde_json::to_value(&limited).unwrap();
            assert!(value.get("hash").is_none(), "{value}");
            assert!(serde_json::from_value::<PlainKey>(value.clone()).is_err(), "{value}");
            assert_eq!(serde_json::from_value::<KeptKey>(value).unwrap(), limited);
        }
    }

    #[test]
    fn the_secret_before_ends_with_its_overlap_or_with_the_key() {
        let mut rotated = key(Some("a"), None);
        assert_eq!(rotated.previous_until(), None);
        rotated.rotate(secret("b", None), at(0), at(100));
        for (expires_at, end) in [(None, 100), (Some(50), 50), (Some(200), 100)] {
            rotated.expires_at = expires_at.map(at);
            assert_eq!(rotated.previous_until(), Some(at(end)));
            assert_eq!(rotated.has_expired(at(50)), expires_at == Some(50));
            assert!(!rotated.has_expired(at(49)));
        }
    }

    #[test]
    fn no_older_secret_outlives_the_overlap_of_a_rotation() {
        let mut rotated = key(Some("a"), None);
        rotated.rotate(secret("b", None), at(0), at(100));
        assert_eq!(rotated.secrets, [secret("b", None), secret("a", Some(100))]);
        rotated.rotate(secret("c", None), at(10), at(200));
        assert_eq!(rotated.secrets, [secret("c", None), secret("b", Some(200)), secret("a", Some(100))]);
        rotated.rotate(secret("d", None), at(20), at(50));
        let wanted = [("c", 50), ("b", 50), ("a", 50)].map(|(name, until)| secret(name, Some(until)));
        assert_eq!(rotated.secrets[1..], wanted);
        rotated.rotate(secret("e", None), at(30), at(60));
        assert_eq!(rotated.secrets.len(), MOST_SECRETS);
        rotated.rotate(secret("f", None), at(40), at(40));
        assert_eq!(rotated.secrets, [secret("f", None)]);
    }
}
