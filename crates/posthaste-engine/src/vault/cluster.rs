//! Which master keys the nodes know: a node whose keys do not fit the store does not start, and sealing waits until every live
//! node knows the key in force.
//!
//! A node joins, records which keys it knows, and then reads which key is in force. A rotation records the next key, and then reads
//! which nodes are alive. So if a node starts during a rotation, at least one of the two sees the other.

use std::sync::atomic::Ordering;

use posthaste_core::lease::NodeId;
use posthaste_core::master_key::{BadFit, MasterRecord, NodeKeys};
use posthaste_core::record::{Expected, RecordChange};
use posthaste_core::sealed::{Key, KeyName};

use super::{LOOKS, MasterKeys, Vault, VaultError, put_master_record};
use crate::engine::Shared;
use crate::store::{NodeView, Result, SEALED_LEVEL, StoreError};

/// Limit on tries to record the known keys if other nodes change the record at the same time. Many nodes may start together.
const MAX_TRIES: usize = 50;

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its master keys are not those of the store.
    #[error(transparent)]
    Keys(#[from] BadFit),
    #[error("the master key of the store cannot be checked")]
    Vault(#[source] VaultError),
}

impl From<VaultError> for NotStarted {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Store(error) => Self::Store(error),
            error => Self::Vault(error),
        }
    }
}

/// Compares the master keys of this node with those of the store. The first node with a key records which one is in force.
pub(crate) async fn start(shared: &Shared) -> std::result::Result<(), NotStarted> {
    let keys = shared.vault.keys();
    if let Some(keys) = &keys {
        tell(shared, keys).await?;
    }
    for _ in 0..LOOKS {
        match (shared.vault().master_record().await?, &keys) {
            (Some((record, _)), keys) => {
                record.check(keys.as_ref().map_or(&[][..], |keys| keys.all()))?;
                return Ok(look(shared).await?);
            }
            (None, None) => return Ok(()),
            (None, Some(keys)) => {
                let record = MasterRecord::new(keys.wanted(), keys.nonce());
                put_master_record(shared, &record, Expected::Absent, None).await?;
            }
        }
    }
    let what = "the record of the master key keeps changing".to_owned();
    Err(StoreError::Unavailable { what, source: None }.into())
}

/// Records which keys this node knows, and removes the entries of nodes that are gone.
pub(super) async fn tell(shared: &Shared, keys: &MasterKeys) -> Result<()> {
    let node = shared.node.id();
    let nodes: Vec<NodeId> =
        shared.store.nodes(shared.node.now()).await?.iter().map(|node| node.id).collect();
    change(shared, |told| {
        told.keep(nodes.iter().copied());
        told.put(node, keys.all());
    })
    .await?;
    *shared.vault.told_as.lock().expect("no code panics while it notes a number") = Some(node);
    Ok(())
}

async fn change(shared: &Shared, change: impl Fn(&mut NodeKeys)) -> Result<()> {
    for _ in 0..MAX_TRIES {
        let (mut told, expected) = told(shared).await?;
        let before = told.clone();
        change(&mut told);
        if told == before {
            return Ok(());
        }
        let put = RecordChange { key: NodeKeys::key(), number: 0, value: Some(told.to_json()), expected };
        let made = shared.store.put_records(vec![put], None, shared.node.now()).await?;
        if made.iter().any(Option::is_some) {
            return Ok(());
        }
    }
    let what = "the record of the keys that nodes know keeps changing".to_owned();
    Err(StoreError::Unavailable { what, source: None })
}

/// Which keys the nodes know. A record that cannot be read counts as empty.
async fn told(shared: &Shared) -> Result<(NodeKeys, Expected)> {
    let found = shared.store.records(vec![NodeKeys::key()]).await?.pop();
    let Some(record) = found else { return Ok((NodeKeys::default(), Expected::Absent)) };
    let read = record.value.as_deref().and_then(NodeKeys::from_json);
    Ok((read.unwrap_or_default(), Expected::Version(record.version)))
}

/// After each heartbeat: whether sealing may start, and whether the others know this node by its present number. Costs nothing
/// once both are so.
pub(crate) async fn look(shared: &Shared) -> Result<()> {
    let Some(keys) = shared.vault.keys() else { return Ok(()) };
    let told_as = *shared.vault.told_as.lock().expect("no code panics while it notes a number");
    if told_as != Some(shared.node.id()) {
        tell(shared, &keys).await?;
    }
    if shared.vault.all_know.load(Ordering::Relaxed) {
        return Ok(());
    }
    let in_force = match shared.vault().master_record().await {
        Ok(Some((record, _))) => record.in_force,
        Err(VaultError::Store(error)) => return Err(error),
        Ok(None) | Err(_) => return Ok(()),
    };
    let nodes = shared.store.nodes(shared.node.now()).await?;
    if let Some(level) = nodes.iter().filter(|node| node.alive).map(|node| node.level).min() {
        shared.node.set_cluster_level(level);
    }
    if unaware(shared, &nodes, in_force).await?.is_empty() {
        shared.vault.all_know.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// The live nodes that have not recorded that they know a key.
pub(super) async fn unaware(shared: &Shared, nodes: &[NodeView], key: KeyName) -> Result<Vec<NodeView>> {
    let (told, _) = told(shared).await?;
    let lives = nodes.iter().filter(|node| node.alive);
    let is_unaware = |node: &&NodeView| node.level < SEALED_LEVEL || !told.knows(node.id, key);
    Ok(lives.filter(is_unaware).cloned().collect())
}

/// Removes the entry of this node, which stops. If the store does not serve, the next node that starts removes it.
pub(crate) async fn leave(shared: &Shared) {
    let told_as = *shared.vault.told_as.lock().expect("no code panics while it notes a number");
    let Some(node) = told_as else { return };
    if let Err(error) = change(shared, |told| told.remove(node)).await {
        tracing::debug!(%error, "the keys of this node are still noted");
    }
}

impl Vault<'_> {
    /// Replaces the master keys of this node and records which ones it knows. The new keys must contain those still in use.
    pub async fn set_keys(&self, keys: Vec<Key>) -> Result<()> {
        let Some(before) = self.shared.vault.keys() else { return Ok(()) };
        let Some(keys) = MasterKeys::new(keys, before.random) else { return Ok(()) };
        tell(self.shared, &keys).await?;
        *self.shared.vault.keys.write().expect("no code panics while it sets keys") = Some(keys.into());
        Ok(())
    }
}
