//! `/v1/audit`: who did what.

use axum::Json;
use axum::extract::State;
use posthaste_core::filter::AuditFilter;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::AuditRow;
use serde::Serialize;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::extract::Authenticated;
use super::page::{OfTenant, Page, Paged, Paging, parameter, text};
use super::problem::{Problem, Result};
use super::query::{Query, short};

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list))
}

/// One act.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AuditRow)]
pub(crate) struct AuditView {
    pub(crate) number: i64,
    pub(crate) at: Timestamp,
    pub(crate) actor: String,
    pub(crate) action: String,
    pub(crate) target: String,
    pub(crate) tenant: Option<Tenant>,
    pub(crate) key_id: Option<String>,
    /// From where it was asked.
    pub(crate) address: Option<String>,
    /// How many it was asked for.
    pub(crate) asked: u64,
    /// How many it was done to.
    pub(crate) count: u64,
    #[schema(value_type = AuditOutcome)]
    pub(crate) outcome: &'static str,
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

    /// The name of the actor, without the id of its key, which is shown beside it.
    pub(crate) fn name(&self) -> &str {
        let name = self.key_id.as_ref().and_then(|key| self.actor.strip_suffix(&format!(" ({key})")));
        name.unwrap_or(&self.actor)
    }
}

/// The parameters of the list.
struct AuditParameters;

impl IntoParams for AuditParameters {
    fn into_params(within: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let own = [
            (
                "actor",
                "Who did it: the name or the id of a key, or the actor as a row shows it; the whole of it",
            ),
            ("action", "What was done, such as `requeue` or `put-policy`; several with commas"),
            (
                "target",
                "To what: an id, a scope or a name; the whole of it. The id of a dead letter stands for its notification",
            ),
            ("since", "At or after: a time, a date (its first moment in UTC) or a duration ago, such as 1d"),
            ("until", "Before: a time, a date or a duration ago"),
        ];
        let own = own.map(|(name, description)| parameter(name, description, text()));
        Paged::into_params(&within).into_iter().chain(OfTenant::into_params(&within)).chain(own).collect()
    }
}

fn filter(query: &mut Query, now: Timestamp) -> Result<AuditFilter> {
    let tenant = query.tenant()?;
    let (actor, actions, target) = (query.take("actor"), query.take("action"), query.take("target"));
    let actions: Vec<String> = actions.iter().flat_map(|all| all.split(',')).map(str::to_owned).collect();
    if actions.iter().any(String::is_empty) {
        return Err(Problem::parameter("action", "action: there is nothing before or after a comma"));
    }
    let mut time = |name: &'static str| {
        let Some(given) = query.take(name) else { return Ok(None) };
        let wrong = || {
            let detail =
                format!("{name}: `{}` is not a time, a date or a duration ago, such as 1d", short(&given));
            Problem::parameter(name, detail)
        };
        posthaste_core::filter::time(&given, now).map(Some).ok_or_else(wrong)
    };
    let (since, until) = (time("since")?, time("until")?);
    Ok(AuditFilter { tenant, actor, actions, target, since, until })
}

/// Who did what, newest first.
#[utoipa::path(get, path = "/v1/audit", operation_id = "listAudit", tag = "figures", params(AuditParameters), security(("key" = ["reader"])),
    responses((status = 200, description = "A page", body = Page<AuditView>), (status = 429, description = "")))]
pub(crate) async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<Page<AuditView>>> {
    let paging: Paging<i64> = Paging::take(&api, &caller, &mut query)?;
    let filter = filter(&mut query, api.engine.now())?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let page = api.read(&caller, |reads| async move { reads.audit(filter, from, limit).await }).await?;
    Ok(Json(paging.show(&api, page, AuditView::of)))
}
