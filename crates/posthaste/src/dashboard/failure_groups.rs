//! `/failure-groups`: how many causes there are, the largest first. One group has a page of its own, with its note.

use askama::Template;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use posthaste_core::failure::FailureType;
use posthaste_core::group::GroupId;
use posthaste_core::view::ViewList;
use serde_json::json;
use url::form_urlencoded::Serializer;

use super::acts::again;
use super::drawing::{bar, hours, share};
use super::filter_bar::{FilterBar, Tab};
use super::flash::Flash;
use super::login::see;
use super::notifications::at_its_place;
use super::saved_views::SavedViews;
use super::shell::Shell;
use super::show::{self, Markup, count, counted, percent};
use super::visitor::{Form, Visitor};
use crate::http::Shared;
use crate::http::body::Text;
use crate::http::extract::{ActorOf, Authenticated, Id, NoQuery};
use crate::http::failure_groups::{self, FailureGroupView};
use crate::http::page::Page;
use crate::http::problem::Result;
use crate::http::query::Query;
use crate::http::stats;

#[derive(Template)]
#[template(path = "failure-groups.html")]
struct GroupsPage {
    shell: Shell,
    bar: FilterBar,
    saved: SavedViews,
    kinds: Vec<Tab>,
    say: Say,
    rows: Vec<Row>,
    next: Option<String>,
    all_tenants: bool,
    may: May,
}

#[derive(Template)]
#[template(path = "failure-group.html")]
struct GroupPage {
    shell: Shell,
    row: Row,
    may: May,
}

/// What the visitor may do with a group.
#[derive(Clone, Copy)]
struct May {
    note: bool,
    start: bool,
}

/// What a person would say of the list.
struct Say {
    first: String,
    second: String,
}

/// A group as it is shown.
pub(super) struct Row {
    pub(super) one: FailureGroupView,
    /// Its part of all pending dead letters.
    part: f64,
    /// The parameters that select it, for lists and operations. The group `other` has none.
    pub(super) query: Option<String>,
}

impl Row {
    fn of(one: FailureGroupView, dead: u64, tenant: Option<&str>) -> Self {
        let part = share(one.count, dead.max(one.count));
        let query = (!one.id.is_other()).then(|| of_tenant(&format!("group={}", one.id), tenant));
        Self { one, part, query }
    }

    pub(super) fn percent(&self) -> String {
        percent(&self.part)
    }

