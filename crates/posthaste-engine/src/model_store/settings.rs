//! Settings and their version.

use async_trait::async_trait;

use super::ModelStore;
use crate::store::{Audit, Notice, Result, Settings, StoredSettings};

#[async_trait]
impl StoredSettings for ModelStore {
    async fn settings(&self, known: Option<i64>) -> Result<Option<Settings>> {
        let tables = self.lock();
        Ok((known != Some(tables.settings.version)).then(|| tables.settings.clone()))
    }

    async fn put_setting(&self, name: String, value: Option<String>, audit: Audit) -> Result<i64> {
        let version = {
            let mut tables = self.lock();
            match value {
                Some(value) => tables.settings.values.insert(name, value),
                None => tables.settings.values.remove(&name),
            };
            tables.settings.version += 1;
            tables.write_audit(audit, 1, 1);
            tables.settings.version
        };
        let _ = self.notices.send(Notice::Setting);
        Ok(version)
    }

    async fn swap_setting(
        &self,
        name: String,
        from: Option<String>,
        to: String,
        audit: Audit,
    ) -> Result<bool> {
        {
            let mut tables = self.lock();
            if tables.settings.values.get(&name) != from.as_ref() {
                return Ok(false);
            }
            tables.settings.values.insert(name, to);
            tables.settings.version += 1;
            tables.write_audit(audit, 1, 1);
        }
        let _ = self.notices.send(Notice::Setting);
        Ok(true)
    }
}
