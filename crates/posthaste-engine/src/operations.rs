//! Retry operations: one act on many notifications.
//!
//! Each operation has one runner over all nodes, as a job has. The loop gives every operation of this node a step in turn, so
//! that several go on side by side and the store is never given more than one step at a time. `work` has the steps.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::filter::{BadFilter, Filter};
use posthaste_core::id::{DeadLetterId, NotificationId, OperationId};
use posthaste_core::operation::{Action, Canary, Operation, OperationChange, Refused, Selection, selected};
use posthaste_core::time::Timestamp;
use tokio::time::Instant;

use self::told::Told;
use self::work::{Next, Work};
use crate::acts::Actor;
use crate::engine::{Engine, Shared};
use crate::reads::{ReadError, Reads};
use crate::store::{
    Accepted, DeadLetterView, Facts, Idempotency, Page, StoreError, UnfinishedOperation, View,
};

mod told;
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
/// How long a dry run counts.
const COUNTING: Duration = Duration::from_secs(1);
/// How many rows a dry run reads at once, and how many of them it shows.
const PAGE: usize = 500;
const SAMPLE: usize = 5;

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let (mut works, mut told) = (HashMap::<OperationId, Work>::new(), Told::default());
    loop {
        let wait = match turn(&shared, &mut works, &mut told).await {
            Ok(wait) => wait,
            Err(error) => {
                shared.store_failed("look for operations", &error);
                PAUSE
            }
        };
        if wait.is_zero() {
            // Between two steps everything else runs.
            tokio::task::yield_now().await;
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
        let Some(operation) = own(shared, one).await? else { continue };
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

/// What an operation would act on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Preview {
    /// How many were counted.
    pub total: u64,
    /// Whether all were counted.
    pub exact: bool,
    /// How many of them have expired.
    pub expired: u64,
    /// The first ones.
    pub sample: Vec<Sampled>,
}

/// One of those that an operation would act on.
#[derive(Debug, Clone, PartialEq)]
pub enum Sampled {
    Letter(Box<DeadLetterView>),
    Notification(Box<View>),
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

/// An id of either kind.
pub(crate) enum ItemId {
    Letter(DeadLetterId),
    Notification(NotificationId),
}

impl ItemId {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let letter = || text.parse().ok().map(Self::Letter);
        text.parse().ok().map(Self::Notification).or_else(letter)
    }

    const fn letter(&self) -> Option<DeadLetterId> {
        match self {
            Self::Letter(id) => Some(*id),
            Self::Notification(_) => None,
        }
    }
}

impl Shared {
    /// The notifications that these ids name, in one read; none for an id that names nothing.
    async fn named_by(&self, ids: &[String]) -> Result<Vec<Option<NotificationId>>, StoreError> {
        let parsed: Vec<Option<ItemId>> = ids.iter().map(|id| ItemId::parse(id)).collect();
        let letters: Vec<DeadLetterId> = parsed.iter().filter_map(|id| id.as_ref()?.letter()).collect();
        let of_letters =
            if letters.is_empty() { vec![] } else { self.store.notifications_of(letters).await? };
        let mut of_letters = of_letters.into_iter();
        let named = |id: Option<ItemId>| match id? {
            ItemId::Notification(id) => Some(id),
            ItemId::Letter(_) => of_letters.next().flatten(),
        };
        Ok(parsed.into_iter().map(named).collect())
    }
}

impl Engine {
    /// The operation that would be started: whatever is wrong with it is said here. Ids have to name something that the
    /// actor can see.
    pub async fn new_operation(&self, asked: NewOperation, actor: &Actor) -> OperationResult<Operation> {
        let now = self.now();
        let NewOperation { action, selection, rate, canary } = asked;
        let filter = selected(action, &selection, actor.tenant.as_ref(), now)?;
        if let Selection::Ids(ids) = &selection {
            self.check_ids(ids, actor).await?;
        }
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

    async fn check_ids(&self, ids: &[String], actor: &Actor) -> OperationResult<()> {
        for (chunk, part) in ids.chunks(PAGE).enumerate() {
            let named = self.shared.named_by(part).await?;
            let facts = self.shared.store.facts(named.iter().flatten().copied().collect()).await?;
            let is_own = |facts: &&Facts| actor.tenant.as_ref().is_none_or(|own| *own == facts.tenant);
            let seen: HashSet<NotificationId> = facts.iter().filter(is_own).map(|facts| facts.id).collect();
            if let Some(missing) = named.iter().position(|id| id.is_none_or(|id| !seen.contains(&id))) {
                let place = chunk * PAGE + missing;
                return Err(OperationError::UnknownId { place, id: ids[place].clone() });
            }
        }
        Ok(())
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

    /// Counts what an operation would act on, for at most a second.
    pub async fn preview_operation(&self, operation: &Operation) -> OperationResult<Preview> {
        let (until, now) = (Instant::now() + COUNTING, self.shared.node.now());
        let mut preview = Preview::default();
        let filter =
            selected(operation.action, &operation.selection, operation.tenant.as_ref(), operation.cut_off)?;
        let mut cursor: Option<String> = None;
        loop {
            let (rows, next) = match (&operation.selection, &filter) {
                (Selection::Ids(ids), _) => self.sample_ids(ids, cursor.as_deref()).await?,
                (_, Some(filter)) => self.sample_page(operation.action, filter, cursor.as_deref()).await?,
                (_, None) => (vec![], None),
            };
            preview.count(rows, now);
            cursor = next;
            preview.exact = cursor.is_none();
            if preview.exact || Instant::now() >= until {
                return Ok(preview);
            }
        }
    }

    async fn sample_page(
        &self,
        action: Action,
        filter: &Filter,
        cursor: Option<&str>,
    ) -> OperationResult<(Vec<Sampled>, Option<String>)> {
        let store = &self.shared.store;
        Ok(match action.list() {
            posthaste_core::filter::List::DeadLetters => {
                let before = cursor.and_then(|text| text.parse().ok());
                let page = store.dead_letters(filter.clone(), before, PAGE).await?;
                let rows = page.rows.into_iter().map(|row| Sampled::Letter(Box::new(row)));
                (rows.collect(), page.next.map(|next| next.to_string()))
            }
            posthaste_core::filter::List::Notifications
            | posthaste_core::filter::List::Failed
            | posthaste_core::filter::List::RetryQueue => {
                let before = cursor.and_then(|text| text.parse().ok());
                let page = store.page(filter.clone(), before, PAGE).await?;
                let rows = page.rows.into_iter().map(|row| Sampled::Notification(Box::new(row)));
                (rows.collect(), page.next.map(|next| next.to_string()))
            }
        })
    }

    async fn sample_ids(
        &self,
        ids: &[String],
        cursor: Option<&str>,
    ) -> OperationResult<(Vec<Sampled>, Option<String>)> {
        let from = cursor.and_then(|text| text.parse().ok()).unwrap_or(0usize);
        let mut rows = vec![];
        for id in ids.iter().skip(from).take(PAGE) {
            rows.extend(match ItemId::parse(id) {
                Some(ItemId::Letter(id)) => {
                    let found = self.shared.store.dead_letter(id).await?;
                    found.map(|view| Sampled::Letter(Box::new(view)))
                }
                Some(ItemId::Notification(id)) => {
                    let found = self.shared.store.get(id).await?;
                    found.map(|view| Sampled::Notification(Box::new(view)))
                }
                None => None,
            });
        }
        let next = from + PAGE;
        Ok((rows, (next < ids.len()).then(|| next.to_string())))
    }
}

impl Preview {
    fn count(&mut self, rows: Vec<Sampled>, now: Timestamp) {
        self.total += rows.len() as u64;
        let is_over = |row: &&Sampled| row.expires_at().is_some_and(|at| at <= now);
        self.expired += rows.iter().filter(is_over).count() as u64;
        let left = SAMPLE.saturating_sub(self.sample.len());
        self.sample.extend(rows.into_iter().take(left));
    }
}

impl Sampled {
    fn expires_at(&self) -> Option<Timestamp> {
        match self {
            Self::Letter(view) => view.notification.expires_at,
            Self::Notification(view) => view.notification.expires_at,
        }
    }
}
