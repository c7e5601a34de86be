//! How a notification is shown.

use std::collections::BTreeMap;

use posthaste_core::act::replaced_by;
use posthaste_core::channel::Channel;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::{Priority, Tenant};
use posthaste_core::policy::PolicyLayer;
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::destinations::ParkedBehind;
use posthaste_engine::store::{History, HistoryEvent, View};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::Api;
use super::attempt::AttemptView;
use super::plan::PlanView;
use super::{Metadata, ParkedView, WebhookHeaders, body, metadata};

/// A notification as lists show it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Notification)]
pub(crate) struct NotificationView {
    pub(crate) notification_id: NotificationId,
    pub(crate) tenant: Tenant,
    pub(crate) channel: Channel,
    /// The address, URL, phone number or token.
    pub(crate) to: String,
    /// What can be down as a whole.
    pub(crate) destination: String,
    pub(crate) status: Status,
    pub(crate) state: State,
    #[schema(maximum = 8)]
    pub(crate) state_code: u8,
    /// The state for people, such as `Retrying (attempt 2 of 3)`.
    pub(crate) words: String,
    /// The running or next one; at the end the last one made.
    pub(crate) attempt: u32,
    /// How many there may be, counted as `attempt` is.
    pub(crate) max_attempts: u32,
    /// How many were made, counted as `attempt` is.
    pub(crate) attempts_made: u32,
    /// The error of the last attempt, if that failed. After a requeue it is one of an earlier generation.
    pub(crate) last_error: Option<String>,
    /// The status code of the last attempt, if that failed and there was an answer.
    pub(crate) last_status_code: Option<u16>,
    #[schema(minimum = 1)]
    pub(crate) generation: u32,
    pub(crate) next_attempt_at: Option<Timestamp>,
    pub(crate) cancel_requested: bool,
    pub(crate) priority: Priority,
    pub(crate) template: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) event_key: Option<String>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) user_id: Option<String>,
    pub(crate) module: Option<String>,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) created_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    /// Why it ended without delivery.
    pub(crate) reason_code: Option<Reason>,
    /// Why, in words: the last error, where there is one.
    pub(crate) reason: Option<String>,
    pub(crate) dead_letter_id: Option<DeadLetterId>,
    /// The notification in whose place it is sent, edited.
    pub(crate) edit_of: Option<NotificationId>,
    /// The edited copy that was sent in its place.
    pub(crate) replaced_by: Option<NotificationId>,
}

/// The coarse state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Status {
    Queued,
    Sending,
    Retrying,
    Delivered,
    Failed,
    Cancelled,
    Expired,
}

impl From<State> for Status {
    fn from(state: State) -> Self {
        match state {
            State::Pending => Self::Queued,
            State::Processing => Self::Sending,
            State::RetryScheduled | State::Retrying => Self::Retrying,
            State::Succeeded => Self::Delivered,
            State::DeadLetter | State::Failed => Self::Failed,
            State::Cancelled => Self::Cancelled,
            State::Expired => Self::Expired,
        }
    }
}

impl NotificationView {
    pub(crate) fn of(api: &Api, view: &View) -> Self {
        let one = &*view.notification;
        let (end, last) = (view.end.as_ref(), view.last_error.as_ref());
        let policy = api.engine.policies().of(&view.notification);
        // A manual retry goes on counting from the attempts before it.
        let max_attempts = view.progress.base.saturating_add(policy.max_attempts);
        Self {
            notification_id: one.id,
            tenant: one.tenant.clone(),
            channel: one.channel,
            to: one.to.clone(),
            destination: one.destination.to_string(),
            status: view.state.into(),
            state: view.state,
            state_code: view.state.code(),
            words: view.state.words(view.progress.attempt, max_attempts),
            attempt: view.progress.attempt,
            max_attempts,
            attempts_made: view.attempts_made(),
            last_error: last.and_then(|last| last.error.clone()),
            last_status_code: last.and_then(|last| last.status_code),
            generation: view.progress.generation,
            next_attempt_at: view.due.filter(|_| !view.state.is_leased()),
            cancel_requested: view.cancel_requested,
            priority: one.priority,
            template: one.template.clone(),
            subject: one.subject.clone(),
            event_key: one.event_key.clone(),
            correlation_id: one.correlation_id.clone(),
            user_id: one.content.user_id.clone(),
            module: one.content.module.clone(),
            not_before: one.not_before,
            expires_at: one.expires_at,
            created_at: one.created_at(),
            ended_at: end.map(|end| end.at),
            reason_code: end.and_then(|end| end.reason),
            reason: view.why().map(str::to_owned),
            dead_letter_id: end.and_then(|end| end.dead_letter),
            edit_of: one.content.edit_of,
            replaced_by: end.and_then(|end| replaced_by(end.reason, end.text.as_deref())),
        }
    }
}

