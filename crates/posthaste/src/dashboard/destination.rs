//! `/destinations/{id}`: one destination with its history, its limits as a form, and what people do about it.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use posthaste_core::destination::DestinationId;
use serde_json::{Value, json};

use super::acts::again;
use super::destinations::Row;
use super::downtime::Downtime;
use super::flash::Flash;
use super::shell::Shell;
use super::show::{self, Markup};
use super::visitor::{Form, Visitor};
use crate::http::Shared;
use crate::http::act::{NoBody, Optional};
use crate::http::body::Text;
use crate::http::destinations::{self, NewBlock};
use crate::http::extract::{ActorOf, Authenticated, Id, NoQuery};
use crate::http::problem::{Problem, Result};
use crate::http::views::destination::DestinationEventView;

/// How much of the history is drawn.
const DRAWN: std::time::Duration = std::time::Duration::from_secs(86_400);
/// What stands below the drawing.
const ENDS: &str = "<text x=\"0\" y=\"26\">24 h ago</text><text class=\"e\" x=\"100%\" y=\"26\">now</text>";

#[derive(Template)]
#[template(path = "destination.html")]
struct DestinationPage {
    shell: Shell,
    row: Row,
    history: Vec<DestinationEventView>,
    strip: Markup,
    may: May,
}

/// What the visitor may do with it now.
struct May {
    limit: bool,
    block: bool,
    unblock: bool,
    reset: bool,
}

/// An event in words.
fn told(event: &DestinationEventView) -> &str {
    match event.event {
        "opened" => "The breaker opened",
        "probed" => "A probe was sent",
        "closed" => "A probe succeeded: closed, ramping up",
        "blocked" => "Blocked",
        "unblocked" => "Unblocked",
        "reset" => "Reset: closed at full speed",
        "limited" => "Limits were set",
        "paused" => "It asked for silence",
        other => other,
    }
}

pub(super) async fn page(
    State(api): State<Shared>,
    Id(id): Id<DestinationId>,
    visitor: Visitor,
) -> Result<Response> {
    let caller = Authenticated(visitor.caller.clone());
    let found = destinations::get(State(api.clone()), caller, NoQuery, Id(id)).await?.0;
    let row = Row::of(found.destination);
    let shell = Shell::of(&api, &visitor, &row.one.name, "/destinations").await;
    let may = May {
        limit: visitor.may("putDestination"),
        block: !row.is_blocked() && visitor.may("blockDestination"),
        unblock: row.is_blocked() && visitor.may("unblockDestination"),
        reset: (row.is_open() || row.one.paused_until.is_some() || row.one.failures > 0)
            && visitor.may("resetDestination"),
    };
    let downtime = Downtime::of(&row.one, &found.history, shell.now.earlier(DRAWN), shell.now);
    let strip = downtime.drawn(30, &format!("In the last 24 hours {}.", downtime.said()), ENDS);
    let page = DestinationPage { shell, row, history: found.history, strip, may };
    Ok(page.shell.answer(&page))
}

/// A number as a number. What is none is refused by the API in its own words.
fn number(text: Option<&str>) -> Value {
    let Some(text) = text else { return Value::Null };
    let whole = text.parse::<u64>().map(Value::from);
    whole.or_else(|_| text.parse::<f64>().map(Value::from)).unwrap_or_else(|_| json!(text))
}

fn address(id: DestinationId) -> String {
    format!("/destinations/{id}")
}

pub(super) async fn put(State(api): State<Shared>, Id(id): Id<DestinationId>, form: Form) -> Response {
    let field = |name| number(form.fields.get(name));
    let body = json!({"rate": field("rate"), "concurrency": field("concurrency")});
    let done = match Text::of(&api, &form.visitor.caller, &body) {
        Ok(text) => {
            let actor = ActorOf(form.visitor.actor.clone());
            destinations::put(State(api.clone()), actor, NoQuery, Id(id), text).await
        }
        Err(problem) => Err(problem),
    };
    again(&form, done.map(|_| Flash::done("Saved. All nodes obey within two seconds.")), &address(id))
}

pub(super) async fn block(State(api): State<Shared>, Id(id): Id<DestinationId>, form: Form) -> Response {
    let actor = ActorOf(form.visitor.actor.clone());
    let new: std::result::Result<NewBlock, _> =
        serde_json::from_value(json!({"reason": form.fields.get("reason")}));
    let done = match new {
        Ok(new) => destinations::block(State(api), actor, NoQuery, Id(id), Optional(new)).await,
        Err(error) => Err(Problem::at("/reason", error.to_string())),
    };
    let said = "Blocked. Nothing is sent until it is unblocked; what waits spends no attempt.";
    again(&form, done.map(|_| Flash::done(said)), &address(id))
}

pub(super) async fn unblock(State(api): State<Shared>, Id(id): Id<DestinationId>, form: Form) -> Response {
    let actor = ActorOf(form.visitor.actor.clone());
    let done = destinations::unblock(State(api), actor, NoQuery, Id(id), NoBody::NONE).await;
    again(&form, done.map(|_| Flash::done("Unblocked. What waited is sent.")), &address(id))
}

pub(super) async fn reset(State(api): State<Shared>, Id(id): Id<DestinationId>, form: Form) -> Response {
    let actor = ActorOf(form.visitor.actor.clone());
    let done = destinations::reset(State(api), actor, NoQuery, Id(id), NoBody::NONE).await;
    again(&form, done.map(|_| Flash::done("Reset. It is sent to at full speed.")), &address(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_none_is_left_to_the_api() {
        assert_eq!(
            [number(Some("5")), number(Some("0.5")), number(None)],
            [json!(5), json!(0.5), Value::Null]
        );
        assert_eq!(number(Some("fast")), json!("fast"));
    }
}
