//! How notifications, attempts and dead letters are shown.

use posthaste_core::attempt::{Attempt, Outcome};
use posthaste_core::notification::{Body, Notification};
use posthaste_engine::store::{DeadLetterView, History, View};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::Api;

/// A notification as lists show it.
pub(super) fn notification(api: &Api, view: &View) -> Value {
    let one = &view.notification;
    let of = most_attempts(api, view);
    let end = view.end.as_ref();
    json!({
        "notificationId": one.id,
        "tenant": one.tenant,
        "channel": one.channel,
        "to": one.to,
        "destination": one.destination,
        "status": view.state.status(),
        "state": view.state.name(),
        "stateCode": view.state.code(),
        "words": view.state.words(view.progress.attempt, of),
        "attempt": view.progress.attempt,
        "maxAttempts": of,
        "generation": view.progress.generation,
        "nextAttemptAt": view.due.filter(|_| !view.state.is_leased()),
        "cancelRequested": view.cancel_requested,
        "priority": one.priority,
        "template": one.template,
        "subject": one.subject,
        "eventKey": one.event_key,
        "correlationId": one.correlation_id,
        "userId": one.content.user_id,
        "module": one.content.module,
        "notBefore": one.not_before,
        "expiresAt": one.expires_at,
        "createdAt": one.created_at(),
        "endedAt": end.map(|end| end.at),
        "reasonCode": end.and_then(|end| end.reason),
        "reason": end.and_then(|end| end.text.as_deref().or(end.reason.map(|reason| reason.words()))),
        "deadLetterId": end.and_then(|end| end.dead_letter),
    })
}

/// How many attempts there may be, counted as the attempts are: a manual retry goes on from those before it.
fn most_attempts(api: &Api, view: &View) -> u32 {
    let policy = api.engine.policies().of(&view.notification);
    view.progress.base.saturating_add(policy.max_attempts)
}

/// A notification or dead letter with what the sender gave, in the very text that it was given in: a number may have more
/// digits than a program can hold.
#[derive(Serialize)]
pub(super) struct Whole<T> {
    #[serde(flatten)]
    shown: Value,
    #[serde(flatten)]
    given: T,
}

/// JSON as it came.
#[derive(Serialize)]
pub(super) struct Given {
    body: Box<RawValue>,
    metadata: Box<RawValue>,
}

/// The payload of a dead letter.
#[derive(Serialize)]
pub(super) struct Payload {
    payload: Whole<Given>,
}

/// A notification with everything that is known of it.
pub(super) fn whole_notification(api: &Api, view: &View, history: &History) -> Whole<Given> {
    let mut shown = notification(api, view);
    let events: Vec<Value> = history
        .events
        .iter()
        .map(|event| {
            json!({
                "at": event.at,
                "event": event.word,
                "actor": event.actor,
                "generation": event.generation,
                "attempt": event.attempt,
            })
        })
        .collect();
    let fields = [
        ("attempts", attempts(&history.attempts)),
        ("events", Value::Array(events)),
        ("html", json!(view.notification.content.html)),
        ("headers", json!(view.notification.content.headers)),
        ("policy", json!(view.notification.content.policy)),
    ];
    let object = shown.as_object_mut().expect("a notification is shown as an object");
    object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    Whole { shown, given: Given::of(&view.notification) }
}

/// S3's shape of what failed.
pub(super) fn failed(view: &View) -> Value {
    let end = view.end.as_ref();
    json!({
        "notificationId": view.notification.id,
        "channel": view.notification.channel,
        "userId": view.notification.content.user_id,
        "status": view.state.status(),
        "reason": end.and_then(|end| end.text.as_deref().or(end.reason.map(|reason| reason.words()))),
        "reasonCode": end.and_then(|end| end.reason),
        "attempts": view.progress.attempt,
        "failedAt": end.map(|end| end.at),
    })
}

/// A dead letter as lists show it: without its payload, which can be large.
pub(super) fn dead_letter(view: &DeadLetterView) -> Value {
    let one = &view.notification;
    let last = view.attempts.last();
    json!({
        "id": view.id,
        "notificationId": one.id,
        "tenant": one.tenant,
        "channel": one.channel,
        "recipient": one.to,
        "destination": one.destination,
        "template": one.template,
        "subject": one.subject,
        "eventKey": one.event_key,
        "correlationId": one.correlation_id,
        "reasonCode": view.reason,
        "reason": view.text,
        "exceptionDetails": last.and_then(|last| last.error.as_deref()),
        "attempts": attempts(&view.attempts),
        "lastAttemptAt": last.map(|last| last.started_at),
        "status": view.status,
        "statusCode": view.status.code(),
        "createdAt": view.created_at,
        "resolvedAt": view.resolved_at,
        "resolvedBy": view.resolved_by,
    })
}

/// A dead letter with its payload.
pub(super) fn whole_dead_letter(view: &DeadLetterView) -> Whole<Payload> {
    let content = &view.notification.content;
    let shown = json!({
        "subject": view.notification.subject,
        "html": content.html,
        "headers": content.headers,
    });
    let payload = Whole { shown, given: Given::of(&view.notification) };
    Whole { shown: dead_letter(view), given: Payload { payload } }
}

fn attempts(list: &[Attempt]) -> Value {
    Value::Array(list.iter().map(attempt).collect())
}

fn attempt(one: &Attempt) -> Value {
    let (outcome, failure) = match one.outcome {
        Outcome::Delivered => ("delivered", None),
        Outcome::Failed(failure) => ("failed", Some(failure)),
    };
    json!({
        "number": one.number,
        "generation": one.generation,
        "startedAt": one.started_at,
        "durationMs": u64::try_from(one.duration.as_millis()).unwrap_or(u64::MAX),
        "outcome": outcome,
        "failureType": failure,
        "statusCode": one.status_code,
        "error": one.error,
        "quickTries": one.quick_tries,
    })
}

impl Given {
    fn of(one: &Notification) -> Self {
        let body = match &one.content.body {
            Body::Text(text) => raw(text),
            Body::Json(text) => kept(text),
        };
        Self { body, metadata: one.content.metadata.as_deref().map_or_else(|| raw(&()), kept) }
    }
}

/// JSON that was kept as it came. It was checked at the door, so what cannot be read is shown as the text that it is.
fn kept(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap_or_else(|_| raw(text))
}

fn raw<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).expect("a text and nothing can be written as JSON")
}
