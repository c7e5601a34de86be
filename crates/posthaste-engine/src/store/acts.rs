//! What people and programs do to a notification outside of its delivery.

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::flow::Bucket;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::reason::Reason;
use posthaste_core::state::{Event, State};
use posthaste_core::time::Timestamp;

use super::slice::slice;

slice! {
    /// Changes that are made only while a notification is still as it was seen.
    pub trait Acts {
        /// What an act has to know, for each id that exists.
        read Facts: fn facts(ids: Vec<NotificationId>) -> Vec<Facts>;

        /// The notification of a dead letter.
        read NotificationOf: fn notification_of(dead_letter: DeadLetterId) -> Option<NotificationId>;

        /// Makes each change whose notification is still as it was seen, and returns for each whether it was made. If any
        /// was made and `audit` is given, its row is written with the numbers of changes asked for and made.
        write Transition: fn transition(
            changes: Vec<Change>,
            audit: Option<Audit>,
            now: Timestamp,
        ) -> Vec<bool>;
    }
}

/// What an act has to know of a notification before it decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Which one.
    pub id: NotificationId,
    /// Whose.
    pub tenant: Tenant,
    /// Where it waits, or waited.
    pub bucket: Bucket,
    /// How it stands.
    pub seen: Seen,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Whether somebody asked to cancel it.
    pub cancel_requested: bool,
    /// Why it ended, if it ended without delivery.
    pub reason: Option<Reason>,
    /// The dead letter that it ended as, also where that was discarded since; none while it lives.
    pub dead_letter: Option<(DeadLetterId, DeadLetterStatus)>,
}

/// How a notification stood when it was looked at: a change is made only while this is still so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Its state.
    pub state: State,
    /// Its generation.
    pub generation: u32,
    /// Its running or next attempt; at the end the last one made.
    pub attempt: u32,
}

/// One change to one notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which one.
    pub id: NotificationId,
    /// How it stood when this was decided.
    pub seen: Seen,
    /// What to do.
    pub act: Act,
}

/// What can be done to a notification. Each leaves an event in its history, but for `Expire` and `Bury`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A waiting one ends as Cancelled.
    Cancel,
    /// A leased one is marked: a success still counts, a failure ends it as Cancelled. Its state stays.
    RequestCancel,
    /// A scheduled retry becomes due at once.
    RetryNow,
    /// A waiting one ends as Expired.
    Expire,
    /// A waiting one becomes a dead letter.
    Bury {
        /// The name of the dead letter.
        dead_letter: DeadLetterId,
        /// Why.
        reason: Reason,
        /// Why, in words.
        text: String,
    },
    /// A dead letter's notification opens a new generation with attempts from 1; the dead letter is requeued.
    Requeue,
    /// A failed or dead one opens a new generation whose attempts go on counting; its pending dead letter, if there
    /// is one, is requeued.
    Retry,
    /// A dead letter is given up: Failed, `DISCARDED`, its dead letter cancelled and resolved now. The time of its end
    /// stays that of its death, for nothing was tried since.
    Discard,
    /// A discarded one comes back: DeadLetter with the reason and the time that it had, its dead letter pending.
    Restore,
}

impl Act {
    /// The arrow that the act takes; none where the state stays as it is.
    pub const fn event(&self) -> Option<Event> {
        match self {
            Self::Cancel => Some(Event::Cancel),
            Self::RequestCancel | Self::RetryNow => None,
            Self::Expire => Some(Event::Expire),
            Self::Bury { .. } => Some(Event::Bury),
            Self::Requeue => Some(Event::Requeue),
            Self::Retry => Some(Event::Retry),
            Self::Discard => Some(Event::Discard),
            Self::Restore => Some(Event::Restore),
        }
    }

    /// The word in the history and in the audit; none for what the engine does by itself.
    pub const fn word(&self) -> Option<&'static str> {
        match self {
            Self::Cancel | Self::RequestCancel => Some("cancel"),
            Self::RetryNow => Some("retry-now"),
            Self::Expire | Self::Bury { .. } => None,
            Self::Requeue => Some("requeue"),
            Self::Retry => Some("retry"),
            Self::Discard => Some("discard"),
            Self::Restore => Some("restore"),
        }
    }
}

/// Who does what: the audit row that is written in the transaction of the act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Whose data it touches; none for what belongs to all.
    pub tenant: Option<Tenant>,
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// To what: an id, a scope or a filter.
    pub target: String,
    /// When.
    pub at: Timestamp,
    /// The id of the API key that was used, if one was.
    pub key_id: Option<String>,
    /// The address that the request came from, if it came over the network.
    pub address: Option<String>,
}

impl Audit {
    /// Who resolved a dead letter where no audit names anybody.
    pub const ITSELF: &str = "posthaste";
}

/// An audit row as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number; rows are counted up.
    pub number: i64,
    /// Who did what.
    pub audit: Audit,
    /// How many changes were asked for.
    pub asked: u64,
    /// How many of them were made.
    pub count: u64,
}

impl AuditRow {
    /// What came of it: `done` where all that was asked for was made, else `partly`, because something had changed since
    /// it was looked at. What came to nothing has no row.
    pub const fn outcome(&self) -> &'static str {
        if self.count == self.asked { "done" } else { "partly" }
    }
}
