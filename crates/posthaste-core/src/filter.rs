//! Which rows a list shows: one filter for notifications, dead letters and the retry queue.
//!
//! It is parsed once, from the parameters of a query, and printed as one. `matches` and `matches_letter` say what it means;
//! the stores choose an index by it and check the rest.

mod audit;
mod query;
pub(crate) mod words;

pub use self::audit::{AuditFilter, Audited};
pub use self::query::{BadFilter, List};
pub use self::words::{LetterStatus, destinations, time};
use crate::attempt::{Attempt, Outcome};
use crate::channel::Channel;
use crate::dead_letter::DeadLetterStatus;
use crate::failure::FailureType;
use crate::flow::FlowKey;
use crate::group::{GroupId, Grouped};
use crate::notification::{Notification, Tenant};
use crate::reason::Reason;
use crate::state::State;
use crate::time::Timestamp;

/// Which rows a list shows. A field that is none or empty matches every row; of several values one has to match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Whose.
    pub tenant: Option<Tenant>,
    /// Not for dead letters, which have `statuses`.
    pub states: Vec<State>,
    /// Only for dead letters. Empty: all but those that are deleted.
    pub statuses: Vec<LetterStatus>,
    /// Over which channel.
    pub channels: Vec<Channel>,
    /// Made from which template.
    pub templates: Vec<String>,
    /// To which destination, as flows name it.
    pub destinations: Vec<String>,
    /// How the last attempt failed: of a notification the last one made, of a dead letter the last one of the generation that
    /// died. What was never attempted, or was delivered by its last attempt, does not match.
    pub failure_types: Vec<FailureType>,
    /// The status code with which the last attempt failed, in the same sense.
    pub status_codes: Vec<u16>,
    /// Why it ended.
    pub reasons: Vec<Reason>,
    /// Accepted, or died, at or after.
    pub since: Option<Timestamp>,
    /// Accepted, or died, before.
    pub until: Option<Timestamp>,
    /// Text that recipient, subject, event key or correlation id hold, in any case of ASCII letters.
    pub text: Option<String>,
    /// Only for dead letters: in which failure group.
    pub group: Option<GroupId>,
}

/// How the last attempt failed; none if there was none or it delivered.
pub type LastFailure = Option<(FailureType, Option<u16>)>;

/// What `Filter` asks of the last attempt.
pub fn last_failure(attempt: Option<&Attempt>) -> LastFailure {
    let attempt = attempt?;
    match attempt.outcome {
        Outcome::Failed(failure) => Some((failure, attempt.status_code)),
        Outcome::Delivered => None,
    }
}

impl Filter {
    /// The channels that it names, or all of them.
    pub fn channels(&self) -> impl Iterator<Item = Channel> {
        let all = if self.channels.is_empty() { &Channel::ALL[..] } else { &self.channels[..] };
        all.iter().copied()
    }

    /// Whether a list of notifications, or the retry queue, shows this one.
    pub fn matches(
        &self,
        notification: &Notification,
        state: State,
        reason: Option<Reason>,
        last: LastFailure,
    ) -> bool {
        self.wants_flow(&FlowKey::of(notification))
            && self.wants_time(notification.created_at())
            && self.wants_content(notification)
            && self.wants_state(state)
            && self.wants_reason(reason)
            && self.wants_failure(last)
    }

    /// Whether a list of dead letters shows the one of this notification.
    pub fn matches_letter(
        &self,
        notification: &Notification,
        died_at: Timestamp,
        status: LetterStatus,
        reason: Reason,
        last: LastFailure,
        fingerprint: Option<[u8; 16]>,
    ) -> bool {
        self.wants_flow(&FlowKey::of(notification))
            && self.wants_group(fingerprint.map(|print| Grouped::of(notification, print)))
            && self.wants_time(died_at)
            && self.wants_content(notification)
            && self.wants_status(status)
            && self.wants_reason(Some(reason))
            && self.wants_failure(last)
    }

    /// Whether tenant, channel and destination match.
    pub fn wants_flow(&self, key: &FlowKey) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == key.tenant)
            && wants(&self.channels, &key.channel)
            && (self.destinations.is_empty() || self.destinations.iter().any(|one| **one == *key.destination))
    }

    /// Whether a failure group of a dead letter matches. Without a fingerprint it is in no group yet.
    pub fn wants_group(&self, grouped: Option<Grouped<'_>>) -> bool {
        self.group.is_none_or(|wanted| {
            grouped.is_some_and(|grouped| grouped.groups().any(|(_, group)| group == wanted))
        })
    }

    /// Whether the template matches.
    pub fn wants_template(&self, template: Option<&str>) -> bool {
        self.templates.is_empty() || template.is_some_and(|name| self.templates.iter().any(|one| one == name))
    }

    /// Whether a text matches. They are recipient, subject, event key and correlation id.
    pub fn wants_text(&self, texts: [Option<&str>; 4]) -> bool {
        let Some(wanted) = &self.text else { return true };
        texts.into_iter().flatten().any(|text| contains(text, wanted))
    }

    /// Whether the state matches.
    pub fn wants_state(&self, state: State) -> bool {
        wants(&self.states, &state)
    }

    /// Whether the status of a dead letter matches.
    pub fn wants_status(&self, status: LetterStatus) -> bool {
        self.letter_statuses().contains(&status)
    }

    /// The statuses of the dead letters that are wanted.
    pub fn letter_statuses(&self) -> &[LetterStatus] {
        if self.statuses.is_empty() { &LetterStatus::NOT_DELETED } else { &self.statuses }
    }

    /// Whether the reason of the end matches.
    pub fn wants_reason(&self, reason: Option<Reason>) -> bool {
        self.reasons.is_empty() || reason.is_some_and(|reason| self.reasons.contains(&reason))
    }

    /// Whether anything is asked of the last attempt.
    pub fn asks_for_failure(&self) -> bool {
        !self.failure_types.is_empty() || !self.status_codes.is_empty()
    }

    /// Whether the last attempt matches.
    pub fn wants_failure(&self, last: LastFailure) -> bool {
        if !self.asks_for_failure() {
            return true;
        }
        let Some((failure, code)) = last else { return false };
        let has_code =
            self.status_codes.is_empty() || code.is_some_and(|code| self.status_codes.contains(&code));
        wants(&self.failure_types, &failure) && has_code
    }

    fn wants_time(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| since <= at) && self.until.is_none_or(|until| at < until)
    }

    fn wants_content(&self, notification: &Notification) -> bool {
        self.wants_template(notification.template.as_deref())
            && self.wants_text([
                Some(notification.to.as_str()),
                notification.subject.as_deref(),
                notification.event_key.as_deref(),
                notification.correlation_id.as_deref(),
            ])
    }
}

fn wants<T: PartialEq>(wanted: &[T], found: &T) -> bool {
    wanted.is_empty() || wanted.contains(found)
}

/// Whether `text` contains `wanted`, in any case of ASCII letters.
fn contains(text: &str, wanted: &str) -> bool {
    let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
    wanted.is_empty() || text.windows(wanted.len()).any(|part| part.eq_ignore_ascii_case(wanted))
}

impl LetterStatus {
    /// The status of a dead letter as the filters know it.
    pub const fn of(status: DeadLetterStatus, deleted: bool) -> Self {
        if deleted {
            return Self::Deleted;
        }
        match status {
            DeadLetterStatus::Pending => Self::Pending,
            DeadLetterStatus::Requeued => Self::Requeued,
            DeadLetterStatus::Cancelled => Self::Discarded,
        }
    }
}
