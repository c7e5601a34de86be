//! `/destinations`: what can be down as a whole, how it stands, and when it is tried again.

use askama::Template;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use posthaste_core::filter::time;
use posthaste_core::time::Timestamp;
use url::form_urlencoded::byte_serialize;

use super::downtime::Downtime;
use super::filter_bar::{FilterBar, Tab};
use super::login::see;
use super::notifications::at_its_place;
use super::shell::Shell;
use super::show::{self, Markup, count, counted};
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::destinations;
use crate::http::extract::Authenticated;
use crate::http::page::Page;
use crate::http::problem::Result;
use crate::http::query::Query;
use crate::http::views::{DestinationRow, DestinationView};

#[derive(Template)]
#[template(path = "destinations.html")]
struct DestinationsPage {
    shell: Shell,
    bar: FilterBar,
    which: Vec<Tab>,
    say: String,
    rows: Vec<Row>,
    history: History,
    next: Option<String>,
    all_tenants: bool,
    may_act: bool,
}

/// The part of time in which histories are shown.
struct History {
    since: Timestamp,
    /// Whether the visitor chose it.
    is_asked: bool,
}

impl History {
    const BY_DEFAULT: &str = "12h";

    fn asked(bar: &FilterBar, now: Timestamp) -> Self {
        let asked = bar.value("history");
        let since = time(asked.unwrap_or(Self::BY_DEFAULT), now);
        // What is no time is refused with the rest of the query.
        Self { since: since.unwrap_or(now), is_asked: asked.is_some() }
    }

    /// The query of a page as that of the API.
    fn added_to(&self, query: &str) -> String {
        match (self.is_asked, query) {
            (true, _) => query.to_owned(),
            (false, "") => format!("history={}", Self::BY_DEFAULT),
            (false, _) => format!("{query}&history={}", Self::BY_DEFAULT),
        }
    }

    fn shown(&self, row: DestinationRow, now: Timestamp) -> Row {
        let DestinationRow { destination: one, history } = row;
        let downtime = Downtime::of(&one, &history.unwrap_or_default(), self.since, now);
        Row { strip: downtime.drawn(12, &downtime.said(), ""), one }
    }
}

/// A destination as it is shown.
pub(super) struct Row {
    pub(super) one: DestinationView,
    /// When it was down, drawn, where a page shows it.
    pub(super) strip: Markup,
}

impl Row {
    pub(super) const fn of(one: DestinationView) -> Self {
        Self { one, strip: Markup(String::new()) }
    }

    pub(super) const fn is_blocked(&self) -> bool {
        self.one.blocked_by.is_some()
    }

    /// Whether nothing but probes is sent, by itself.
    pub(super) fn is_open(&self) -> bool {
        !self.is_blocked() && self.one.state != "closed"
    }

    /// The state whose shape it has.
    pub(super) fn shape(&self) -> &'static str {
        match (self.is_blocked(), self.one.state) {
            (true, _) => "blocked",
            (false, "closed") if self.one.paused_until.is_some() => "retryScheduled",
            (false, "closed") if self.one.failures > 0 => "pending",
            (false, state) => state,
        }
    }

    /// The state in words.
    pub(super) fn words(&self) -> &'static str {
        match (self.is_blocked(), self.one.state) {
            (true, _) => "Blocked by a person",
            (false, "halfOpen") => "Probing",
            (false, "open") => "Open",
            _ if self.one.paused_until.is_some() => "Paused",
            _ if self.one.ramping => "Closed, ramping",
            _ if self.one.failures > 0 => "Failing",
            _ => "Closed",
        }
    }

    /// What kind it is, whose, and what may be sent.
    pub(super) fn about(&self) -> String {
        let whose = self.one.tenant.as_ref().map_or_else(|| "all tenants".to_owned(), ToString::to_string);
        let rate = self.one.rate.map(|rate| format!("{rate} a second"));
        let most = self.one.concurrency.map(|most| format!("{} at once", count(&most.into())));
        let limits: Vec<String> = rate.into_iter().chain(most).collect();
        let limits = if limits.is_empty() { "no limit".to_owned() } else { limits.join(", ") };
        format!("{}, {whose}; {limits}", self.one.kind)
    }

    /// What was said last; a block counts more than an error.
    pub(super) fn said(&self) -> String {
        match (&self.one.block_reason, &self.one.last_error, self.one.last_status_code) {
            (Some(reason), _, _) if self.is_blocked() => format!("“{reason}”"),
            (_, Some(error), _) => error.clone(),
            (_, None, Some(code)) => code.to_string(),
            _ => String::new(),
        }
    }

    /// How long it has failed, or what ends it.
    pub(super) fn since(&self) -> String {
        if self.is_blocked() {
            return "does not lapse; unblock it to send".to_owned();
        }
        match u64::from(self.one.failures) {
            0 => String::new(),
            failures => format!("{} in a row", counted(failures, "failed attempt", "failed attempts")),
        }
    }

    /// What waits for it.
    pub(super) fn waits(&self) -> String {
        match self.one.parked {
            0 => "Nothing waits for it.".to_owned(),
            parked => format!(
                "{} for it and spend no attempt.",
                counted(parked, "notification waits", "notifications wait")
            ),
        }
    }

    /// Its notifications as a filter. Those of a provider have no destination of their own.
    pub(super) fn notifications(&self) -> Option<String> {
        let name = || byte_serialize(self.one.name.as_bytes()).collect::<String>();
        (self.one.kind != "provider").then(|| format!("/notifications?destination={}", name()))
    }
}

