//! What people and programs do to a notification outside of its delivery.

use posthaste_core::act::{Act, Seen, Standing};
use posthaste_core::filter::Audited;
use posthaste_core::flow::Bucket;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;

use super::slice::slice;

slice! {
    /// Changes that are made only while a notification is still as it was seen.
    pub trait Acts {
        /// What an act has to know, for each id that exists.
        read Facts: fn facts(ids: Vec<NotificationId>) -> Vec<Facts>;

        /// The notification of a dead letter.
        read NotificationOf: fn notification_of(dead_letter: DeadLetterId) -> Option<NotificationId>;

        /// Makes each change whose notification is still as it was seen and which `effect` allows, and returns for each
        /// whether it was made. `actor` is named in the history and by the dead letters that it resolves. If any was made and `audit` is given, its row is written with the numbers of changes asked for and made.
        write Transition: fn transition(
            changes: Vec<Change>,
            actor: Option<String>,
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
    pub standing: Standing,
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
