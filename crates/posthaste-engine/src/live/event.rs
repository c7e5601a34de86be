//! What can be told: a notification in another state, an operation that got further.

use std::sync::Arc;

use posthaste_core::act::{self, Effect};
use posthaste_core::filter::LastFailure;
use posthaste_core::id::DeadLetterId;
use posthaste_core::notification::{Body, Content, Notification};
use posthaste_core::operation::{Operation, Selection, Standing};
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A notification is in another state.
    Notification(Change),
    /// An operation is in another state, or further than it was.
    Operation(Progressed),
}

/// What a listener can be told of, beside what it missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    Notifications,
    Operations,
}

impl Event {
    /// When it happened.
    pub const fn at(&self) -> Timestamp {
        match self {
            Self::Notification(change) => change.at,
            Self::Operation(progressed) => progressed.at,
        }
    }

    pub(super) const fn topic(&self) -> Topic {
        match self {
            Self::Notification(_) => Topic::Notifications,
            Self::Operation(_) => Topic::Operations,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let more = match self {
            Self::Notification(change) => change.notification.bytes(),
            Self::Operation(progressed) => progressed.bytes(),
        };
        size_of::<Self>() + more
    }
}

/// A notification is in another state.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub at: Timestamp,
    /// Without its content, if that is large.
    pub notification: Arc<Notification>,
    pub state: State,
    /// The running or next attempt; at the end the last one made.
    pub attempt: u32,
    /// How the attempt failed that led to the change; none if there was none or it delivered.
    pub failure: LastFailure,
    /// Why it ended.
    pub reason: Option<Reason>,
    pub dead_letter: Option<DeadLetterId>,
}

/// An operation is in another state, or further than it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Progressed {
    pub at: Timestamp,
    /// Without the ids that it was given, and without its events.
    pub operation: Box<Operation>,
}

impl Progressed {
    pub(crate) fn new(at: Timestamp, operation: &Operation) -> Self {
        let selection = match &operation.selection {
            Selection::Ids(_) => Selection::Ids([].into()),
            Selection::Filter(_) | Selection::Group(_) | Selection::All => operation.selection.clone(),
        };
        let standing = Standing { events: vec![], cursor: None, ..operation.standing.clone() };
        Self { at, operation: Box::new(Operation { selection, standing, ..operation.clone() }) }
    }

    fn bytes(&self) -> usize {
        let selection = match &self.operation.selection {
            Selection::Filter(parameters) => {
                parameters.iter().map(|(name, value)| name.len() + value.len()).sum()
            }
            Selection::Group(group) => group.len(),
            Selection::Ids(_) | Selection::All => 0,
        };
        size_of::<Operation>() + selection
    }
}

/// The largest notification that is kept with its content.
pub(super) const MOST_BYTES: usize = 2 * 1024;

impl Change {
    pub(crate) fn new(at: Timestamp, notification: &Arc<Notification>, state: State, attempt: u32) -> Self {
        Self {
            at,
            notification: slim(notification),
            state,
            attempt,
            failure: None,
            reason: None,
            dead_letter: None,
        }
    }

    /// What an act changed; none if the state is as it was.
    pub(crate) fn by_act(
        at: Timestamp,
        notification: &Arc<Notification>,
        standing: &act::Standing,
        effect: &Effect,
    ) -> Option<Self> {
        let state = effect.state(standing.state);
        let change = |attempt| Self::new(at, notification, state, attempt);
        match effect {
            Effect::MarkCancel | Effect::MakeDue(_) => None,
            Effect::Reopen { progress, .. } => Some(change(progress.attempt)),
            Effect::End { ending, progress } => {
                let (reason, _, dead_letter) = ending.parts();
                Some(Self { reason, dead_letter, ..change(progress.attempt) })
            }
            Effect::Amend { reason, letter, .. } => Some(Self {
                reason: *reason,
                dead_letter: letter.map(|letter| letter.id),
                ..change(standing.progress.attempt)
            }),
        }
    }
}

/// The notification, without its content if that is large: a ring holds thousands.
pub(super) fn slim(notification: &Arc<Notification>) -> Arc<Notification> {
    if notification.bytes() <= MOST_BYTES {
        return notification.clone();
    }
    let Notification { id, tenant, channel, destination, to, priority, .. } = &**notification;
    Arc::new(Notification {
        id: *id,
        tenant: tenant.clone(),
        channel: *channel,
        destination: destination.clone(),
        to: to.clone(),
        priority: *priority,
        template: notification.template.clone(),
        subject: notification.subject.clone(),
        event_key: notification.event_key.clone(),
        correlation_id: notification.correlation_id.clone(),
        not_before: notification.not_before,
        expires_at: notification.expires_at,
        content: Content::of(Body::Text(String::new())),
    })
}
