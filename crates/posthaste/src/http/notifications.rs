//! `/v1/notifications` and `/v1/retry-queue`.

use aws_lc_rs::digest;
use bytes::Bytes;
use http::header::HeaderValue;
use http::{Response, StatusCode};
use http_body_util::Full;
use posthaste_core::filter::List;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::state::State;
use posthaste_engine::accept::AcceptError;
use posthaste_engine::acts::ActError;
use posthaste_engine::store::{Accepted, DueCursor, Idempotency};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::act::wanted;
use super::intake::{LARGEST_BATCH, LARGEST_NOTIFICATION, json_body};
use super::object::Object;
use super::problem::{Kind, Problem, Result};
use super::query::{Paging, Query};
use super::send::Door;
use super::{Api, Ask, bytes, json, shown, view};

/// The most notifications in a batch.
const LARGEST_COUNT: usize = 500;
/// How many notifications of a batch are read before others get their turn.
const AT_ONCE: usize = 16;
/// The most characters of an idempotency key.
const LONGEST_KEY: usize = 255;

/// `POST /v1/notifications`
pub(super) async fn send(api: &Api, mut ask: Ask) -> Result {
    Query::of(&ask)?.finish()?;
    let tenant = ask.caller.sends_for();
    let text = json_body(api, &mut ask, LARGEST_NOTIFICATION).await?;
    let (guard, policies) = (&api.guard, api.engine.policies());
    let door = Door { tenant: &tenant, guard, policies, now: api.engine.now() };
    let notification = match door.read(api.engine.notification_id(), &text) {
        Ok(notification) => notification,
        // What was taken once stays taken, even where it came too late today: its expiry has passed, or the rules changed.
        Err(problem) => return repeated(api, &ask, &tenant, &text).await?.ok_or(problem),
    };
    let answer = format!(
        r#"{{"notificationId":"{}","status":"queued","state":"pending","stateCode":0,"channel":"{}","createdAt":"{}"}}"#,
        notification.id,
        notification.channel,
        notification.created_at(),
    );
    accept(api, &ask, &tenant, &text, vec![notification], answer.into()).await
}

/// `POST /v1/notifications/batch`
pub(super) async fn send_batch(api: &Api, mut ask: Ask) -> Result {
    Query::of(&ask)?.finish()?;
    let tenant = ask.caller.sends_for();
    let text = json_body(api, &mut ask, LARGEST_BATCH).await?;
    let mut object = Object::read(&text)?;
    let list = object
        .take("notifications")
        .ok_or_else(|| Problem::at("/notifications", "notifications is missing"))?;
    object.finish()?;
    let items: Vec<&RawValue> = serde_json::from_str(list.get())
        .map_err(|_| Problem::at("/notifications", "notifications must be a list"))?;
    if items.is_empty() || items.len() > LARGEST_COUNT {
        let detail = format!("a batch has from 1 to {LARGEST_COUNT} notifications, not {}", items.len());
        return Err(Problem::at("/notifications", detail));
    }
    let (guard, policies) = (&api.guard, api.engine.policies());
    let door = Door { tenant: &tenant, guard, policies, now: api.engine.now() };
    let (mut taken, mut accepted, mut rejected) = (Vec::with_capacity(items.len()), vec![], vec![]);
    for (index, item) in items.into_iter().enumerate() {
        if index % AT_ONCE == AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        match read_item(&door, api, item) {
            Ok(notification) => {
                accepted.push(json!({"index": index, "notificationId": notification.id}));
                taken.push(notification);
            }
            Err(problem) => {
                let problem = problem.under(&format!("/notifications/{index}"));
                rejected.push(json!({"index": index, "problem": problem.json()}));
            }
        }
    }
    let answer = json!({"accepted": accepted, "rejected": rejected}).to_string();
    accept(api, &ask, &tenant, &text, taken, answer.into()).await
}

