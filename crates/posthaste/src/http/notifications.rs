//! `/v1/notifications` but for sends, and `/v1/retry-queue`.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use posthaste_core::filter::List;
use posthaste_core::id::NotificationId;
use posthaste_core::state::State as NotificationState;
use posthaste_engine::acts::ActError;
use posthaste_engine::store::DueCursor;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::act::{NoBody, Nothing};
use super::extract::{ActorOf, Authenticated, Id, NoQuery};
use super::page::{FailedFilter, NotificationFilter, Page, Paging, RetryQueueFilter};
use super::problem::{Kind, Problem, Result};
use super::query::Query;
use super::views::{FailedView, NotificationDetail, NotificationView, Status};

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(list_failed))
        .routes(routes!(retry_queue))
        .routes(routes!(get))
        .routes(routes!(retry))
        .routes(routes!(retry_now))
        .routes(routes!(cancel))
}

/// Lists notifications, newest first.
#[utoipa::path(get, path = "/v1/notifications", operation_id = "listNotifications", tag = "notifications",
    params(NotificationFilter), security(("key" = ["reader"])),
    responses((status = 200, description = "A page", body = Page<NotificationView>), (status = 429, description = "")))]
pub(crate) async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<Page<NotificationView>>> {
    let paging: Paging<NotificationId> = Paging::take(&api, &caller, &mut query)?;
    let filter = query.filter(List::Notifications, api.engine.now())?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let page =
        api.read(&caller, |reads| async move { reads.notifications(filter, from, limit).await }).await?;
    Ok(Json(paging.show(&api, page, |row| NotificationView::of(&api, &row))))
}

/// Lists what failed, newest first.
#[utoipa::path(get, path = "/v1/notifications/failed", operation_id = "listFailed", tag = "notifications",
    params(FailedFilter), security(("key" = ["reader"])),
    responses((status = 200, description = "A page", body = Page<FailedView>), (status = 429, description = "")))]
pub(crate) async fn list_failed(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<Page<FailedView>>> {
    let paging: Paging<NotificationId> = Paging::take(&api, &caller, &mut query)?;
    let filter = query.filter(List::Failed, api.engine.now())?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let page =
        api.read(&caller, |reads| async move { reads.notifications(filter, from, limit).await }).await?;
    Ok(Json(paging.show(&api, page, |row| FailedView::of(&row))))
}

/// Lists what waits for a retry, soonest first.
#[utoipa::path(get, path = "/v1/retry-queue", operation_id = "listRetryQueue", tag = "notifications",
    params(RetryQueueFilter), security(("key" = ["reader"])),
    responses((status = 200, description = "A page", body = Page<NotificationView>), (status = 429, description = "")))]
pub(crate) async fn retry_queue(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<Page<NotificationView>>> {
    let paging: Paging<DueCursor> = Paging::take(&api, &caller, &mut query)?;
    let filter = query.filter(List::RetryQueue, api.engine.now())?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let page = api.read(&caller, |reads| async move { reads.retry_queue(filter, from, limit).await }).await?;
    Ok(Json(paging.show(&api, page, |row| NotificationView::of(&api, &row))))
}

/// One notification with its history.
#[utoipa::path(get, path = "/v1/notifications/{id}", operation_id = "getNotification", tag = "notifications",
    params(("id" = NotificationId, Path)), security(("key" = ["sender", "reader"])),
    responses((status = 200, description = "The notification", body = NotificationDetail), (status = 404, description = "")))]
pub(crate) async fn get(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    NoQuery: NoQuery,
    Id(id): Id<NotificationId>,
) -> Result<Json<NotificationDetail>> {
    let reads = api.reads(&caller);
    let found = reads.notification_with_history(id).await?;
    let (view, history) = found.ok_or_else(|| Id::<NotificationId>::missing(id))?;
    let parked = reads.parked_behind(&view).await?;
    Ok(Json(NotificationDetail::of(&api, &view, &history, parked)))
}

/// A retry that was asked for.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Retried {
    pub(crate) notification_id: NotificationId,
    pub(crate) status: Status,
    /// The next attempt.
    pub(crate) attempt: u32,
}

/// Opens a new generation; the attempts go on counting.
#[utoipa::path(post, path = "/v1/notifications/{id}/retry", operation_id = "retry", tag = "notifications",
    params(("id" = NotificationId, Path)), request_body = Option<Nothing>, security(("key" = ["operator"])),
    responses((status = 202, description = "It will be sent again", body = Retried), (status = 404, description = ""), (status = 409, description = "")))]
pub(crate) async fn retry(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<NotificationId>,
    _: NoBody,
) -> Result<(StatusCode, Json<Retried>)> {
    let was = api.engine.retry(id, &actor).await.map_err(|error| match error {
        ActError::Refused { state, .. } => not_failed(id, state),
        other => other.into(),
    })?;
    let attempt = was.standing.progress.attempt.saturating_add(1);
    Ok((StatusCode::ACCEPTED, Json(Retried { notification_id: id, status: Status::Queued, attempt })))
}

fn not_failed(id: NotificationId, state: NotificationState) -> Problem {
    use NotificationState::{
        Cancelled, DeadLetter, Expired, Failed, Pending, Processing, RetryScheduled, Retrying, Succeeded,
    };
    let problem = match state {
        Succeeded => Problem::new(Kind::AlreadyDelivered, format!("{id} was delivered already")),
        Pending | Processing | RetryScheduled | Retrying => Problem::new(
            Kind::NotFailed,
            format!("{id} is {state} and is still being delivered; a retry is not needed"),
        ),
        Failed | DeadLetter | Cancelled | Expired => {
            Problem::new(Kind::NotFailed, format!("{id} is {state}; only what failed can be retried"))
        }
    };
    Problem { state: Some(state), ..problem }
}

/// Makes a scheduled retry due at once.
#[utoipa::path(post, path = "/v1/notifications/{id}/retry-now", operation_id = "retryNow", tag = "notifications",
    params(("id" = NotificationId, Path)), request_body = Option<Nothing>, security(("key" = ["operator"])),
    responses((status = 202, description = "It is due now", body = Retried), (status = 404, description = ""), (status = 409, description = "")))]
pub(crate) async fn retry_now(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<NotificationId>,
    _: NoBody,
) -> Result<(StatusCode, Json<Retried>)> {
    let was = api.engine.retry_now(id, &actor).await?;
    let attempt = was.standing.progress.attempt;
    Ok((StatusCode::ACCEPTED, Json(Retried { notification_id: id, status: Status::Retrying, attempt })))
}

/// A cancellation that was asked for.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cancelled {
    pub(crate) notification_id: NotificationId,
    pub(crate) status: Status,
    pub(crate) cancel_requested: bool,
}

/// Cancels a notification. In flight, a success still counts.
#[utoipa::path(post, path = "/v1/notifications/{id}/cancel", operation_id = "cancel", tag = "notifications",
    params(("id" = NotificationId, Path)), request_body = Option<Nothing>, security(("key" = ["operator"])),
    responses((status = 202, description = "It is cancelled, or will be if its attempt fails", body = Cancelled), (status = 404, description = ""), (status = 409, description = "")))]
pub(crate) async fn cancel(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<NotificationId>,
    _: NoBody,
) -> Result<(StatusCode, Json<Cancelled>)> {
    let was = api.engine.cancel(id, &actor).await?;
    // What is in flight ends with its attempt.
    let state = was.standing.state;
    let status = if state.is_leased() { state.into() } else { Status::Cancelled };
    Ok((StatusCode::ACCEPTED, Json(Cancelled { notification_id: id, status, cancel_requested: true })))
}
