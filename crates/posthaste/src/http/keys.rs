//! `/v1/keys`: admins make and revoke keys; a tenant's key sees those of its tenant.

use http::StatusCode;
use posthaste_core::id::KeyId;
use posthaste_core::notification::Tenant;
use serde_json::{Value, json};

use super::intake::json_body;
use super::object::Object;
use super::problem::{Kind, Problem, Result};
use super::query::Query;
use super::{Api, Ask, bytes, json};
use crate::keys::{self, KeptKey};

/// The most bytes of a request to make a key.
const LARGEST: usize = 16 * 1024;

/// `GET /v1/keys`
pub(super) fn list(api: &Api, ask: &Ask) -> Result {
    Query::of(ask)?.finish()?;
    let all = keys::all(&api.engine.settings());
    let seen = all.into_iter().filter(|(_, key)| sees(ask, key));
    let data: Vec<Value> = seen.map(|(id, key)| show(id, &key)).collect();
    Ok(json(StatusCode::OK, &json!({"data": data, "nextCursor": null})))
}

/// `POST /v1/keys`
pub(super) async fn create(api: &Api, mut ask: Ask) -> Result {
    Query::of(&ask)?.finish()?;
    admins_only(&ask, "make or revoke keys")?;
    let text = json_body(api, &mut ask, LARGEST).await?;
    let mut object = Object::read(&text)?;
    let name = object.line("name", 100)?;
    let tenant = object.text("tenant", Tenant::MAX_LENGTH)?;
    let admin = object.typed::<bool>("admin", "true or false")?.unwrap_or(false);
    object.finish()?;
    let name = name.ok_or_else(|| Problem::at("/name", "name is missing: what the key is for"))?;
    let tenant: Option<Tenant> = tenant
        .map(|tenant| tenant.parse())
        .transpose()
        .map_err(|error| Problem::at("/tenant", format!("{error}")))?;
    // A key that may do everything is never made by leaving something out.
    if admin == tenant.is_some() {
        return Err(Problem::at(
            "/tenant",
            "give `tenant`, or `\"admin\": true` for a key that may do everything",
        ));
    }
    let made = keys::create(&api.engine, &name, tenant.as_ref(), &ask.caller.actor()).await?;
    let shown = json!({"id": made.id, "name": name, "tenant": tenant, "key": made.secret});
    Ok(json(StatusCode::CREATED, &shown))
}

/// `DELETE /v1/keys/{id}`
pub(super) async fn revoke(api: &Api, ask: &Ask) -> Result {
    Query::of(ask)?.finish()?;
    let missing = || Problem::not_found(format!("there is no key {}", ask.inner));
    let id: KeyId = ask.inner.parse().map_err(|_| missing())?;
    let all = keys::all(&api.engine.settings());
    let found = all.into_iter().find(|(other, key)| *other == id && sees(ask, key));
    found.ok_or_else(missing)?;
    admins_only(ask, "make or revoke keys")?;
    keys::revoke(&api.engine, id, &ask.caller.actor()).await?;
    Ok(bytes(StatusCode::NO_CONTENT, bytes::Bytes::new()))
}

fn sees(ask: &Ask, key: &KeptKey) -> bool {
    ask.caller.tenant.as_ref().is_none_or(|own| key.tenant.as_deref() == Some(own.as_str()))
}

/// Refuses whoever has no admin key.
pub(super) fn admins_only(ask: &Ask, act: &str) -> Result<()> {
    if ask.caller.tenant.is_none() {
        return Ok(());
    }
    Err(Problem::new(Kind::Forbidden, format!("only an admin key may {act}")))
}

fn show(id: KeyId, key: &KeptKey) -> Value {
    json!({
        "id": id,
        "name": key.name,
        "tenant": key.tenant,
        "start": key.start,
        "createdAt": key.created_at,
        "createdBy": key.created_by,
    })
}