fn read_item(door: &Door<'_>, api: &Api, item: &RawValue) -> Result<Notification> {
    if item.get().len() > LARGEST_NOTIFICATION {
        let detail = format!("the notification is larger than {} KiB", LARGEST_NOTIFICATION / 1024);
        return Err(Problem::new(Kind::TooLarge, detail));
    }
    door.read(api.engine.notification_id(), item.get().as_bytes())
}

/// Stores what was read, and answers once it is durable. A repeat under the same key gets the first answer.
async fn accept(
    api: &Api,
    ask: &Ask,
    tenant: &Tenant,
    text: &Bytes,
    notifications: Vec<Notification>,
    answer: Bytes,
) -> Result {
    let idempotency = idempotency_key(ask)?.map(|key| Idempotency {
        tenant: tenant.clone(),
        key,
        hash: hash_of(ask.head.uri.path(), text),
        answer: answer.to_vec(),
    });
    if notifications.is_empty() && idempotency.is_none() {
        return Ok(bytes(StatusCode::ACCEPTED, answer));
    }
    let accepted = api.engine.accept(idempotency, notifications).await;
    api.taking.note(!matches!(accepted, Err(AcceptError::Store(_))));
    match accepted? {
        Accepted::New => Ok(bytes(StatusCode::ACCEPTED, answer)),
        Accepted::Twin(first) => Ok(replay(first)),
        Accepted::Conflict => Err(Problem::new(
            Kind::IdempotencyConflict,
            "this Idempotency-Key was used in the last 24 hours with another body: use a new key for a new request",
        )),
    }
}

/// The first answer to a request that is known under its key and refused today.
async fn repeated(
    api: &Api,
    ask: &Ask,
    tenant: &Tenant,
    text: &[u8],
) -> Result<Option<Response<Full<Bytes>>>> {
    let Some(key) = idempotency_key(ask)? else { return Ok(None) };
    let first = api.store.idempotent(tenant.clone(), key, api.engine.now()).await?;
    let twin = first.filter(|first| first.hash == hash_of(ask.head.uri.path(), text));
    Ok(twin.map(|first| replay(first.answer)))
}

fn replay(first: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = bytes(StatusCode::ACCEPTED, first.into());
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    response
}

/// The key of a request, if it has one. Of two nobody could say which is meant.
fn idempotency_key(ask: &Ask) -> Result<Option<String>> {
    let bad = |detail: String| Problem::parameter("Idempotency-Key", detail);
    let mut given = ask.head.headers.get_all("idempotency-key").iter();
    let Some(first) = given.next() else { return Ok(None) };
    if given.next().is_some() {
        return Err(bad("the header Idempotency-Key is given twice".to_owned()));
    }
    let key = first.to_str().ok().map(str::trim).filter(|key| (1..=LONGEST_KEY).contains(&key.len()));
    key.map(|key| Some(key.to_owned())).ok_or_else(|| {
        bad(format!("the header Idempotency-Key must have 1 to {LONGEST_KEY} visible ASCII characters"))
    })
}

