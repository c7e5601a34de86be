//! The executable specification of a store: BTreeMaps behind one lock.
//!
//! Every other store has to answer as this one does. The conformance suite and random comparisons hold them to it, and
//! the simulation runs the engine on it. `plant` switches on a named bug, to show that those checks would see it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::flow::{Bucket, FlowId, FlowKey, Quota};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use tokio::sync::broadcast;

pub use self::counters::{Counters, Ends, Standing};
pub use self::planted::Planted;
pub use self::tables::{Ended, Kept, Node, Row, Tables};
use crate::store::{
    Acceptance, Audit, AuditRow, Change, Claimed, DeadLetterFilter, DeadLetterView, Expiring, Facts, Filter,
    History, Listener, News, NodeView, Overdue, Page, Pulse, Request, Result, Settled, Settlement, Stats,
    Store, View, Waiting, Wakes,
};

mod acts;
mod counters;
mod hot_path;
mod nodes;
mod planted;
mod reads;
mod tables;
mod waking;

/// A store that keeps everything in memory and is gone with its last handle.
#[derive(Clone)]
pub struct ModelStore {
    tables: Arc<Mutex<Tables>>,
    clock: Option<Arc<dyn Fn() -> Timestamp + Send + Sync>>,
    /// What nodes tell each other. Whoever does not listen does not hear it.
    news: broadcast::Sender<News>,
}

struct Ear(broadcast::Receiver<News>);

