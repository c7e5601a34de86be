//! `/notifications`: the list.

use askama::Template;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use posthaste_core::filter::List;
use posthaste_core::view::ViewList;

use super::drawing::cells;
use super::filter_bar::{FilterBar, Tab};
use super::login::see;
use super::news::News;
use super::picks::{Picks, acts_on_notifications};
use super::saved_views::SavedViews;
use super::shell::{Shell, figures};
use super::show::{self, Markup, count};
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::extract::Authenticated;
use crate::http::notifications;
use crate::http::page::Page;
use crate::http::problem::{Kind, Problem, Result};
use crate::http::query::Query;
use crate::http::views::NotificationView;
use posthaste_core::state::State as NotificationState;

#[derive(Template)]
#[template(path = "notifications.html")]
struct NotificationsPage {
    shell: Shell,
    bar: FilterBar,
    saved: SavedViews,
    tabs: Vec<Tab>,
    rows: Vec<NotificationView>,
    next: Option<String>,
    all_tenants: bool,
    news: Option<News>,
    picks: Option<Picks>,
}

/// What a list says of one notification.
pub(super) fn attempts_of(row: &NotificationView) -> Markup {
    // What has ended makes no more attempts.
    let most = if row.state.is_end() { row.attempts_made } else { row.max_attempts };
    cells(row.attempts_made, most, row.state == NotificationState::Succeeded)
}

/// What it is called: its subject or event key, else where it goes.
pub(super) fn about(row: &NotificationView) -> &str {
    row.subject.as_deref().or(row.event_key.as_deref()).unwrap_or(row.channel.name())
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let mut bar = FilterBar::of(&visitor, "notifications list", List::Notifications.parameters());
    if let Some(address) = bar.typed() {
        return Ok(see(&address));
    }
    let news = News::from_now(&api, &visitor, List::Notifications).await;
    let listed = match Query::parse("/v1/notifications", &visitor.query) {
        Ok(query) => {
            notifications::list(State(api.clone()), Authenticated(visitor.caller.clone()), query).await
        }
        Err(problem) => Err(problem),
    };
    let (status, listed) = at_its_place(listed, &mut bar)?;
    let stats = figures(&api, &visitor).await;
    let mut tabs = vec![bar.tab("All", "status", None, &["state"])];
    for (name, value, counted) in [
        ("Queued", "queued", stats.as_ref().map(|stats| stats.total.queued)),
        ("Sending", "sending", stats.as_ref().map(|stats| stats.total.sending)),
        ("Retrying", "retrying", stats.as_ref().map(|stats| stats.total.in_retry)),
        ("Delivered", "delivered", None),
        ("Failed", "failed", None),
        ("Cancelled", "cancelled", None),
        ("Expired", "expired", None),
    ] {
        tabs.push(Tab {
            count: counted.map(|number| count(&number)),
            ..bar.tab(name, "status", Some(value), &["state"])
        });
    }
    let shell = Shell::of(&api, &visitor, "Notifications", "/notifications").await;
    let next = bar.next(listed.next_cursor.as_ref());
    let all_tenants = visitor.caller.tenant.is_none();
    let last = listed.data.last().filter(|_| next.is_some()).map(|row| row.notification_id.to_string());
    let news = news.map(|news| news.up_to(last));
    let picks =
        Picks::of(&visitor, &bar, api.engine.latest(), acts_on_notifications(bar.value("status")), &[]);
    let saved = SavedViews::of(&api, &visitor, ViewList::Notifications, &bar).await;
    let page =
        NotificationsPage { shell, bar, saved, tabs, rows: listed.data, next, all_tenants, news, picks };
    Ok(page.shell.answer_with(status, &page))
}

/// A mistake in the filter is shown at the filter, and the list is empty. Any other problem is the page's.
pub(super) fn at_its_place<T>(
    listed: Result<Json<Page<T>>>,
    bar: &mut FilterBar,
) -> Result<(StatusCode, Page<T>)> {
    match listed {
        Ok(Json(page)) => Ok((StatusCode::OK, page)),
        Err(problem) if is_mistake(&problem) => {
            let (status, ..) = problem.kind.shown();
            bar.problem = Some(problem.detail);
            Ok((status, Page::whole(vec![])))
        }
        Err(problem) => Err(problem),
    }
}

fn is_mistake(problem: &Problem) -> bool {
    matches!(problem.kind, Kind::Invalid | Kind::BadCursor)
}
