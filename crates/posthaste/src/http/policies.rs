//! `/v1/policies`: what each scope says, and when a policy would make its attempts.
//!
//! A tenant's key reads `global`, the channels and its own scopes: its tenant's and those of its templates. Without a role it
//! writes its tenant's, as an admin also those of its templates. No other scope exists for it.

pub(crate) mod simulation;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use posthaste_core::channel::Channel;
use posthaste_core::policy::{
    Place, Policy, PolicyLayer, Preset, Preview, Scope, Sources, preview as preview_of, resolve,
};
use posthaste_core::role::Role;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{LARGEST_NOTIFICATION, Text, read};
use super::extract::{ActorOf, Authenticated, InPath, NoQuery};
use super::page::Page;
use super::problem::{Kind, Problem, Result};
use super::query::{Query, short};
use super::unique::Unique;
use super::{Api, Shared};
use crate::keys::Caller;

/// The most policies of templates of one tenant, and the most for templates of every tenant: every node has all of them in memory.
const MOST_TEMPLATES: usize = 1_000;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(preview))
        .routes(routes!(simulation::simulate))
        .routes(routes!(get, put, delete))
}

/// What one scope says.
#[derive(Serialize, ToSchema)]
pub(crate) struct ScopedPolicy {
    pub(crate) scope: Scope,
    pub(crate) policy: Option<PolicyLayer>,
}

/// The scopes that have a policy.
#[utoipa::path(get, path = "/v1/policies", operation_id = "listPolicies", tag = "policies", security(("key" = ["reader"])),
    responses((status = 200, description = "All of them", body = Page<ScopedPolicy>)))]
pub(crate) async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    NoQuery: NoQuery,
) -> Json<Page<ScopedPolicy>> {
    let seen = api.reads(&caller).policies().into_iter();
    Json(Page::whole(seen.map(|(scope, policy)| ScopedPolicy { scope, policy }).collect()))
}

/// What a scope says, and what results from it.
#[derive(Serialize, ToSchema)]
pub(crate) struct EffectivePolicy {
    pub(crate) scope: Scope,
    pub(crate) policy: Option<PolicyLayer>,
    pub(crate) channel: Channel,
    /// The policy of a notification over this channel that is in this scope and in no narrower one.
    pub(crate) effective: Policy,
    /// Where each field of `effective` comes from: a scope, `preset x` or `built-in`. A field inside another one has a dotted name
    /// such as `quick.tries`; `preset` is the narrowest scope that names one.
    #[schema(value_type = BTreeMap<String, String>)]
    pub(crate) sources: Sources,
}

/// What a scope says, and for a channel what results from it.
#[utoipa::path(get, path = "/v1/policies/{scope}", operation_id = "getPolicy", tag = "policies", security(("key" = ["reader"])),
    params(("scope" = Scope, Path), ("channel" = Option<Channel>, Query, description = "`webhook` by default")),
    responses((status = 200, description = "The policy", body = EffectivePolicy), (status = 404, description = "")))]
pub(crate) async fn get(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
    InPath(scope): InPath,
) -> Result<Json<EffectivePolicy>> {
    let channel = query.channel()?;
    query.finish()?;
    let scope = visible(&api, &caller, &scope)?;
    let set = api.engine.policies().set();
    let Place { channel, tenant, template } = scope.place(channel);
    let effective = set.resolve(channel, &tenant, template.as_deref(), None);
    let sources = set.sources(channel, &tenant, template.as_deref());
    Ok(Json(EffectivePolicy { policy: set.layer(&scope).cloned(), scope, channel, effective, sources }))
}

/// Replaces what the API says at a scope.
#[utoipa::path(put, path = "/v1/policies/{scope}", operation_id = "putPolicy", tag = "policies", security(("key" = ["admin", "tenant"])),
    params(("scope" = Scope, Path)), request_body = PolicyLayer,
    responses((status = 200, description = "The policy", body = ScopedPolicy), (status = 404, description = "")))]
