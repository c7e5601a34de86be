//! Writes to the store when keys were last used: at most once a minute and in one transaction, never while a request waits.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste_core::id::KeyId;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{KeyUse, Settings, Store, StoreError};
use tokio::sync::watch;

use super::{Keys, all};
use crate::http::Api;

const INTERVAL: Duration = Duration::from_mins(1);
/// How long the last write may delay the stop of the node.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// Writes until the node stops, and then once more.
pub(crate) async fn keep(api: std::sync::Arc<Api>, mut stopped: watch::Receiver<bool>) {
    let mut written = Written::default();
    loop {
        let is_last = tokio::select! {
            () = tokio::time::sleep(INTERVAL) => false,
            _ = stopped.wait_for(|stopped| *stopped) => true,
        };
        let settings = api.engine.settings();
        let write = written.write(&api.keys, &settings, &*api.store);
        if is_last {
            // What is lost here shows the use before it.
            let _ = tokio::time::timeout(LAST_TIMEOUT, write).await;
            return;
        }
        if let Err(error) = write.await {
            tracing::debug!(error = error.causes(), "last uses of keys are written with the next ones");
        }
    }
}

/// What the store is known to have.
#[derive(Default)]
struct Written(Option<BTreeMap<KeyId, Timestamp>>);

impl Written {
    /// Writes uses that are new, and removes those of keys that no longer exist.
    async fn write(&mut self, keys: &Keys, settings: &Settings, store: &dyn Store) -> Result<(), StoreError> {
        let fresh = keys.uses();
        if fresh.is_empty() && self.0.is_none() {
            return Ok(());
        }
        let known = match self.0.take() {
            Some(known) => known,
            None => store.key_uses().await?.into_iter().map(|one| (one.key, one.at)).collect(),
        };
        let known = self.0.insert(known);
        let existing: std::collections::BTreeSet<KeyId> =
            all(settings).into_iter().map(|(id, _)| id).collect();
        let is_new = |one: &KeyUse| {
            existing.contains(&one.key) && known.get(&one.key).is_none_or(|known| *known < one.at)
        };
        let uses: Vec<KeyUse> = fresh.into_iter().filter(is_new).collect();
        let gone: Vec<KeyId> = known.keys().filter(|key| !existing.contains(*key)).copied().collect();
        if uses.is_empty() && gone.is_empty() {
            return Ok(());
        }
        store.note_key_uses(uses.clone(), gone.clone()).await?;
        known.retain(|key, _| !gone.contains(key));
        known.extend(uses.into_iter().map(|one| (one.key, one.at)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::role::Role;
    use posthaste_engine::model_store::ModelStore;
    use posthaste_engine::store::KeyUses as _;

    use super::*;
    use crate::http::hex;
    use crate::keys::{KeptKey, Secret, hash, kept};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    fn id(number: u128) -> KeyId {
        KeyId::new(at(0), number)
    }

    /// Settings with keys whose secrets are their numbers.
    fn settings(version: i64, keys: &[u128]) -> Settings {
        let setting = |number: &u128| {
            let key = KeptKey {
                name: "x".to_owned(),
                tenant: None,
                role: Some(Role::Admin),
                expires_at: None,
                secrets: vec![Secret {
                    hash: hex(&hash(&number.to_string())),
                    start: String::new(),
                    until: None,
                }],
                created_at: at(0),
                created_by: String::new(),
            };
            (kept::setting(id(*number)), serde_json::to_string(&key).unwrap())
        };
        Settings { version, values: keys.iter().map(setting).collect() }
    }

    #[tokio::test]
    async fn uses_are_written_once_and_those_of_revoked_keys_are_removed() {
        let (store, keys, mut written) =
            (ModelStore::default(), Keys::new(None).unwrap(), Written::default());
        let used = |number, second| KeyUse { key: id(number), at: at(second) };
        store.note_key_uses(vec![used(1, 1), used(9, 1)], vec![]).await.unwrap();
        let first = settings(1, &[1, 2, 3]);
        let ask = |kept: &Settings, number: u128, second| {
            assert!(keys.find_kept(kept, &hash(&number.to_string()), at(second)).is_some());
        };
        ask(&first, 1, 5);
        ask(&first, 2, 6);
        written.write(&keys, &first, &store).await.unwrap();
        assert_eq!(store.key_uses().await.unwrap(), [used(1, 5), used(2, 6)]);
        // What the store has is not written again: another node may have removed it.
        store.note_key_uses(vec![], vec![id(1)]).await.unwrap();
        let second = settings(2, &[1, 3]);
        ask(&second, 3, 7);
        written.write(&keys, &second, &store).await.unwrap();
        assert_eq!(store.key_uses().await.unwrap(), [used(3, 7)]);
        // A use is remembered although the settings were read again.
        assert!(keys.uses().contains(&used(1, 5)));
    }
}
