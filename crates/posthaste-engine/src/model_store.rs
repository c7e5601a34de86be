//! The executable specification of a store: BTreeMaps behind one lock.
//!
//! Every other store has to answer as this one does. The conformance suite and random comparisons hold them to it, and
//! the simulation runs the engine on it. `plant` switches on a named bug, to show that those checks would see it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use posthaste_core::time::Timestamp;
use tokio::sync::broadcast;

pub use self::counters::{Counters, Ends, Standing};
pub use self::destinations::DestinationTable;
pub use self::groups::GroupTable;
pub use self::operations::{Item, ItemPlace, OperationTable};
pub use self::planted::Planted;
pub use self::tables::{Ended, Kept, Node, Row, Tables};
use crate::store::{Listener, Notice, Result, Store};

mod acts;
mod counters;
mod destinations;
mod groups;
mod inbound;
mod jobs;
mod key_uses;
mod nodes;
mod operations;
mod planted;
mod queue;
mod reads;
mod records;
mod retention;
mod series;
mod settings;
mod tables;
mod waking;

/// A store that keeps everything in memory and is gone with its last handle.
#[derive(Clone)]
pub struct ModelStore {
    tables: Arc<Mutex<Tables>>,
    clock: Option<Arc<dyn Fn() -> Timestamp + Send + Sync>>,
    /// Messages between nodes. A node that does not listen misses them.
    notices: broadcast::Sender<Notice>,
}

struct ModelListener(broadcast::Receiver<Notice>);

#[async_trait]
impl Listener for ModelListener {
    async fn next(&mut self) -> Result<Notice> {
        match self.0.recv().await {
            Ok(notices) => Ok(notices),
            Err(broadcast::error::RecvError::Lagged(_)) => Ok(Notice::Missed),
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl ModelStore {
    /// An empty store whose time is that of its callers.
    pub fn new() -> Self {
        Self { tables: Arc::default(), clock: None, notices: broadcast::channel(64).0 }
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
        let kept = retention::since(tables.counters_from, tables.counters.clone());
        let counted = retention::since(tables.counters_from, counted);
        (kept != counted).then_some((kept, counted))
    }

    /// The kept counts of failure groups and those that the dead letters add up to, where the two differ (I17).
    pub fn group_drift(&self) -> Option<String> {
        let tables = self.lock();
        let (kept, counted) = (tables.groups.counts(), tables.recount_groups());
        (kept != counted).then(|| format!("kept {kept:?}, counted {counted:?}"))
    }

    /// After a panic elsewhere the tables stay readable, so that a test fails once and not a second time here.
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

impl Store for ModelStore {
    fn listen(&self) -> Box<dyn Listener> {
        Box::new(ModelListener(self.notices.subscribe()))
    }
}
