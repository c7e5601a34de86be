//! `/destinations/{id}`: one destination with its history, its limits as a form, and what people do about it.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use posthaste_core::destination::DestinationId;
use posthaste_core::time::{Timestamp, micros};
use serde_json::{Value, json};

use super::acts::again;
use super::destinations::Row;
use super::drawing::ratio;
use super::flash::Flash;
use super::shell::Shell;
use super::show::{self, Markup, escape};
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

/// A part of time in which it was not well: the class of the drawing, and from when to when.
type Span = (&'static str, Timestamp, Timestamp);

/// When it was open, blocked and paused, by its history, the newest event first.
fn spans(history: &[DestinationEventView], since: Timestamp, now: Timestamp) -> Vec<Span> {
    let mut spans = vec![];
    // What was before the first event that is kept: a probe is only sent while it is open.
    let first = history.last().map(|event| event.event);
    let mut open = matches!(first, Some("probed" | "closed")).then_some(since);
    let mut blocked = matches!(first, Some("unblocked")).then_some(since);
    for event in history.iter().rev() {
        match event.event {
            "opened" => open = open.or(Some(event.at)),
            "closed" | "reset" => spans.extend(open.take().map(|from| ("f", from, event.at))),
            "blocked" => blocked = Some(event.at),
            "unblocked" => spans.extend(blocked.take().map(|from| ("p", from, event.at))),
            "paused" => spans.extend(event.until.map(|until| ("q", event.at, until.min(now)))),
            _ => {}
        }
    }
    spans.extend(open.map(|from| ("f", from, now)));
    spans.extend(blocked.map(|from| ("p", from, now)));
    spans.retain(|(_, _, until)| *until > since);
    spans
}

/// The last 24 hours as a strip.
fn strip(history: &[DestinationEventView], now: Timestamp) -> Markup {
    let since = now.earlier(DRAWN);
    let spans = spans(history, since, now);
    let label = match spans.len() {
        0 => "In the last 24 hours it was never open, blocked or paused.".to_owned(),
        times => {
            format!("In the last 24 hours it was open, blocked or paused {times} times; the table says when.")
        }
    };
    let label = escape(&label);
    let mut svg = format!(
        "<svg class=\"sc\" height=\"30\" role=\"img\" aria-label=\"{label}\"><title>{label}</title><rect class=\"g\" width=\"100%\" height=\"12\" opacity=\".3\"/>"
    );
    for (class, from, until) in spans {
        let place = |at: Timestamp| ratio(micros(at.since(since)), micros(DRAWN)) * 100.0;
        // What is there is seen, however short it was.
        let width = (place(until) - place(from)).max(0.2);
        svg.push_str(&format!(
            "<rect class=\"{class}\" x=\"{:.2}%\" width=\"{width:.2}%\" height=\"12\"/>",
            place(from).min(99.8)
        ));
    }
    svg.push_str(
        "<text x=\"0\" y=\"26\">24 h ago</text><text class=\"e\" x=\"100%\" y=\"26\">now</text></svg>",
    );
    Markup(svg)
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
    let row = Row { one: found.destination };
    let shell = Shell::of(&api, &visitor, &row.one.name, "/destinations").await;
    let may = May {
        limit: visitor.may("putDestination"),
        block: !row.is_blocked() && visitor.may("blockDestination"),
        unblock: row.is_blocked() && visitor.may("unblockDestination"),
        reset: (row.is_open() || row.one.paused_until.is_some() || row.one.failures > 0)
            && visitor.may("resetDestination"),
    };
    let strip = strip(&found.history, shell.now);
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

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(1_794_000_000_000 + minutes * 60_000)
    }

    fn event(event: &'static str, minute: i64) -> DestinationEventView {
        DestinationEventView { at: at(minute), event, by: None, until: Some(at(minute + 1)) }
    }

    #[test]
    fn the_history_says_when_it_was_open_blocked_and_paused() {
        let newest_first = |mut events: Vec<DestinationEventView>| {
            events.reverse();
            spans(&events, at(0), at(100))
        };
        let kinds = ["opened", "probed", "opened", "probed", "closed"];
        let events = kinds.into_iter().zip([10, 11, 12, 14, 15]).map(|(kind, at)| event(kind, at)).collect();
        assert_eq!(newest_first(events), [("f", at(10), at(15))]);
        assert_eq!(newest_first(vec![event("probed", 5), event("closed", 6)]), [("f", at(0), at(6))]);
        assert_eq!(newest_first(vec![event("opened", 90)]), [("f", at(90), at(100))]);
        assert_eq!(newest_first(vec![event("blocked", 20), event("unblocked", 30)]), [("p", at(20), at(30))]);
        assert_eq!(newest_first(vec![event("paused", 50), event("limited", 60)]), [("q", at(50), at(51))]);
        assert_eq!(newest_first(vec![event("opened", -30), event("reset", -20)]), []);
    }

    #[test]
    fn a_number_that_is_none_is_left_to_the_api() {
        assert_eq!(
            [number(Some("5")), number(Some("0.5")), number(None)],
            [json!(5), json!(0.5), Value::Null]
        );
        assert_eq!(number(Some("fast")), json!("fast"));
    }
}
