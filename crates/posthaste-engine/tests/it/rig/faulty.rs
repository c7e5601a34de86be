//! A store that refuses, answers late, or says no after it has done it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::id::NotificationId;
use posthaste_engine::model_store::{ItemPlace, ModelStore};
use posthaste_engine::store::slice::{Answer, Call, Forward};
use posthaste_engine::store::{Alone, Listener, Result, Store, StoreError, operations};
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
    /// It is answered as an error after a while, and done later, whatever became of the caller.
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
    damaged: Mutex<BTreeSet<NotificationId>>,
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
            damaged: Mutex::default(),
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

    /// No operation can forward these: a chunk with one of them is refused as a whole.
    pub(crate) fn damage(&self, ids: &[NotificationId]) {
        self.damaged.lock().unwrap().extend(ids);
    }

    fn forwards_damage(&self, call: &Call) -> bool {
        let Call::Operations(operations::Call::Forward { id, quotas, .. }) = call else { return false };
        let damaged = self.damaged.lock().unwrap();
        self.model.inspect(|tables| {
            quotas.iter().any(|(wanted, most)| {
                let of = tables.operations.items.iter().filter(|((of, _), _)| of == id);
                let staged = of.filter(
                    |(_, item)| matches!(item.place, ItemPlace::Staged { flow, .. } if flow == *wanted),
                );
                staged.take(*most as usize).any(|((_, item), _)| damaged.contains(item))
            })
        })
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

    async fn meet(&self, call: Call) -> Result<Answer> {
        let (method, model) = (call.method(), &self.model);
        *self.calls.lock().unwrap().entry(method).or_default() += 1;
        if self.forwards_damage(&call) {
            return Err(StoreError::Corrupt { what: "a damaged row".to_owned() });
        }
        match self.trouble(method) {
            None => call.apply(model).await,
            Some(Trouble::Nonsense) => Err(StoreError::Corrupt { what: format!("the test breaks {method}") }),
            Some(Trouble::Refuse) => Err(unavailable(method)),
            Some(Trouble::Panic) => panic!("the test breaks {method}"),
            Some(Trouble::Lie) => {
                call.apply(model).await?;
                Err(unavailable(method))
            }
            Some(Trouble::Stall { told, done }) => {
                let model = model.clone();
                self.stalled.lock().unwrap().spawn(async move {
                    tokio::time::sleep(done).await;
                    let _ = call.apply(&model).await;
                });
                tokio::time::sleep(told).await;
                Err(unavailable(method))
            }
            Some(Trouble::DoneLate(wait)) => {
                tokio::time::sleep(wait).await;
                call.apply(model).await
            }
            Some(Trouble::ToldLate(wait)) => {
                let answer = call.apply(model).await;
                tokio::time::sleep(wait).await;
                answer
            }
        }
    }
}

fn unavailable(method: &str) -> StoreError {
    StoreError::Unavailable { what: format!("the test breaks {method}"), source: None }
}

#[async_trait]
impl Forward for FaultyStore {
    async fn forward(&self, call: Call) -> Result<Answer> {
        self.meet(call).await
    }
}

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
}
