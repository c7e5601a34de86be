//! `/v1/keys`: keys are made, rotated and revoked here. A key for one tenant sees those of its tenant.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use posthaste_core::duration;
use posthaste_core::id::KeyId;
use posthaste_core::notification::Tenant;
use posthaste_core::role::Role;
use posthaste_core::schema::{DurationText, TimeOrDuration};
use posthaste_core::time::Timestamp;
use posthaste_engine::reads::ReadError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::act::Optional;
use super::body::{Text, read};
use super::extract::{ActorOf, Authenticated, Id, NoQuery};
use super::page::Page;
use super::problem::{Kind, Problem, Result};
use super::{Api, Shared};
use crate::keys::{self, Caller, KeptKey, KeyOrder, Rotated};

/// The most characters of a name.
const LONGEST_NAME: usize = 100;
/// What stands for all tenants in place of a name.
const ALL_TENANTS: &str = "*";
/// How long the old secret stays valid after a rotation.
const OVERLAP: Duration = Duration::from_hours(24);
/// The longest overlap. A secret that is needed for longer is not rotated.
const LONGEST_OVERLAP: Duration = Duration::from_hours(24 * 90);
/// The most keys of one tenant, and the most keys for all tenants: every node has all keys in memory.
const MOST_KEYS: usize = 1_000;
/// Nodes below this level know no key that was rotated.
const ROTATION_LEVEL: u32 = 2;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke)).routes(routes!(rotate))
}

/// An API key, without the key itself.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Key)]
pub(crate) struct KeyView {
    pub(crate) id: KeyId,
    pub(crate) name: String,
    /// Null for all tenants.
    pub(crate) tenant: Option<String>,
    /// Null for a tenant's key without a role: it may do what sender and operator may, and put the policy of its tenant.
    pub(crate) role: Option<Role>,
    /// From then on it is refused; null for never.
    pub(crate) expires_at: Option<Timestamp>,
    /// At most a few minutes behind; null if it was never used.
    pub(crate) last_used_at: Option<Timestamp>,
    /// The secret before the last rotation, while it is still valid.
    pub(crate) previous: Option<PreviousKey>,
    /// How the key begins.
    pub(crate) start: String,
    pub(crate) created_at: Timestamp,
    pub(crate) created_by: String,
}

/// The API keys.
#[utoipa::path(get, path = "/v1/keys", operation_id = "listKeys", tag = "keys", security(("key" = ["admin", "tenant"])),
    responses((status = 200, description = "All that the caller can see", body = Page<KeyView>)))]
pub(crate) async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    NoQuery: NoQuery,
) -> Result<Json<Page<KeyView>>> {
    let kept = api.read(&caller, |reads| async move { reads.key_uses().await }).await?;
    let mut used: HashMap<KeyId, Timestamp> = kept.into_iter().map(|one| (one.key, one.at)).collect();
    for one in api.keys.uses() {
        let known = used.entry(one.key).or_insert(one.at);
        *known = one.at.max(*known);
    }
    let (all, now) = (keys::all(&api.engine.settings()).into_iter(), api.engine.now());
    let show = |(id, key): (KeyId, KeptKey)| KeyView {
        id,
        previous: key.previous_until().filter(|end| *end > now).map(|expires_at| PreviousKey { expires_at }),
        start: key.start().to_owned(),
        name: key.name,
        tenant: key.tenant,
        role: key.role,
        expires_at: key.expires_at,
        last_used_at: used.get(&id).copied(),
        created_at: key.created_at,
        created_by: key.created_by,
    };
    Ok(Json(Page::whole(all.filter(|(_, key)| sees(&caller, key)).map(show).collect())))
}

/// A key to be made.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewKey {
    /// What the key is for.
    #[schema(required, min_length = 1, max_length = 100)]
    name: Option<String>,
    /// Whose key it is; `*` for all tenants, with a role other than sender.
    tenant: Option<String>,
    /// Without it a tenant's key may do what sender and operator may, and put the policy of its tenant.
    role: Option<Role>,
    /// True, and no tenant, for a key that may do everything for all tenants.
    admin: Option<bool>,
    /// A time, or a duration from now with a unit. From then on the key is refused.
    #[schema(value_type = Option<TimeOrDuration>)]
    expires_at: Option<String>,
}

/// A key that was made.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreatedKey {
    pub(crate) id: KeyId,
    pub(crate) name: String,
    /// Null for all tenants.
    pub(crate) tenant: Option<Tenant>,
    pub(crate) role: Option<Role>,
    pub(crate) expires_at: Option<Timestamp>,
    /// Shown once, and never again.
    pub(crate) key: String,
}

