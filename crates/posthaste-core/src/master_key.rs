//! What is kept of master keys and data keys. The master keys themselves are never kept in a store.
//!
//! The master key wraps one data key per tenant, and the data key seals the tenant's secrets. So a rotation of the master key changes
//! data keys only.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::lease::NodeId;
use crate::notification::Tenant;
use crate::record::{RecordKey, RecordKind};
use crate::sealed::{About, Key, KeyName, NONCE, NotOpened, open, seal};

/// Which master key the data keys of a store are wrapped under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MasterRecord {
    pub in_force: KeyName,
    /// The key that takes its place; new data keys are wrapped under it already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<KeyName>,
    /// A known text, sealed with the key in force.
    pub check: String,
}

const CHECK: &[u8] = b"posthaste";

/// Why a node cannot work with the keys of its store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFit {
    #[error(
        "the secrets of this store are sealed under the master key {wanted}, and this node has none: set \
         POSTHASTE_MASTER_KEY or security.master_key to that key"
    )]
    None { wanted: KeyName },
    #[error(
        "the secrets of this store are sealed under the master key {wanted}, and this node has {}: add that key to \
         POSTHASTE_MASTER_KEY or security.master_key; several are separated by commas",
        names(known)
    )]
    Other { wanted: KeyName, known: Vec<KeyName> },
    #[error(
        "the master key of this store is being changed to {next}, and this node has {}: put the new key first in \
         POSTHASTE_MASTER_KEY or security.master_key, the old one after it; several are separated by commas",
        names(known)
    )]
    Next { next: KeyName, known: Vec<KeyName> },
    #[error("the record of the master key {wanted} in the store was changed: {why}")]
    Damaged { wanted: KeyName, why: NotOpened },
}

/// The names, for people.
fn names(known: &[KeyName]) -> String {
    known.iter().map(KeyName::to_string).collect::<Vec<_>>().join(" and ")
}

impl MasterRecord {
    pub fn new(key: &Key, nonce: [u8; NONCE]) -> Self {
        let name = key.name();
        let check = seal(key, nonce, &About::of_none(&name.to_string(), "check"), CHECK);
        Self { in_force: name, next: None, check }
    }

    pub fn key() -> RecordKey {
        RecordKey::new(RecordKind::MasterKey, None, "master-key").expect("the name is short and plain")
    }

    /// The key under which new data keys are wrapped.
    pub fn wraps_under(&self) -> KeyName {
        self.next.unwrap_or(self.in_force)
    }

    /// Whether a node with these keys can open everything, now and after the change that is under way.
    pub fn check(&self, keys: &[Key]) -> Result<(), BadFit> {
        let wanted = self.in_force;
        if keys.is_empty() {
            return Err(BadFit::None { wanted });
        }
        let known = || keys.iter().map(Key::name).collect();
        let Some(key) = keys.iter().find(|key| key.name() == wanted) else {
            return Err(BadFit::Other { wanted, known: known() });
        };
        if let Some(next) = self.next.filter(|next| keys.iter().all(|key| key.name() != *next)) {
            return Err(BadFit::Next { next, known: known() });
        }
        let opened = open(key, &About::of_none(&wanted.to_string(), "check"), &self.check);
        match opened {
            Ok(text) if text.as_slice() == CHECK => Ok(()),
            Ok(_) => Err(BadFit::Damaged { wanted, why: NotOpened::Refused }),
            Err(why) => Err(BadFit::Damaged { wanted, why }),
        }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names and texts can be written")
    }

    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// A tenant's data key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrappedKey {
    /// The master key that opens it.
    pub under: KeyName,
    key: String,
}

impl WrappedKey {
    pub fn new(master: &Key, nonce: [u8; NONCE], tenant: &Tenant, data_key: &Key) -> Self {
        let key = seal(master, nonce, &Self::about(tenant), data_key.reveal());
        Self { under: master.name(), key }
    }

    pub fn key(tenant: &Tenant) -> RecordKey {
        RecordKey::new(RecordKind::DataKey, Some(tenant.clone()), "data-key")
            .expect("the name is short and plain")
    }

    fn about(tenant: &Tenant) -> About<'_> {
        About::of(tenant, "data-key", "key")
    }

    /// The data key, opened by the master key that `under` names.
    pub fn open(&self, master: &Key, tenant: &Tenant) -> Result<Key, NotOpened> {
        let opened = open(master, &Self::about(tenant), &self.key)?;
        let bytes = <[u8; Key::LENGTH]>::try_from(opened.as_slice()).map_err(|_| NotOpened::Form)?;
        Ok(Key::new(bytes))
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names and texts can be written")
    }

    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The keys that each node knows, by the number of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeKeys {
    nodes: BTreeMap<String, Vec<KeyName>>,
}