/// One key for the same bytes sent to two addresses is a conflict, so the address is part of what is compared.
fn hash_of(path: &str, text: &[u8]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(path.as_bytes());
    context.update(&[0]);
    context.update(text);
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// `GET /v1/notifications`
pub(super) async fn list(api: &Api, ask: &Ask) -> Result {
    let mut query = Query::of(ask)?;
    let paging: Paging<NotificationId> = Paging::take(api, ask, &mut query)?;
    let filter = query.filter(List::Notifications, ask, api.engine.now())?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let page = api.read(ask, |store| async move { store.page(filter, from, limit).await }).await?;
    Ok(json(StatusCode::OK, &paging.show(api, page, |row| view::notification(api, &row))))
}

/// `GET /v1/notifications/failed`
pub(super) async fn list_failed(api: &Api, ask: &Ask) -> Result {
    let mut query = Query::of(ask)?;
    let paging: Paging<NotificationId> = Paging::take(api, ask, &mut query)?;
    let filter = query.filter(List::Failed, ask, api.engine.now())?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let page = api.read(ask, |store| async move { store.page(filter, from, limit).await }).await?;
    Ok(json(StatusCode::OK, &paging.show(api, page, |row| view::failed(&row))))
}

/// `GET /v1/retry-queue`
pub(super) async fn retry_queue(api: &Api, ask: &Ask) -> Result {
    let mut query = Query::of(ask)?;
    let paging: Paging<DueCursor> = Paging::take(api, ask, &mut query)?;
    let filter = query.filter(List::RetryQueue, ask, api.engine.now())?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let page = api.read(ask, |store| async move { store.retry_queue(filter, from, limit).await }).await?;
    Ok(json(StatusCode::OK, &paging.show(api, page, |row| view::notification(api, &row))))
}

/// `GET /v1/notifications/{id}`
pub(super) async fn get(api: &Api, ask: &Ask) -> Result {
    Query::of(ask)?.finish()?;
    let id: NotificationId = ask.inner.parse().map_err(|_| missing(ask))?;
    let found = api.store.get(id).await?.filter(|view| ask.caller.sees(&view.notification.tenant));
    let found = found.ok_or_else(|| missing(ask))?;
    let history = api.store.history(id).await?;
    Ok(shown(StatusCode::OK, &view::whole_notification(api, &found, &history)))
}

/// `POST /v1/notifications/{id}/retry`
pub(super) async fn retry(api: &Api, ask: &mut Ask) -> Result {
    let id: NotificationId = wanted(api, ask, missing).await?;
    let was = api.engine.retry(id, &ask.caller.actor()).await.map_err(|error| match error {
        ActError::Refused { state, .. } => not_failed(id, state),
        other => other.into(),
    })?;
    Ok(queued(id, was.standing.progress.attempt.saturating_add(1)))
}

fn not_failed(id: NotificationId, state: State) -> Problem {
    let problem = match state {
        State::Succeeded => Problem::new(Kind::AlreadyDelivered, format!("{id} was delivered already")),
        State::Pending | State::Processing | State::RetryScheduled | State::Retrying => Problem::new(
            Kind::NotFailed,
            format!("{id} is {state} and is still being delivered; a retry is not needed"),
        ),
        State::Failed | State::DeadLetter | State::Cancelled | State::Expired => {
            Problem::new(Kind::NotFailed, format!("{id} is {state}; only what failed can be retried"))
        }
    };
    Problem { state: Some(state), ..problem }
}

/// `POST /v1/notifications/{id}/retry-now`
pub(super) async fn retry_now(api: &Api, ask: &mut Ask) -> Result {
    let id: NotificationId = wanted(api, ask, missing).await?;
    let was = api.engine.retry_now(id, &ask.caller.actor()).await?;
    let answer =
        json!({"notificationId": id, "status": "retrying", "attempt": was.standing.progress.attempt});
    Ok(json(StatusCode::ACCEPTED, &answer))
}

/// `POST /v1/notifications/{id}/cancel`
pub(super) async fn cancel(api: &Api, ask: &mut Ask) -> Result {
    let id: NotificationId = wanted(api, ask, missing).await?;
    let was = api.engine.cancel(id, &ask.caller.actor()).await?;
    // What is in flight ends with its attempt, and a success still counts.
    let status = if was.standing.state.is_leased() { was.standing.state } else { State::Cancelled };
    Ok(json(
        StatusCode::ACCEPTED,
        &json!({"notificationId": id, "status": status.status(), "cancelRequested": true}),
    ))
}

pub(super) fn queued(id: NotificationId, attempt: u32) -> Response<Full<Bytes>> {
    let answer: Value = json!({"notificationId": id, "status": "queued", "attempt": attempt});
    json(StatusCode::ACCEPTED, &answer)
}

fn missing(ask: &Ask) -> Problem {
    Problem::not_found(format!("there is no notification {}", ask.inner))
}
