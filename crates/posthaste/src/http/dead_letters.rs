//! `/v1/dead-letters`.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::filter::List;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_engine::reads::ReadError;
use posthaste_engine::store;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::act::{NoBody, Nothing};
use super::extract::{ActorOf, Authenticated, Id, NoQuery};
use super::page::{DeadLetterFilter, Page, Paging};
use super::problem::Result;
use super::query::Query;
use super::views::{DeadLetterDetail, DeadLetterView, Status};

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get))
        .routes(routes!(requeue))
        .routes(routes!(discard))
        .routes(routes!(restore))
}

/// Lists dead letters, newest first.
#[utoipa::path(get, path = "/v1/dead-letters", operation_id = "listDeadLetters", tag = "dead letters",
    params(DeadLetterFilter), security(("key" = ["reader"])),
    responses((status = 200, description = "A page", body = Page<DeadLetterView>), (status = 429, description = "")))]
pub(crate) async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<Page<DeadLetterView>>> {
    let paging: Paging<DeadLetterId> = Paging::take(&api, &caller, &mut query)?;
    let filter = query.filter(List::DeadLetters, api.engine.now())?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let (page, held) = api
        .read(&caller, |reads| async move {
            let page = reads.dead_letters(filter, from, limit).await?;
            let pending = page.rows.iter().filter(|row| row.status == DeadLetterStatus::Pending);
            let held = reads.held_by(pending.map(|row| row.notification.id).collect()).await?;
            Ok::<_, ReadError>((page, held))
        })
        .await?;
    let show = |row: store::DeadLetterView| {
        let pending = row.status == DeadLetterStatus::Pending;
        let operation = held.get(&row.notification.id).filter(|_| pending);
        DeadLetterView::of(&row, operation.copied())
    };
    Ok(Json(paging.show(&api, page, show)))
}

/// One dead letter with its payload.
#[utoipa::path(get, path = "/v1/dead-letters/{id}", operation_id = "getDeadLetter", tag = "dead letters",
    params(("id" = DeadLetterId, Path)), security(("key" = ["reader"])),
    responses((status = 200, description = "The dead letter", body = DeadLetterDetail), (status = 404, description = "")))]
pub(crate) async fn get(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    NoQuery: NoQuery,
    Id(id): Id<DeadLetterId>,
) -> Result<Json<DeadLetterDetail>> {
    let reads = api.reads(&caller);
    let found = reads.dead_letter(id).await?.ok_or_else(|| Id::<DeadLetterId>::missing(id))?;
    let now = match found.status {
        DeadLetterStatus::Cancelled => reads.notification(found.notification.id).await?,
        DeadLetterStatus::Pending | DeadLetterStatus::Requeued => None,
    };
    let operation = match found.status {
        DeadLetterStatus::Pending => reads.held_by(vec![found.notification.id]).await?.into_values().next(),
        DeadLetterStatus::Requeued | DeadLetterStatus::Cancelled => None,
    };
    Ok(Json(DeadLetterDetail::of(&api, &found, now.as_ref(), operation)))
}

/// An act on a dead letter that was done.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLetterActed {
    pub(crate) id: DeadLetterId,
    pub(crate) notification_id: NotificationId,
    /// Of the notification.
    pub(crate) status: Status,
    /// The next attempt of a requeued one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u32>,
}

impl DeadLetterActed {
    const fn failed(id: DeadLetterId, notification_id: NotificationId) -> (StatusCode, Json<Self>) {
        let acted = Self { id, notification_id, status: Status::Failed, attempt: None };
        (StatusCode::ACCEPTED, Json(acted))
    }
}

/// Opens a new generation; attempts count from 1.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/requeue", operation_id = "requeue", tag = "dead letters",
    params(("id" = DeadLetterId, Path)), request_body = Option<Nothing>, security(("key" = ["operator"])),
    responses((status = 202, description = "It will be sent again", body = DeadLetterActed), (status = 404, description = ""), (status = 409, description = "")))]
pub(crate) async fn requeue(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<DeadLetterId>,
    _: NoBody,
) -> Result<(StatusCode, Json<DeadLetterActed>)> {
    let was = api.engine.requeue(id, &actor).await?;
    let acted = DeadLetterActed { id, notification_id: was.id, status: Status::Queued, attempt: Some(1) };
    Ok((StatusCode::ACCEPTED, Json(acted)))
}

/// Gives a dead letter up: its notification has failed for good.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/discard", operation_id = "discard", tag = "dead letters",
    params(("id" = DeadLetterId, Path)), request_body = Option<Nothing>, security(("key" = ["operator"])),
    responses((status = 202, description = "It is discarded", body = DeadLetterActed), (status = 404, description = ""), (status = 409, description = "")))]
pub(crate) async fn discard(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<DeadLetterId>,
    _: NoBody,
) -> Result<(StatusCode, Json<DeadLetterActed>)> {
    let was = api.engine.discard(id, &actor).await?;
    Ok(DeadLetterActed::failed(id, was.id))
}

/// Brings a discarded one back among the dead letters, and a deleted one back as it was.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/restore", operation_id = "restore", tag = "dead letters",
    params(("id" = DeadLetterId, Path)), request_body = Option<Nothing>, security(("key" = ["operator"])),
    responses((status = 202, description = "It is pending again, or shown in lists again as it was", body = DeadLetterActed), (status = 404, description = ""), (status = 409, description = "")))]
pub(crate) async fn restore(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<DeadLetterId>,
    _: NoBody,
) -> Result<(StatusCode, Json<DeadLetterActed>)> {
    let was = api.engine.restore(id, &actor).await?;
    // One that was discarded or deleted has failed, and still has as a dead letter.
    let status = was.standing.state.into();
    let acted = DeadLetterActed { id, notification_id: was.id, status, attempt: None };
    Ok((StatusCode::ACCEPTED, Json(acted)))
}
