//! `/retry-operations`: what was done to many at once, newest first.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use posthaste_core::operation::{Action, OperationState};

use super::filter_bar::{FilterBar, Tab};
use super::login::see;
use super::new_operation::verb;
use super::notifications::at_its_place;
use super::shell::Shell;
use super::show::{self, counted, length};
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::extract::Authenticated;
use crate::http::problem::Result;
use crate::http::query::Query;
use crate::http::retry_operations;
use crate::http::views::OperationView;

#[derive(Template)]
#[template(path = "operations.html")]
struct OperationsPage {
    shell: Shell,
    bar: FilterBar,
    tabs: Vec<Tab>,
    rows: Vec<OperationView>,
    next: Option<String>,
    may_start: bool,
}

/// Whether the total is final.
pub(super) fn is_counted(one: &OperationView) -> bool {
    !matches!(one.state, OperationState::Waiting | OperationState::Preparing)
}

/// What it does to how many: `Requeue 200,012 dead letters`.
pub(super) fn title(one: &OperationView) -> String {
    let (single, many) = if one.action.is_about_dead_letters() {
        ("dead letter", "dead letters")
    } else {
        ("notification", "notifications")
    };
    let what = if is_counted(one) { counted(one.total, single, many) } else { many.to_owned() };
    format!("{} {what}", verb(one.action))
}

/// What it was given, as a filter is typed.
pub(super) fn selection(one: &OperationView) -> String {
    match (&one.filter, &one.group, one.all) {
        (Some(filter), ..) => {
            filter.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        }
        (None, Some(group), _) => format!("group={group}"),
        (None, None, Some(_)) => "all".to_owned(),
        (None, None, None) => "picked by hand".to_owned(),
    }
}

/// The state whose shape the badge has.
pub(super) const fn shape(one: &OperationView) -> &'static str {
    match one.state {
        OperationState::Waiting => "pending",
        OperationState::Preparing | OperationState::Forwarding => "processing",
        OperationState::Paused => "retryScheduled",
        OperationState::Completed => "succeeded",
        OperationState::Cancelled => "cancelled",
        OperationState::Failed => "failed",
    }
}

/// The state for people.
pub(super) fn state_words(one: &OperationView) -> String {
    match (one.state, one.paused_by.as_deref(), one.stopped_by.as_deref()) {
        (OperationState::Paused, Some(by), _) => format!("paused by {by}"),
        (OperationState::Cancelled, _, Some("canary")) => "stopped by its canary".to_owned(),
        (state, ..) => state.name().to_owned(),
    }
}

/// What became of the items that were forwarded.
pub(super) const fn done_words(action: Action) -> &'static str {
    match action {
        Action::Requeue => "on their way",
        Action::Discard => "discarded",
        Action::Restore => "restored",
        Action::RetryNow => "made due",
        Action::Cancel => "cancelled",
    }
}

pub(super) fn took(one: &OperationView) -> String {
    one.finished_at.map_or_else(|| "running".to_owned(), |ended| length(&ended.since(one.started_at)))
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let mut bar = FilterBar::of(&visitor, "retry-operations list", ["unfinished"].into_iter());
    if let Some(address) = bar.typed() {
        return Ok(see(&address));
    }
    let listed = match Query::parse("/v1/retry-operations", &visitor.query) {
        Ok(query) => {
            retry_operations::list(State(api.clone()), Authenticated(visitor.caller.clone()), query).await
        }
        Err(problem) => Err(problem),
    };
    let (status, listed) = at_its_place(listed, &mut bar)?;
    let tab = |name, value| bar.tab(name, "unfinished", value, &[]);
    let tabs = vec![tab("All", None), tab("Running", Some("true"))];
    let shell = Shell::of(&api, &visitor, "Operations", "/retry-operations").await;
    let next = bar.next(listed.next_cursor.as_ref());
    let may_start = visitor.may("startRetryOperation");
    let page = OperationsPage { shell, bar, tabs, rows: listed.data, next, may_start };
    Ok(page.shell.answer_with(status, &page))
}
