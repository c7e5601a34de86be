//! `/dead-letters`: the list, with S1's columns and buttons.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::filter::List;
use posthaste_core::id::DeadLetterId;
use posthaste_core::operation::Action;
use posthaste_core::time::Timestamp;
use posthaste_core::view::ViewList;

use super::drawing::trace;
use super::failure_groups;
use super::filter_bar::{FilterBar, Tab};
use super::flash::Flash;
use super::login::see;
use super::news::News;
use super::notifications::at_its_place;
use super::picks::{Picks, acts_on_letters};
use super::saved_views::SavedViews;
use super::shell::{self, Shell, figures};
use super::show::{self, Markup, count};
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::dead_letters;
use crate::http::extract::{Authenticated, Id, NoQuery};
use crate::http::failure_groups::FailureGroupView;
use crate::http::problem::Result;
use crate::http::query::Query;
use crate::http::views::DeadLetterView;
use crate::http::views::attempt::{AttemptView, OutcomeView};

/// How many times of attempts are listed in a row.
const TIMES: usize = 5;
/// How many groups are shown above the list.
const GROUPS: usize = 3;

#[derive(Template)]
#[template(path = "dead-letters.html")]
struct DeadLettersPage {
    shell: Shell,
    bar: FilterBar,
    saved: SavedViews,
    tabs: Vec<Tab>,
    rows: Vec<Row>,
    next: Option<String>,
    news: Option<News>,
    picks: Option<Picks>,
    may_start: bool,
    /// The largest causes, where the list is of all that wait.
    groups: Vec<failure_groups::Row>,
    /// The cause that the list is of.
    group: Option<FailureGroupView>,
}

/// A dead letter, and what the visitor may do with it.
pub(super) struct Row {
    one: DeadLetterView,
    token: String,
    now: Timestamp,
    may: May,
    all_tenants: bool,
    /// What an act on it came to.
    done: Option<Flash>,
    /// Whether the list has ticks for whom it is shown, and whether this row has one.
    column: bool,
    tick: bool,
}

/// What may be done with a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct May {
    pub(super) requeue: bool,
    pub(super) discard: bool,
    pub(super) restore: bool,
    pub(super) edit: bool,
}

impl May {
    /// By the role of the visitor and the status of the dead letter.
    pub(super) fn of(visitor: &Visitor, one: &DeadLetterView) -> Self {
        let pending = one.status == DeadLetterStatus::Pending && one.deleted_at.is_none();
        let restorable = one.status == DeadLetterStatus::Cancelled || one.deleted_at.is_some();
        Self {
            requeue: pending && visitor.may("requeue"),
            discard: pending && visitor.may("discard"),
            edit: pending && visitor.may("editAndRetry"),
            restore: restorable && visitor.may("restore"),
        }
    }
}

impl Row {
    fn of(visitor: &Visitor, now: Timestamp, one: DeadLetterView) -> Self {
        let may = May::of(visitor, &one);
        let all_tenants = visitor.caller.tenant.is_none();
        let column = visitor.may("startRetryOperation");
        Self { one, token: visitor.token.clone(), now, may, all_tenants, done: None, column, tick: false }
    }

    /// The same with a tick, if an act of the list can be done with it.
    fn with_tick(self, acts: &[Action]) -> Self {
        let fits = |act: &Action| match act {
            Action::Requeue | Action::Discard => self.may.requeue,
            Action::Restore => self.may.restore,
            Action::RetryNow | Action::Cancel => false,
        };
        Self { tick: self.column && acts.iter().any(fits), ..self }
    }

    fn time(&self, at: &Timestamp) -> Markup {
        show::time(*at, self.now)
    }

    fn trace(&self) -> Markup {
        attempts_trace(&self.one.attempts)
    }

    /// When the first of its attempts began, and how many there are beyond them.
    fn times(&self) -> (Vec<Timestamp>, usize) {
        let all = self.one.attempts.iter().map(|attempt| attempt.started_at);
        (all.take(TIMES).collect(), self.one.attempts.len().saturating_sub(TIMES))
    }
}

/// What it is called.
pub(super) fn about(one: &DeadLetterView) -> &str {
    one.subject.as_deref().or(one.event_key.as_deref()).unwrap_or(one.channel.name())
}

/// Its failure in a few words: the code and the error of the last attempt, else the reason.
pub(super) fn failure(one: &DeadLetterView) -> &str {
    one.exception_details.as_deref().unwrap_or(&one.reason)
}

