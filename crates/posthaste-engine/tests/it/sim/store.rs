//! The model store as one process reaches it: late, now and then not at all, and sometimes without a true answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::flow::{Bucket, FlowId, FlowKey, Quota};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    Acceptance, Audit, AuditRow, Change, Claimed, DeadLetterFilter, DeadLetterView, Expiring, Facts, Filter,
    History, Listener, News, NodeView, Overdue, Page, Pulse, Request, Result, Settled, Settlement, Stats,
    Store, StoreError, View, Waiting, Wakes,
};

use super::checks::{acts_follow_arrows, rows, stale_outcomes_change_nothing, standings};
use super::life::Life;
use super::world::World;

/// One process's way to the store.
pub(super) struct SimStore {
    pub(super) world: Arc<World>,
    pub(super) life: Arc<Life>,
}

impl SimStore {
    /// Everything that can happen on the way there.
    async fn before(&self) -> Result<()> {
        self.world.latency().await;
        self.life.runs().await;
        let faults = *self.world.faults.lock().unwrap();
        if self.world.strikes(faults.crash) {
            self.life.die();
            self.life.runs().await;
        }
        if self.is_out(faults.outage_until) || self.world.strikes(faults.refuse) {
            return Err(unavailable("refused before the commit"));
        }
        Ok(())
    }

    /// Everything that can happen on the way back.
    async fn after<T>(&self, what: &str, answer: Result<T>) -> Result<T> {
        self.world.step(&self.life, what);
        if let Err(StoreError::Corrupt { what }) = &answer {
            self.world.break_promise(format!("the store was told nonsense: {what}"));
        }
        let faults = *self.world.faults.lock().unwrap();
        if self.world.strikes(faults.crash) {
            self.life.die();
        }
        self.life.runs().await;
        self.world.latency().await;
        self.life.runs().await;
        if self.world.strikes(faults.lie) {
            return Err(unavailable("the answer was lost after the commit"));
        }
        answer
    }

    fn is_out(&self, until: Option<Timestamp>) -> bool {
        until.is_some_and(|until| self.world.now() < until)
    }
}

/// One process's ear: a process that stands still hears nothing.
struct SimListener {
    life: Arc<Life>,
    ear: Box<dyn Listener>,
}

#[async_trait]
impl Listener for SimListener {
    async fn next(&mut self) -> Result<News> {
        let news = self.ear.next().await;
        self.life.runs().await;
        news
    }
}

fn unavailable(what: &str) -> StoreError {
    StoreError::Unavailable { what: what.to_owned(), source: None }
}

macro_rules! through {
    ($self:ident, $name:ident ( $($argument:expr),* )) => {{
        $self.before().await?;
        let answer = $self.world.model.$name($($argument),*).await;
        $self.after(stringify!($name), answer).await
    }};
}

#[async_trait]
impl Store for SimStore {
    fn is_shared(&self) -> bool {
        self.world.shared
    }

    async fn join(&self, name: &str, hold: Duration, now: Timestamp) -> Result<(NodeId, Timestamp)> {
        let joined = through!(self, join(name, hold, now))?;
        self.life.joined(joined.0);
        Ok(joined)
    }

    async fn heartbeat(&self, node: NodeId, hold: Duration, now: Timestamp) -> Result<Pulse> {
        through!(self, heartbeat(node, hold, now))
    }

    async fn leave(&self, node: NodeId) -> Result<()> {
        through!(self, leave(node))
    }

    async fn reclaim(&self, node: NodeId, limit: usize, now: Timestamp) -> Result<usize> {
        through!(self, reclaim(node, limit, now))
    }

    async fn nodes(&self, now: Timestamp) -> Result<Vec<NodeView>> {
        through!(self, nodes(now))
    }

    fn listen(&self) -> Box<dyn Listener> {
        Box::new(SimListener { life: self.life.clone(), ear: self.world.model.listen() })
    }

    async fn tell(&self, from: NodeId, due: Vec<Bucket>) -> Result<()> {
        through!(self, tell(from, due))
    }

    async fn intern(&self, flows: Vec<FlowKey>) -> Result<Vec<FlowId>> {
        through!(self, intern(flows))
    }

    async fn accept(&self, requests: Vec<Request>, now: Timestamp) -> Result<Acceptance> {
        through!(self, accept(requests, now))
    }

    async fn claim(&self, quotas: Vec<Quota>, lease: Lease, now: Timestamp) -> Result<Claimed> {
        through!(self, claim(quotas, lease, now))
    }

