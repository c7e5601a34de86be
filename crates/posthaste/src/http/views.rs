//! How things are shown: the same struct is the JSON of an answer and its description.

pub(crate) mod attempt;
pub(crate) mod dead_letter;
pub(crate) mod destination;
pub(crate) mod notification;
mod operation;
pub(crate) mod plan;

pub(crate) use self::dead_letter::{DeadLetterDetail, DeadLetterView};
pub(crate) use self::destination::{DestinationDetail, DestinationRow, DestinationView, ParkedView};
pub(crate) use self::notification::{FailedView, NotificationDetail, NotificationView, Status};
pub(super) use self::operation::SampleShown;
pub(crate) use self::operation::{OperationDetail, OperationView, PreviewView, SampleView};

use std::collections::BTreeMap;

use posthaste_core::notification::{Body, Notification};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

/// Headers of a webhook.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes them")]
pub(crate) struct WebhookHeaders(BTreeMap<String, String>);

/// What the sender keeps with a notification; it is not sent.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes them")]
pub(crate) struct Metadata(BTreeMap<String, Value>);

/// The body as it was given: a number may have more digits than a program can hold.
fn body(one: &Notification) -> Box<RawValue> {
    match &one.content.body {
        Body::Text(text) => raw(text),
        Body::Json(text) => kept(text),
    }
}

fn metadata(one: &Notification) -> Option<Box<RawValue>> {
    one.content.metadata.as_deref().map(kept)
}

/// JSON that was kept as it came. It was checked when it was accepted, so what cannot be read is shown as text.
fn kept(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap_or_else(|_| raw(text))
}

fn raw<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).expect("a text can be written as JSON")
}