pub(crate) async fn put(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    InPath(scope): InPath,
    text: Text<LARGEST_NOTIFICATION>,
) -> Result<Json<ScopedPolicy>> {
    let scope = writable(&api, &caller, &scope)?;
    let layer = layer(&text)?;
    if let Scope::Tenant(name) | Scope::Template { tenant: Some(name), .. } = &scope
        && let Ok(tenant) = name.parse()
        && let Some(bad) = api.bad_tenant(&tenant).await?
    {
        return Err(Problem::parameter("scope", bad.to_string()));
    }
    has_room(&api.engine.policies().set().scopes(), &scope)?;
    api.engine.put_policy(&scope, Some(layer), &actor).await?;
    let policy = api.engine.policies().set().layer(&scope).cloned();
    Ok(Json(ScopedPolicy { scope, policy }))
}

/// Removes what the API says at a scope.
#[utoipa::path(delete, path = "/v1/policies/{scope}", operation_id = "deletePolicy", tag = "policies", security(("key" = ["admin", "tenant"])),
    params(("scope" = Scope, Path)), responses((status = 204, description = "It is removed"), (status = 404, description = "")))]
pub(crate) async fn delete(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    InPath(scope): InPath,
) -> Result<StatusCode> {
    let scope = writable(&api, &caller, &scope)?;
    api.engine.put_policy(&scope, None, &actor).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// When a policy would make its attempts.
///
/// The policy counts as a notification's own, over the scopes of `channel` and of the caller, or, with `scope`, as what that scope
/// says in place of what it says now. A tenant's key previews only what its notifications can have.
#[utoipa::path(post, path = "/v1/policies/preview", operation_id = "previewPolicy", tag = "policies", security(("key" = ["reader"])),
    params(("channel" = Option<Channel>, Query, description = "Without it and without a scope only the policy itself counts"),
        ("scope" = Option<Scope>, Query, description = "The scope that would say this; over `webhook` if neither it nor `channel` says another")), request_body = PolicyLayer,
    responses((status = 200, description = "Durations from the first attempt", body = Preview)))]
pub(crate) async fn preview(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
    text: Text<LARGEST_NOTIFICATION>,
) -> Result<Json<Preview>> {
    let place = AskedPlace::take(&api, &caller, &mut query)?;
    query.finish()?;
    let policy = place.policy(&api, &caller, Some(&layer(&text)?))?;
    Ok(Json(preview_of(&policy)))
}

/// Where a policy is asked to be tried.
struct AskedPlace {
    scope: Option<Scope>,
    channel: Option<Channel>,
}

impl AskedPlace {
    fn take(api: &Api, caller: &Caller, query: &mut Query) -> Result<Self> {
        let channel = query.channel()?;
        let scope = query.take("scope").map(|text| visible(api, caller, &text)).transpose();
        Ok(Self { scope: scope.map_err(|problem| Problem::parameter("scope", problem.detail))?, channel })
    }

    /// What would result there if that was said; what results now, if nothing is.
    fn policy(&self, api: &Api, caller: &Caller, layer: Option<&PolicyLayer>) -> Result<Policy> {
        // An admin for all tenants can put it at a scope that takes longer timeouts.
        if let Some(layer) = layer
            && caller.tenant.is_some()
        {
            api.engine.policies().check_message(layer)?;
        }
        let set = api.engine.policies().set();
        Ok(match (&self.scope, self.channel, layer) {
            (Some(scope), channel, Some(layer)) => set.with_layer(scope, layer, channel)?,
            (Some(scope), channel, None) => {
                let Place { channel, tenant, template } = scope.place(channel);
                set.resolve(channel, &tenant, template.as_deref(), None)
            }
            (None, None, layer) => resolve(Preset::built_in(Channel::Webhook), layer),
            (None, Some(channel), layer) => set.resolve(channel, caller.sends_for().as_str(), None, layer),
        })
    }

    /// The channel of what is tried.
    fn channel(&self) -> Channel {
        let own = self.channel.unwrap_or(Channel::Webhook);
        self.scope.as_ref().map_or(own, |scope| scope.place(self.channel).channel)
    }
}

fn layer(text: &[u8]) -> Result<PolicyLayer> {
    let Unique(value) = read(text)?;
    let layer = PolicyLayer::from_json(&value)?;
    layer.check()?;
    Ok(layer)
}