/// The status for people: "discarded" is what a filter calls it.
pub(super) const fn status_words(status: DeadLetterStatus) -> &'static str {
    match status {
        DeadLetterStatus::Pending => "Failed (moved to dead letter queue)",
        DeadLetterStatus::Requeued => "Requeued",
        DeadLetterStatus::Cancelled => "Discarded",
    }
}

pub(super) fn attempts_trace(attempts: &[AttemptView]) -> Markup {
    let marks: Vec<(i64, bool)> = attempts
        .iter()
        .map(|attempt| (attempt.started_at.as_millis(), matches!(attempt.outcome, OutcomeView::Delivered)))
        .collect();
    trace(&marks)
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let mut bar = FilterBar::of(&visitor, "dead-letters list", List::DeadLetters.parameters());
    if let Some(address) = bar.typed() {
        return Ok(see(&address));
    }
    let news = News::from_now(&api, &visitor, List::DeadLetters).await;
    let listed = match Query::parse("/v1/dead-letters", &visitor.query) {
        Ok(query) => {
            dead_letters::list(State(api.clone()), Authenticated(visitor.caller.clone()), query).await
        }
        Err(problem) => Err(problem),
    };
    let (status, listed) = at_its_place(listed, &mut bar)?;
    let pending = figures(&api, &visitor).await.map(|stats| count(&stats.total.in_dead_letter));
    let tab = |name, value| bar.tab(name, "status", value, &[]);
    let tabs = vec![
        Tab { count: pending, ..tab("Pending", None) },
        tab("Requeued", Some("requeued")),
        tab("Discarded", Some("discarded")),
        tab("Deleted", Some("deleted")),
        tab("All", Some("all")),
    ];
    let shell = Shell::of(&api, &visitor, "Dead letter queue", "/dead-letters").await;
    let next = bar.next(listed.next_cursor.as_ref());
    let last = listed.data.last().filter(|_| next.is_some()).map(|one| one.id.to_string());
    let news = news.map(|news| news.up_to(last));
    let acts = acts_on_letters(bar.value("status"));
    let row = |one| Row::of(&visitor, shell.now, one).with_tick(acts);
    let rows = listed.data.into_iter().map(row).collect();
    let picks = Picks::of(&visitor, &bar, api.engine.latest(), acts, &[]);
    let (groups, group) = causes(&api, &visitor, &bar).await;
    let may_start = visitor.may("startRetryOperation");
    let saved = SavedViews::of(&api, &visitor, ViewList::DeadLetters, &bar).await;
    let page = DeadLettersPage { shell, bar, saved, tabs, rows, next, news, picks, may_start, groups, group };
    Ok(page.shell.answer_with(status, &page))
}

/// The largest groups of what the list shows, or the group that it shows. Groups are counted for all that waits, and for a
/// tenant: with another filter there is nothing to show. The list is worth showing without them.
async fn causes(
    api: &Shared,
    visitor: &Visitor,
    bar: &FilterBar,
) -> (Vec<failure_groups::Row>, Option<FailureGroupView>) {
    let tenant = bar.value("tenant");
    if let Some(group) = bar.value("group") {
        return (vec![], failure_groups::found(api, visitor, group, tenant).await);
    }
    let is_counted =
        |(name, value): &(String, String)| name == "tenant" || (name == "status" && value == "pending");
    if bar.first().is_some() || bar.problem.is_some() || !bar.pairs().iter().all(is_counted) {
        return (vec![], None);
    }
    (failure_groups::largest(api, visitor, GROUPS, tenant).await, None)
}

#[derive(Template)]
#[template(path = "dead-letter-row.html")]
struct RowPart {
    row: Row,
}

/// One row after an act on it.
pub(super) async fn row(
    api: Shared,
    id: DeadLetterId,
    visitor: &Visitor,
    done: Result<Flash>,
) -> Result<Response> {
    let caller = Authenticated(visitor.caller.clone());
    let found = dead_letters::get(State(api.clone()), caller, NoQuery, Id(id)).await?;
    let mut row = Row::of(visitor, api.engine.now(), found.0.dead_letter);
    row.done = Some(done.unwrap_or_else(|problem| Flash::refused(&problem.detail)));
    Ok(shell::html(StatusCode::OK, &RowPart { row }))
}
