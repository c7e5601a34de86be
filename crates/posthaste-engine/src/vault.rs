//! Secrets at rest: they are sealed with a data key per tenant, which is made at its first use and kept wrapped by the master key.
//!
//! The master keys come with the settings. Without one the vault is off, and nothing is sealed. Sealing starts once every live
//! node can open what is sealed: `cluster` looks, at the start and after each heartbeat until it is so.

mod cluster;
mod headers;
mod rotate;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use posthaste_core::master_key::{MasterRecord, WrappedKey};
use posthaste_core::notification::Tenant;
use posthaste_core::record::{Expected, Record, RecordChange};
use posthaste_core::sealed::{About, Key, KeyName, NONCE, NotOpened, open, seal};
use posthaste_core::sensitive::SensitiveHeaders;

pub use self::cluster::NotStarted;
pub(crate) use self::cluster::{leave, look, start};
pub use self::headers::Opened;
pub use self::rotate::{RotateError, Rotated};
use crate::engine::{Engine, Shared};
use crate::store::{Audit, SEALED_LEVEL, StoreError};

/// How many data keys are kept in memory.
const MOST_KEYS: usize = 10_000;
/// Limit on tries if other nodes change the same record.
const LOOKS: usize = 5;

/// What the vault works with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VaultSettings {
    /// Without them, nothing is sealed.
    pub keys: Option<MasterKeys>,
    /// The headers whose values are secrets.
    pub sensitive: SensitiveHeaders,
}

/// The master keys of this node. The first is the one that is wanted, the others open what was wrapped before.
#[derive(Clone)]
pub struct MasterKeys {
    keys: Vec<Key>,
    random: fn(&mut [u8]),
}

impl MasterKeys {
    /// Returns none if `keys` is empty. `random` fills a slice from a cryptographic random number generator.
    pub fn new(keys: Vec<Key>, random: fn(&mut [u8])) -> Option<Self> {
        (!keys.is_empty()).then_some(Self { keys, random })
    }

    /// The one that data keys are to be wrapped under.
    pub fn wanted(&self) -> &Key {
        self.keys.first().expect("there is at least one")
    }

    pub fn all(&self) -> &[Key] {
        &self.keys
    }

    fn get(&self, name: KeyName) -> Option<&Key> {
        self.keys.iter().find(|key| key.name() == name)
    }

    fn nonce(&self) -> [u8; NONCE] {
        let mut nonce = [0; NONCE];
        (self.random)(&mut nonce);
        nonce
    }

    fn new_data_key(&self) -> Key {
        let mut key = [0; Key::LENGTH];
        (self.random)(&mut key);
        Key::new(key)
    }
}

impl PartialEq for MasterKeys {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys
    }
}

impl Eq for MasterKeys {}

impl fmt::Debug for MasterKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(&self.keys).finish()
    }
}

/// Why a secret was not sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The store could not say. Ask again.
    #[error("the data key cannot be read")]
    Store(#[from] StoreError),
    #[error(
        "it is sealed under the master key {0}, which this node does not have: add that key to POSTHASTE_MASTER_KEY or \
         security.master_key of every node, and restart them"
    )]
    UnknownKey(KeyName),
    #[error(
        "this node has no master key: set POSTHASTE_MASTER_KEY or security.master_key to the key that it was sealed under"
    )]
    NoKey,
    #[error("the store has no data key of the tenant `{0}`: restore it from a backup")]
    NoDataKey(Tenant),
    #[error("{what} cannot be opened: {why}")]
    NotOpened {
        what: &'static str,
        #[source]
        why: NotOpened,
    },
}

impl VaultError {
    /// Whether to ask again may help.
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unavailable { .. }))
    }
}