/// Makes a key; it is shown once.
#[utoipa::path(post, path = "/v1/keys", operation_id = "createKey", tag = "keys", security(("key" = ["admin"])),
    request_body = NewKey, responses((status = 201, description = "The key", body = CreatedKey)))]
pub(crate) async fn create(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    text: Text,
) -> Result<(StatusCode, Json<CreatedKey>)> {
    let new: NewKey = read(&text)?;
    let order = order(new, api.engine.now())?;
    if let Some(own) = &caller.tenant
        && order.tenant.as_ref() != Some(own)
    {
        let detail = format!("this key makes keys for the tenant `{own}` only");
        return Err(Problem::new(Kind::Forbidden, detail).pointing("/tenant"));
    }
    if let Some(tenant) = &order.tenant {
        api.check_tenant(tenant).await?;
    }
    has_room(&keys::all(&api.engine.settings()), order.tenant.as_ref())?;
    let (name, tenant) = (order.name.clone(), order.tenant.clone());
    let (role, expires_at) = (order.role, order.expires_at);
    let made = keys::create(&api.engine, order, &actor).await?;
    let created = CreatedKey { id: made.id, name, tenant, role, expires_at, key: made.secret };
    Ok((StatusCode::CREATED, Json(created)))
}

/// Whether one more key of a tenant, or for all tenants, may be made. Those that have expired count: they are kept until they are
/// revoked.
fn has_room(kept: &[(KeyId, KeptKey)], tenant: Option<&Tenant>) -> Result<()> {
    let tenant = tenant.map(Tenant::as_str);
    if kept.iter().filter(|(_, key)| key.tenant.as_deref() == tenant).count() < MOST_KEYS {
        return Ok(());
    }
    let whose = tenant.map_or_else(|| "all tenants".to_owned(), |name| format!("the tenant `{name}`"));
    let detail =
        format!("there are {MOST_KEYS} keys for {whose}, the most there can be: revoke some of them");
    Err(Problem::at("/tenant", detail))
}

/// Checks what is asked for. A key for all tenants is never made by leaving something out.
fn order(new: NewKey, now: Timestamp) -> Result<KeyOrder> {
    let name = new.name.ok_or_else(|| Problem::at("/name", "name is missing: what the key is for"))?;
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        let detail = format!("name must have 1 to {LONGEST_NAME} bytes and no control characters");
        return Err(Problem::at("/name", detail));
    }
    let expires_at = new.expires_at.map(|given| expiry(&given, now)).transpose()?;
    let (tenant, role) = match (new.tenant.as_deref(), new.admin.unwrap_or(false)) {
        (None, true) => match new.role {
            None | Some(Role::Admin) => (None, Some(Role::Admin)),
            Some(_) => return Err(Problem::at("/role", "give `admin` or `role`, not both")),
        },
        (None, false) | (Some(_), true) => {
            let detail =
                "give `tenant` (`*` for all tenants), or `\"admin\": true` for a key that may do everything";
            return Err(Problem::at("/tenant", detail));
        }
        (Some(ALL_TENANTS), false) => match new.role {
            Some(Role::Reader | Role::Operator | Role::Admin) => (None, new.role),
            None | Some(Role::Sender | Role::Tenant) => {
                let detail = "a key for all tenants has the role reader, operator or admin";
                return Err(Problem::at("/role", detail));
            }
        },
        (Some(tenant), false) => {
            let tenant: Tenant =
                tenant.parse().map_err(|error| Problem::at("/tenant", format!("{error}")))?;
            (Some(tenant), new.role)
        }
    };
    Ok(KeyOrder { name, tenant, role, expires_at })
}

/// A time to come, or a duration from now.
fn expiry(given: &str, now: Timestamp) -> Result<Timestamp> {
    let unreadable = |error| {
        let detail = format!("expiresAt is a time such as {now}, or a duration such as 90d: {error}");
        Problem::at("/expiresAt", detail)
    };
    let at = match given.parse() {
        Ok(at) => at,
        Err(_) => now.later(duration::with_unit(given).map_err(unreadable)?),
    };
    if at <= now {
        return Err(Problem::at("/expiresAt", format!("expiresAt {at} has passed; it is {now}")));
    }
    Ok(at)
}

/// How a key is rotated.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotation {
    /// How long the old key stays valid: `24h` by default, `0` for not at all, at most 90 days.
    #[serde(default, with = "duration::optional")]
    #[schema(value_type = Option<DurationText>)]
    overlap: Option<Duration>,
}

/// A key that was rotated.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RotatedKey {
    pub(crate) id: KeyId,
    pub(crate) name: String,
    /// Null for all tenants.
    pub(crate) tenant: Option<String>,
    pub(crate) role: Option<Role>,
    pub(crate) expires_at: Option<Timestamp>,
    /// Shown once, and never again.
    pub(crate) key: String,
    /// The old key; null if it is refused from now on.
    pub(crate) previous: Option<PreviousKey>,
}

