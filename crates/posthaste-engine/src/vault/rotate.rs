//! Rotation of the master key: data keys are wrapped again while the nodes run. Notifications are not changed.
//!
//! 1. Each live node must have said that it knows the next key. Then the record of the key in force names it: from then on new data
//!    keys are wrapped under it, and a node without it does not start.
//! 2. Each live node is looked at again; if one came without the next key just before, the record is set back.
//! 3. Each data key is wrapped under it.
//! 4. It is the key in force.
//!
//! After a crash a rotation can be started again: each step changes only what is not done yet.

use posthaste_core::master_key::{MasterRecord, WrappedKey};
use posthaste_core::notification::Tenant;
use posthaste_core::record::{Expected, Record, RecordChange, RecordKey, RecordKind};
use posthaste_core::sealed::KeyName;

use super::{LOOKS, MasterKeys, VaultError, cluster, put_master_record, unwrap, wrapped};
use crate::acts::Actor;
use crate::engine::{Engine, Shared};
use crate::journal;
use crate::store::{Audit, NodeView, StoreError};

/// How many data keys are wrapped in one transaction.
const PAGE: usize = 100;

const ACT: &str = "rotate-master-key";

/// A master key was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotated {
    pub from: KeyName,
    /// The key in force now.
    pub to: KeyName,
    /// How many data keys were wrapped again.
    pub wrapped: u64,
}

impl Rotated {
    /// Whether there was nothing to do.
    pub fn was_done(&self) -> bool {
        self.from == self.to && self.wrapped == 0
    }
}

/// Why the master key was not changed.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error("this node has no master key: set POSTHASTE_MASTER_KEY or security.master_key")]
    NoKey,
    #[error(
        "the master key {key} is not known to {}: put it first in POSTHASTE_MASTER_KEY or security.master_key of every \
         node, the old one after it, restart them one after the other, and ask again; a node that has just died counts for up to \
         15 seconds",
        names(nodes)
    )]
    Unaware { key: KeyName, nodes: Vec<NodeView> },
    #[error("another node changes the master key at this moment; ask again")]
    Busy,
    #[error("a data key cannot be wrapped again")]
    Vault(#[source] VaultError),
    #[error("the change could not be stored")]
    Store(#[from] StoreError),
}

fn names(nodes: &[NodeView]) -> String {
    let name = |node: &NodeView| format!("node {} (`{}`)", node.id, node.name);
    let mut names: Vec<String> = nodes.iter().take(5).map(name).collect();
    if nodes.len() > names.len() {
        names.push(format!("{} more", nodes.len() - names.len()));
    }
    names.join(", ")
}

impl From<VaultError> for RotateError {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Store(error) => Self::Store(error),
            error => Self::Vault(error),
        }
    }
}

impl Engine {
    /// Makes the wanted master key the one in force.
    pub async fn rotate_master_key(&self, actor: &Actor) -> Result<Rotated, RotateError> {
        let keys = self.shared.vault.keys().ok_or(RotateError::NoKey)?;
        let audit = self.audit(actor, ACT, &keys.wanted().name().to_string());
        let (shared, actor) = (self.shared.clone(), actor.clone());
        let change = async move {
            let rotated = rotate(&shared, &keys, audit).await;
            if let Ok(rotated) = rotated.as_ref()
                && !rotated.was_done()
            {
                journal::set(ACT, &rotated.to.to_string(), &actor);
            }
            Ok(rotated)
        };
        self.to_its_end(change).await?
    }
}

