//! A store that refuses, answers late, or says no after it has done it.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::flow::{Bucket, FlowId, FlowKey, Quota};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::model_store::ModelStore;
use posthaste_engine::store::{
    Acceptance, Alone, Audit, AuditRow, Change, Claimed, DeadLetterFilter, DeadLetterView, Expiring, Facts,
    Filter, History, Listener, NodeView, Overdue, Page, Pulse, Request, Result, Settled, Settlement, Stats,
    Store, StoreError, View, Waiting, Wakes,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trouble {
    /// It is not done.
    Refuse,
    /// It is not done, and never will be.
    Nonsense,
    /// It is not done, and whoever asked breaks down.
    Panic,
    /// It is done and answered as an error.
    Lie,
    /// It is answered as an error after a while, and done later, whatever became of the caller. Only `accept` and `claim`.
    Stall {
        /// When it is answered.
        told: Duration,
        /// When it is done.
        done: Duration,
    },
    /// It is done after a while.
    DoneLate(Duration),
    /// It is done at once and answered after a while.
    ToldLate(Duration),
}

/// A model store whose calls go wrong as told.
pub(crate) struct FaultyStore {
    model: ModelStore,
    troubles: Mutex<BTreeMap<&'static str, VecDeque<Trouble>>>,
    outage: Mutex<Vec<&'static str>>,
    calls: Mutex<BTreeMap<&'static str, usize>>,
    stalled: Mutex<JoinSet<()>>,
    deaf: bool,
    shared: bool,
    /// Rings when the store loses a part for good.
    lost: Notify,
}

impl FaultyStore {
    pub(crate) fn on(model: &ModelStore) -> Self {
        Self {
            model: model.clone(),
            troubles: Mutex::default(),
            outage: Mutex::default(),
            calls: Mutex::default(),
            stalled: Mutex::default(),
            deaf: false,
            shared: false,
            lost: Notify::new(),
        }
    }

    /// The same, for a node that does not hear what others tell.
    pub(crate) fn deaf(self) -> Self {
        Self { deaf: true, ..self }
    }

    /// The same, as one that several processes know to be theirs.
    pub(crate) fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// The next calls of a method meet these troubles, one each.
    pub(crate) fn next(&self, method: &'static str, troubles: impl IntoIterator<Item = Trouble>) {
        self.troubles.lock().unwrap().entry(method).or_default().extend(troubles);
    }

    /// These methods are refused until the next call of this.
    pub(crate) fn refuse(&self, methods: &[&'static str]) {
        *self.outage.lock().unwrap() = methods.to_vec();
    }

    /// A part of the store is gone for good.
    pub(crate) fn lose_a_part(&self) {
        self.lost.notify_one();
    }

    /// How often a method was called.
    pub(crate) fn calls(&self, method: &'static str) -> usize {
        self.calls.lock().unwrap().get(method).copied().unwrap_or(0)
    }

    fn trouble(&self, method: &'static str) -> Option<Trouble> {
        if self.outage.lock().unwrap().contains(&method) {
            return Some(Trouble::Refuse);
        }
        self.troubles.lock().unwrap().get_mut(method)?.pop_front()
    }

    /// The same for a call that may be stalled.
    async fn meet_stalling<T: Send + 'static>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let stalls = |troubles: &VecDeque<Trouble>| match troubles.front() {
            Some(Trouble::Stall { told, done }) => Some((*told, *done)),
            _ => None,
        };
        let stall = self.troubles.lock().unwrap().get(method).and_then(stalls);
        let Some((told, done)) = stall else { return self.meet(method, call).await };
        self.trouble(method);
        self.stalled.lock().unwrap().spawn(async move {
            tokio::time::sleep(done).await;
            let _ = call.await;
        });
        tokio::time::sleep(told).await;
        Err(unavailable(method))
    }

    async fn meet<T>(&self, method: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        *self.calls.lock().unwrap().entry(method).or_default() += 1;
        match self.trouble(method) {
            None => call.await,
            Some(Trouble::Nonsense) => Err(StoreError::Corrupt { what: format!("the test breaks {method}") }),
            Some(Trouble::Refuse) => Err(unavailable(method)),
            Some(Trouble::Panic) => panic!("the test breaks {method}"),
            Some(Trouble::Lie) => {
                call.await?;
                Err(unavailable(method))
            }
            Some(Trouble::Stall { .. }) => unreachable!("{method} cannot be stalled"),
            Some(Trouble::DoneLate(wait)) => {
                tokio::time::sleep(wait).await;
                call.await
            }
            Some(Trouble::ToldLate(wait)) => {
                let answer = call.await;
                tokio::time::sleep(wait).await;
                answer
            }
        }
    }
}

