//! Rows that are ticked, or all that match: the form below a list that leads to the page for a new operation.

use posthaste_core::operation::Action;
use posthaste_core::time::Timestamp;
use url::form_urlencoded::Serializer;

use super::filter_bar::FilterBar;
use super::new_operation::verb;
use super::visitor::Visitor;

/// The form below a list.
pub(super) struct Picks {
    pub(super) token: String,
    /// What the list shows, and nothing that comes later.
    pub(super) filter: Vec<(String, String)>,
    /// The acts, the main one last.
    pub(super) acts: Vec<Pick>,
    /// Leads to the act on all that match, without a tick.
    pub(super) all: String,
}

/// A button.
pub(super) struct Pick {
    pub(super) action: &'static str,
    pub(super) verb: &'static str,
    pub(super) class: &'static str,
}

impl Picks {
    /// None where the visitor may not start operations, or nothing can be done with what the list shows. `also` narrows the
    /// filter to what the list is of.
    pub(super) fn of(
        visitor: &Visitor,
        bar: &FilterBar,
        now: Timestamp,
        acts: &[Action],
        also: &[(&str, &str)],
    ) -> Option<Self> {
        let main = acts.last()?;
        if !visitor.may("startRetryOperation") || bar.problem.is_some() {
            return None;
        }
        let mut filter = bar.pairs().to_vec();
        filter.extend(also.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut all = Serializer::new(String::new());
        all.append_pair("action", main.name());
        if filter.is_empty() {
            all.append_pair("all", "true");
        }
        let all = format!("/retry-operations/new?{}", all.extend_pairs(&filter).finish());
        if bar.value("until").is_none() {
            filter.push(("until".to_owned(), now.to_string()));
        }
        let pick = |action: &Action| Pick {
            action: action.name(),
            verb: verb(*action),
            class: match (action == main, *action) {
                (true, _) => "go",
                (false, Action::Discard | Action::Cancel) => "stop",
                (false, Action::Requeue | Action::Restore | Action::RetryNow) => "",
            },
        };
        Some(Self { token: visitor.token.clone(), filter, acts: acts.iter().map(pick).collect(), all })
    }

    /// The main act, for the link that needs no tick.
    pub(super) fn main(&self) -> &'static str {
        self.acts.last().map_or("", |pick| pick.verb)
    }
}

/// What can be done with dead letters of a status.
pub(super) fn acts_on_letters(status: Option<&str>) -> &'static [Action] {
    match status {
        None | Some("pending") => &[Action::Discard, Action::Requeue],
        Some("discarded") => &[Action::Restore],
        Some(_) => &[],
    }
}

/// What can be done with notifications of a status.
pub(super) fn acts_on_notifications(status: Option<&str>) -> &'static [Action] {
    match status {
        None | Some("retrying") => &[Action::Cancel, Action::RetryNow],
        Some("queued" | "sending") => &[Action::Cancel],
        Some(_) => &[],
    }
}
