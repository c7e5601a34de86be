//! `/stream`: changes as they happen.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use posthaste_core::filter::{Filter, List};
use posthaste_core::state::State as NotificationState;

use super::filter_bar::FilterBar;
use super::login::see;
use super::notifications::at_its_place;
use super::shell::Shell;
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::problem::Result;
use crate::http::query::Query;
use crate::http::stream::{self, Place};

#[derive(Template)]
#[template(path = "stream.html")]
struct StreamPage {
    shell: Shell,
    bar: FilterBar,
    /// What the script listens to; none where the filter is not right.
    place: Option<Place>,
    /// What each state is called, as JSON.
    words: String,
    all_tenants: bool,
}

/// The states for people. A change does not say of how many attempts.
fn words() -> String {
    let words: BTreeMap<&str, String> = NotificationState::ALL
        .map(|state| {
            let words = state.words(1, 1);
            (state.name(), words.split_once(" (attempt").map_or(words.as_str(), |(word, _)| word).to_owned())
        })
        .into();
    serde_json::to_string(&words).expect("texts can be written as JSON")
}

fn filter(api: &Shared, visitor: &Visitor) -> Result<Filter> {
    let mut query = Query::parse("/v1/stream", &visitor.query)?;
    let filter = query.filter(List::Notifications, api.engine.now())?;
    query.finish()?;
    Ok(filter)
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let mut bar = FilterBar::of(&visitor, "tail", List::Notifications.parameters());
    if let Some(address) = bar.typed() {
        return Ok(see(&address));
    }
    let place = match filter(&api, &visitor) {
        Ok(filter) => stream::place(&api, &visitor.caller, filter).await,
        Err(problem) => Err(problem),
    };
    let (status, place) = match place {
        Ok(place) => (StatusCode::OK, Some(place)),
        Err(problem) => (at_its_place::<()>(Err(problem), &mut bar)?.0, None),
    };
    let shell = Shell::of(&api, &visitor, "Live tail", "/stream").await;
    let all_tenants = visitor.caller.tenant.is_none();
    let page = StreamPage { shell, bar, place, words: words(), all_tenants };
    Ok(page.shell.answer_with(status, &page))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_state_is_called_as_everywhere_but_without_a_number() {
        let words: serde_json::Value = serde_json::from_str(&super::words()).unwrap();
        assert_eq!(words["retryScheduled"], "Retrying");
        assert_eq!(words["deadLetter"], "Failed (moved to dead letter queue)");
        assert_eq!(words.as_object().unwrap().len(), 9);
    }
}
