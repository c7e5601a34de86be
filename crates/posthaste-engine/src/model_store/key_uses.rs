//! Last uses of API keys.

use async_trait::async_trait;
use posthaste_core::id::KeyId;

use super::ModelStore;
use crate::store::{KeyUse, KeyUses, Result};

#[async_trait]
impl KeyUses for ModelStore {
    async fn note_key_uses(&self, uses: Vec<KeyUse>, gone: Vec<KeyId>) -> Result<()> {
        let mut tables = self.lock();
        for KeyUse { key, at } in uses {
            let last = tables.key_uses.entry(key).or_insert(at);
            *last = at.max(*last);
        }
        for key in gone {
            tables.key_uses.remove(&key);
        }
        Ok(())
    }

    async fn key_uses(&self) -> Result<Vec<KeyUse>> {
        Ok(self.lock().key_uses.iter().map(|(key, at)| KeyUse { key: *key, at: *at }).collect())
    }
}
