//! The buttons of notifications and dead letters. Each calls the handler of the API, then the page it was on is shown again with
//! one sentence about what came of it.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::header::SET_COOKIE;
use posthaste_core::id::{DeadLetterId, NotificationId};

use super::dead_letters;
use super::flash::Flash;
use super::login::{back, see};
use super::problem::is_htmx;
use super::visitor::Form;
use crate::http::Shared;
use crate::http::act::NoBody;
use crate::http::dead_letters as dead_letters_api;
use crate::http::extract::{ActorOf, Id, NoQuery};
use crate::http::notifications;
use crate::http::problem::Result;

/// Shows the page again that a form was on. A refusal is a sentence too, with the reason in the words of the API.
pub(super) fn again(form: &Form, outcome: Result<Flash>, otherwise: &str) -> Response {
    let flash = outcome.unwrap_or_else(|problem| Flash::refused(&problem.detail));
    let mut response = see(&back(&form.headers, otherwise));
    response.headers_mut().append(SET_COOKIE, flash.cookie());
    response
}

fn actor(form: &Form) -> ActorOf {
    ActorOf(form.visitor.actor.clone())
}

pub(super) async fn retry(State(api): State<Shared>, Id(id): Id<NotificationId>, form: Form) -> Response {
    let done = notifications::retry(State(api), actor(&form), NoQuery, Id(id), NoBody::NONE).await;
    let done = done.map(|(_, Json(done))| Flash::done(format!("Attempt {} follows at once.", done.attempt)));
    again(&form, done, &format!("/notifications/{id}"))
}

pub(super) async fn retry_now(State(api): State<Shared>, Id(id): Id<NotificationId>, form: Form) -> Response {
    let done = notifications::retry_now(State(api), actor(&form), NoQuery, Id(id), NoBody::NONE).await;
    let done = done.map(|(_, Json(done))| {
        Flash::done(format!("Attempt {} is due now.", done.attempt)).with_link(format!("/notifications/{id}"))
    });
    again(&form, done, &format!("/notifications/{id}"))
}

pub(super) async fn cancel(State(api): State<Shared>, Id(id): Id<NotificationId>, form: Form) -> Response {
    let done = notifications::cancel(State(api), actor(&form), NoQuery, Id(id), NoBody::NONE).await;
    let done = done.map(|_| Flash::done("Cancelled. What is being sent right now may still arrive."));
    again(&form, done, &format!("/notifications/{id}"))
}

pub(super) async fn requeue(
    State(api): State<Shared>,
    Id(id): Id<DeadLetterId>,
    form: Form,
) -> Result<Response> {
    let done =
        dead_letters_api::requeue(State(api.clone()), actor(&form), NoQuery, Id(id), NoBody::NONE).await;
    let done = done.map(|(_, Json(done))| {
        Flash::done("Requeued. Attempt 1 follows at once.")
            .with_link(format!("/notifications/{}", done.notification_id))
    });
    row_or_page(api, id, form, done).await
}

pub(super) async fn discard(
    State(api): State<Shared>,
    Id(id): Id<DeadLetterId>,
    form: Form,
) -> Result<Response> {
    let done =
        dead_letters_api::discard(State(api.clone()), actor(&form), NoQuery, Id(id), NoBody::NONE).await;
    let done = done.map(|_| Flash::done("Discarded.").with_undo(format!("/dead-letters/{id}/restore")));
    row_or_page(api, id, form, done).await
}

pub(super) async fn restore(
    State(api): State<Shared>,
    Id(id): Id<DeadLetterId>,
    form: Form,
) -> Result<Response> {
    let done =
        dead_letters_api::restore(State(api.clone()), actor(&form), NoQuery, Id(id), NoBody::NONE).await;
    let done = done
        .map(|_| Flash::done("It is among the dead letters again.").with_link(format!("/dead-letters/{id}")));
    row_or_page(api, id, form, done).await
}

/// With script the row stays where it is and says what became of it.
async fn row_or_page(api: Shared, id: DeadLetterId, form: Form, done: Result<Flash>) -> Result<Response> {
    if is_htmx(&form.headers) {
        return dead_letters::row(api, id, &form.visitor, done).await;
    }
    Ok(again(&form, done, "/dead-letters"))
}
