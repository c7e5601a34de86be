//! What people and programs do to a notification outside of its delivery.

use posthaste_core::act::{Act, Seen, Standing};
use posthaste_core::attempt::Progress;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::filter::Audited;
use posthaste_core::flow::Bucket;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use super::queue::{Accepted, Arrival, Idempotency, Request};
use super::slice::slice;

slice! {
    /// Changes that are made only while a notification is still as it was seen.
    pub trait Acts {
        /// What an act has to know, for each id that exists.
        read Facts: fn facts(ids: Vec<NotificationId>) -> Vec<Facts>;

        /// The notification of a dead letter.
        read NotificationOf: fn notification_of(dead_letter: DeadLetterId) -> Option<NotificationId>;

        /// Whose these dead letters are and where they stand, in their order; none for one that does not exist.
        read LetterFacts: fn letter_facts(dead_letters: Vec<DeadLetterId>) -> Vec<Option<LetterFacts>>;

        /// Makes each change whose notification is still as it was seen and which `effect` allows, and returns for each
        /// whether it was made. `actor` is named in the history and by the dead letters that it resolves. If any was made and `audit` is given, its row is written with the numbers of changes asked for and made.
        write Transition: fn transition(
            changes: Vec<Change>,
            actor: Option<String>,
            audit: Option<Audit>,
            now: Timestamp,
        ) -> Vec<bool>;

        /// Stores an edited copy and replaces the dead letter that it was made from, both or neither. None if the original is
        /// no longer as it was seen; a request that is known under its key gets its first answer. Nothing changes then. The
        /// history of both names the act, and `audit` is written with them.
        write Replace: fn replace(
            replacement: Replacement,
            actor: Option<String>,
            audit: Option<Audit>,
            now: Timestamp,
        ) -> Option<Accepted>;
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
    pub standing: Standing,
}

/// What is asked of a dead letter by its name, whether or not it stands for its notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LetterFacts {
    /// Whose it is.
    pub notification: NotificationId,
    /// Where it stands.
    pub status: DeadLetterStatus,
    /// Whether it is soft-deleted.
    pub deleted: bool,
}

impl LetterFacts {
    /// Whether it is soft-deleted and resolved: it can be shown again without its notification.
    pub fn is_hidden(self) -> bool {
        self.deleted && self.status != DeadLetterStatus::Pending
    }
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

/// An edited copy, and the notification in whose place it is sent.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// The original.
    pub id: NotificationId,
    /// How the original stood when this was decided.
    pub seen: Seen,
    /// The edited copy. It is stored unleased.
    pub copy: Arrival,
    /// The key under which a repeat of this request is known, if it has one.
    pub idempotency: Option<Idempotency>,
}

impl Replacement {
    /// How the copy stands when it is stored.
    pub const COPY: Seen = Seen {
        state: State::Pending,
        generation: Progress::START.generation,
        attempt: Progress::START.attempt,
    };

    /// What happens to the original.
    pub fn change(&self) -> Change {
        let act = Act::Replace { by: self.copy.notification.id };
        Change { id: self.id, seen: self.seen, act }
    }

    /// How the copy is taken in.
    pub fn request(self) -> Request {
        let copy = Arrival { lease: None, ..self.copy };
        Request { idempotency: self.idempotency, arrivals: vec![copy] }
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

    /// What a filter asks of it.
    pub fn audited(&self) -> Audited<'_> {
        let Self { tenant, actor, action, target, at, .. } = self;
        Audited { tenant: tenant.as_ref(), actor, action, target, at: *at }
    }
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