fn unavailable(method: &str) -> StoreError {
    StoreError::Unavailable { what: format!("the test breaks {method}"), source: None }
}

macro_rules! store {
    (
        $(fn $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)*
        stalling:
        $(fn $stalling:ident($($argument:ident: $of:ty),*) -> $told:ty;)*
    ) => {
        #[async_trait]
        impl Store for FaultyStore {
            fn is_shared(&self) -> bool {
                self.shared
            }

            async fn broken(&self) {
                self.lost.notified().await;
            }

            fn listen(&self) -> Box<dyn Listener> {
                if self.deaf { Box::new(Alone) } else { self.model.listen() }
            }

            $(async fn $method(&self, $($name: $type),*) -> Result<$answer> {
                self.meet(stringify!($method), self.model.$method($($name),*)).await
            })*

            $(async fn $stalling(&self, $($argument: $of),*) -> Result<$told> {
                let model = self.model.clone();
                let call = async move { model.$stalling($($argument),*).await };
                self.meet_stalling(stringify!($stalling), call).await
            })*
        }
    };
}

store! {
    fn join(name: &str, hold: Duration, now: Timestamp) -> (NodeId, Timestamp);
    fn heartbeat(node: NodeId, hold: Duration, now: Timestamp) -> Pulse;
    fn leave(node: NodeId) -> ();
    fn reclaim(node: NodeId, limit: usize, now: Timestamp) -> usize;
    fn nodes(now: Timestamp) -> Vec<NodeView>;
    fn tell(from: NodeId, due: Vec<Bucket>) -> ();
    fn intern(flows: Vec<FlowKey>) -> Vec<FlowId>;
    fn settle(batch: Vec<Settlement>, now: Timestamp) -> Vec<Settled>;
    fn release(lease: Lease, only: Option<Vec<NotificationId>>) -> usize;
    fn held(node: NodeId, after: Option<NotificationId>, limit: usize) -> Vec<(NotificationId, Fence)>;
    fn idempotent(tenant: Tenant, key: String, now: Timestamp) -> Option<([u8; 32], Vec<u8>)>;
    fn wakes(after: (Timestamp, NotificationId), until: Timestamp, limit: usize) -> Wakes;
    fn expiring(until: Timestamp, limit: usize) -> Expiring;
    fn buckets(after: Option<Bucket>, limit: usize) -> Vec<Waiting>;
    fn flows(flows: Vec<FlowId>) -> Vec<(FlowId, FlowKey)>;
    fn overdue(
        due_before: Timestamp,
        first_due_before: Timestamp,
        after: Option<(Timestamp, NotificationId)>,
        limit: usize
    ) -> Vec<Overdue>;
    fn facts(ids: Vec<NotificationId>) -> Vec<Facts>;
    fn notification_of(dead_letter: DeadLetterId) -> Option<NotificationId>;
    fn transition(changes: Vec<Change>, audit: Option<Audit>, now: Timestamp) -> Vec<bool>;
    fn settings(known: Option<i64>) -> Option<(i64, Vec<(String, String)>)>;
    fn put_setting(name: &str, value: Option<String>, audit: Audit) -> i64;
    fn get(id: NotificationId) -> Option<View>;
    fn history(id: NotificationId) -> History;
    fn page(filter: Filter, before: Option<NotificationId>, limit: usize) -> Page<View, NotificationId>;
    fn retry_queue(
        tenant: Option<Tenant>,
        after: Option<(Timestamp, NotificationId)>,
        limit: usize
    ) -> Page<View, (Timestamp, NotificationId)>;
    fn dead_letter(id: DeadLetterId) -> Option<DeadLetterView>;
    fn dead_letters(
        filter: DeadLetterFilter,
        before: Option<DeadLetterId>,
        limit: usize
    ) -> Page<DeadLetterView, DeadLetterId>;
    fn audit(tenant: Option<Tenant>, before: Option<i64>, limit: usize) -> Page<AuditRow, i64>;
    fn stats(tenant: Option<Tenant>, now: Timestamp) -> Stats;
    stalling:
    fn accept(requests: Vec<Request>, now: Timestamp) -> Acceptance;
    fn claim(quotas: Vec<Quota>, lease: Lease, now: Timestamp) -> Claimed;
}