async fn rotate(shared: &Shared, keys: &MasterKeys, audit: Audit) -> Result<Rotated, RotateError> {
    let to = keys.wanted().name();
    for _ in 0..LOOKS {
        let (record, version) = shared.vault().master_record().await?.ok_or(RotateError::NoKey)?;
        let from = record.in_force;
        if from == to && record.next.is_none() {
            return Ok(Rotated { from, to, wrapped: wrap_all(shared, keys, to, Some(audit)).await? });
        }
        check_known(shared, to).await?;
        // Where it is the key in force already, what was begun for another key is ended.
        let next = (from != to).then_some(to);
        let begun = MasterRecord { next, ..record.clone() };
        let version = if begun == record {
            version
        } else {
            match put_master_record(shared, &begun, Expected::Version(version), None).await? {
                Some(version) => version,
                None => continue,
            }
        };
        // A node may have started just before it was begun.
        if let Err(refused) = check_known(shared, to).await {
            put_master_record(
                shared,
                &MasterRecord { next: None, ..begun },
                Expected::Version(version),
                None,
            )
            .await?;
            // A tenant that was new meanwhile has a data key that not every node can open.
            wrap_all(shared, keys, from, None).await?;
            return Err(refused);
        }
        let mut count = wrap_all(shared, keys, to, None).await?;
        let ended = MasterRecord::new(keys.wanted(), keys.nonce());
        if put_master_record(shared, &ended, Expected::Version(version), Some(audit.clone())).await?.is_none()
        {
            continue;
        }
        // What was made under the old key meanwhile.
        count += wrap_all(shared, keys, to, None).await?;
        return Ok(Rotated { from, to, wrapped: count });
    }
    Err(RotateError::Busy)
}

/// Whether every live node knows a key.
async fn check_known(shared: &Shared, key: KeyName) -> Result<(), RotateError> {
    let nodes = shared.store.nodes(shared.node.now()).await?;
    let nodes = cluster::unaware(shared, &nodes, key).await?;
    if nodes.is_empty() { Ok(()) } else { Err(RotateError::Unaware { key, nodes }) }
}

/// Wraps all data keys under the master key `to`. Returns how many were wrapped under another one.
async fn wrap_all(
    shared: &Shared,
    keys: &MasterKeys,
    to: KeyName,
    mut audit: Option<Audit>,
) -> Result<u64, RotateError> {
    let mut all = 0;
    for _ in 0..LOOKS {
        let (mut after, mut left): (Option<RecordKey>, u64) = (None, 0);
        loop {
            let page = shared.store.record_page(RecordKind::DataKey, None, after, PAGE).await?;
            let changes = page.rows.iter().map(|record| change(keys, record, to));
            let changes: Vec<RecordChange> =
                changes.filter_map(Result::transpose).collect::<Result<_, _>>()?;
            if !changes.is_empty() {
                let asked = changes.len() as u64;
                let made = shared.store.put_records(changes, audit.take(), shared.node.now()).await?;
                let made = made.iter().flatten().count() as u64;
                all += made;
                left += asked - made;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        if left == 0 {
            return Ok(all);
        }
    }
    Err(RotateError::Busy)
}

/// Wraps the data key of a tenant under another master key. Where another node was faster, that one did it.
pub(super) async fn wrap_again(
    shared: &Shared,
    keys: &MasterKeys,
    tenant: &Tenant,
    to: KeyName,
) -> Result<(), VaultError> {
    let found = shared.store.records(vec![WrappedKey::key(tenant)]).await?.pop();
    if let Some(record) = found
        && let Some(change) = change(keys, &record, to)?
    {
        shared.store.put_records(vec![change], None, shared.node.now()).await?;
    }
    Ok(())
}

/// The change that wraps a data key under the master key `to`; none if it is wrapped under it already.
fn change(keys: &MasterKeys, record: &Record, to: KeyName) -> Result<Option<RecordChange>, VaultError> {
    let (before, version) = wrapped(record)?;
    let Some(tenant) = record.key.tenant().filter(|_| before.under != to) else { return Ok(None) };
    let master = keys.get(to).ok_or(VaultError::UnknownKey(to))?;
    let data_key = unwrap(keys, &before, tenant)?;
    let after = WrappedKey::new(master, keys.nonce(), tenant, &data_key);
    Ok(Some(RecordChange {
        key: record.key.clone(),
        number: 0,
        value: Some(after.to_json()),
        expected: Expected::Version(version),
    }))
}
