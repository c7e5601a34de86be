//! `/dead-letters/{id}`: one dead letter with its attempts and its payload.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::time::Timestamp;

use super::dead_letters::{May, status_words};
use super::notification::payload;
use super::shell::Shell;
use super::show::{self, Markup};
use super::story::{Step, steps};
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::dead_letters;
use crate::http::extract::{Authenticated, Id, NoQuery};
use crate::http::problem::Result;
use crate::http::views::{DeadLetterDetail, DeadLetterView, ParkedView};

#[derive(Template)]
#[template(path = "dead-letter.html")]
struct DeadLetterPage {
    shell: Shell,
    one: DeadLetterView,
    may: May,
    words: &'static str,
    /// The state whose shape the badge has.
    state: &'static str,
    story: Vec<Step>,
    /// Nothing: it has ended.
    parked: Option<ParkedView>,
    accepted: Option<Timestamp>,
    payload: Markup,
    headers: Vec<(String, String)>,
    html: Option<String>,
    metadata: Option<Markup>,
    /// The edited copy that was sent in its place.
    replaced_by: Option<NotificationId>,
}

pub(super) async fn page(
    State(api): State<Shared>,
    Id(id): Id<DeadLetterId>,
    visitor: Visitor,
) -> Result<Response> {
    let caller = Authenticated(visitor.caller.clone());
    let found = dead_letters::get(State(api.clone()), caller, NoQuery, Id(id)).await?;
    let DeadLetterDetail { dead_letter: one, payload: kept, replaced_by } = found.0;
    let shell =
        Shell::of(&api, &visitor, &format!("Dead letter to {}", one.recipient), "/dead-letters").await;
    let state = match one.status {
        posthaste_core::dead_letter::DeadLetterStatus::Pending => "deadLetter",
        posthaste_core::dead_letter::DeadLetterStatus::Requeued => "pending",
        posthaste_core::dead_letter::DeadLetterStatus::Cancelled => "failed",
    };
    let page = DeadLetterPage {
        may: May::of(&visitor, &one),
        words: status_words(one.status),
        state,
        story: steps(&one.attempts, &[], None, None),
        parked: None,
        accepted: None,
        payload: payload(&kept.body),
        headers: kept.headers.into_iter().collect(),
        html: kept.html,
        metadata: kept.metadata.as_deref().map(payload),
        replaced_by,
        one,
        shell,
    };
    Ok(page.shell.answer(&page))
}