/// What the vault remembers.
pub(crate) struct VaultState {
    keys: RwLock<Option<Arc<MasterKeys>>>,
    data_keys: Mutex<HashMap<Tenant, Arc<Key>>>,
    /// Whether every live node knew the key in force at the last look.
    all_know: AtomicBool,
    /// The number under which this node said which keys it knows.
    told_as: Mutex<Option<posthaste_core::lease::NodeId>>,
}

impl VaultState {
    pub(crate) fn new(settings: &VaultSettings) -> Self {
        Self {
            keys: RwLock::new(settings.keys.clone().map(Arc::new)),
            data_keys: Mutex::default(),
            all_know: AtomicBool::new(false),
            told_as: Mutex::default(),
        }
    }

    fn keys(&self) -> Option<Arc<MasterKeys>> {
        self.keys.read().expect("no code panics while it sets keys").clone()
    }

    fn known(&self, tenant: &Tenant) -> Option<Arc<Key>> {
        self.data_keys.lock().expect("no code panics while it looks for a key").get(tenant).cloned()
    }

    fn remember(&self, tenant: &Tenant, key: Key) -> Arc<Key> {
        let mut keys = self.data_keys.lock().expect("no code panics while it looks for a key");
        // So many tenants are rare, and a key is read again by one row.
        if keys.len() >= MOST_KEYS {
            keys.clear();
        }
        keys.entry(tenant.clone()).or_insert_with(|| Arc::new(key)).clone()
    }
}

/// Seals and opens the secrets of tenants.
#[derive(Clone, Copy)]
pub struct Vault<'a> {
    shared: &'a Shared,
}

impl Engine {
    /// Where secrets are sealed.
    pub fn vault(&self) -> Vault<'_> {
        self.shared.vault()
    }
}

impl Shared {
    pub(crate) fn vault(&self) -> Vault<'_> {
        Vault { shared: self }
    }
}

