//! `/policies`: the scopes that have a policy.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use posthaste_core::channel::Channel;
use posthaste_core::policy::PolicyLayer;

use super::shell::Shell;
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::extract::{Authenticated, NoQuery};
use crate::http::policies::{self, ScopedPolicy};
use crate::http::problem::Result;

#[derive(Template)]
#[template(path = "policies.html")]
struct PoliciesPage {
    shell: Shell,
    scopes: Vec<ScopedPolicy>,
    channels: Vec<&'static str>,
    tenant: Option<String>,
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let scopes =
        policies::list(State(api.clone()), Authenticated(visitor.caller.clone()), NoQuery).await.0.data;
    let shell = Shell::of(&api, &visitor, "Policies", "/policies").await;
    let tenant = visitor.caller.tenant.as_ref().map(ToString::to_string);
    let page = PoliciesPage { shell, scopes, channels: Channel::ALL.map(Channel::name).into(), tenant };
    Ok(page.shell.answer(&page))
}

/// What a scope says in one line.
fn summary(layer: &Option<PolicyLayer>) -> String {
    layer.as_ref().and_then(|layer| serde_json::to_string(layer).ok()).unwrap_or_default()
}

/// The address of a scope.
pub(super) fn address(scope: &impl ToString) -> String {
    let text = scope.to_string();
    let path: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
    format!("/policies/{}", path.replace("%3A", ":"))
}
