//! `/policies`: the scopes that have a policy, and one scope with its schedule drawn.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use posthaste_core::channel::Channel;
use posthaste_core::policy::{PolicyLayer, Preview, preview};
use serde_json::Value;

use super::acts::again;
use super::flash::Flash;
use super::shell::Shell;
use super::show::{self, Markup};
use super::timeline::{self, Mark};
use super::visitor::{Form, Visitor};
use crate::http::Shared;
use crate::http::body::Text;
use crate::http::extract::{ActorOf, Authenticated, InPath, NoQuery};
use crate::http::policies::{self, EffectivePolicy, ScopedPolicy};
use crate::http::problem::{Problem, Result};
use crate::http::query::Query;

/// The most attempts that are drawn and listed.
const MOST_ATTEMPTS: usize = 50;

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
fn address(scope: &impl ToString) -> String {
    let text = scope.to_string();
    let path: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
    format!("/policies/{}", path.replace("%3A", ":"))
}

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage {
    shell: Shell,
    scope: String,
    channel: &'static str,
    effective: Markup,
    attempts: Vec<Planned>,
    more: usize,
    window: String,
    drawing: Markup,
    may_put: bool,
    /// What the scope says, as it is or as it was typed.
    typed: String,
    has_own: bool,
    problem: Option<Problem>,
}

/// One attempt of the schedule.
struct Planned {
    number: u32,
    earliest: String,
    latest: String,
}

impl PolicyPage {
    async fn of(api: &Shared, visitor: &Visitor, scope: &str, query: &str) -> Result<Self> {
        let query = Query::parse(&format!("/v1/policies/{scope}"), query)?;
        let caller = Authenticated(visitor.caller.clone());
        let found = policies::get(State(api.clone()), caller, query, InPath(scope.to_owned())).await?.0;
        let EffectivePolicy { scope, policy, channel, effective, sources: _ } = found;
        let may_put = visitor.may("putPolicy") && policies::may_put(&visitor.caller, &scope);
        let scope = scope.to_string();
        let shell = Shell::of(api, visitor, &format!("Policy of {scope}"), "/policies").await;
        let planned = preview(&effective);
        let own = policy.as_ref().and_then(|layer| serde_json::to_value(layer).ok());
        let effective = serde_json::to_string(&effective).unwrap_or_default();
        Ok(Self {
            shell,
            channel: channel.name(),
            effective: show::json(&effective),
            attempts: attempts(&planned),
            more: planned.attempts.len().saturating_sub(MOST_ATTEMPTS),
            window: show::length(&planned.window),
            drawing: drawn(&planned),
            may_put,
            has_own: own.is_some(),
            typed: own.map_or_else(|| "{\n}".to_owned(), |own| pretty(&own)),
            scope,
            problem: None,
        })
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn attempts(planned: &Preview) -> Vec<Planned> {
    let shown =
        |length: Duration| if length.is_zero() { "at once".to_owned() } else { show::length(&length) };
    let one = |attempt: &posthaste_core::policy::PreviewedAttempt| Planned {
        number: attempt.number,
        earliest: shown(attempt.earliest),
        latest: shown(attempt.latest),
    };
    planned.attempts.iter().take(MOST_ATTEMPTS).map(one).collect()
}

fn drawn(planned: &Preview) -> Markup {
    let millis = |length: Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX / 4);
    let marks: Vec<Mark> = planned
        .attempts
        .iter()
        .take(MOST_ATTEMPTS)
        .map(|attempt| Mark {
            at: millis(attempt.earliest).midpoint(millis(attempt.latest)),
            number: attempt.number,
            class: "nx",
        })
        .collect();
    let end = marks.last().map(|mark| mark.at);
    timeline::draw(0, &marks, None, end, 0)
}

pub(super) async fn one(
    State(api): State<Shared>,
    InPath(scope): InPath,
    visitor: Visitor,
) -> Result<Response> {
    let page = PolicyPage::of(&api, &visitor, &scope, &visitor.query).await?;
    Ok(page.shell.answer(&page))
}

/// Saves what the scope says, or shows it without saving it.
pub(super) async fn put(State(api): State<Shared>, InPath(scope): InPath, form: Form) -> Result<Response> {
    let visitor = &form.visitor;
    let typed = form.fields.get("policy").unwrap_or("{}").to_owned();
    let done = save(&api, visitor, &scope, &typed).await;
    match done {
        Ok(()) => {
            let flash =
                Flash::done("Saved. It counts from the next decision on; due times that are set stay.");
            Ok(again(&form, Ok(flash), "/policies"))
        }
        Err(problem) => {
            let (status, ..) = problem.kind.shown();
            let mut page = PolicyPage::of(&api, visitor, &scope, "").await?;
            page.typed = typed;
            page.problem = Some(problem);
            Ok(page.shell.answer_with(status, &page))
        }
    }
}

async fn save(api: &Shared, visitor: &Visitor, scope: &str, typed: &str) -> Result<()> {
    let bad = |error: serde_json::Error| {
        Problem::new(crate::http::problem::Kind::BadJson, format!("this is not valid JSON: {error}"))
    };
    let value: Value = serde_json::from_str(typed).map_err(bad)?;
    let body = Text::of(api, &visitor.caller, &value)?;
    let (caller, actor) = (Authenticated(visitor.caller.clone()), ActorOf(visitor.actor.clone()));
    let saved =
        policies::put(State(api.clone()), caller, actor, NoQuery, InPath(scope.to_owned()), body).await;
    saved.map(|_| ())
}

/// Removes what the scope says.
pub(super) async fn delete(State(api): State<Shared>, InPath(scope): InPath, form: Form) -> Response {
    let visitor = &form.visitor;
    let (caller, actor) = (Authenticated(visitor.caller.clone()), ActorOf(visitor.actor.clone()));
    let done: Result<StatusCode> = policies::delete(State(api), caller, actor, NoQuery, InPath(scope)).await;
    again(&form, done.map(|_| Flash::done("Removed. The wider scopes count now.")), "/policies")
}
