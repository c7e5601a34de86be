//! `/sink`: what arrived at the test receiver of `posthaste dev`, and the dial that makes it fail.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use posthaste_core::id::NotificationId;
use posthaste_wire::sink::{Dial, Inbox, ReceivedRequest};

use super::acts::again;
use super::flash::Flash;
use super::news::News;
use super::shell::Shell;
use super::visitor::{Form, Visitor};
use crate::http::Shared;
use crate::http::problem::{Problem, Result};
use crate::http::query::Query;

/// The most requests on a page.
const ROWS: usize = 50;

#[derive(Template)]
#[template(path = "sink.html")]
struct SinkPage {
    shell: Shell,
    news: Option<News>,
    bar: Address,
    url: String,
    /// How it answers now, if that is not what the path says.
    dial: Option<String>,
    received: u64,
    rows: Vec<Row>,
    /// The page with the requests before these.
    next: Option<String>,
    is_later_page: bool,
}

/// Where the list is loaded again.
struct Address;

impl Address {
    fn url(&self) -> &'static str {
        "/sink"
    }
}

/// One request.
struct Row {
    one: ReceivedRequest,
    /// The page of its notification.
    page: Option<String>,
}

impl Row {
    fn of(one: ReceivedRequest) -> Self {
        let id = one.id.as_ref().filter(|id| id.parse::<NotificationId>().is_ok());
        Self { page: id.map(|id| format!("/notifications/{id}")), one }
    }

    fn answer(&self) -> String {
        self.one.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string())
    }

    fn is_success(&self) -> bool {
        self.one.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// The sink, which only `posthaste dev` has.
fn inbox(api: &Shared) -> Result<&Inbox> {
    let none = || Problem::not_found("there is no test receiver here: `posthaste dev` starts one");
    api.dashboard.inbox().ok_or_else(none)
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let inbox = inbox(&api)?;
    let mut query = Query::parse("/sink", &visitor.query)?;
    let before = query.take("before").map(|number| {
        number
            .parse::<u64>()
            .map_err(|_| Problem::parameter("before", "before must be the number of a request"))
    });
    let before = before.transpose()?;
    query.finish()?;
    let news = match before {
        None => News::of_attempts(&api, &visitor, &inbox.url("")).await,
        Some(_) => None,
    };
    let (received, all) = inbox.numbered();
    let mut rows: Vec<(u64, ReceivedRequest)> =
        all.into_iter().rev().filter(|(number, _)| before.is_none_or(|before| *number < before)).collect();
    let has_more = rows.len() > ROWS;
    rows.truncate(ROWS);
    let next = rows.last().filter(|_| has_more).map(|(number, _)| format!("/sink?before={number}"));
    let shell = Shell::of(&api, &visitor, "Sink", "/sink").await;
    let page = SinkPage {
        shell,
        news,
        bar: Address,
        url: inbox.url(""),
        dial: inbox.dial().map(|dial| dial.to_string()),
        received,
        rows: rows.into_iter().map(|(_, one)| Row::of(one)).collect(),
        next,
        is_later_page: before.is_some(),
    };
    Ok(page.shell.answer(&page))
}

/// Sets the dial.
pub(super) async fn turn(State(api): State<Shared>, form: Form) -> Result<Response> {
    let inbox = inbox(&api)?;
    let field = |name| form.fields.get(name);
    let done = match Dial::read(field("answer").unwrap_or("path"), field("delay"), field("times")) {
        Ok(dial) => {
            inbox.turn(Some(dial));
            Ok(Flash::done(format!("From now on the sink answers with {dial}.")))
        }
        Err(bad) => Err(Problem::at("/answer", bad.to_string())),
    };
    Ok(again(&form, done, "/sink"))
}

/// Turns the dial back.
pub(super) async fn reset(State(api): State<Shared>, form: Form) -> Result<Response> {
    inbox(&api)?.turn(None);
    let done = Flash::done("The sink answers again with what the path of a request says.");
    Ok(again(&form, Ok(done), "/sink"))
}

/// Forgets what arrived.
pub(super) async fn clear(State(api): State<Shared>, form: Form) -> Result<Response> {
    inbox(&api)?.clear();
    Ok(again(&form, Ok(Flash::done("The inbox is empty.")), "/sink"))
}