    /// I5: whoever does not hold the row at the moment of the commit changes nothing.
    async fn settle(&self, batch: Vec<Settlement>, now: Timestamp) -> Result<Vec<Settled>> {
        self.before().await?;
        let (before, asked) = (rows(&self.world.model, &batch), batch.clone());
        let answer = self.world.model.settle(batch, now).await;
        if let Ok(settled) = &answer {
            let after = rows(&self.world.model, &asked);
            self.world.expect(stale_outcomes_change_nothing(&asked, settled, &before, &after));
        }
        self.after("settle", answer).await
    }

    async fn release(&self, lease: Lease, only: Option<Vec<NotificationId>>) -> Result<usize> {
        through!(self, release(lease, only))
    }

    async fn held(
        &self,
        node: NodeId,
        after: Option<NotificationId>,
        limit: usize,
    ) -> Result<Vec<(NotificationId, Fence)>> {
        through!(self, held(node, after, limit))
    }

    async fn idempotent(
        &self,
        tenant: Tenant,
        key: String,
        now: Timestamp,
    ) -> Result<Option<([u8; 32], Vec<u8>)>> {
        through!(self, idempotent(tenant, key, now))
    }

    async fn wakes(
        &self,
        after: (Timestamp, NotificationId),
        until: Timestamp,
        limit: usize,
    ) -> Result<Wakes> {
        through!(self, wakes(after, until, limit))
    }

    async fn expiring(&self, until: Timestamp, limit: usize) -> Result<Expiring> {
        through!(self, expiring(until, limit))
    }

    async fn buckets(&self, after: Option<Bucket>, limit: usize) -> Result<Vec<Waiting>> {
        through!(self, buckets(after, limit))
    }

    async fn flows(&self, flows: Vec<FlowId>) -> Result<Vec<(FlowId, FlowKey)>> {
        through!(self, flows(flows))
    }

    async fn overdue(
        &self,
        due_before: Timestamp,
        first_due_before: Timestamp,
        after: Option<(Timestamp, NotificationId)>,
        limit: usize,
    ) -> Result<Vec<Overdue>> {
        through!(self, overdue(due_before, first_due_before, after, limit))
    }

    async fn facts(&self, ids: Vec<NotificationId>) -> Result<Vec<Facts>> {
        through!(self, facts(ids))
    }

    async fn notification_of(&self, dead_letter: DeadLetterId) -> Result<Option<NotificationId>> {
        through!(self, notification_of(dead_letter))
    }

    async fn transition(
        &self,
        changes: Vec<Change>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Vec<bool>> {
        self.before().await?;
        let asked = changes.clone();
        let before = standings(&self.world.model, &asked);
        let answer = self.world.model.transition(changes, audit, now).await;
        if let Ok(made) = &answer {
            let after = standings(&self.world.model, &asked);
            self.world.expect(acts_follow_arrows(&asked, made, &before, &after));
            self.world.ledger.lock().unwrap().acted(&asked, made);
        }
        self.after("transition", answer).await
    }

    async fn settings(&self, known: Option<i64>) -> Result<Option<(i64, Vec<(String, String)>)>> {
        through!(self, settings(known))
    }

    async fn put_setting(&self, name: &str, value: Option<String>, audit: Audit) -> Result<i64> {
        through!(self, put_setting(name, value, audit))
    }

    async fn get(&self, id: NotificationId) -> Result<Option<View>> {
        through!(self, get(id))
    }

    async fn history(&self, id: NotificationId) -> Result<History> {
        through!(self, history(id))
    }

    async fn page(
        &self,
        filter: Filter,
        before: Option<NotificationId>,
        limit: usize,
    ) -> Result<Page<View, NotificationId>> {
        through!(self, page(filter, before, limit))
    }

    async fn retry_queue(
        &self,
        tenant: Option<Tenant>,
        after: Option<(Timestamp, NotificationId)>,
        limit: usize,
    ) -> Result<Page<View, (Timestamp, NotificationId)>> {
        through!(self, retry_queue(tenant, after, limit))
    }

    async fn dead_letter(&self, id: DeadLetterId) -> Result<Option<DeadLetterView>> {
        through!(self, dead_letter(id))
    }

    async fn dead_letters(
        &self,
        filter: DeadLetterFilter,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Page<DeadLetterView, DeadLetterId>> {
        through!(self, dead_letters(filter, before, limit))
    }

    async fn audit(
        &self,
        tenant: Option<Tenant>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<AuditRow, i64>> {
        through!(self, audit(tenant, before, limit))
    }

    async fn stats(&self, tenant: Option<Tenant>, now: Timestamp) -> Result<Stats> {
        through!(self, stats(tenant, now))
    }
}
