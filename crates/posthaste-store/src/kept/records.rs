//! How keys of records are kept, and how their pages are made.

use posthaste_core::notification::Tenant;
use posthaste_core::record::{Record, RecordKey, RecordKind};
use posthaste_engine::store::Page;

/// The tenant of records that are of no tenant; no tenant can have that name.
const NO_TENANT: &str = "";

pub(crate) fn tenant_text(tenant: Option<&Tenant>) -> &str {
    tenant.map_or(NO_TENANT, Tenant::as_str)
}

/// The key from its columns, or what is wrong with them.
pub(crate) fn key_from(code: u8, tenant: &str, name: String) -> Result<RecordKey, String> {
    let kind = RecordKind::from_code(code).ok_or_else(|| format!("there is no kind of record {code}"))?;
    let tenant = if tenant == NO_TENANT { None } else { Some(tenant) };
    let tenant = tenant.map(str::parse).transpose().map_err(|error| format!("{error}"))?;
    RecordKey::new(kind, tenant, name).map_err(|error| error.to_string())
}

/// The page of up to `limit` records that were looked at.
pub(crate) fn page_of(found: Vec<Record>, limit: usize) -> Page<Record, RecordKey> {
    let next = found.last().filter(|_| found.len() == limit).map(|record| record.key.clone());
    Page { rows: found.into_iter().filter(|record| record.value.is_some()).collect(), next }
}