    /// How the newest of it failed, in words.
    fn failure(&self) -> String {
        let parts = [
            self.one.failure_type.map(|failure: FailureType| failure.name().to_owned()),
            self.one.status_code.map(|code| code.to_string()),
            self.one.reason_code.map(|reason| reason.words().to_owned()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Its part as a bar.
    pub(super) fn bar(&self) -> Markup {
        bar("", &self.percent(), &[("f", self.part)])
    }

    fn trend(&self) -> Markup {
        hours(&self.one.hours)
    }

    /// How many died since the beginning of the hour before the current one.
    pub(super) fn grown(&self) -> u64 {
        self.one.hours.iter().rev().take(2).sum()
    }

    /// How it grows, if it does.
    fn growth(&self) -> Option<String> {
        let grown = self.grown();
        (grown > 0).then(|| format!("Growing: {} in this hour and the one before", count(&grown)))
    }
}

impl May {
    fn of(visitor: &Visitor) -> Self {
        Self { note: visitor.may("putFailureGroupNote"), start: visitor.may("startRetryOperation") }
    }
}

/// Pending dead letters of a tenant, or of all that the visitor sees.
async fn dead(api: &Shared, visitor: &Visitor, tenant: Option<&str>) -> Result<u64> {
    let query = Query::parse("/v1/stats", &of_tenant("", tenant))?;
    let stats = stats::get(State(api.clone()), Authenticated(visitor.caller.clone()), query).await?;
    Ok(stats.0.total.in_dead_letter)
}

/// The groups of a query.
async fn groups(api: &Shared, visitor: &Visitor, query: &str) -> Result<Json<Page<FailureGroupView>>> {
    let query = Query::parse("/v1/failure-groups", query)?;
    failure_groups::list(State(api.clone()), Authenticated(visitor.caller.clone()), query).await
}

fn of_tenant(query: &str, tenant: Option<&str>) -> String {
    let mut query = Serializer::new(query.to_owned());
    if let Some(tenant) = tenant {
        query.append_pair("tenant", tenant);
    }
    query.finish()
}

/// The largest groups by fingerprint; none where they cannot be read.
pub(super) async fn largest(api: &Shared, visitor: &Visitor, most: usize, tenant: Option<&str>) -> Vec<Row> {
    let query = of_tenant(&format!("limit={most}"), tenant);
    match groups(api, visitor, &query).await {
        Ok(Json(page)) => rows(api, visitor, page.data, tenant).await.unwrap_or_default(),
        Err(_) => vec![],
    }
}

/// A group, if there is one and it can be read.
pub(super) async fn found(
    api: &Shared,
    visitor: &Visitor,
    id: &str,
    tenant: Option<&str>,
) -> Option<FailureGroupView> {
    let query = Query::parse("/v1/failure-groups", &of_tenant("", tenant)).ok()?;
    let caller = Authenticated(visitor.caller.clone());
    let found = failure_groups::get(State(api.clone()), caller, query, Id(id.parse().ok()?)).await;
    found.ok().map(|Json(group)| group)
}

/// Groups as rows of a page.
async fn rows(
    api: &Shared,
    visitor: &Visitor,
    groups: Vec<FailureGroupView>,
    tenant: Option<&str>,
) -> Result<Vec<Row>> {
    if groups.is_empty() {
        return Ok(vec![]);
    }
    let dead = dead(api, visitor, tenant).await?;
    Ok(groups.into_iter().map(|one| Row::of(one, dead, tenant)).collect())
}

fn say(rows: &[Row], is_all: bool) -> Say {
    let held: u64 = rows.iter().map(|row| row.one.count).sum();
    let number = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    let letters = counted(held, "dead letter", "dead letters");
    let first = match (number, is_all) {
        (0, _) => "No failure groups: no dead letter waits.".to_owned(),
        (1, true) => format!("1 group holds {letters}."),
        (_, true) => format!("{} groups hold {letters}.", count(&number)),
        (_, false) => format!("These {} groups hold {letters}.", count(&number)),
    };
    let growing = rows.iter().filter(|row| row.grown() > 0).max_by_key(|row| row.grown());
    let second = match growing {
        _ if rows.is_empty() => String::new(),
        None => "None of them has grown in this hour or the one before.".to_owned(),
        Some(row) => format!(
            "Growing fastest: {}, {} in this hour and the one before.",
            row.one.title,
            counted(row.grown(), "death", "deaths")
        ),
    };
    Say { first, second }
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let mut bar = FilterBar::of(&visitor, "failure-groups list", ["by", "tenant"].into_iter());
    if let Some(address) = bar.typed() {
        return Ok(see(&address));
    }
    let (status, listed) = at_its_place(groups(&api, &visitor, &visitor.query).await, &mut bar)?;
    let shell = Shell::of(&api, &visitor, "Failure groups", "/failure-groups").await;
    let kind = |name, value| bar.tab(name, "by", value, &[]);
    let kinds = vec![
        kind("Fingerprint", None),
        kind("Destination", Some("destination")),
        kind("Template", Some("template")),
        kind("Channel", Some("channel")),
        kind("Tenant", Some("tenant")),
    ];
    let next = bar.next(listed.next_cursor.as_ref());
    let tenant = bar.value("tenant").map(str::to_owned);
    let rows = rows(&api, &visitor, listed.data, tenant.as_deref()).await?;
    let say = say(&rows, next.is_none() && bar.first().is_none());
    let all_tenants = visitor.caller.tenant.is_none();
    let saved = SavedViews::of(&api, &visitor, ViewList::FailureGroups, &bar).await;
    let page = GroupsPage { shell, bar, saved, kinds, say, rows, next, all_tenants, may: May::of(&visitor) };
    Ok(page.shell.answer_with(status, &page))
}

pub(super) async fn one(
    State(api): State<Shared>,
    Id(id): Id<GroupId>,
    visitor: Visitor,
) -> Result<Response> {
    let query = Query::parse("/v1/failure-groups", &visitor.query)?;
    let caller = Authenticated(visitor.caller.clone());
    let Json(found) = failure_groups::get(State(api.clone()), caller, query, Id(id)).await?;
    let tenant = FilterBar::of(&visitor, "", std::iter::empty()).value("tenant").map(str::to_owned);
    let dead = dead(&api, &visitor, tenant.as_deref()).await?;
    let shell = Shell::of(&api, &visitor, "Failure group", "/failure-groups").await;
    let row = Row::of(found, dead, tenant.as_deref());
    let page = GroupPage { shell, row, may: May::of(&visitor) };
    Ok(page.shell.answer_with(StatusCode::OK, &page))
}

pub(super) async fn put_note(State(api): State<Shared>, Id(id): Id<GroupId>, form: Form) -> Response {
    let visitor = &form.visitor;
    let text = form.fields.get("text").unwrap_or_default().replace("\r\n", "\n");
    let actor = ActorOf(visitor.actor.clone());
    let body = Text::of(&api, &visitor.caller, &json!({"text": text}));
    let done = match body {
        Ok(body) => failure_groups::put_note(State(api.clone()), actor, NoQuery, Id(id), body).await,
        Err(problem) => Err(problem),
    };
    let done = done.map(|Json(group)| {
        Flash::done(if group.note.is_some() { "The note is kept." } else { "The note is removed." })
    });
    again(&form, done, &format!("/failure-groups/{id}"))
}

#[cfg(test)]
mod tests {
    use posthaste_core::group::HOURS;
    use posthaste_core::time::Timestamp;

    use super::*;

    fn row(title: &str, count: u64, this_hour: u64) -> Row {
        let mut hours = [0; HOURS];
        hours[HOURS - 1] = this_hour;
        let at = Timestamp::from_millis(1_794_883_570_000);
        let one = FailureGroupView {
            id: GroupId::from_bytes([1; 16]),
            by: "fingerprint",
            title: title.to_owned(),
            count,
            first_seen: at,
            last_seen: at,
            hours,
            reason_code: None,
            failure_type: None,
            status_code: None,
            sample_id: posthaste_core::id::DeadLetterId::from_bytes([1; 16]),
            note: None,
        };
        Row::of(one, 200_012, Some("a"))
    }

    #[test]
    fn the_sentence_counts_causes_and_names_the_one_that_grows() {
        assert_eq!(say(&[], true).first, "No failure groups: no dead letter waits.");
        let said = say(&[row("503: no", 121_408, 0), row("429: slow", 61_220, 7)], true);
        assert_eq!(said.first, "2 groups hold 182,628 dead letters.");
        assert_eq!(said.second, "Growing fastest: 429: slow, 7 deaths in this hour and the one before.");
        let still = say(&[row("503: no", 1, 0)], true);
        assert_eq!(still.first, "1 group holds 1 dead letter.");
        assert!(still.second.starts_with("None of them has grown"));
        assert!(say(&[row("503: no", 1, 0)], false).first.starts_with("These 1 groups"));
    }

    #[test]
    fn a_group_is_selected_with_its_tenant_and_the_rest_not_at_all() {
        let row = row("x", 100_006, 0);
        assert_eq!(row.query.as_deref().unwrap(), format!("group={}&tenant=a", row.one.id));
        assert_eq!(row.percent(), "50.0 %");
        let mut other = row.one;
        other.id = GroupId::other(posthaste_core::group::GroupBy::Fingerprint);
        assert_eq!(Row::of(other, 1, None).query, None);
    }
}
