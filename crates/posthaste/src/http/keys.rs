//! `/v1/keys`: keys are made and revoked here. A tenant's key sees those of its tenant.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use posthaste_core::id::KeyId;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::body::{Text, read};
use super::extract::{ActorOf, Authenticated, Id, NoQuery};
use super::page::Page;
use super::problem::{Kind, Problem, Result};
use crate::keys::{self, Caller, KeptKey};

/// The most characters of a name.
const LONGEST_NAME: usize = 100;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke))
}

/// An API key, without the key itself.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Key)]
struct KeyView {
    id: KeyId,
    name: String,
    tenant: Option<String>,
    /// How the key begins.
    start: String,
    created_at: Timestamp,
    created_by: String,
}

/// The API keys.
#[utoipa::path(get, path = "/v1/keys", operation_id = "listKeys", tag = "keys", security(("key" = ["admin", "tenant"])),
    responses((status = 200, description = "All that the caller can see", body = Page<KeyView>)))]
async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    NoQuery: NoQuery,
) -> Json<Page<KeyView>> {
    let all = keys::all(&api.engine.settings()).into_iter();
    let show = |(id, key): (KeyId, KeptKey)| KeyView {
        id,
        name: key.name,
        tenant: key.tenant,
        start: key.start,
        created_at: key.created_at,
        created_by: key.created_by,
    };
    Json(Page::whole(all.filter(|(_, key)| sees(&caller, key)).map(show).collect()))
}

/// A key to be made.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewKey {
    /// What the key is for.
    #[schema(required, max_length = 100)]
    name: Option<String>,
    /// Whose key it is.
    tenant: Option<String>,
    /// True, and no tenant, for a key that may do everything.
    admin: Option<bool>,
}

/// A key that was made.
#[derive(Serialize, ToSchema)]
struct CreatedKey {
    id: KeyId,
    name: String,
    tenant: Option<Tenant>,
    /// Shown once, and never again.
    key: String,
}

/// Makes a key; it is shown once.
#[utoipa::path(post, path = "/v1/keys", operation_id = "createKey", tag = "keys", security(("key" = ["admin", "all"])),
    request_body = NewKey, responses((status = 201, description = "The key", body = CreatedKey)))]
async fn create(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    text: Text,
) -> Result<(StatusCode, Json<CreatedKey>)> {
    let new: NewKey = read(&text)?;
    let name = new.name.ok_or_else(|| Problem::at("/name", "name is missing: what the key is for"))?;
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        let detail = format!("name must have 1 to {LONGEST_NAME} bytes and no control characters");
        return Err(Problem::at("/name", detail));
    }
    let tenant: Option<Tenant> = new
        .tenant
        .map(|tenant| tenant.parse())
        .transpose()
        .map_err(|error| Problem::at("/tenant", format!("{error}")))?;
    // A key that may do everything is never made by leaving something out.
    if new.admin.unwrap_or(false) == tenant.is_some() {
        let detail = "give `tenant`, or `\"admin\": true` for a key that may do everything";
        return Err(Problem::at("/tenant", detail));
    }
    let made = keys::create(&api.engine, &name, tenant.as_ref(), &actor).await?;
    Ok((StatusCode::CREATED, Json(CreatedKey { id: made.id, name, tenant, key: made.secret })))
}

/// Revokes a key.
#[utoipa::path(delete, path = "/v1/keys/{id}", operation_id = "revokeKey", tag = "keys", security(("key" = ["admin", "tenant"])),
    params(("id" = KeyId, Path)), responses((status = 204, description = "It is revoked"), (status = 404, description = "")))]
async fn revoke(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<KeyId>,
) -> Result<StatusCode> {
    let all = keys::all(&api.engine.settings());
    let found = all.into_iter().find(|(other, key)| *other == id && sees(&caller, key));
    found.ok_or_else(|| Id::<KeyId>::missing(id))?;
    if caller.tenant.is_some() {
        return Err(Problem::new(Kind::Forbidden, "this needs a key with the role admin for all tenants"));
    }
    keys::revoke(&api.engine, id, &actor).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn sees(caller: &Caller, key: &KeptKey) -> bool {
    caller.tenant.as_ref().is_none_or(|own| key.tenant.as_deref() == Some(own.as_str()))
}