/// A notification with everything that is known of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NotificationDetail {
    #[serde(flatten)]
    pub(crate) notification: NotificationView,
    /// In the order of generation and number.
    pub(crate) attempts: Vec<AttemptView>,
    /// What else happened, oldest first.
    pub(crate) events: Vec<EventView>,
    /// What keeps it waiting although it is due: a destination that is down, blocked or paused. Null if nothing does.
    pub(crate) parked: Option<ParkedView>,
    /// What follows if every attempt fails, by the policy of now; null at the end.
    pub(crate) planned: Option<PlanView>,
    pub(crate) html: Option<String>,
    #[schema(value_type = WebhookHeaders)]
    pub(crate) headers: BTreeMap<String, String>,
    /// The notification's own policy.
    pub(crate) policy: Option<PolicyLayer>,
    /// As it was given.
    #[schema(value_type = serde_json::Value)]
    pub(crate) body: Box<RawValue>,
    #[schema(value_type = Option<Metadata>)]
    pub(crate) metadata: Option<Box<RawValue>>,
}

impl NotificationDetail {
    pub(crate) fn of(api: &Api, view: &View, history: &History, parked: Option<ParkedBehind>) -> Self {
        let content = &view.notification.content;
        Self {
            notification: NotificationView::of(api, view),
            attempts: history.attempts.iter().map(AttemptView::whole).collect(),
            events: history.events.iter().map(EventView::of).collect(),
            parked: parked.map(ParkedView::of),
            planned: PlanView::of(api, view, history),
            html: content.html.clone(),
            headers: api.engine.shown_headers(content),
            policy: content.policy.clone(),
            body: body(&view.notification),
            metadata: metadata(&view.notification),
        }
    }
}

/// Something that happened beside the attempts.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HistoryEvent)]
pub(crate) struct EventView {
    pub(crate) at: Timestamp,
    /// `interrupted`, `cancel`, `retry`, `retry-now`, `requeue`, `discard`, `edit-and-retry` or `restore`.
    pub(crate) event: String,
    pub(crate) actor: Option<String>,
    pub(crate) generation: u32,
    pub(crate) attempt: u32,
}

impl EventView {
    fn of(event: &HistoryEvent) -> Self {
        Self {
            at: event.at,
            event: event.word.clone(),
            actor: event.actor.clone(),
            generation: event.generation,
            attempt: event.attempt,
        }
    }
}

/// What failed, in the shape of S3.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FailedNotification)]
pub(crate) struct FailedView {
    notification_id: NotificationId,
    channel: Channel,
    user_id: Option<String>,
    status: Status,
    /// The last error in words.
    reason: Option<String>,
    reason_code: Option<Reason>,
    /// How many were made.
    attempts: u32,
    failed_at: Option<Timestamp>,
}

impl FailedView {
    pub(crate) fn of(view: &View) -> Self {
        let end = view.end.as_ref();
        Self {
            notification_id: view.notification.id,
            channel: view.notification.channel,
            user_id: view.notification.content.user_id.clone(),
            status: view.state.into(),
            reason: view.why().map(str::to_owned),
            reason_code: end.and_then(|end| end.reason),
            attempts: view.attempts_made(),
            failed_at: end.map(|end| end.at),
        }
    }
}
