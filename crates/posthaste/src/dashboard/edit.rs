//! `/dead-letters/{id}/edit-and-retry`: a copy with another address or payload is sent in place of a dead letter.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use http::header::SET_COOKIE;
use http_body_util::BodyExt as _;
use posthaste_core::id::DeadLetterId;
use serde_json::{Map, Value, json};

use super::flash::Flash;
use super::login::see;
use super::shell::Shell;
use super::visitor::{Fields, Form, Visitor};
use crate::http::Shared;
use crate::http::body::Text;
use crate::http::extract::{ActorOf, Authenticated, Id, IdempotencyKey, NoQuery};
use crate::http::problem::{Kind, Problem, Result};
use crate::http::views::DeadLetterDetail;
use crate::http::{dead_letters, edit};

/// The longest payload that a form can hold.
const LONGEST_BODY: usize = 16 * 1024;
/// The most bytes of the answer of the API.
const LONGEST_ANSWER: usize = 32 * 1024;

#[derive(Template)]
#[template(path = "edit.html")]
struct EditPage {
    shell: Shell,
    id: DeadLetterId,
    to: String,
    subject: String,
    /// None if it is too long to be edited here.
    body: Option<String>,
    expires: String,
    problem: Option<Problem>,
}

/// A payload as it is edited: a text without its quotes, JSON in lines.
fn editable(body: &str) -> Option<String> {
    if body.len() > LONGEST_BODY {
        return None;
    }
    serde_json::from_str::<String>(body).ok().or_else(|| Some(body.to_owned()))
}

/// A payload from what was typed, in the form that it had.
fn typed_body(before: &str, typed: &str) -> Result<Value> {
    if serde_json::from_str::<String>(before).is_ok() {
        return Ok(json!(typed));
    }
    serde_json::from_str(typed)
        .map_err(|error| Problem::new(Kind::BadJson, format!("the payload is not valid JSON: {error}")))
}

/// What differs from the original. What is left out stays as it was.
fn changes(found: &DeadLetterDetail, fields: &Fields) -> Result<Value> {
    let mut changes = Map::new();
    let typed = |name: &str| fields.get(name).map(|typed| typed.replace("\r\n", "\n"));
    if let Some(to) = typed("to").filter(|to| *to != found.dead_letter.recipient) {
        changes.insert("to".to_owned(), json!(to));
    }
    let subject = typed("subject");
    if subject != found.payload.subject {
        changes.insert("subject".to_owned(), json!(subject));
    }
    let before = found.payload.body.get();
    // As it was typed: a payload may be empty, or end in spaces. A browser sends each line break as two characters.
    let body = fields.raw("body").map(|typed| typed.replace("\r\n", "\n"));
    let was = editable(before).map(|was| was.replace("\r\n", "\n"));
    if let Some(body) = body.filter(|body| Some(body) != was.as_ref()) {
        changes.insert("body".to_owned(), typed_body(before, &body)?);
    }
    if let Some(expires) = typed("expiresAt") {
        changes.insert("expiresAt".to_owned(), json!(expires));
    }
    Ok(Value::Object(changes))
}

async fn found(api: &Shared, visitor: &Visitor, id: DeadLetterId) -> Result<DeadLetterDetail> {
    let caller = Authenticated(visitor.caller.clone());
    Ok(dead_letters::get(State(api.clone()), caller, NoQuery, Id(id)).await?.0)
}

impl EditPage {
    async fn of(api: &Shared, visitor: &Visitor, id: DeadLetterId, found: DeadLetterDetail) -> Self {
        Self {
            shell: Shell::of(api, visitor, "Edit and retry", "/dead-letters").await,
            id,
            to: found.dead_letter.recipient,
            subject: found.payload.subject.unwrap_or_default(),
            body: editable(found.payload.body.get()),
            expires: String::new(),
            problem: None,
        }
    }
}

pub(super) async fn page(
    State(api): State<Shared>,
    Id(id): Id<DeadLetterId>,
    visitor: Visitor,
) -> Result<Response> {
    let found = found(&api, &visitor, id).await?;
    let page = EditPage::of(&api, &visitor, id, found).await;
    Ok(page.shell.answer(&page))
}

pub(super) async fn send(
    State(api): State<Shared>,
    Id(id): Id<DeadLetterId>,
    form: Form,
) -> Result<Response> {
    let (visitor, fields) = (&form.visitor, &form.fields);
    let found = found(&api, visitor, id).await?;
    match sent(&api, visitor, id, changes(&found, fields)).await {
        Ok(copy) => {
            let mut response = see(&format!("/notifications/{copy}"));
            let flash =
                Flash::done("The edited copy is on its way. The original has failed, replaced by it.");
            response.headers_mut().append(SET_COOKIE, flash.cookie());
            Ok(response)
        }
        Err(problem) => {
            let (status, ..) = problem.kind.shown();
            let text = |name: &str| fields.raw(name).unwrap_or_default().to_owned();
            let mut page = EditPage::of(&api, visitor, id, found).await;
            page.body = page.body.map(|_| text("body"));
            (page.to, page.subject, page.expires) = (text("to"), text("subject"), text("expiresAt"));
            page.problem = Some(problem);
            Ok(page.shell.answer_with(status, &page))
        }
    }
}

/// Asks the API for the copy, and returns its id.
async fn sent(api: &Shared, visitor: &Visitor, id: DeadLetterId, changes: Result<Value>) -> Result<String> {
    let body = Text::of(api, &visitor.caller, &changes?)?;
    let (caller, actor) = (Authenticated(visitor.caller.clone()), ActorOf(visitor.actor.clone()));
    let answer =
        edit::edit_and_retry(State(api.clone()), caller, actor, NoQuery, IdempotencyKey(None), Id(id), body)
            .await?;
    answered(answer, "notificationId").await
}

/// A field of what the API answered when it accepted something.
pub(super) async fn answered(answer: Response, field: &str) -> Result<String> {
    debug_assert_eq!(answer.status(), StatusCode::ACCEPTED);
    let unreadable = || Problem::new(Kind::Internal, "the answer of the API cannot be read");
    let whole = http_body_util::Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
    let answer: Value =
        serde_json::from_slice(&whole.map_err(|_| unreadable())?.to_bytes()).map_err(|_| unreadable())?;
    answer[field].as_str().map(str::to_owned).ok_or_else(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_keeps_the_form_that_it_had() {
        assert_eq!(editable("\"a \\\"b\\\"\"").as_deref(), Some("a \"b\""));
        assert_eq!(editable("{\"a\": 1}").as_deref(), Some("{\"a\": 1}"));
        assert_eq!(editable(&format!("\"{}\"", "x".repeat(LONGEST_BODY))), None);
        assert_eq!(typed_body("\"text\"", "{}").unwrap(), json!("{}"));
        assert_eq!(typed_body("{}", "[1]").unwrap(), json!([1]));
        assert_eq!(typed_body("{}", "text").unwrap_err().kind, Kind::BadJson);
    }
}