/// The scope in the path, if the caller can see it.
fn visible(api: &Api, caller: &Caller, text: &str) -> Result<Scope> {
    let bad = |error| Problem::not_found(format!("there is no such scope: {error}"));
    let scope = Scope::read(text, caller.tenant.as_ref()).map_err(bad)?;
    match &caller.tenant {
        Some(own) if !api.reads(caller).sees_scope(&scope) => Err(Problem::not_found(format!(
            "there is no scope `{}` for a key of the tenant `{own}`: it has global, channel:x, tenant:{own} and template:x, which is a template of its own",
            short(text)
        ))),
        Some(_) | None => Ok(scope),
    }
}

/// The scope in the path, if the caller may change it.
fn writable(api: &Api, caller: &Caller, text: &str) -> Result<Scope> {
    let scope = visible(api, caller, text)?;
    match may_change(caller, &scope) {
        Ok(()) => Ok(scope),
        Err(needed) => Err(Problem::new(
            Kind::Forbidden,
            format!("the policy of {scope} can be changed only with {needed}"),
        )),
    }
}

/// Whether a policy may be put at a scope. One that is there already can always be replaced.
fn has_room(kept: &[Scope], scope: &Scope) -> Result<()> {
    let Scope::Template { tenant: owner, .. } = scope else { return Ok(()) };
    let is_sibling = |one: &&Scope| matches!(one, Scope::Template { tenant, .. } if tenant == owner);
    if kept.iter().filter(is_sibling).count() < MOST_TEMPLATES || kept.contains(scope) {
        return Ok(());
    }
    let whose =
        owner.as_ref().map_or_else(|| "every tenant".to_owned(), |name| format!("the tenant `{name}`"));
    let detail = format!(
        "there are {MOST_TEMPLATES} policies for templates of {whose}, the most there can be: remove some of them"
    );
    Err(Problem::parameter("scope", detail))
}

/// Whether the caller may change a scope that it can see.
pub(crate) fn may_put(caller: &Caller, scope: &Scope) -> bool {
    may_change(caller, scope).is_ok()
}

/// Whether the caller may change a scope that it can see, or which key may.
fn may_change(caller: &Caller, scope: &Scope) -> Result<(), &'static str> {
    match (scope, &caller.tenant, caller.role) {
        (_, None, _) | (Scope::Tenant(_), Some(_), _) => Ok(()),
        (Scope::Template { .. }, Some(_), Role::Admin) => Ok(()),
        (Scope::Template { .. }, Some(_), Role::Sender | Role::Reader | Role::Operator | Role::Tenant) => {
            Err("an admin key")
        }
        (Scope::Global | Scope::Channel(_), Some(_), _) => {
            Err("an admin key for all tenants, because it holds for every tenant")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Credential;

    #[test]
    fn who_may_change_which_scope() {
        let caller = |tenant: Option<&str>, role| Caller {
            name: "x".to_owned(),
            tenant: tenant.map(|name| name.parse().unwrap()),
            credential: Credential::Given,
            role,
        };
        let scopes = ["global", "channel:webhook", "tenant:acme", "template:acme/x"];
        for (tenant, role, allowed) in [
            (None, Role::Admin, [true; 4]),
            (Some("acme"), Role::Admin, [false, false, true, true]),
            (Some("acme"), Role::Tenant, [false, false, true, false]),
        ] {
            let may = scopes.map(|text| may_change(&caller(tenant, role), &text.parse().unwrap()).is_ok());
            assert_eq!(may, allowed, "{tenant:?} {role:?}");
        }
    }

    #[test]
    fn the_template_policies_of_each_tenant_are_bounded() {
        let one =
            |tenant: &str, number: usize| -> Scope { format!("template:{tenant}/{number}").parse().unwrap() };
        let mut kept: Vec<Scope> = (1..MOST_TEMPLATES).map(|number| one("acme", number)).collect();
        kept.extend([Scope::Global, one("*", 0), one("other", 0)]);
        has_room(&kept, &one("acme", 0)).unwrap();
        kept.push(one("acme", 0));
        let problem = has_room(&kept, &one("acme", MOST_TEMPLATES)).unwrap_err();
        assert_eq!(problem.kind, Kind::Invalid);
        assert!(problem.detail.contains("1000 policies") && problem.detail.contains("remove"), "{problem:?}");
        // What is there can be replaced, and others have room of their own.
        for scope in [one("acme", 0), one("other", 1), one("*", 1), Scope::Tenant("acme".to_owned())] {
            has_room(&kept, &scope).unwrap();
        }
    }
}
