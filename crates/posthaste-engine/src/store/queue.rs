//! What goes through the queue: arrivals, jobs, outcomes and wake-ups.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::Attempt;
use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Lease, NodeId};
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::reason::Reason;
use posthaste_core::state::{Lane, Leased, State};
use posthaste_core::time::Timestamp;

use super::acts::Seen;

/// What one caller handed in together.
#[derive(Debug, Clone)]
pub struct Request {
    /// The key under which a repeat of this request is known, if it has one.
    pub idempotency: Option<Idempotency>,
    /// The notifications.
    pub arrivals: Vec<Arrival>,
}

/// How a repeated request is recognised and answered. Kept for at least 24 hours, in two tables that take turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// Whose key it is.
    pub tenant: Tenant,
    /// The key.
    pub key: String,
    /// The hash of the request's body.
    pub hash: [u8; 32],
    /// What the first request was answered with; its repeats get the same.
    pub answer: Vec<u8>,
}

impl Idempotency {
    /// How long a key is known. A store forgets it no sooner, and treats it as forgotten from then on.
    pub const LIFE: Duration = Duration::from_secs(24 * 3600);
}

/// One notification on its way in.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The notification.
    pub notification: Arc<Notification>,
    /// The flow it belongs to.
    pub flow: FlowId,
    /// When its first attempt is due.
    pub due: Timestamp,
    /// The lease to store it with, where the accepting node sends it at once: this saves the claim.
    pub lease: Option<Lease>,
}

/// What became of everything that arrived together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acceptance {
    /// What became of each request, in their order.
    pub answers: Vec<Accepted>,
    /// The nodes whose leases were granted to rows that this call stored, sorted. A row whose lease names another node is
    /// stored unleased.
    pub granted: Vec<NodeId>,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// It is stored.
    New,
    /// It was stored before, under the same key with the same body; this was the answer.
    Twin(Vec<u8>),
    /// The key was used before with another body. Nothing is stored.
    Conflict,
}

/// What a claim leased.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Claimed {
    /// What can be sent, in the order of the quotas.
    pub jobs: Vec<Job>,
    /// Rows that are leased by the same grant and cannot be read.
    pub set_aside: Vec<NotificationId>,
}

/// Where a notification stands in its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The generation, from 1.
    pub generation: u32,
    /// The running or next attempt; at the end the last one made, 0 if there was none.
    pub attempt: u32,
    /// The attempt number that the generation's budget is counted from: 0, or what a manual retry went on from.
    pub base: u32,
}

impl Progress {
    /// How a notification starts.
    pub const START: Self = Self { generation: 1, attempt: 1, base: 0 };

    /// Which attempt of its generation this is, from 1.
    pub const fn attempt_in_generation(&self) -> u32 {
        self.attempt.saturating_sub(self.base)
    }
}

/// A leased notification: what a node works on.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// What is to be sent.
    pub notification: Arc<Notification>,
    /// Its flow.
    pub flow: FlowId,
    /// Its lane.
    pub lane: Lane,
    /// When it was due.
    pub due: Timestamp,
    /// Where it stands.
    pub progress: Progress,
    /// When the generation was first due.
    pub first_due: Timestamp,
    /// How long the last retry was put off; zero before the first.
    pub delay: Duration,
    /// Leases taken back in a row.
    pub interruptions: u32,
    /// Whether somebody asked to cancel it.
    pub cancel_requested: bool,
    /// The hold.
    pub lease: Lease,
}

impl Job {
    /// Where the row waited.
    pub fn bucket(&self) -> Bucket {
        Bucket { flow: self.flow, lane: self.lane, priority: self.notification.priority }
    }

    /// The state that the row is in.
    pub const fn state(&self) -> State {
        State::live(self.lane, Leased::Yes)
    }
}

/// The outcome of a job, decided; the store only writes it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Which notification.
    pub id: NotificationId,
    /// The hold under which it was worked on.
    pub lease: Lease,
    /// Whether the decision took a request to cancel into account.
    pub cancel_seen: bool,
    /// The attempt that was made, if one was.
    pub attempt: Option<Attempt>,
    /// What comes next.
    pub next: Next,
}

/// What comes after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A retry: the row waits in the retry lane with the next attempt number and no interruptions.
    Retry {
        /// When.
        due: Timestamp,
        /// How long it was put off.
        delay: Duration,
    },
    /// The end.
    End(Ending),
}

/// How a notification ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Succeeded.
    Delivered,
    /// Cancelled.
    Cancelled,
    /// Expired.
    Expired,
    /// Failed, without a dead letter.
    Failed {
        /// Why.
        reason: Reason,
        /// Why, in words.
        text: String,
    },
    /// DeadLetter: the row leaves the queue and the dead letter appears in the same transaction.
    Buried {
        /// The name of the new dead letter.
        dead_letter: DeadLetterId,
        /// Why.
        reason: Reason,
        /// Why, in words.
        text: String,
    },
}

impl Ending {
    /// The state that it leads to.
    pub const fn state(&self) -> State {
        match self {
            Self::Delivered => State::Succeeded,
            Self::Cancelled => State::Cancelled,
            Self::Expired => State::Expired,
            Self::Failed { .. } => State::Failed,
            Self::Buried { .. } => State::DeadLetter,
        }
    }
}

/// What became of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is recorded.
    Applied,
    /// The lease is no longer held; nothing changed. A normal outcome.
    LeaseLost,
    /// Somebody asked to cancel and the decision did not know; nothing changed. Decide again.
    CancelRequested,
}

/// What became due in a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wakes {
    /// Where the rows wait that were read, with the tenant of the flow: each bucket once, in their order.
    pub buckets: Vec<(Bucket, Tenant)>,
    /// The cursor of the last row that was read, if the limit was reached: there may be more.
    pub more: Option<(Timestamp, NotificationId)>,
    /// If the limit was not reached: when the first row after `until` (and after the cursor) is due, if there is one.
    pub next: Option<Timestamp>,
}

/// A bucket with rows that nobody holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Where they wait.
    pub bucket: Bucket,
    /// The tenant of the flow.
    pub tenant: Tenant,
    /// When the first of them is due.
    pub due: Timestamp,
}

/// Waiting rows whose time ran out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expiring {
    /// Which ones, and how they stand, those that expired first before the others.
    pub rows: Vec<(NotificationId, Seen)>,
    /// When the next row expires after that, if there is one.
    pub next: Option<Timestamp>,
}

/// A row that has been due for long.
#[derive(Debug, Clone, PartialEq)]
pub struct Overdue {
    /// What waits.
    pub notification: Arc<Notification>,
    /// How it stands.
    pub seen: Seen,
    /// When it is due.
    pub due: Timestamp,
    /// When the generation was first due.
    pub first_due: Timestamp,
}