/// The key before a rotation.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreviousKey {
    pub(crate) expires_at: Timestamp,
}

/// Gives a key a new secret; the old one stays valid for the overlap.
#[utoipa::path(post, path = "/v1/keys/{id}/rotate", operation_id = "rotateKey", tag = "keys", security(("key" = ["admin"])),
    params(("id" = KeyId, Path)), request_body = Option<Rotation>,
    responses((status = 200, description = "The new key", body = RotatedKey), (status = 404, description = ""),
        (status = 409, description = "It has expired, it was changed at the same time, or a node of an older version is still alive")))]
pub(crate) async fn rotate(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<KeyId>,
    Optional(rotation): Optional<Rotation>,
) -> Result<Json<RotatedKey>> {
    let found = keys::one(&api.engine.settings(), id).filter(|key| sees(&caller, key));
    found.ok_or_else(|| Id::<KeyId>::missing(id))?;
    let overlap = rotation.overlap.unwrap_or(OVERLAP);
    if overlap > LONGEST_OVERLAP {
        return Err(Problem::at("/overlap", "overlap is longer than 90 days"));
    }
    all_know_rotation(&api).await?;
    let (key, made) = match keys::rotate(&api.engine, id, overlap, &actor).await? {
        Rotated::Done(key, made) => (key, made),
        Rotated::Missing => return Err(Id::<KeyId>::missing(id)),
        Rotated::Expired(end) => {
            let detail = format!("{id} expired at {end}, and so would its new secret: make another key");
            return Err(Problem::new(Kind::KeyConflict, detail));
        }
        Rotated::Busy => {
            return Err(Problem::new(Kind::KeyConflict, format!("{id} keeps changing; ask again")));
        }
    };
    let previous = key.previous_until();
    Ok(Json(RotatedKey {
        id,
        name: key.name,
        tenant: key.tenant,
        role: key.role,
        expires_at: key.expires_at,
        key: made.secret,
        previous: previous.map(|expires_at| PreviousKey { expires_at }),
    }))
}

/// An older node would no longer know the key, although its callers may still use the old secret.
async fn all_know_rotation(api: &Api) -> Result<()> {
    let (_, nodes) = api.engine.nodes().await.map_err(ReadError::from)?;
    if nodes.iter().all(|node| !node.alive || node.level >= ROTATION_LEVEL) {
        return Ok(());
    }
    let detail =
        "a node of an older version is alive and would refuse the key: rotate it once all nodes are upgraded";
    Err(Problem::new(Kind::KeyConflict, detail))
}

/// Revokes a key.
#[utoipa::path(delete, path = "/v1/keys/{id}", operation_id = "revokeKey", tag = "keys", security(("key" = ["admin"])),
    params(("id" = KeyId, Path)), responses((status = 204, description = "It is revoked"), (status = 404, description = "")))]
pub(crate) async fn revoke(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<KeyId>,
) -> Result<StatusCode> {
    let found = keys::one(&api.engine.settings(), id).filter(|key| sees(&caller, key));
    found.ok_or_else(|| Id::<KeyId>::missing(id))?;
    keys::revoke(&api.engine, id, &actor).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn sees(caller: &Caller, key: &KeptKey) -> bool {
    caller.tenant.as_ref().is_none_or(|own| key.tenant.as_deref() == Some(own.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    fn keys_of(tenant: Option<&str>, count: usize) -> Vec<(KeyId, KeptKey)> {
        let key = KeptKey {
            name: "x".to_owned(),
            tenant: tenant.map(str::to_owned),
            role: Some(Role::Admin),
            expires_at: None,
            secrets: vec![],
            created_at: at(0),
            created_by: String::new(),
        };
        (0..count).map(|number| (KeyId::new(at(0), number as u128), key.clone())).collect()
    }

    #[test]
    fn the_keys_of_each_tenant_and_those_for_all_are_bounded() {
        let (acme, other): (Tenant, Tenant) = ("acme".parse().unwrap(), "other".parse().unwrap());
        for (full, free) in [(Some(&acme), None), (Some(&acme), Some(&other)), (None, Some(&acme))] {
            let mut kept = keys_of(full.map(Tenant::as_str), MOST_KEYS - 1);
            has_room(&kept, full).unwrap();
            kept.extend(keys_of(full.map(Tenant::as_str), 1));
            let problem = has_room(&kept, full).unwrap_err();
            assert_eq!(problem.kind, Kind::Invalid);
            assert!(problem.detail.contains("1000 keys") && problem.detail.contains("revoke"), "{problem:?}");
            has_room(&kept, free).unwrap();
        }
    }
}
