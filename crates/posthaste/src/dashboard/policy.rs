//! `/policies/{scope}`: what a scope says as a form, where the rest comes from, and the schedule, drawn while one edits.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use posthaste_core::channel::Channel;
use posthaste_core::policy::{Preview, Scope, Sources, preview as preview_of};
use serde_json::{Value, json};

use super::acts::again;
use super::flash::Flash;
use super::policies::address;
use super::policy_form::{self, Group, Shown};
use super::problem::is_htmx;
use super::shell::{Shell, html};
use super::show::{self, Markup};
use super::timeline::{self, Mark};
use super::visitor::{Form, Visitor};
use crate::http::Shared;
use crate::http::body::Text;
use crate::http::extract::{ActorOf, Authenticated, InPath, NoQuery};
use crate::http::policies::{self, EffectivePolicy};
use crate::http::problem::{Kind, Problem, Result};
use crate::http::query::Query;

/// The most attempts that are drawn and listed.
const MOST_ATTEMPTS: usize = 50;

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage {
    shell: Shell,
    scope: String,
    channel: &'static str,
    preview: Markup,
    groups: Vec<Group>,
    may_put: bool,
    /// What the scope says as JSON, as it is or as it was typed.
    typed: String,
    has_own: bool,
    /// Each field of what results: its name, value and source.
    effective: Vec<(String, String, String)>,
}

/// The part that changes while one edits.
#[derive(Template)]
#[template(path = "policy-preview.html")]
struct PreviewPart {
    channel: &'static str,
    attempts: Vec<Planned>,
    more: usize,
    window: String,
    /// The window of what is kept, if it is another.
    was: Option<String>,
    drawing: Markup,
    changes: Vec<String>,
    problem: Option<Problem>,
    /// Whether the mistake is in what was to be kept.
    was_refused: bool,
}

/// One attempt of the schedule.
struct Planned {
    number: u32,
    earliest: String,
    latest: String,
}

/// What a scope says, and what results.
struct Kept {
    scope: Scope,
    channel: Channel,
    own: Option<Value>,
    effective: Value,
    sources: Sources,
    planned: Preview,
}

impl Kept {
    async fn of(api: &Shared, visitor: &Visitor, scope: &str, query: &str) -> Result<Self> {
        let query = Query::parse(&format!("/v1/policies/{scope}"), query)?;
        let caller = Authenticated(visitor.caller.clone());
        let found = policies::get(State(api.clone()), caller, query, InPath(scope.to_owned())).await?.0;
        let EffectivePolicy { scope, policy, channel, effective, sources } = found;
        Ok(Self {
            planned: preview_of(&effective),
            own: policy.and_then(|layer| serde_json::to_value(layer).ok()),
            effective: serde_json::to_value(&effective).unwrap_or_default(),
            scope,
            channel,
            sources,
        })
    }

    /// The page with what was typed; what is kept if nothing was.
    async fn page(&self, api: &Shared, visitor: &Visitor, typed: Typed) -> PolicyPage {
        let scope = self.scope.to_string();
        let shell = Shell::of(api, visitor, &format!("Policy of {scope}"), "/policies").await;
        let part = self.part(&typed);
        let shown = typed.policy.as_ref().or(self.own.as_ref()).cloned().unwrap_or_else(|| json!({}));
        PolicyPage {
            shell,
            channel: self.channel.name(),
            preview: Markup(part.render().unwrap_or_default()),
            groups: self.form(&shown, typed.problem.as_ref()).groups(),
            may_put: visitor.may("putPolicy") && policies::may_put(&visitor.caller, &self.scope),
            has_own: self.own.is_some(),
            typed: typed.text.unwrap_or_else(|| pretty(&shown)),
            effective: self.fields(),
            scope,
        }
    }

    fn form<'a>(&'a self, typed: &'a Value, problem: Option<&Problem>) -> Shown<'a> {
        static NOTHING: Value = Value::Null;
        let mistake = problem.and_then(|problem| {
            let path = problem.pointer.as_deref()?.trim_start_matches('/').replace('/', ".");
            Some((path, problem.detail.clone()))
        });
        let kept = self.own.as_ref().unwrap_or(&NOTHING);
        Shown { kept, typed, effective: &self.effective, sources: &self.sources, mistake }
    }

    /// The schedule of what was typed, or of what is kept where that has a mistake.
    fn part(&self, typed: &Typed) -> PreviewPart {
        let planned = typed.planned.as_ref().unwrap_or(&self.planned);
        let was = show::length(&self.planned.window);
        let window = show::length(&planned.window);
        let changes = typed.policy.as_ref().map(|policy| self.form(policy, None).changes());
        PreviewPart {
            channel: self.channel.name(),
            attempts: attempts(planned),
            more: planned.attempts.len().saturating_sub(MOST_ATTEMPTS),
            drawing: drawn(planned),
            was: (was != window).then_some(was),
            window,
            changes: changes.unwrap_or_default(),
            problem: typed.problem.clone(),
            was_refused: typed.was_refused,
        }
    }