/// Destinations of a query.
async fn listed(api: &Shared, visitor: &Visitor, query: &str) -> Result<Json<Page<DestinationRow>>> {
    let query = Query::parse("/v1/destinations", query)?;
    destinations::list(State(api.clone()), Authenticated(visitor.caller.clone()), query).await
}

/// Those of the first page of what is unhealthy to which nothing but probes is sent; none where they cannot be read.
pub(super) async fn down(api: &Shared, visitor: &Visitor) -> Vec<Row> {
    if !visitor.may("listDestinations") {
        return vec![];
    }
    let found = listed(api, visitor, "limit=100").await.map(|Json(page)| page.data).unwrap_or_default();
    found.into_iter().map(|row| Row::of(row.destination)).filter(Row::is_open).collect()
}

/// The page in a sentence.
fn say(rows: &[Row], is_whole: bool) -> String {
    let number = |holds: fn(&Row) -> bool| rows.iter().filter(|row| holds(row)).count();
    let parts = [
        (number(|row| row.words() == "Open"), "open"),
        (number(|row| row.words() == "Probing"), "probing"),
        (number(Row::is_blocked), "blocked by a person"),
        (number(|row| row.words() == "Paused"), "paused"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    let whole = if is_whole { "" } else { "On this page: " };
    if parts.is_empty() {
        return format!("{whole}Nothing is open, blocked or paused.");
    }
    let parked: u64 = rows.iter().map(|row| row.one.parked).sum();
    let parked = match parked {
        0 => String::new(),
        parked => format!(
            " {} parked and spend no attempt.",
            counted(parked, "notification is", "notifications are")
        ),
    };
    format!("{whole}{}.{parked}", parts.join(", "))
}

/// Open first, then probing, blocked and the rest.
fn worst_first(rows: &mut [Row]) {
    rows.sort_by_key(|row| match row.words() {
        "Open" => 0,
        "Probing" => 1,
        "Blocked by a person" => 2,
        "Paused" => 3,
        "Failing" => 4,
        "Closed, ramping" => 5,
        _ => 6,
    });
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let known = ["name", "all", "tenant", "history"];
    let mut bar = FilterBar::of(&visitor, "destinations list", known.into_iter());
    if let Some(address) = bar.typed() {
        return Ok(see(&address));
    }
    let history = History::asked(&bar, api.engine.now());
    let query = history.added_to(&visitor.query);
    let (status, listed) = at_its_place(listed(&api, &visitor, &query).await, &mut bar)?;
    let shell = Shell::of(&api, &visitor, "Destinations", "/destinations").await;
    let which = vec![
        bar.tab("Unhealthy, limited, blocked", "all", None, &["name"]),
        bar.tab("All that are known", "all", Some("true"), &["name"]),
    ];
    let next = bar.next(listed.next_cursor.as_ref());
    let mut rows: Vec<Row> = listed.data.into_iter().map(|row| history.shown(row, shell.now)).collect();
    worst_first(&mut rows);
    let say = say(&rows, next.is_none() && bar.first().is_none());
    let (all_tenants, may_act) = (visitor.caller.tenant.is_none(), visitor.may("blockDestination"));
    let page = DestinationsPage { shell, bar, which, say, rows, history, next, all_tenants, may_act };
    Ok(page.shell.answer_with(status, &page))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(state: &'static str, blocked: bool, parked: u64) -> Row {
        let at = Timestamp::from_millis(1_794_883_570_000);
        let one = DestinationView {
            id: posthaste_core::destination::DestinationId::from_bytes([1; 16]),
            kind: "webhook",
            name: "https://a:443".to_owned(),
            tenant: None,
            rate: Some(50.0),
            concurrency: None,
            paused_until: None,
            state,
            label: "",
            failures: 10,
            first_failure_at: Some(at),
            last_failure_at: Some(at),
            blocked_at: Some(at),
            blocked_until: Some(at),
            blocked_by: blocked.then(|| "dana".to_owned()),
            block_reason: None,
            ramping: false,
            last_status_code: Some(503),
            last_error: None,
            parked,
        };
        Row::of(one)
    }

    #[test]
    fn the_sentence_counts_by_state_and_a_block_counts_more_than_the_breaker() {
        let rows = [row("open", false, 3), row("open", true, 4), row("halfOpen", false, 0)];
        let said =
            "1 open, 1 probing, 1 blocked by a person. 7 notifications are parked and spend no attempt.";
        assert_eq!(say(&rows, true), said);
        assert_eq!(say(&[], true), "Nothing is open, blocked or paused.");
        assert!(say(&rows, false).starts_with("On this page: 1 open"));
        let mut rows = rows;
        worst_first(&mut rows);
        assert_eq!(rows.map(|row| row.words()), ["Open", "Probing", "Blocked by a person"]);
    }

    #[test]
    fn a_row_says_what_and_whose_it_is_and_what_was_said_last() {
        let one = row("open", false, 0);
        assert_eq!(one.about(), "webhook, all tenants; 50 a second");
        assert_eq!((one.said().as_str(), one.since().as_str()), ("503", "10 failed attempts in a row"));
        assert_eq!(one.notifications().unwrap(), "/notifications?destination=https%3A%2F%2Fa%3A443");
    }
}
