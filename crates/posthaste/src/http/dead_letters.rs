//! `/v1/dead-letters`.

use http::StatusCode;
use posthaste_core::filter::List;
use posthaste_core::id::DeadLetterId;
use serde_json::json;

use super::act::wanted;
use super::problem::{Problem, Result};
use super::query::{Paging, Query};
use super::{Api, Ask, json, shown, view};

/// `GET /v1/dead-letters`
pub(super) async fn list(api: &Api, ask: &Ask) -> Result {
    let mut query = Query::of(ask)?;
    let paging: Paging<DeadLetterId> = Paging::take(api, ask, &mut query)?;
    let filter = query.filter(List::DeadLetters, ask, api.engine.now())?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let page = api.read(ask, |store| async move { store.dead_letters(filter, from, limit).await }).await?;
    Ok(json(StatusCode::OK, &paging.show(api, page, |row| view::dead_letter(&row))))
}

/// `GET /v1/dead-letters/{id}`
pub(super) async fn get(api: &Api, ask: &Ask) -> Result {
    Query::of(ask)?.finish()?;
    let id: DeadLetterId = ask.inner.parse().map_err(|_| missing(ask))?;
    let found = api.store.dead_letter(id).await?.filter(|view| ask.caller.sees(&view.notification.tenant));
    let found = found.ok_or_else(|| missing(ask))?;
    Ok(shown(StatusCode::OK, &view::whole_dead_letter(&found)))
}

/// `POST /v1/dead-letters/{id}/requeue`
pub(super) async fn requeue(api: &Api, ask: &mut Ask) -> Result {
    let id: DeadLetterId = wanted(api, ask, missing).await?;
    let was = api.engine.requeue(id, &ask.caller.actor()).await?;
    let answer = json!({"id": id, "notificationId": was.id, "status": "queued", "attempt": 1});
    Ok(json(StatusCode::ACCEPTED, &answer))
}

/// `POST /v1/dead-letters/{id}/discard`
pub(super) async fn discard(api: &Api, ask: &mut Ask) -> Result {
    let id: DeadLetterId = wanted(api, ask, missing).await?;
    let was = api.engine.discard(id, &ask.caller.actor()).await?;
    let answer = json!({"id": id, "notificationId": was.id, "status": "failed"});
    Ok(json(StatusCode::ACCEPTED, &answer))
}

/// `POST /v1/dead-letters/{id}/restore`
pub(super) async fn restore(api: &Api, ask: &mut Ask) -> Result {
    let id: DeadLetterId = wanted(api, ask, missing).await?;
    let was = api.engine.restore(id, &ask.caller.actor()).await?;
    let answer = json!({"id": id, "notificationId": was.id, "status": "failed"});
    Ok(json(StatusCode::ACCEPTED, &answer))
}

fn missing(ask: &Ask) -> Problem {
    Problem::not_found(format!("there is no dead letter {}", ask.inner))
}
