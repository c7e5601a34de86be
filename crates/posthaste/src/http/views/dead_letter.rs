//! How a dead letter is shown.

use std::collections::BTreeMap;

use posthaste_core::act::replaced_by;
use posthaste_core::channel::Channel;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::id::{DeadLetterId, NotificationId, OperationId};
use posthaste_core::notification::Tenant;
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;
use posthaste_engine::store;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::Api;
use super::attempt::AttemptView;
use super::{Metadata, WebhookHeaders, body, metadata};

/// A dead letter as lists show it: without its payload, which can be large.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetter)]
pub(crate) struct DeadLetterView {
    pub(crate) id: DeadLetterId,
    pub(crate) notification_id: NotificationId,
    pub(crate) tenant: Tenant,
    pub(crate) channel: Channel,
    pub(crate) recipient: String,
    pub(crate) destination: String,
    pub(crate) template: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) event_key: Option<String>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) reason_code: Reason,
    pub(crate) reason: String,
    /// The error of the last attempt.
    pub(crate) exception_details: Option<String>,
    /// Those of the generation that died.
    pub(crate) attempts: Vec<AttemptView>,
    pub(crate) last_attempt_at: Option<Timestamp>,
    /// The status code of the last attempt, if that failed and there was an answer.
    pub(crate) last_status_code: Option<u16>,
    pub(crate) status: DeadLetterStatus,
    /// `status` as a number.
    #[schema(maximum = 2)]
    pub(crate) status_number: u8,
    pub(crate) created_at: Timestamp,
    pub(crate) resolved_at: Option<Timestamp>,
    pub(crate) resolved_by: Option<String>,
    /// When it was soft-deleted: it is in no list but that of deleted ones, and can be restored.
    pub(crate) deleted_at: Option<Timestamp>,
    /// The operation that holds it and will act on it.
    pub(crate) operation: Option<OperationId>,
}

impl DeadLetterView {
    pub(crate) fn of(view: &store::DeadLetterView, operation: Option<OperationId>) -> Self {
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
            deleted_at: view.deleted_at,
            operation,
        }
    }
}

/// A dead letter with its payload.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLetterDetail {
    #[serde(flatten)]
    pub(crate) dead_letter: DeadLetterView,
    /// The edited copy that was sent in its place.
    pub(crate) replaced_by: Option<NotificationId>,
    pub(crate) payload: Payload,
}

/// What was to be sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Payload {
    pub(crate) subject: Option<String>,
    pub(crate) html: Option<String>,
    #[schema(value_type = WebhookHeaders)]
    pub(crate) headers: BTreeMap<String, String>,
    /// As it was given.
    #[schema(value_type = serde_json::Value)]
    pub(crate) body: Box<RawValue>,
    #[schema(value_type = Option<Metadata>)]
    pub(crate) metadata: Option<Box<RawValue>>,
}

impl DeadLetterDetail {
    /// With how its notification stands, if that is still kept.
    pub(crate) fn of(
        api: &Api,
        view: &store::DeadLetterView,
        now: Option<&store::View>,
        operation: Option<OperationId>,
    ) -> Self {
        let one = &*view.notification;
        let end = now.and_then(|now| now.end.as_ref()).filter(|end| end.dead_letter == Some(view.id));
        let replaced_by = end.and_then(|end| replaced_by(end.reason, end.text.as_deref()));
        let payload = Payload {
            subject: one.subject.clone(),
            html: one.content.html.clone(),
            headers: api.engine.shown_headers(&one.content),
            body: body(one),
            metadata: metadata(one),
        };
        Self { dead_letter: DeadLetterView::of(view, operation), replaced_by, payload }
    }
}
