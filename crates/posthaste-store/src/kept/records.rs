//! Stored form of record keys, and pages of records.

use posthaste_core::notification::Tenant;
use posthaste_core::record::{Record, RecordKey, RecordKind};
use posthaste_engine::store::Page;

use super::damage::{Damaged, Result};
use super::values;

/// Stored for records without a tenant. No tenant can have this name.
pub(crate) const NO_TENANT: &str = "";

pub(crate) fn tenant_text(tenant: Option<&Tenant>) -> &str {
    tenant.map_or(NO_TENANT, Tenant::as_str)
}

pub(crate) fn key_from(code: u8, tenant: &str, name: String) -> Result<RecordKey> {
    let kind =
        RecordKind::from_code(code).ok_or_else(|| Damaged(format!("there is no kind of record {code}")))?;
    let tenant = if tenant == NO_TENANT { None } else { Some(values::tenant(tenant)?) };
    RecordKey::new(kind, tenant, name).map_err(|error| Damaged(error.to_string()))
}

/// Builds a page from the readable records among `looked_at` rows. A page whose rows are all damaged has no
/// `next`.
pub(crate) fn page_of(found: Vec<Record>, looked_at: usize, limit: usize) -> Page<Record, RecordKey> {
    let next = found.last().filter(|_| looked_at == limit).map(|record| record.key.clone());
    Page { rows: found.into_iter().filter(|record| record.value.is_some()).collect(), next }
}
