//! The seam to what is kept. Every decision comes in as a value, every answer is a fact.
//!
//! Each method is one transaction. `Ok`: what it says is durable. `Err`: it may have happened, **or may still happen
//! later**: a commit that was given up may complete at any time after the answer. So the caller must be able to ask again,
//! and must not take one look at the store, or one release, for the last word on what it holds. A store never reads a clock
//! and never weighs a reply.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::flow::{Bucket, FlowId, FlowKey, Quota};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;

pub use self::acts::{Act, Audit, AuditRow, Change, Facts, Seen};
pub use self::durability::{Durability, DurabilityLevel};
pub use self::nodes::{Alone, LEVEL, Listener, News, NodeView, Pulse};
pub use self::queue::{
    Acceptance, Accepted, Arrival, Claimed, Ending, Expiring, Idempotency, Job, Next, Overdue, Progress,
    Request, Settled, Settlement, Waiting, Wakes,
};
pub use self::views::{
    ChannelStats, DeadLetterFilter, DeadLetterView, End, Filter, History, HistoryEvent, Page, Stats, View,
};

mod acts;
mod durability;
mod nodes;
mod queue;
mod views;

/// Why the store could not do as it was told.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot serve now (full disk, lost connection, shutting down). The call may have happened, or may still happen;
    /// ask again.
    #[error("the store cannot serve now: {what}")]
    Unavailable {
        /// What went wrong, for people.
        what: String,
        /// The error beneath.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// What is kept cannot be understood: a bug, or a file that something else wrote to.
    #[error("the store holds something that makes no sense: {what}")]
    Corrupt {
        /// What was found, for people.
        what: String,
    },
}

impl StoreError {
    /// The error with everything beneath it, in one line. Only the first line of each: what follows may quote what is kept.
    pub fn causes(&self) -> String {
        let mut text = self.to_string();
        let mut beneath = std::error::Error::source(self);
        while let Some(error) = beneath {
            let more = error.to_string();
            let more = more.lines().next().unwrap_or_default();
            if !text.contains(more) {
                text = format!("{text}: {more}");
            }
            beneath = error.source();
        }
        text
    }
}