#[async_trait]
impl Listener for Ear {
    async fn next(&mut self) -> Result<News> {
        match self.0.recv().await {
            Ok(news) => Ok(news),
            Err(broadcast::error::RecvError::Lagged(_)) => Ok(News::Missed),
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl ModelStore {
    /// An empty store whose time is that of its callers.
    pub fn new() -> Self {
        Self { tables: Arc::default(), clock: None, news: broadcast::channel(64).0 }
    }

    /// An empty store that has a clock of its own for `join` and `heartbeat`, as a database of a cluster has.
    pub fn with_clock(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { clock: Some(Arc::new(clock)), ..Self::new() }
    }

    /// Switches a bug on. Only the last one planted is there.
    pub fn plant(&self, bug: Planted) {
        self.lock().planted = Some(bug);
    }

    /// Looks at everything that is kept, while nothing changes.
    pub fn inspect<T>(&self, look: impl FnOnce(&Tables) -> T) -> T {
        look(&self.lock())
    }

    /// The kept counters and the counters that the rows add up to, where the two differ (I17).
    pub fn drift(&self) -> Option<(Counters, Counters)> {
        let tables = self.lock();
        let counted = tables.recount();
        (tables.counters != counted).then(|| (tables.counters.clone(), counted))
    }

    /// A panic elsewhere leaves the tables as they are; whoever looks next is to see them, not a second panic.
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store_time(&self, callers: Timestamp) -> Timestamp {
        self.clock.as_ref().map_or(callers, |clock| clock())
    }
}

impl Default for ModelStore {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for ModelStore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ModelStore").field("tables", &self.tables).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for ModelStore {
    async fn join(&self, name: &str, hold: Duration, now: Timestamp) -> Result<(NodeId, Timestamp)> {
        let now = self.store_time(now);
        Ok((self.lock().join(name, hold, now), now))
    }

    async fn heartbeat(&self, node: NodeId, hold: Duration, now: Timestamp) -> Result<Pulse> {
        let now = self.store_time(now);
        Ok(self.lock().heartbeat(node, hold, now))
    }

    async fn leave(&self, node: NodeId) -> Result<()> {
        self.lock().leave(node)
    }

    async fn reclaim(&self, node: NodeId, limit: usize, now: Timestamp) -> Result<usize> {
        self.lock().reclaim(node, limit, now)
    }

    async fn nodes(&self, now: Timestamp) -> Result<Vec<NodeView>> {
        let now = self.store_time(now);
        Ok(self.lock().nodes(now))
    }

    fn listen(&self) -> Box<dyn Listener> {
        Box::new(Ear(self.news.subscribe()))
    }

    async fn tell(&self, from: NodeId, due: Vec<Bucket>) -> Result<()> {
        // Nobody listens, perhaps.
        let _ = self.news.send(News::Due { from, buckets: due });
        Ok(())
    }

    async fn intern(&self, flows: Vec<FlowKey>) -> Result<Vec<FlowId>> {
        Ok(self.lock().intern(flows))
    }

    async fn accept(&self, requests: Vec<Request>, now: Timestamp) -> Result<Acceptance> {
        self.lock().accept(requests, now)
    }

    async fn claim(&self, quotas: Vec<Quota>, lease: Lease, now: Timestamp) -> Result<Claimed> {
        self.lock().claim(quotas, lease, now)
    }

    async fn settle(&self, batch: Vec<Settlement>, now: Timestamp) -> Result<Vec<Settled>> {
        self.lock().settle(batch, now)
    }

    async fn release(&self, lease: Lease, only: Option<Vec<NotificationId>>) -> Result<usize> {
        self.lock().release(lease, only)
    }

    async fn held(
        &self,
        node: NodeId,
        after: Option<NotificationId>,
        limit: usize,
    ) -> Result<Vec<(NotificationId, Fence)>> {
        Ok(self.lock().held(node, after, limit))
    }

    async fn idempotent(
        &self,
        tenant: Tenant,
        key: String,
        now: Timestamp,
    ) -> Result<Option<([u8; 32], Vec<u8>)>> {
        Ok(self.lock().idempotent(tenant, key, now))
    }

    async fn wakes(
        &self,
        after: (Timestamp, NotificationId),
        until: Timestamp,
        limit: usize,
    ) -> Result<Wakes> {
        Ok(self.lock().wakes(after, until, limit))
    }

    async fn expiring(&self, until: Timestamp, limit: usize) -> Result<Expiring> {
        Ok(self.lock().expiring(until, limit))
    }

    async fn buckets(&self, after: Option<Bucket>, limit: usize) -> Result<Vec<Waiting>> {
        Ok(self.lock().buckets(after, limit))
    }

    async fn flows(&self, flows: Vec<FlowId>) -> Result<Vec<(FlowId, FlowKey)>> {
        Ok(self.lock().flows(flows))
    }

    async fn overdue(
        &self,
        due_before: Timestamp,
        first_due_before: Timestamp,
        after: Option<(Timestamp, NotificationId)>,
        limit: usize,
    ) -> Result<Vec<Overdue>> {
        Ok(self.lock().overdue(due_before, first_due_before, after, limit))
    }

    async fn facts(&self, ids: Vec<NotificationId>) -> Result<Vec<Facts>> {
        Ok(self.lock().facts(&ids))
    }

    async fn notification_of(&self, dead_letter: DeadLetterId) -> Result<Option<NotificationId>> {
        Ok(self.lock().dead_letters.get(&dead_letter).map(|dead| dead.notification.id))
    }

    async fn transition(
        &self,
        changes: Vec<Change>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Vec<bool>> {
        self.lock().transition(changes, audit, now)
    }

    async fn settings(&self, known: Option<i64>) -> Result<Option<(i64, Vec<(String, String)>)>> {
        Ok(self.lock().settings(known))
    }

    async fn put_setting(&self, name: &str, value: Option<String>, audit: Audit) -> Result<i64> {
        let version = self.lock().put_setting(name, value, audit);
        let _ = self.news.send(News::Setting);
        Ok(version)
    }

    async fn get(&self, id: NotificationId) -> Result<Option<View>> {
        Ok(self.lock().view(id))
    }

    async fn history(&self, id: NotificationId) -> Result<History> {
        Ok(self.lock().history(id))
    }

    async fn page(
        &self,
        filter: Filter,
        before: Option<NotificationId>,
        limit: usize,
    ) -> Result<Page<View, NotificationId>> {
        Ok(self.lock().page(&filter, before, limit))
    }

    async fn retry_queue(
        &self,
        tenant: Option<Tenant>,
        after: Option<(Timestamp, NotificationId)>,
        limit: usize,
    ) -> Result<Page<View, (Timestamp, NotificationId)>> {
        Ok(self.lock().retry_queue(tenant.as_ref(), after, limit))
    }

    async fn dead_letter(&self, id: DeadLetterId) -> Result<Option<DeadLetterView>> {
        Ok(self.lock().dead_letters.get(&id).cloned())
    }

    async fn dead_letters(
        &self,
        filter: DeadLetterFilter,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Page<DeadLetterView, DeadLetterId>> {
        Ok(self.lock().dead_letters(&filter, before, limit))
    }

    async fn audit(
        &self,
        tenant: Option<Tenant>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<AuditRow, i64>> {
        Ok(self.lock().audit_page(tenant.as_ref(), before, limit))
    }

    async fn stats(&self, tenant: Option<Tenant>, now: Timestamp) -> Result<Stats> {
        Ok(self.lock().stats(tenant.as_ref(), now))
    }
}
