//! `/retry-queue`: what waits for a retry, soonest first.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use posthaste_core::filter::List;
use posthaste_core::operation::Action;
use posthaste_core::view::ViewList;

use super::due::{Asked, Due, due};
use super::filter_bar::FilterBar;
use super::login::see;
use super::news::News;
use super::notifications::at_its_place;
use super::picks::Picks;
use super::saved_views::SavedViews;
use super::shell::Shell;
use super::show;
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::extract::Authenticated;
use crate::http::notifications;
use crate::http::problem::Result;
use crate::http::query::Query;
use crate::http::views::NotificationView;

#[derive(Template)]
#[template(path = "retry-queue.html")]
struct RetryQueuePage {
    shell: Shell,
    bar: FilterBar,
    saved: SavedViews,
    due: Option<Due>,
    rows: Vec<NotificationView>,
    next: Option<String>,
    news: Option<News>,
    all_tenants: bool,
    picks: Option<Picks>,
    may_retry: bool,
    may_cancel: bool,
}

pub(super) async fn page(State(api): State<Shared>, mut visitor: Visitor) -> Result<Response> {
    let asked = Asked::read(&visitor.query)?;
    visitor.query.clone_from(&asked.rest);
    let mut bar = FilterBar::of(&visitor, "retry-queue", List::RetryQueue.parameters());
    if let Some(address) = bar.typed() {
        return Ok(see(&address));
    }
    let news = News::from_now(&api, &visitor, List::RetryQueue).await;
    let listed = match Query::parse("/v1/retry-queue", &visitor.query) {
        Ok(query) => {
            notifications::retry_queue(State(api.clone()), Authenticated(visitor.caller.clone()), query).await
        }
        Err(problem) => Err(problem),
    };
    let (status, listed) = at_its_place(listed, &mut bar)?;
    let wants = status.is_success() && visitor.may("retryLoad");
    let due = if wants { Some(due(&api, &visitor, &asked, bar.value("tenant")).await?) } else { None };
    let shell = Shell::of(&api, &visitor, "Retry queue", "/retry-queue").await;
    // The queue is what waits for a retry or makes one: an act on all that match is no wider.
    let also = [("state", "retryScheduled,retrying")];
    let picks = Picks::of(&visitor, &bar, api.engine.latest(), &[Action::Cancel, Action::RetryNow], &also);
    let page = RetryQueuePage {
        saved: SavedViews::of(&api, &visitor, ViewList::RetryQueue, &bar).await,
        picks,
        next: bar.next(listed.next_cursor.as_ref()),
        bar,
        news,
        due,
        rows: listed.data,
        all_tenants: visitor.caller.tenant.is_none(),
        may_retry: visitor.may("retryNow"),
        may_cancel: visitor.may("cancel"),
        shell,
    };
    Ok(page.shell.answer_with(status, &page))
}
