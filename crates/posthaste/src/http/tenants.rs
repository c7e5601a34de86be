//! `/v1/tenants`: who sends, and which names a new tenant may have.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use posthaste_core::notification::{BadNewTenant, Tenant};
use posthaste_engine::store;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::cursor::Position;
use super::extract::Authenticated;
use super::page::{Page, Paged, Paging};
use super::problem::{Problem, Result};
use super::query::Query;
use super::{Api, Shared};
use crate::keys;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A tenant that has sent something or has a key.
#[derive(Serialize, ToSchema)]
#[schema(as = TenantSummary)]
pub(crate) struct TenantView {
    pub(crate) name: Tenant,
    /// How many API keys it has.
    pub(crate) keys: usize,
}

impl Position for Tenant {
    fn write(&self) -> Vec<u8> {
        self.as_str().as_bytes().to_vec()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok()?.parse().ok()
    }
}

/// The tenants that have sent something or have a key, by name.
#[utoipa::path(get, path = "/v1/tenants", operation_id = "listTenants", tag = "keys", params(Paged), security(("key" = ["reader", "all"])),
    responses((status = 200, description = "A page", body = Page<TenantView>), (status = 429, description = "")))]
pub(crate) async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<Page<TenantView>>> {
    let paging: Paging<Tenant> = Paging::take(&api, &caller, &mut query)?;
    query.finish()?;
    let (from, limit) = (paging.from.clone(), paging.limit);
    // One more, to know whether there is a next page and where it begins.
    let read = |reads: posthaste_engine::reads::Reads| async move { reads.tenants(from, limit + 1).await };
    let senders = api.read(&caller, read).await?;
    let mut all: BTreeMap<Tenant, usize> = senders.into_iter().map(|tenant| (tenant, 0)).collect();
    for tenant in api.key_owners().filter(|tenant| paging.from.as_ref().is_none_or(|from| tenant >= from)) {
        *all.entry(tenant).or_default() += 1;
    }
    let mut rest = all.into_iter();
    let rows: Vec<(Tenant, usize)> = rest.by_ref().take(limit).collect();
    let page = store::Page { rows, next: rest.next().map(|(tenant, _)| tenant) };
    Ok(Json(paging.show(&api, page, |(name, keys)| TenantView { name, keys })))
}

impl Api {
    /// The tenants of all keys, one entry a key.
    fn key_owners(&self) -> impl Iterator<Item = Tenant> {
        let all = keys::all(&self.engine.settings()).into_iter();
        all.filter_map(|(_, key)| key.tenant?.parse().ok())
    }

    /// Refuses a name that no new tenant may have, unless the tenant is there already.
    pub(super) async fn check_tenant(&self, tenant: &Tenant) -> Result<()> {
        let bad = self.bad_tenant(tenant).await?;
        bad.map_or(Ok(()), |bad| Err(Problem::at("/tenant", bad.to_string())))
    }

    /// Why there can be no such tenant; `None` if there is one already, or may be.
    pub(super) async fn bad_tenant(&self, tenant: &Tenant) -> Result<Option<BadNewTenant>> {
        let Err(bad) = tenant.check_new() else { return Ok(None) };
        if self.key_owners().any(|known| known == *tenant) {
            return Ok(None);
        }
        let found = self.engine.reads(None).tenants(Some(tenant.clone()), 1).await?;
        Ok((found.first() != Some(tenant)).then_some(bad))
    }
}
