//! Records and their versions.

use std::collections::BTreeMap;

use async_trait::async_trait;
use posthaste_core::notification::Tenant;
use posthaste_core::record::{Expected, Record, RecordChange, RecordKey, RecordKind, change_records};
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::planted::Planted;
use crate::store::{Audit, Page, Records, Result};

/// Every record that was ever put, and the version of the last change.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordTable {
    records: BTreeMap<RecordKey, Record>,
    version: i64,
}

#[async_trait]
impl Records for ModelStore {
    async fn put_records(
        &self,
        mut changes: Vec<RecordChange>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Vec<Option<i64>>> {
        let mut tables = self.lock();
        if tables.has(Planted::PutIgnoresVersion) {
            changes.iter_mut().for_each(|change| change.expected = Expected::Anything);
        }
        let (asked, kept) = (changes.len(), &mut tables.records);
        let made = change_records(&mut kept.records, &mut kept.version, changes, now);
        let count = made.iter().flatten().count();
        if let Some(audit) = audit.filter(|_| count > 0) {
            tables.write_audit(audit, asked, count);
        }
        Ok(made)
    }

    async fn records(&self, mut keys: Vec<RecordKey>) -> Result<Vec<Record>> {
        keys.sort_unstable();
        keys.dedup();
        let tables = self.lock();
        let found = keys.iter().filter_map(|key| tables.records.records.get(key));
        Ok(found.filter(|record| record.value.is_some()).cloned().collect())
    }

    async fn record_page(
        &self,
        kind: RecordKind,
        tenant: Option<Tenant>,
        after: Option<RecordKey>,
        limit: usize,
    ) -> Result<Page<Record, RecordKey>> {
        let tables = self.lock();
        let listed = tables.records.records.values().filter(|record| {
            record.key.kind() == kind
                && tenant.as_ref().is_none_or(|tenant| record.key.tenant() == Some(tenant))
                && after.as_ref().is_none_or(|after| record.key > *after)
        });
        let looked_at: Vec<&Record> = listed.take(limit).collect();
        let last = looked_at.last().filter(|_| looked_at.len() == limit);
        let next = last.map(|record| record.key.clone());
        let rows = looked_at.into_iter().filter(|record| record.value.is_some()).cloned().collect();
        Ok(Page { rows, next })
    }

    async fn records_since(&self, kind: RecordKind, version: i64, limit: usize) -> Result<Vec<Record>> {
        let tables = self.lock();
        let changed = |record: &&Record| record.key.kind() == kind && record.version > version;
        let mut found: Vec<Record> = tables.records.records.values().filter(changed).cloned().collect();
        found.sort_unstable_by_key(|record| record.version);
        found.truncate(limit);
        Ok(found)
    }
}
