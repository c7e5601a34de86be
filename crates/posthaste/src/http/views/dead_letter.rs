//! How a dead letter is shown.

use std::collections::BTreeMap;

use posthaste_core::channel::Channel;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;
use posthaste_engine::store;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::attempt::AttemptView;
use super::{Metadata, WebhookHeaders, body, metadata};

/// A dead letter as lists show it: without its payload, which can be large.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetter)]
pub(in crate::http) struct DeadLetterView {
    id: DeadLetterId,
    notification_id: NotificationId,
    tenant: Tenant,
    channel: Channel,
    recipient: String,
    destination: String,
    template: Option<String>,
    subject: Option<String>,
    event_key: Option<String>,
    correlation_id: Option<String>,
    reason_code: Reason,
    reason: String,
    /// The error of the last attempt.
    exception_details: Option<String>,
    /// Those of the generation that died.
    attempts: Vec<AttemptView>,
    last_attempt_at: Option<Timestamp>,
    /// The status code of the last attempt, if that failed and there was an answer.
    last_status_code: Option<u16>,
    status: DeadLetterStatus,
    /// `status` as a number.
    #[schema(maximum = 2)]
    status_number: u8,
    created_at: Timestamp,
    resolved_at: Option<Timestamp>,
    resolved_by: Option<String>,
}

impl DeadLetterView {
    pub(in crate::http) fn of(view: &store::DeadLetterView) -> Self {
        let one = &*view.notification;
        let last = view.attempts.last();
        Self {
            id: view.id,
            notification_id: one.id,
            tenant: one.tenant.clone(),
            channel: one.channel,
            recipient: one.to.clone(),
            destination: one.destination.to_string(),
            template: one.template.clone(),
            subject: one.subject.clone(),
            event_key: one.event_key.clone(),
            correlation_id: one.correlation_id.clone(),
            reason_code: view.reason,
            reason: view.why().to_owned(),
            exception_details: last.and_then(|last| last.error.clone()),
            attempts: view.attempts.iter().map(AttemptView::short).collect(),
            last_attempt_at: last.map(|last| last.started_at),
            last_status_code: view.last_error().and_then(|last| last.status_code),
            status: view.status,
            status_number: view.status.code(),
            created_at: view.created_at,
            resolved_at: view.resolved_at,
            resolved_by: view.resolved_by.clone(),
        }
    }
}

/// A dead letter with its payload.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct DeadLetterDetail {
    #[serde(flatten)]
    dead_letter: DeadLetterView,
    payload: Payload,
}

/// What was to be sent.
#[derive(Debug, Serialize, ToSchema)]
struct Payload {
    subject: Option<String>,
    html: Option<String>,
    #[schema(value_type = WebhookHeaders)]
    headers: BTreeMap<String, String>,
    /// As it was given.
    #[schema(value_type = serde_json::Value)]
    body: Box<RawValue>,
    #[schema(value_type = Option<Metadata>)]
    metadata: Option<Box<RawValue>>,
}

impl DeadLetterDetail {
    pub(in crate::http) fn of(view: &store::DeadLetterView) -> Self {
        let one = &*view.notification;
        let payload = Payload {
            subject: one.subject.clone(),
            html: one.content.html.clone(),
            headers: one.content.headers.clone(),
            body: body(one),
            metadata: metadata(one),
        };
        Self { dead_letter: DeadLetterView::of(view), payload }
    }
}