impl Vault<'_> {
    /// Whether secrets are sealed: this node has a master key, and every live node can open what is sealed.
    pub fn is_on(&self) -> bool {
        self.shared.vault.all_know.load(Ordering::Relaxed) && self.shared.node.cluster_level() >= SEALED_LEVEL
    }

    /// Whether this node has a master key.
    pub fn has_key(&self) -> bool {
        self.shared.vault.keys().is_some()
    }

    /// Cryptographic random bytes. The generator comes with the master keys, so there are none without a key.
    pub fn random<const N: usize>(&self) -> Option<[u8; N]> {
        let keys = self.shared.vault.keys()?;
        let mut bytes = [0; N];
        (keys.random)(&mut bytes);
        Some(bytes)
    }

    /// The names of the master keys of this node, the wanted one first.
    pub fn key_names(&self) -> Vec<KeyName> {
        self.shared.vault.keys().map_or_else(Vec::new, |keys| keys.all().iter().map(Key::name).collect())
    }

    /// The record of the key in force; none if there never was a key.
    pub async fn in_force(&self) -> Result<Option<MasterRecord>, VaultError> {
        Ok(self.master_record().await?.map(|(record, _)| record))
    }

    /// Seals a secret of a tenant; it opens only under the same id and field. None while the vault is off. When this answers
    /// with a text, the data key is durable.
    pub async fn seal(
        &self,
        tenant: &Tenant,
        (id, field): (&str, &str),
        plain: &[u8],
    ) -> Result<Option<String>, VaultError> {
        let Some(keys) = self.shared.vault.keys().filter(|_| self.is_on()) else { return Ok(None) };
        let data_key = match self.data_key(&keys, tenant).await {
            Err(VaultError::NoDataKey(_)) => self.make_data_key(&keys, tenant).await?,
            found => found?,
        };
        Ok(Some(seal(&data_key, keys.nonce(), &About::of(tenant, id, field), plain)))
    }

    /// Opens what was sealed.
    pub async fn open(
        &self,
        tenant: &Tenant,
        (id, field): (&str, &str),
        sealed: &str,
    ) -> Result<Vec<u8>, VaultError> {
        let keys = self.shared.vault.keys().ok_or(VaultError::NoKey)?;
        let data_key = self.data_key(&keys, tenant).await?;
        let opened = open(&data_key, &About::of(tenant, id, field), sealed);
        let opened = opened.map_err(|why| VaultError::NotOpened { what: "what is sealed", why })?;
        Ok(opened.to_vec())
    }

    async fn data_key(&self, keys: &MasterKeys, tenant: &Tenant) -> Result<Arc<Key>, VaultError> {
        if let Some(known) = self.shared.vault.known(tenant) {
            return Ok(known);
        }
        let found = self.shared.store.records(vec![WrappedKey::key(tenant)]).await?;
        let (wrapped, _) =
            found.first().map(wrapped).ok_or_else(|| VaultError::NoDataKey(tenant.clone()))??;
        Ok(self.shared.vault.remember(tenant, unwrap(keys, &wrapped, tenant)?))
    }

    /// Makes the data key of a tenant, unless another node was faster.
    async fn make_data_key(&self, keys: &MasterKeys, tenant: &Tenant) -> Result<Arc<Key>, VaultError> {
        let before = self.master_record().await?;
        let under = before.as_ref().map_or_else(|| keys.wanted().name(), |(record, _)| record.wraps_under());
        let master = keys.get(under).ok_or(VaultError::UnknownKey(under))?;
        let wrapped = WrappedKey::new(master, keys.nonce(), tenant, &keys.new_data_key());
        let put = RecordChange {
            key: WrappedKey::key(tenant),
            number: 0,
            value: Some(wrapped.to_json()),
            expected: Expected::Absent,
        };
        let made = self.shared.store.put_records(vec![put], None, self.shared.node.now()).await?;
        // A rotation may have read the data keys just before this one was stored.
        if made.iter().any(Option::is_some)
            && let Some((after, _)) = self.master_record().await?
            && after.wraps_under() != under
        {
            rotate::wrap_again(self.shared, keys, tenant, after.wraps_under()).await?;
        }
        // Read from the store: another node may have stored its own key first.
        self.data_key(keys, tenant).await
    }

    /// The record of the key in force, with its version.
    async fn master_record(&self) -> Result<Option<(MasterRecord, i64)>, VaultError> {
        let found = self.shared.store.records(vec![MasterRecord::key()]).await?;
        let Some(record) = found.into_iter().next() else { return Ok(None) };
        let read = record.value.as_deref().and_then(MasterRecord::from_json);
        let read =
            read.ok_or(VaultError::NotOpened { what: "the record of the master key", why: NotOpened::Form })?;
        Ok(Some((read, record.version)))
    }
}

/// Writes the record of the key in force if it is as expected. Returns its new version; none if it was changed meanwhile.
async fn put_master_record(
    shared: &Shared,
    record: &MasterRecord,
    expected: Expected,
    audit: Option<Audit>,
) -> Result<Option<i64>, StoreError> {
    let put = RecordChange { key: MasterRecord::key(), number: 0, value: Some(record.to_json()), expected };
    let made = shared.store.put_records(vec![put], audit, shared.node.now()).await?;
    Ok(made.into_iter().next().flatten())
}

/// A data key as it is kept, with its version.
fn wrapped(record: &Record) -> Result<(WrappedKey, i64), VaultError> {
    let read = record.value.as_deref().and_then(WrappedKey::from_json);
    let unreadable = VaultError::NotOpened { what: "the data key", why: NotOpened::Form };
    Ok((read.ok_or(unreadable)?, record.version))
}

fn unwrap(keys: &MasterKeys, wrapped: &WrappedKey, tenant: &Tenant) -> Result<Key, VaultError> {
    let master = keys.get(wrapped.under).ok_or(VaultError::UnknownKey(wrapped.under))?;
    wrapped.open(master, tenant).map_err(|why| VaultError::NotOpened { what: "the data key", why })
}
