//! An operation as a value, and what a store answers to it.

use std::time::Duration;

use posthaste_core::flow::{Bucket, FlowId, FlowKey, Quota};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;

use crate::store::{
    Acceptance, Audit, AuditRow, Change, Claimed, DeadLetterFilter, DeadLetterView, Expiring, Facts, Filter,
    History, NodeView, Overdue, Page, Pulse, Request, Result, Settled, Settlement, Stats, Store, View,
    Waiting, Wakes,
};

/// One call of a store.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Write(Write),
    Read(Read),
}

/// A call that may change something.
#[derive(Debug, Clone)]
pub(super) enum Write {
    Join { hold: Duration },
    Heartbeat { node: NodeId, hold: Duration },
    Leave { node: NodeId },
    Reclaim { node: NodeId, limit: usize },
    Intern { keys: Vec<FlowKey> },
    Accept { requests: Vec<Request> },
    Claim { quotas: Vec<Quota>, lease: Lease },
    Settle { batch: Vec<Settlement> },
    Release { lease: Lease, only: Option<Vec<NotificationId>> },
    Transition { changes: Vec<Change>, audit: Option<Audit> },
    PutSetting { name: String, value: Option<String>, audit: Audit },
}

/// A call that only looks.
#[derive(Debug, Clone)]
pub(super) enum Read {
    Wakes { after: Place, until: Timestamp, limit: usize },
    Held { node: NodeId, after: Option<NotificationId>, limit: usize },
    Expiring { until: Timestamp, limit: usize },
    Buckets { after: Option<Bucket>, limit: usize },
    Flows { flows: Vec<FlowId> },
    Overdue { due: Timestamp, first_due: Timestamp, after: Option<Place>, limit: usize },
    Facts { ids: Vec<NotificationId> },
    NotificationOf { dead_letter: DeadLetterId },
    Settings { known: Option<i64> },
    Get { id: NotificationId },
    History { id: NotificationId },
    Page { filter: Filter, before: Option<NotificationId>, limit: usize },
    RetryQueue { tenant: Option<Tenant>, after: Option<Place>, limit: usize },
    DeadLetter { id: DeadLetterId },
    DeadLetters { filter: DeadLetterFilter, before: Option<DeadLetterId>, limit: usize },
    Audit { tenant: Option<Tenant>, before: Option<i64>, limit: usize },
    Stats { tenant: Option<Tenant>, now: Timestamp },
    Nodes { now: Timestamp },
}

/// A place in a list that is ordered by time.
pub(super) type Place = (Timestamp, NotificationId);

/// What a store answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Done,
    Joined(NodeId, Timestamp),
    Pulse(Pulse),
    Count(usize),
    Version(i64),
    Flows(Vec<FlowId>),
    Accepted(Acceptance),
    Claimed(Claimed),
    Settled(Vec<Settled>),
    Made(Vec<bool>),
    Wakes(Wakes),
    Expiring(Expiring),
    Buckets(Vec<Waiting>),
    Held(Vec<(NotificationId, Fence)>),
    Keys(Vec<(FlowId, FlowKey)>),
    Overdue(Vec<Overdue>),
    Facts(Vec<Facts>),
    Notification(Option<NotificationId>),
    Settings(Option<(i64, Vec<(String, String)>)>),
    View(Box<Option<View>>),
    History(History),
    Page(Page<View, NotificationId>),
    RetryQueue(Page<View, Place>),
    DeadLetter(Box<Option<DeadLetterView>>),
    DeadLetters(Page<DeadLetterView, DeadLetterId>),
    Audit(Page<AuditRow, i64>),
    Stats(Stats),
    Nodes(Vec<NodeView>),
}

impl Operation {
    /// What the store answers; nothing where it refuses.
    pub(super) async fn apply(&self, store: &dyn Store, now: Timestamp) -> Option<Answer> {
        let answer = match self.clone() {
            Self::Write(write) => write.apply(store, now).await,
            Self::Read(read) => read.apply(store).await,
        };
        answer.ok()
    }
}

impl Write {
    async fn apply(self, store: &dyn Store, now: Timestamp) -> Result<Answer> {
        Ok(match self {
            Self::Join { hold } => {
                let (node, at) = store.join("random", hold, now).await?;
                Answer::Joined(node, at)
            }
            Self::Heartbeat { node, hold } => Answer::Pulse(store.heartbeat(node, hold, now).await?),
            Self::Leave { node } => {
                store.leave(node).await?;
                Answer::Done
            }
            Self::Reclaim { node, limit } => Answer::Count(store.reclaim(node, limit, now).await?),
            Self::Intern { keys } => Answer::Flows(store.intern(keys).await?),
            Self::Accept { requests } => Answer::Accepted(store.accept(requests, now).await?),
            Self::Claim { quotas, lease } => Answer::Claimed(store.claim(quotas, lease, now).await?),
            Self::Settle { batch } => Answer::Settled(store.settle(batch, now).await?),
            Self::Release { lease, only } => Answer::Count(store.release(lease, only).await?),
            Self::Transition { changes, audit } => Answer::Made(store.transition(changes, audit, now).await?),
            Self::PutSetting { name, value, audit } => {
                Answer::Version(store.put_setting(&name, value, audit).await?)
            }
        })
    }
}

impl Read {
    async fn apply(self, store: &dyn Store) -> Result<Answer> {
        Ok(match self {
            Self::Wakes { after, until, limit } => Answer::Wakes(store.wakes(after, until, limit).await?),
            Self::Held { node, after, limit } => Answer::Held(store.held(node, after, limit).await?),
            Self::Expiring { until, limit } => Answer::Expiring(store.expiring(until, limit).await?),
            Self::Buckets { after, limit } => Answer::Buckets(store.buckets(after, limit).await?),
            Self::Flows { flows } => Answer::Keys(store.flows(flows).await?),
            Self::Overdue { due, first_due, after, limit } => {
                Answer::Overdue(store.overdue(due, first_due, after, limit).await?)
            }
            Self::Facts { ids } => Answer::Facts(store.facts(ids).await?),
            Self::NotificationOf { dead_letter } => {
                Answer::Notification(store.notification_of(dead_letter).await?)
            }
            Self::Settings { known } => Answer::Settings(store.settings(known).await?),
            Self::Get { id } => Answer::View(Box::new(store.get(id).await?)),
            Self::History { id } => Answer::History(store.history(id).await?),
            Self::Page { filter, before, limit } => Answer::Page(store.page(filter, before, limit).await?),
            Self::RetryQueue { tenant, after, limit } => {
                Answer::RetryQueue(store.retry_queue(tenant, after, limit).await?)
            }
            Self::DeadLetter { id } => Answer::DeadLetter(Box::new(store.dead_letter(id).await?)),
            Self::DeadLetters { filter, before, limit } => {
                Answer::DeadLetters(store.dead_letters(filter, before, limit).await?)
            }
            Self::Audit { tenant, before, limit } => Answer::Audit(store.audit(tenant, before, limit).await?),
            Self::Stats { tenant, now } => Answer::Stats(store.stats(tenant, now).await?),
            Self::Nodes { now } => Answer::Nodes(store.nodes(now).await?),
        })
    }
}
