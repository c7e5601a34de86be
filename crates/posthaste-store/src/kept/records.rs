//! How keys of records are kept, and how their pages are made.

use posthaste_core::notification::Tenant;
use posthaste_core::record::{Record, RecordKey, RecordKind};
use posthaste_engine::store::Page;

use super::damage::{Damaged, Result};
use super::values;

/// The tenant of records that are of no tenant; no tenant can have that name.
const NO_TENANT: &str = "";

pub(crate) fn tenant_text(tenant: Option<&Tenant>) -> &str {
    tenant.map_or(NO_TENANT, Tenant::as_str)
}

/// The key from its columns.
pub(crate) fn key_from(code: u8, tenant: &str, name: String) -> Result<RecordKey> {
    let kind =
        RecordKind::from_code(code).ok_or_else(|| Damaged(format!("there is no kind of record {code}")))?;
    let tenant = if tenant == NO_TENANT { None } else { Some(values::tenant(tenant)?) };
    RecordKey::new(kind, tenant, name).map_err(|error| Damaged(error.to_string()))
}

/// The page of these records, of which a store looked at `looked_at` rows: some of them may be damaged. A page of damaged
/// rows alone has no next.
pub(crate) fn page_of(found: Vec<Record>, looked_at: usize, limit: usize) -> Page<Record, RecordKey> {
    let next = found.last().filter(|_| looked_at == limit).map(|record| record.key.clone());
    Page { rows: found.into_iter().filter(|record| record.value.is_some()).collect(), next }
}
