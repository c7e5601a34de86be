//! The model store as one process reaches it: late, now and then not at all, and sometimes without a true answer.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::time::Timestamp;
use posthaste_engine::model_store::Tables;
use posthaste_engine::store::slice::{Answer, Call, Forward, Kind};
use posthaste_engine::store::{
    Acts, Destinations, Inbound, Listener, Notice, Queue, Result, Retention, Store, StoreError, acts,
    destinations, inbound, nodes, operations, queue, retention,
};

use super::checks::{acts_follow_arrows, rows, stale_outcomes_change_nothing, standings};
use super::late::Commit;
use super::life::Life;
use super::operations::changes;
use super::outages::{attempts_were_made, forwards, swapped, swaps};
use super::retention::pruned;
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

    async fn answer(&self, call: Call) -> Result<Answer> {
        let method = call.method();
        if call.kind() == Kind::Read {
            self.before().await?;
            let answer = call.apply(&self.world.model).await;
            return self.after(method, answer).await;
        }
        let world = self.world.clone();
        self.change(method, async move { checked(&world, call).await }).await
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
    async fn next(&mut self) -> Result<Notice> {
        let notice = self.ear.next().await;
        self.life.runs().await;
        notice
    }
}

fn unavailable(what: &str) -> StoreError {
    StoreError::Unavailable { what: what.to_owned(), source: None }
}

/// Does a call, and checks what it left behind.
async fn checked(world: &World, call: Call) -> Result<Answer> {
    match call {
        // I5: whoever does not hold the row at the moment of the commit changes nothing.
        Call::Queue(queue::Call::Settle { batch, now }) => {
            attempts_were_made(world, &batch);
            let (before, asked) = (rows(&world.model, &batch), batch.clone());
            let settled = world.model.settle(batch, now).await?;
            let after = rows(&world.model, &asked);
            world.expect(stale_outcomes_change_nothing(&asked, &settled, &before, &after));
            Ok(Answer::Queue(queue::Answer::Settle(settled)))
        }
        Call::Acts(acts::Call::Transition { changes, actor, audit, now }) => {
            let (before, asked) = (standings(&world.model, &changes), changes.clone());
            let made = world.model.transition(changes, actor, audit, now).await?;
            let after = standings(&world.model, &asked);
            world.expect(acts_follow_arrows(&asked, &made, &before, &after));
            world.ledger.lock().unwrap().acted(&asked, &made);
            Ok(Answer::Acts(acts::Answer::Transition(made)))
        }
        Call::Retention(retention::Call::Prune { prune, audit }) => {
            let before = world.model.inspect(Tables::clone);
            let done = world.model.prune(prune, audit).await?;
            pruned(world, &before, prune, done);
            Ok(Answer::Retention(retention::Answer::Prune(done)))
        }
        Call::Operations(call @ operations::Call::Forward { .. }) => {
            let answer = call.apply(&world.model).await?;
            if let operations::Answer::Forward(Some(forwarded)) = &answer {
                let asked = changes(forwarded);
                let before: Vec<_> = asked.iter().map(|change| Some(change.seen)).collect();
                let (made, after) = (vec![true; asked.len()], standings(&world.model, &asked));
                world.expect(acts_follow_arrows(&asked, &made, &before, &after));
                world.ledger.lock().unwrap().acted(&asked, &made);
            }
            Ok(Answer::Operations(answer))
        }
        Call::Inbound(inbound::Call::Reserve { wanted, limits, now }) => {
            let reserved = world.model.reserve(wanted.clone(), limits, now).await?;
            let check = world.ledger.lock().unwrap().slots.reserved(&wanted, &reserved);
            world.expect(check);
            Ok(Answer::Inbound(inbound::Answer::Reserve(reserved)))
        }
        Call::Destinations(destinations::Call::Put { changes, audit, now }) => {
            let (asked, before) = (changes.clone(), swaps(world, &changes, world.now()).await);
            let put = world.model.put_destinations(changes, audit, now).await?;
            swapped(world, &asked, &put, &before);
            Ok(Answer::Destinations(destinations::Answer::Put(put)))
        }
        call => call.apply(&world.model).await,
    }
}

#[async_trait]
impl Forward for SimStore {
    async fn forward(&self, call: Call) -> Result<Answer> {
        let asked = matches!(call, Call::Destinations(_)).then(|| call.clone());
        if let Call::Operations(operations::Call::Forward { id, quotas, .. }) = &call {
            forwards(&self.world, &self.life, *id, quotas);
        }
        let answer = self.answer(call).await;
        let mut ledger = self.world.ledger.lock().unwrap();
        match &answer {
            Ok(answer) => ledger.told.told(&self.life, asked.as_ref(), answer, self.world.now()),
            Err(_) => ledger.told.troubled(&self.life, self.world.now()),
        }
        drop(ledger);
        let answer = answer?;
        if let Answer::Nodes(nodes::Answer::Join(joined)) = &answer {
            self.life.joined(joined.node);
        }
        Ok(answer)
    }
}

#[async_trait]
impl Store for SimStore {
    fn is_shared(&self) -> bool {
        self.world.shared
    }

    fn listen(&self) -> Box<dyn Listener> {
        Box::new(SimListener { life: self.life.clone(), ear: self.world.model.listen() })
    }
}
