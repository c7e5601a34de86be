//! Retry operations: one act on many notifications.
//!
//! Each operation has one runner over all nodes, as a job has. The loop gives every operation of this node a step in turn, so
//! that several go on side by side and the store is never given more than one step at a time. `work` has the steps.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::filter::BadFilter;
use posthaste_core::id::OperationId;
use posthaste_core::operation::{
    Action, Canary, Operation, OperationChange, Refused, Selection, rest, selected,
};
use tokio::time::Instant;

pub use self::preview::{GroupCount, Preview, Sampled};
use self::told::Told;
use self::work::{Next, Work};
use crate::acts::Actor;
use crate::engine::{Engine, Shared};
use crate::reads::{ReadError, Reads};
use crate::store::{Accepted, Idempotency, Page, StoreError, UnfinishedOperation};

mod damage;
mod ids;
mod preview;
mod staging;
mod told;
mod walk;
mod work;

/// The longest pause between two looks: another node may have started, resumed or left an operation.
const LOOK: Duration = Duration::from_secs(2);
/// The pause after a store error.
const PAUSE: Duration = Duration::from_millis(500);
/// The most operations of tenants that are not finished.
const MOST_UNFINISHED: usize = 100;
/// How many of them one tenant may have, so that it leaves room for others. Keys for all tenants together have as many more.
const MOST_OF_TENANT: usize = 20;
/// Both together.
const LOOKED_AT: usize = MOST_UNFINISHED + MOST_OF_TENANT;

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let (mut works, mut told) = (HashMap::<OperationId, Work>::new(), Told::default());
    loop {
        let (began, accepted) = (Instant::now(), shared.counts.accepted_so_far());
        let wait = match turn(&shared, &mut works, &mut told).await {
            Ok(wait) => wait,
            Err(error) => {
                shared.store_failed("look for operations", &error);
                PAUSE
            }
        };
        if wait.is_zero() {
            // Between two turns everything else runs.
            match rest(began.elapsed(), shared.counts.accepted_so_far() - accepted) {
                Duration::ZERO => tokio::task::yield_now().await,
                rest => tokio::time::sleep(rest).await,
            }
            continue;
        }
        tokio::select! {
            biased;
            // What was paused may go on.
            () = shared.operations.notified() => {
                works.values_mut().for_each(|work| work.not_before = Instant::now());
            }
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Gives every operation of this node a step. Returns the pause until the next turn.
async fn turn(
    shared: &Shared,
    works: &mut HashMap<OperationId, Work>,
    told: &mut Told,
) -> Result<Duration, StoreError> {
    if !shared.may_take_work() {
        return Ok(PAUSE);
    }
    let unfinished = shared.store.unfinished_operations(LOOKED_AT, shared.node.now()).await?;
    works.retain(|id, _| unfinished.iter().any(|one| one.operation.id == *id));
    told.ended(shared, &unfinished).await?;
    let mut wait = LOOK;
    for one in unfinished {
        told.look(shared, &one.operation);
        let id = one.operation.id;
        let operation = match own(shared, one).await {
            Ok(Some(operation)) => operation,
            Ok(None) => continue,
            // The others go on.
            Err(StoreError::Corrupt { what }) => {
                tracing::error!(operation = %id, error = what, "an operation cannot be adopted");
                continue;
            }
            Err(error) => return Err(error),
        };
        told.look(shared, &operation);
        let work = works.entry(operation.id).or_default();
        let left = work.not_before.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            wait = wait.min(left);
            continue;
        }
        let pause = match work.step(shared, operation).await {
            Ok(Next::Again) => Duration::ZERO,
            Ok(Next::After(pause)) => pause,
            Ok(Next::Wait) => LOOK,
            Err(error) => {
                shared.store_failed("work on an operation", &error);
                PAUSE
            }
        };
        work.not_before = Instant::now() + pause;
        wait = wait.min(pause);
    }
    Ok(wait)
}

/// The operation, if this node works on it: it may be adopted from a node that is dead.
async fn own(shared: &Shared, one: UnfinishedOperation) -> Result<Option<Operation>, StoreError> {
    let UnfinishedOperation { operation, alive } = one;
    let node = shared.node.id();
    if operation.runner == Some(node) {
        return Ok(Some(operation));
    }
    if alive {
        return Ok(None);
    }
    let adopted = shared.store.adopt_operation(operation.id, node, shared.node.now()).await?;
    if adopted.is_some() && operation.runner.is_some() {
        tracing::info!(operation = %operation.id, "adopted an operation of a node that died");
    }
    Ok(adopted)
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOperation {
    pub action: Action,
    pub selection: Selection,
    pub rate: Option<u32>,
    pub canary: Option<Canary>,
}

/// Why an operation was not started or changed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    #[error("there is no operation {0}")]
    NotFound(OperationId),
    #[error("{0} is {state}", state = .1)]
    Finished(OperationId, &'static str),
    #[error("{0} operations are not finished; wait until one is, or cancel one")]
    TooMany(usize),
    /// An id that is none, or names nothing that the caller can see.
    #[error("there is no {id}")]
    UnknownId { place: usize, id: String },
    #[error("the selection cannot be read")]
    Selection(#[from] BadFilter),
    #[error("the change could not be stored")]
    Store(#[from] StoreError),
}

/// What a call about an operation returns.
pub type OperationResult<T> = Result<T, OperationError>;

impl Engine {
    /// The operation that would be started: whatever is wrong with it is said here. Ids have to name something that the
    /// actor can see; of several that name the same notification one is kept.
    pub async fn new_operation(&self, asked: NewOperation, actor: &Actor) -> OperationResult<Operation> {
        let now = self.now();
        let NewOperation { action, selection, rate, canary } = asked;
        let filter = selected(action, &selection, actor.tenant.as_ref(), now)?;
        let selection = match selection {
            Selection::Ids(ids) => Selection::Ids(self.shared.checked_ids(&ids, actor).await?),
            other => other,
        };
        Ok(Operation {
            id: OperationId::new(now, self.shared.random()),
            tenant: filter.map_or_else(|| actor.tenant.clone(), |filter| filter.tenant),
            action,
            selection,
            // Dead letters have this time too, which may be a little ahead of `now`.
            cut_off: self.shared.node.latest(),
            rate,
            canary,
            started_by: actor.name.clone(),
            key_id: actor.key_id.clone(),
            address: actor.address.clone(),
            started_at: now,
            standing: posthaste_core::operation::Standing::default(),
            runner: None,
        })
    }

    /// Keeps a new operation. Durable when it returns; the work begins at once.
    pub async fn start_operation(
        &self,
        operation: Operation,
        idempotency: Option<Idempotency>,
        actor: &Actor,
    ) -> Result<Accepted, StoreError> {
        let mut audit = self.audit(actor, "start-operation", &operation.id.to_string());
        audit.tenant = operation.tenant.clone();
        let (shared, now) = (self.shared.clone(), self.now());
        let start = async move {
            let (id, action) = (operation.id, operation.action);
            let answer = shared.store.start_operation(operation, idempotency, audit, now).await?;
            if answer == Accepted::New {
                tracing::info!(operation = %id, %action, "operation started");
                shared.operations.notify_one();
            }
            Ok(answer)
        };
        self.to_its_end(start).await
    }

    /// Refuses another operation while too many are not finished: of the actor's tenant, or of all tenants. Keys for all
    /// tenants have places of their own.
    pub async fn has_room_for_operation(&self, actor: &Actor) -> OperationResult<()> {
        let all = self.shared.store.unfinished_operations(LOOKED_AT, self.now()).await?;
        let own = all.iter().filter(|one| one.operation.tenant == actor.tenant).count();
        let is_full = actor.tenant.is_some() && all.len() >= MOST_UNFINISHED;
        if own >= MOST_OF_TENANT || is_full {
            return Err(OperationError::TooMany(if is_full { all.len() } else { own }));
        }
        Ok(())
    }

    /// Stops forwarding until it is resumed.
    pub async fn pause_operation(&self, id: OperationId, actor: &Actor) -> OperationResult<Operation> {
        let change = OperationChange::Pause { by: actor.name.clone() };
        self.change_operation(id, change, "pause-operation", actor).await
    }

    /// Lets a paused operation go on.
    pub async fn resume_operation(&self, id: OperationId, actor: &Actor) -> OperationResult<Operation> {
        let change = OperationChange::Resume { by: actor.name.clone() };
        self.change_operation(id, change, "resume-operation", actor).await
    }

    /// Stops an operation for good; what is not forwarded is left out.
    pub async fn cancel_operation(&self, id: OperationId, actor: &Actor) -> OperationResult<Operation> {
        let change = OperationChange::Cancel { by: actor.name.clone() };
        self.change_operation(id, change, "cancel-operation", actor).await
    }

    async fn change_operation(
        &self,
        id: OperationId,
        change: OperationChange,
        action: &'static str,
        actor: &Actor,
    ) -> OperationResult<Operation> {
        let found = self.reads(actor.tenant.clone()).operation(id).await?;
        let found = found.ok_or(OperationError::NotFound(id))?;
        let mut audit = self.audit(actor, action, &id.to_string());
        audit.tenant = found.tenant;
        let (shared, now) = (self.shared.clone(), self.now());
        let make = async move {
            let made = shared.store.change_operation(id, change, Some(audit), now).await?;
            shared.operations.notify_one();
            Ok(made)
        };
        match self.to_its_end(make).await? {
            None => Err(OperationError::NotFound(id)),
            Some(Ok(operation)) => Ok(operation),
            Some(Err(Refused::Finished | Refused::NotNow)) => {
                let now = self.shared.store.operation(id).await?;
                let state = now.map_or("finished", |operation| operation.standing.state.name());
                Err(OperationError::Finished(id, state))
            }
        }
    }
}

impl Reads {
    /// Operations that are not finished, newest first. There are few, so they are cheap to find among many.
    pub async fn unfinished_operations(
        &self,
        before: Option<OperationId>,
        limit: usize,
    ) -> Result<Page<Operation, OperationId>, ReadError> {
        let all = self.shared().store.unfinished_operations(LOOKED_AT, self.shared().node.now()).await?;
        let tenant = self.tenant(None)?;
        let sees = |one: &Operation| {
            (tenant.is_none() || one.tenant == tenant) && before.is_none_or(|before| one.id < before)
        };
        let mut rows: Vec<Operation> = all.into_iter().map(|one| one.operation).filter(sees).collect();
        rows.sort_by_key(|one| std::cmp::Reverse(one.id));
        let more = rows.len() > limit;
        rows.truncate(limit);
        Ok(Page { next: rows.last().filter(|_| more).map(|one| one.id), rows })
    }
}
