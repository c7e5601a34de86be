//! "12 new, show": what came since a list was made, as the stream tells it.

use posthaste_core::filter::{Filter, LetterStatus, List};
use posthaste_core::state::State as NotificationState;
use posthaste_core::time::Timestamp;

use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::query::Query;
use crate::http::stream;

/// What the script listens to.
pub(super) struct News {
    /// The address of the stream. It begins where the page was made.
    pub(super) stream: String,
    /// The field of a change that names a row.
    pub(super) names: &'static str,
    /// The last row, if the list goes on after it: what would stand behind it is not new on this page.
    pub(super) last: Option<String>,
    /// Whether other nodes have news that the stream of this one does not tell.
    pub(super) in_part: bool,
}

impl News {
    /// The news of a list from now on. None on a later page, and where changes do not say what the list shows.
    pub(super) async fn from_now(api: &Shared, visitor: &Visitor, list: List) -> Option<Self> {
        let mut query = Query::parse(&visitor.path, &visitor.query).ok()?;
        if query.take("cursor").is_some() || !visitor.may("stream") {
            return None;
        }
        let now = api.engine.now();
        let filter = changes(list, query.filter(list, now).ok()?, now)?;
        let place = stream::place(api, &visitor.caller, filter).await.ok()?;
        Some(Self {
            stream: format!("/v1/stream?{}", place.query),
            names: if list == List::DeadLetters { "deadLetterId" } else { "notificationId" },
            last: None,
            in_part: place.is_one_of_several,
        })
    }

    /// The attempts over the channels of a destination from now on. Its receiver may get more than that: quick tries, and what others send.
    pub(super) async fn of_attempts(api: &Shared, visitor: &Visitor, destination: &str) -> Option<Self> {
        let filter = Filter {
            states: vec![NotificationState::Processing, NotificationState::Retrying],
            destinations: vec![destination.to_owned()],
            ..Filter::default()
        };
        let place = stream::place(api, &visitor.caller, filter).await.ok()?;
        let stream = format!("/v1/stream?{}", place.query);
        Some(Self { stream, names: "at", last: None, in_part: true })
    }

    /// The same, of a page whose last row is this one, and after which there are more. Rows come in the order of their ids.
    pub(super) fn up_to(self, last: Option<String>) -> Self {
        Self { last, ..self }
    }
}

/// Which changes bring a row into a list.
fn changes(list: List, filter: Filter, now: Timestamp) -> Option<Filter> {
    match list {
        List::Notifications => Some(filter),
        // What is under way with a retry was in the queue before.
        List::RetryQueue => Some(Filter { states: vec![NotificationState::RetryScheduled], ..filter }),
        List::DeadLetters => {
            let is_known = filter.statuses == [LetterStatus::Pending] && filter.group.is_none();
            // Both times are those of the death, which is now.
            let is_now =
                filter.until.is_none_or(|until| now < until) && filter.since.is_none_or(|since| since <= now);
            (is_known && is_now).then(|| Filter {
                statuses: vec![],
                states: vec![NotificationState::DeadLetter],
                since: None,
                until: None,
                ..filter
            })
        }
        List::Failed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_hears_of_what_comes_into_it_and_is_silent_where_changes_do_not_say_that() {
        use List::{DeadLetters, Notifications, RetryQueue};
        let now = Timestamp::from_millis(1_794_883_570_000);
        for (list, given, wanted) in [
            (Notifications, vec![("channel", "email")], Some("channel=email")),
            (Notifications, vec![("status", "queued")], Some("state=pending")),
            (RetryQueue, vec![("q", "a b")], Some("state=retryScheduled&q=a%20b")),
            (DeadLetters, vec![("statusCode", "503")], Some("state=deadLetter&statusCode=503")),
            (DeadLetters, vec![("since", "1h")], Some("state=deadLetter")),
            (DeadLetters, vec![("until", "1h")], None),
            (DeadLetters, vec![("since", "2099-01-01")], None),
            (DeadLetters, vec![("status", "discarded")], None),
            (DeadLetters, vec![("group", "grp_00000000000000000000000000")], None),
        ] {
            let filter = Filter::parse(list, given.clone(), now).unwrap();
            let query = changes(list, filter, now).map(|filter| filter.query_string(Notifications));
            assert_eq!(query.as_deref(), wanted, "{list:?} {given:?}");
        }
    }
}
