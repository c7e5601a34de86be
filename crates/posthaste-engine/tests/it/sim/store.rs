//! The model store as one process reaches it: late, now and then not at all, and sometimes without a true answer.

use std::future::Future;
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
use super::late::Commit;
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

    /// A call that changes something, with everything that can happen on the way there, in the store and on the way back.
    async fn change<T: Send + 'static>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.before().await?;
        match self.world.commit() {
            Commit::Now => {}
            Commit::Delayed(wait) => tokio::time::sleep(wait).await,
            Commit::Late { told, done } => {
                let (world, life) = (self.world.clone(), self.life.clone());
                self.world.happens_later(done, async move { happened(&world, &life, what, &call.await) });
                tokio::time::sleep(told).await;
                self.life.runs().await;
                return Err(unavailable("given up before the commit, which may still happen"));
            }
        }
        let answer = call.await;
        self.after(what, answer).await
    }

    /// Everything that can happen on the way back.
    async fn after<T>(&self, what: &str, answer: Result<T>) -> Result<T> {
        happened(&self.world, &self.life, what, &answer);
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

/// The store did what it was asked.
fn happened<T>(world: &World, life: &Life, what: &str, answer: &Result<T>) {
    world.step(life, what);
    if let Err(StoreError::Corrupt { what }) = answer {
        world.break_promise(format!("the store was told nonsense: {what}"));
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

/// The same for a call that changes something.
macro_rules! change {
    ($self:ident, $name:ident ( $($argument:expr),* )) => {{
        let model = $self.world.model.clone();
        $self.change(stringify!($name), async move { model.$name($($argument),*).await }).await
    }};
}

#[async_trait]
impl Store for SimStore {
    fn is_shared(&self) -> bool {
        self.world.shared
    }

    async fn join(&self, name: &str, hold: Duration, now: Timestamp) -> Result<(NodeId, Timestamp)> {
        let name = name.to_owned();
        let joined = change!(self, join(&name, hold, now))?;
        self.life.joined(joined.0);
        Ok(joined)
    }

    async fn heartbeat(&self, node: NodeId, hold: Duration, now: Timestamp) -> Result<Pulse> {
        change!(self, heartbeat(node, hold, now))
    }

    async fn leave(&self, node: NodeId) -> Result<()> {
        change!(self, leave(node))
    }

    async fn reclaim(&self, node: NodeId, limit: usize, now: Timestamp) -> Result<usize> {
        change!(self, reclaim(node, limit, now))
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
        change!(self, intern(flows))
    }

    async fn accept(&self, requests: Vec<Request>, now: Timestamp) -> Result<Acceptance> {
        change!(self, accept(requests, now))
    }

    async fn claim(&self, quotas: Vec<Quota>, lease: Lease, now: Timestamp) -> Result<Claimed> {
        change!(self, claim(quotas, lease, now))
    }

    /// I5: whoever does not hold the row at the moment of the commit changes nothing.
    async fn settle(&self, batch: Vec<Settlement>, now: Timestamp) -> Result<Vec<Settled>> {
        let world = self.world.clone();
        let call = async move {
            let (before, asked) = (rows(&world.model, &batch), batch.clone());
            let answer = world.model.settle(batch, now).await;
            if let Ok(settled) = &answer {
                let after = rows(&world.model, &asked);
                world.expect(stale_outcomes_change_nothing(&asked, settled, &before, &after));
            }
            answer
        };
        self.change("settle", call).await
    }

    async fn release(&self, lease: Lease, only: Option<Vec<NotificationId>>) -> Result<usize> {
        change!(self, release(lease, only))
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
        let world = self.world.clone();
        let call = async move {
            let asked = changes.clone();
            let before = standings(&world.model, &asked);
            let answer = world.model.transition(changes, audit, now).await;
            if let Ok(made) = &answer {
                let after = standings(&world.model, &asked);
                world.expect(acts_follow_arrows(&asked, made, &before, &after));
                world.ledger.lock().unwrap().acted(&asked, made);
            }
            answer
        };
        self.change("transition", call).await
    }

    async fn settings(&self, known: Option<i64>) -> Result<Option<(i64, Vec<(String, String)>)>> {
        through!(self, settings(known))
    }

    async fn put_setting(&self, name: &str, value: Option<String>, audit: Audit) -> Result<i64> {
        let name = name.to_owned();
        change!(self, put_setting(&name, value, audit))
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