impl NodeKeys {
    /// The most of a node's keys that are kept: more than that are a mistake.
    const MAX: usize = 16;

    pub fn key() -> RecordKey {
        RecordKey::new(RecordKind::NodeKeys, None, "all").expect("the name is short and plain")
    }

    pub fn put(&mut self, node: NodeId, keys: &[Key]) {
        self.nodes.insert(node.to_string(), keys.iter().take(Self::MAX).map(Key::name).collect());
    }

    pub fn remove(&mut self, node: NodeId) {
        self.nodes.remove(&node.to_string());
    }

    /// Forgets the nodes that are not among these.
    pub fn keep(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        let kept: BTreeSet<String> = nodes.into_iter().map(|node| node.to_string()).collect();
        self.nodes.retain(|node, _| kept.contains(node));
    }

    pub fn knows(&self, node: NodeId, key: KeyName) -> bool {
        self.nodes.get(&node.to_string()).is_some_and(|known| known.contains(&key))
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names can be written")
    }

    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::new([byte; Key::LENGTH])
    }

    #[test]
    fn a_node_must_know_the_key_in_force_and_the_next_one() {
        let record = MasterRecord::new(&key(1), [0; NONCE]);
        let changing = MasterRecord { next: Some(key(2).name()), ..record.clone() };
        let (wanted, next) = (key(1).name(), key(2).name());
        let other = BadFit::Other { wanted, known: vec![next] };
        for (record, keys, fits) in [
            (&record, vec![key(1)], Ok(())),
            (&record, vec![key(2), key(1)], Ok(())),
            (&record, vec![], Err(BadFit::None { wanted })),
            (&record, vec![key(2)], Err(other.clone())),
            (&changing, vec![key(2), key(1)], Ok(())),
            (&changing, vec![key(1)], Err(BadFit::Next { next, known: vec![wanted] })),
            (&changing, vec![key(2)], Err(other)),
        ] {
            assert_eq!(record.check(&keys), fits, "{keys:?}");
        }
        assert_eq!((record.wraps_under(), changing.wraps_under()), (wanted, next));
        assert_eq!(MasterRecord::from_json(&changing.to_json()), Some(changing));
        let damaged = MasterRecord { check: "v1.AAAA".to_owned(), ..record };
        let why = NotOpened::Form;
        assert_eq!(damaged.check(&[key(1)]), Err(BadFit::Damaged { wanted, why }));
    }

    #[test]
    fn a_data_key_opens_for_its_tenant_only() {
        let (acme, other): (Tenant, Tenant) = ("acme".parse().unwrap(), "other".parse().unwrap());
        let wrapped = WrappedKey::new(&key(1), [3; NONCE], &acme, &key(9));
        let read = WrappedKey::from_json(&wrapped.to_json()).unwrap();
        assert_eq!(read.under, key(1).name());
        assert_eq!(read.open(&key(1), &acme), Ok(key(9)));
        assert_eq!(read.open(&key(1), &other), Err(NotOpened::Refused));
        assert_eq!(read.open(&key(2), &acme), Err(NotOpened::Refused));
        assert!(!wrapped.to_json().contains(&*key(9).to_hex()));
    }

    #[test]
    fn what_nodes_know_is_kept_by_their_numbers() {
        let mut all = NodeKeys::default();
        all.put(NodeId(1), &[key(1), key(2)]);
        all.put(NodeId(2), &[key(1)]);
        all.put(NodeId(3), &[key(2)]);
        all.keep([NodeId(1), NodeId(2)]);
        let read = NodeKeys::from_json(&all.to_json()).unwrap();
        let knows = |node| [key(1), key(2)].map(|key| read.knows(NodeId(node), key.name()));
        assert_eq!([1, 2, 3].map(knows), [[true, true], [true, false], [false, false]]);
        all.remove(NodeId(1));
        assert!(!all.knows(NodeId(1), key(1).name()));
    }

    #[test]
    fn the_errors_name_keys_and_never_show_them() {
        let record = MasterRecord::new(&key(1), [0; NONCE]);
        let text = record.check(&[key(2)]).unwrap_err().to_string();
        assert!(
            text.contains(&key(1).name().to_string()) && text.contains(&key(2).name().to_string()),
            "{text}"
        );
        assert!(!text.contains(&key(2).to_hex()[..8]), "{text}");
    }
}