/// What a store answers.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The place where notifications, attempts and dead letters are kept.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Whether other nodes may use it at the same time. Such a store is a server, and a transaction there costs by itself as
    /// much as some thirty rows in it, so that it pays to gather for a moment; a file gathers by itself.
    fn is_shared(&self) -> bool {
        false
    }

    /// Waits until the store has lost a part without which it can never serve again in this process, such as the thread that
    /// writes. While asking again may help, this does not return.
    async fn broken(&self) {
        std::future::pending().await
    }

    // ---- nodes ----

    /// A new node, alive for `hold`. `now` is the caller's time, for stores that have no clock of their own.
    async fn join(&self, name: &str, hold: Duration, now: Timestamp) -> Result<(NodeId, Timestamp)>;

    /// Keeps the node alive for `hold` from the store's time on, and tells that time and who is dead. Never shortens a
    /// hold that was granted before.
    async fn heartbeat(&self, node: NodeId, hold: Duration, now: Timestamp) -> Result<Pulse>;

    /// The node stops: everything it still holds waits again, unsent, and nothing is counted as interrupted.
    async fn leave(&self, node: NodeId) -> Result<()>;

    /// Takes back up to `limit` leases of a dead node. Each leaves an `interrupted` event and one more interruption on
    /// its row. A node that is alive at `now` loses nothing. Once this was called on a dead node, it cannot come back
    /// to life. Answers how many were taken; fewer than `limit` means that none are left, and the node is forgotten.
    async fn reclaim(&self, node: NodeId, limit: usize, now: Timestamp) -> Result<usize>;

    /// Every node that is not forgotten, in the order of their numbers.
    async fn nodes(&self, now: Timestamp) -> Result<Vec<NodeView>>;

    /// An ear for what other nodes tell and for settings that are put.
    fn listen(&self) -> Box<dyn Listener>;

    /// Tells the other nodes that rows are due in these buckets, or, if none is named, that they may be anywhere. Only a
    /// hint: it may get lost, and whoever looks now and then finds them all the same.
    async fn tell(&self, from: NodeId, due: Vec<Bucket>) -> Result<()>;

    // ---- the hot path ----

    /// The numbers of flows, made where they are new. The number of a flow never changes.
    async fn intern(&self, flows: Vec<FlowKey>) -> Result<Vec<FlowId>>;

    /// Takes in everything that arrived together. A request is taken whole or not at all. A lease of a node that is dead
    /// or gone is not granted: its rows are stored unleased and wait for a claim. The answer names the nodes whose leases
    /// were granted.
    async fn accept(&self, requests: Vec<Request>, now: Timestamp) -> Result<Acceptance>;

    /// Leases up to each quota's limit of rows that are due at `now`, the longest due first, and hands them out.
    /// A node that is dead or gone is given nothing, for nobody would ever take it back. A row that cannot be read is
    /// leased as well and named in `set_aside`, so that it is in nobody's way while the node holds it; it takes no place
    /// of the quota, and lists leave it out.
    async fn claim(&self, quotas: Vec<Quota>, lease: Lease, now: Timestamp) -> Result<Claimed>;

    /// Records outcomes: attempt row, next state, dead letter and counters of each, where its lease still stands.
    async fn settle(&self, batch: Vec<Settlement>, now: Timestamp) -> Result<Vec<Settled>>;

    /// Gives back, unsent, the rows of these leases: only the named ids where some are named, else every row that the
    /// grant holds. What is no longer held is passed over.
    async fn release(&self, lease: Lease, only: Option<Vec<NotificationId>>) -> Result<usize>;

    /// The rows that are leased to a node, with the grant of each, in the order of ids after `after`. Fewer than `limit`
    /// rows mean that there are no more. A row that cannot be read is among them.
    async fn held(
        &self,
        node: NodeId,
        after: Option<NotificationId>,
        limit: usize,
    ) -> Result<Vec<(NotificationId, Fence)>>;

    /// The hash and the answer of the first request under a key, for a repeat that would not be taken in today. None where
    /// `accept` at `now` would not know the key.
    async fn idempotent(
        &self,
        tenant: Tenant,
        key: String,
        now: Timestamp,
    ) -> Result<Option<([u8; 32], Vec<u8>)>>;

    // ---- waking ----

    /// Reads rows that nobody holds in the order of (due, id): those after the cursor `after` that are due at `until` or
    /// before, at most `limit` of them, and tells their buckets. `(t, NotificationId::LAST)` as a cursor means that
    /// everything due at `t` was read. A row whose flow is not known is read and not told.
    async fn wakes(
        &self,
        after: (Timestamp, NotificationId),
        until: Timestamp,
        limit: usize,
    ) -> Result<Wakes>;

    /// Rows that nobody holds and that expire up to `until`, at most `limit`, the earliest first. `next` is the first
    /// expiry among the rows that are not told.
    async fn expiring(&self, until: Timestamp, limit: usize) -> Result<Expiring>;

    /// The buckets with rows that nobody holds, with the tenant and the earliest due time of each, in the order of the
    /// buckets after `after`: what a node asks at its start, and now and then as a safety net. Fewer than `limit` mean that
    /// there are no more. A bucket whose flow is not known is left out. The cost of a bucket does not depend on how many
    /// rows wait in it.
    async fn buckets(&self, after: Option<Bucket>, limit: usize) -> Result<Vec<Waiting>>;

    /// What these flows are: those that are known, each once, in the order of their numbers.
    async fn flows(&self, flows: Vec<FlowId>) -> Result<Vec<(FlowId, FlowKey)>>;

    /// Rows that nobody holds, that are due before `due_before` and were first due before `first_due_before`, in the order
    /// of (due, id) after `after`: what may have been parked for too long.
    async fn overdue(
        &self,
        due_before: Timestamp,
        first_due_before: Timestamp,
        after: Option<(Timestamp, NotificationId)>,
        limit: usize,
    ) -> Result<Vec<Overdue>>;

    // ---- acts ----

    /// What an act has to know, for each id that exists.
    async fn facts(&self, ids: Vec<NotificationId>) -> Result<Vec<Facts>>;

    /// The notification of a dead letter.
    async fn notification_of(&self, dead_letter: DeadLetterId) -> Result<Option<NotificationId>>;

    /// Makes each change whose notification is still as it was seen, and answers for each whether it was made. If any
    /// was made and `audit` is given, its row is written with the numbers of changes asked for and made.
    async fn transition(
        &self,
        changes: Vec<Change>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Vec<bool>>;

    // ---- settings ----

    /// Every setting with its value, and the version, which grows with each `put_setting`. `None` if the version is
    /// still `known`.
    async fn settings(&self, known: Option<i64>) -> Result<Option<(i64, Vec<(String, String)>)>>;

    /// Sets (or, without a value, removes) a setting, with its audit row.
    async fn put_setting(&self, name: &str, value: Option<String>, audit: Audit) -> Result<i64>;

    // ---- reads ----

    /// A notification as it stands, without its history.
    async fn get(&self, id: NotificationId) -> Result<Option<View>>;

    /// Its attempts and events, oldest first.
    async fn history(&self, id: NotificationId) -> Result<History>;

    /// Notifications, newest first. Looks at a bounded number of rows, so a page may be short and still have a next.
    async fn page(
        &self,
        filter: Filter,
        before: Option<NotificationId>,
        limit: usize,
    ) -> Result<Page<View, NotificationId>>;

    /// What waits for a retry, soonest first.
    async fn retry_queue(
        &self,
        tenant: Option<Tenant>,
        after: Option<(Timestamp, NotificationId)>,
        limit: usize,
    ) -> Result<Page<View, (Timestamp, NotificationId)>>;

    /// A dead letter with its payload and attempts.
    async fn dead_letter(&self, id: DeadLetterId) -> Result<Option<DeadLetterView>>;

    /// Dead letters, newest first.
    async fn dead_letters(
        &self,
        filter: DeadLetterFilter,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Page<DeadLetterView, DeadLetterId>>;

    /// Who did what, newest first; `before` is the number of the last row seen.
    async fn audit(
        &self,
        tenant: Option<Tenant>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<AuditRow, i64>>;

    /// The kept counters, for one tenant or for all.
    async fn stats(&self, tenant: Option<Tenant>, now: Timestamp) -> Result<Stats>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once_and_without_what_it_quotes() {
        let beneath = std::io::Error::other("relation is missing\nDETAIL: Key (a)=(secret)");
        let error = StoreError::Unavailable { what: "refused".to_owned(), source: Some(Box::new(beneath)) };
        assert_eq!(error.causes(), "the store cannot serve now: refused: relation is missing");
    }
}
