//! `/v1/audit`: who did what.

use axum::Json;
use axum::extract::State;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::AuditRow;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::extract::Authenticated;
use super::page::{OfTenant, Page, Paged, Paging};
use super::problem::Result;
use super::query::Query;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list))
}

/// One act.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AuditRow)]
struct AuditView {
    number: i64,
    at: Timestamp,
    actor: String,
    action: String,
    target: String,
    tenant: Option<Tenant>,
    key_id: Option<String>,
    /// From where it was asked.
    address: Option<String>,
    /// How many it was asked for.
    asked: u64,
    /// How many it was done to.
    count: u64,
    #[schema(value_type = AuditOutcome)]
    outcome: &'static str,
}

/// Whether it was done to all, or only to some.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it only describes the words")]
enum AuditOutcome {
    Done,
    Partly,
}

impl AuditView {
    fn of(row: AuditRow) -> Self {
        let outcome = row.outcome();
        Self {
            number: row.number,
            at: row.audit.at,
            actor: row.audit.actor,
            action: row.audit.action,
            target: row.audit.target,
            tenant: row.audit.tenant,
            key_id: row.audit.key_id,
            address: row.audit.address,
            asked: row.asked,
            count: row.count,
            outcome,
        }
    }
}

/// Who did what, newest first.
#[utoipa::path(get, path = "/v1/audit", operation_id = "listAudit", tag = "figures", params(Paged, OfTenant), security(("key" = ["reader"])),
    responses((status = 200, description = "A page", body = Page<AuditView>), (status = 429, description = "")))]
async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<Page<AuditView>>> {
    let paging: Paging<i64> = Paging::take(&api, &caller, &mut query)?;
    let tenant = query.tenant()?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let page = api.read(&caller, |reads| async move { reads.audit(tenant, from, limit).await }).await?;
    Ok(Json(paging.show(&api, page, AuditView::of)))
}
