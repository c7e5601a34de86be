//! `/v1/policies`: what each scope says, and when a policy would make its attempts.
//!
//! A tenant's key reads the scopes that belong to all, and reads and writes its own; another tenant's does not exist for it.

use std::borrow::Cow;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use posthaste_core::channel::Channel;
use posthaste_core::policy::{PolicyLayer, Preset, Scope, preview as preview_of, resolve};
use serde_json::{Value, json};

use super::intake::{LARGEST_NOTIFICATION, json_body};
use super::problem::{Kind, Problem, Result};
use super::query::Query;
use super::unique::Unique;
use super::{Api, Ask, bytes, json};

/// `GET /v1/policies`
pub(super) fn list(api: &Api, ask: &Ask) -> Result {
    Query::of(ask)?.finish()?;
    let set = api.engine.policies().set();
    let seen = set.scopes().into_iter().filter(|scope| sees(ask, scope));
    let data: Vec<Value> = seen.map(|scope| json!({"scope": scope, "policy": set.layer(&scope)})).collect();
    Ok(json(StatusCode::OK, &json!({"data": data, "nextCursor": null})))
}

/// `GET /v1/policies/{scope}`: what the scope says, and for a channel what comes of it.
pub(super) fn get(api: &Api, ask: &Ask) -> Result {
    let mut query = Query::of(ask)?;
    let channel = query.channel()?;
    query.finish()?;
    let scope = wanted(ask)?;
    let set = api.engine.policies().set();
    let (channel, tenant, template) = match &scope {
        Scope::Global => (channel, String::new(), None),
        Scope::Channel(own) => (Some(*own), String::new(), None),
        Scope::Tenant(own) => (channel, own.clone(), None),
        Scope::Template(own) => (channel, String::new(), Some(own.clone())),
    };
    let channel = channel.unwrap_or(Channel::Webhook);
    let effective = set.resolve(channel, &tenant, template.as_deref(), None);
    let shown = json!({
        "scope": scope,
        "policy": set.layer(&scope),
        "channel": channel,
        "effective": effective,
    });
    Ok(json(StatusCode::OK, &shown))
}

/// `PUT /v1/policies/{scope}`
pub(super) async fn put(api: &Api, mut ask: Ask) -> Result {
    Query::of(&ask)?.finish()?;
    let scope = wanted(&ask)?;
    may_write(&ask, &scope)?;
    let layer = read(api, &mut ask).await?;
    api.engine.put_policy(&scope, Some(layer), &ask.caller.actor()).await?;
    let set = api.engine.policies().set();
    Ok(json(StatusCode::OK, &json!({"scope": scope, "policy": set.layer(&scope)})))
}

/// `DELETE /v1/policies/{scope}`
pub(super) async fn delete(api: &Api, ask: &Ask) -> Result {
    Query::of(ask)?.finish()?;
    let scope = wanted(ask)?;
    may_write(ask, &scope)?;
    api.engine.put_policy(&scope, None, &ask.caller.actor()).await?;
    Ok(bytes(StatusCode::NO_CONTENT, bytes::Bytes::new()))
}

/// `POST /v1/policies/preview`: the policy as a notification's own, over the scopes of `?channel=` and the caller.
pub(super) async fn preview(api: &Api, mut ask: Ask) -> Result {
    let mut query = Query::of(&ask)?;
    let channel = query.channel()?;
    query.finish()?;
    let layer = read(api, &mut ask).await?;
    let policy = match channel {
        None => resolve(Preset::built_in(Channel::Webhook), [&layer]),
        Some(channel) => {
            let tenant = ask.caller.sends_for();
            api.engine.policies().set().resolve(channel, tenant.as_str(), None, Some(&layer))
        }
    };
    Ok(json(StatusCode::OK, &json!(preview_of(&policy))))
}

async fn read(api: &Api, ask: &mut Ask) -> Result<PolicyLayer> {
    let text = json_body(api, ask, LARGEST_NOTIFICATION).await?;
    let Unique(value) = serde_json::from_slice(&text).map_err(|error| {
        if error.is_data() {
            return Problem::at("", error.to_string());
        }
        Problem::new(Kind::BadJson, format!("the body is not valid JSON: {error}"))
    })?;
    let layer = PolicyLayer::from_json(&value)?;
    layer.check()?;
    Ok(layer)
}

fn wanted(ask: &Ask) -> Result<Scope> {
    let text: Cow<'_, str> = percent_decode_str(&ask.inner)
        .decode_utf8()
        .map_err(|_| Problem::not_found("the scope is not valid UTF-8"))?;
    let bad = |error| Problem::not_found(format!("there is no such scope: {error}"));
    let scope: Scope = text.parse().map_err(bad)?;
    if sees(ask, &scope) { Ok(scope) } else { Err(Problem::not_found(format!("there is no scope {scope}"))) }
}

fn sees(ask: &Ask, scope: &Scope) -> bool {
    match (scope, &ask.caller.tenant) {
        (Scope::Tenant(of), Some(own)) => of == own.as_str(),
        (Scope::Global | Scope::Channel(_) | Scope::Tenant(_) | Scope::Template(_), _) => true,
    }
}

fn may_write(ask: &Ask, scope: &Scope) -> Result<()> {
    if ask.caller.tenant.is_none() || matches!(scope, Scope::Tenant(_)) {
        return Ok(());
    }
    let detail = format!("the policy of {scope} holds for every tenant: only an admin key may change it");
    Err(Problem::new(Kind::Forbidden, detail))
}
