//! The hot path: what arrives, is leased, and is settled.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::act::Ending;
use posthaste_core::attempt::{Attempt, Progress};
use posthaste_core::flow::{Bucket, FlowId, FlowKey, Quota};
use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::state::{Lane, Leased, State};
use posthaste_core::time::Timestamp;

use super::slice::slice;

slice! {
    /// The hot path. Its methods take batches, and each is one transaction.
    pub trait Queue {
        /// The numbers of flows, made where they are new. The number of a flow never changes.
        write Intern: fn intern(flows: Vec<FlowKey>) -> Vec<FlowId>;

        /// What these flows are: those that are known, each once, in the order of their numbers.
        read Flows: fn flows(flows: Vec<FlowId>) -> Vec<KnownFlow>;

        /// Takes in everything that arrived together. A request is taken whole or not at all. A lease of a node that is
        /// dead or gone is not granted: its rows are stored unleased and wait for a claim. The answer names the nodes whose
        /// leases were granted.
        write Accept: fn accept(requests: Vec<Request>, now: Timestamp) -> Acceptance;

        /// Leases up to each quota's limit of rows that are due at `now`, the longest due first, and hands them out.
        /// A node that is dead or gone is given nothing, for nobody would ever take it back. A row that cannot be read is
        /// leased as well and named in `set_aside`, so that it is in nobody's way while the node holds it; it takes no
        /// place of the quota, and lists leave it out.
        write Claim: fn claim(quotas: Vec<Quota>, lease: Lease, now: Timestamp) -> ClaimResult;

        /// Records outcomes: attempt row, next state, dead letter and counters of each, where its lease still stands.
        write Settle: fn settle(batch: Vec<Settlement>, now: Timestamp) -> Vec<Settled>;

        /// Gives back, unsent, the rows of these leases: only the named ids where some are named, else every row that the
        /// grant holds. What is no longer held is passed over.
        write Release: fn release(lease: Lease, only: Option<Vec<NotificationId>>) -> usize;

        /// The rows that are leased to a node, in the order of ids after `after`. Fewer than `limit` rows mean that there
        /// are no more. A row that cannot be read is among them.
        read Held: fn held(node: NodeId, after: Option<NotificationId>, limit: usize) -> Vec<Held>;

        /// What the first request under a key was answered, for a repeat that would not be taken in today. None where
        /// `accept` at `now` would not know the key.
        read Idempotent: fn idempotent(tenant: Tenant, key: String, now: Timestamp) -> Option<FirstAnswer>;
    }
}

/// A flow with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFlow {
    /// Its number.
    pub id: FlowId,
    /// What it is.
    pub key: FlowKey,
}

/// A row that is leased to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// Which notification.
    pub id: NotificationId,
    /// The grant.
    pub fence: Fence,
}

/// The first request under an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstAnswer {
    /// The hash of its body.
    pub hash: [u8; 32],
    /// What it was answered.
    pub answer: Vec<u8>,
}

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
pub struct ClaimResult {
    /// What can be sent, in the order of the quotas.
    pub claimed: Vec<Claimed>,
    /// Rows that are leased by the same grant and cannot be read.
    pub set_aside: Vec<NotificationId>,
}

/// A leased notification: what a node works on.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
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

impl Claimed {
    /// Where the row waited.
    pub fn bucket(&self) -> Bucket {
        Bucket { flow: self.flow, lane: self.lane, priority: self.notification.priority }
    }

    /// The state that the row is in.
    pub const fn state(&self) -> State {
        State::live(self.lane, Leased::Yes)
    }
}

/// The outcome of a claimed notification, decided; the store only writes it down.
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