    fn fields(&self) -> Vec<(String, String, String)> {
        let field = |(name, source): (&String, &String)| {
            let value = name.split('.').try_fold(&self.effective, |value, part| value.get(part))?;
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some((name.clone(), text, source.clone()))
        };
        self.sources.iter().filter_map(field).collect()
    }
}

/// What somebody typed, and what the API says of it.
#[derive(Default)]
struct Typed {
    policy: Option<Value>,
    /// The JSON as it was typed.
    text: Option<String>,
    planned: Option<Preview>,
    problem: Option<Problem>,
    was_refused: bool,
}

impl Typed {
    /// What a form says: JSON, or its fields.
    fn read(form: &Form) -> Self {
        let Some(text) = form.fields.get("policy") else {
            return Self { policy: Some(policy_form::read(&form.fields)), ..Self::default() };
        };
        let bad = |error| Problem::new(Kind::BadJson, format!("this is not valid JSON: {error}"));
        let text = Some(text.to_owned());
        match serde_json::from_str(text.as_deref().unwrap_or_default()) {
            Ok(policy) => Self { policy: Some(policy), text, ..Self::default() },
            Err(error) => Self { problem: Some(bad(error)), text, ..Self::default() },
        }
    }

    /// Asks the API when the attempts would come.
    async fn previewed(mut self, api: &Shared, visitor: &Visitor, kept: &Kept) -> Result<Self> {
        let Some(policy) = &self.policy else { return Ok(self) };
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("scope", &kept.scope.to_string())
            .append_pair("channel", kept.channel.name())
            .finish();
        let query = Query::parse("/v1/policies/preview", &query)?;
        let body = Text::of(api, &visitor.caller, policy)?;
        let caller = Authenticated(visitor.caller.clone());
        match policies::preview(State(api.clone()), caller, query, body).await {
            Ok(planned) => self.planned = Some(planned.0),
            Err(problem) => self.problem = Some(problem),
        }
        Ok(self)
    }
}

fn pretty(value: &Value) -> String {
    match value.as_object() {
        Some(fields) if fields.is_empty() => "{\n}".to_owned(),
        _ => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
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
        .map(|attempt| Mark::planned(attempt.number, millis(attempt.earliest), millis(attempt.latest)))
        .collect();
    let end = marks.last().map(Mark::latest);
    timeline::draw(0, &[], &marks, &[], end, 0)
}

pub(super) async fn page(
    State(api): State<Shared>,
    InPath(scope): InPath,
    visitor: Visitor,
) -> Result<Response> {
    let kept = Kept::of(&api, &visitor, &scope, &visitor.query).await?;
    let page = kept.page(&api, &visitor, Typed::default()).await;
    Ok(page.shell.answer(&page))
}

/// The query of the page that a form was on: the channel whose policy it shows.
fn query_of(form: &Form) -> String {
    form.fields.get("channel").map_or_else(String::new, |channel| {
        url::form_urlencoded::Serializer::new(String::new()).append_pair("channel", channel).finish()
    })
}

/// Shows when the attempts would come. Nothing is saved.
pub(super) async fn preview(
    State(api): State<Shared>,
    InPath(scope): InPath,
    form: Form,
) -> Result<Response> {
    let visitor = &form.visitor;
    let kept = Kept::of(&api, visitor, &scope, &query_of(&form)).await?;
    let typed = Typed::read(&form).previewed(&api, visitor, &kept).await?;
    if is_htmx(&form.headers) {
        return Ok(html(StatusCode::OK, &kept.part(&typed)));
    }
    let page = kept.page(&api, visitor, typed).await;
    Ok(page.shell.answer(&page))
}

/// Saves what the scope says, or shows it with what is wrong.
pub(super) async fn put(State(api): State<Shared>, InPath(scope): InPath, form: Form) -> Result<Response> {
    let visitor = &form.visitor;
    let mut typed = Typed::read(&form);
    if let Some(policy) = &typed.policy {
        match save(&api, visitor, &scope, policy).await {
            Ok(()) => {
                let flash =
                    Flash::done("Saved. It counts from the next decision on; due times that are set stay.");
                return Ok(again(&form, Ok(flash), "/policies"));
            }
            Err(problem) => typed.problem = Some(problem),
        }
    }
    typed.was_refused = true;
    let status = typed.problem.as_ref().map_or(StatusCode::BAD_REQUEST, |problem| problem.kind.shown().0);
    let kept = Kept::of(&api, visitor, &scope, &query_of(&form)).await?;
    let page = kept.page(&api, visitor, typed).await;
    Ok(page.shell.answer_with(status, &page))
}

async fn save(api: &Shared, visitor: &Visitor, scope: &str, policy: &Value) -> Result<()> {
    let body = Text::of(api, &visitor.caller, policy)?;
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
