//! Taking notifications in: everything that arrived while the last batch was stored goes into the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::fields::BadField;
use posthaste_core::flow::{Bucket, FlowId, FlowKey};
use posthaste_core::id::NotificationId;
use posthaste_core::inbound::Allowances;
use posthaste_core::lease::Lease;
use posthaste_core::notification::Notification;
use posthaste_core::series::Happened;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::engine::{Engine, Shared};
use crate::gather::{More, gather};
use crate::inbound::deferral;
use crate::journal;
use crate::planted::Planted;
use crate::series::Whose;
use crate::settle::Report;
use crate::slots::{Hold, InSlot};
use crate::store::{Acceptance, Accepted, Arrival, Claimed, Idempotency, Progress, Request, StoreError};
use crate::vault::VaultError;

/// Why a request was not taken in.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The engine is stopping.
    #[error("this node is stopping and takes no new notifications")]
    Stopping,
    /// The engine stopped before the store answered: it may or may not have been stored.
    #[error("this node stopped before it was known whether the notification is stored")]
    Unclear,
    /// A notification's own policy is not in order.
    #[error("the policy of the notification is refused")]
    Policy(#[source] BadField),
    /// The main lane has as many notifications as it may have. Nothing was stored.
    #[error("the queue is full")]
    QueueFull,
    /// The store could not take it, or did not say whether it did.
    #[error("the notification could not be stored")]
    Store(#[source] Arc<StoreError>),
    /// Its secrets could not be sealed.
    #[error("the headers of the notification could not be sealed")]
    Vault(#[source] VaultError),
}

impl From<VaultError> for AcceptError {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Store(error) => Self::Store(Arc::new(error)),
            never => Self::Vault(never),
        }
    }
}

/// One caller's request on its way to the store.
pub(crate) struct Incoming {
    idempotency: Option<Idempotency>,
    admitted: Vec<Admitted>,
    answer: oneshot::Sender<Result<Accepted, AcceptError>>,
}

impl Incoming {
    pub(crate) fn count(&self) -> usize {
        self.admitted.len()
    }

    pub(crate) fn refuse(self, why: AcceptError) {
        let _ = self.answer.send(Err(why));
    }
}

/// A notification that may be stored, and when its first attempt is due.
#[derive(Debug, Clone)]
pub struct Admitted {
    pub notification: Arc<Notification>,
    pub due: Timestamp,
    /// Until when an inbound limit defers it.
    pub deferred_until: Option<Timestamp>,
    /// What it left of the inbound limits; none if there are none, or if it is exempt.
    pub allowances: Option<Allowances>,
}

impl Engine {
    /// Decides when each notification is due, and reserves times under the inbound limits. Nothing of the notifications is stored
    /// yet: the caller renders its answer from what was decided, and an idempotency key keeps that answer.
    pub async fn admit(&self, mut notifications: Vec<Notification>) -> Result<Vec<Admitted>, AcceptError> {
        if self.shared.is_draining() {
            return Err(AcceptError::Stopping);
        }
        for policy in notifications.iter().filter_map(|one| one.content.policy.as_ref()) {
            self.shared.policies.check_message(policy).map_err(AcceptError::Policy)?;
        }
        // So that what is refused takes no times. The loop that accepts decides.
        if !self.shared.has_room_for(notifications.len()).await {
            self.shared.counts.queue_full(notifications.len());
            return Err(AcceptError::QueueFull);
        }
        let vault = self.vault();
        for one in notifications.iter_mut().filter(|one| vault.has_to_seal(one)) {
            Box::pin(vault.seal_headers(one)).await?;
        }
        let limited = self.has_inbound_limits();
        let reserved = if limited { self.reserve(&notifications).await? } else { vec![] };
        let now = self.shared.node.now();
        let mut reserved = reserved.into_iter();
        let admit = |one: Notification| {
            let reserved = reserved.next().flatten();
            let deferred_until = deferral(&one, reserved);
            let first_due = one.first_due(now);
            let due = deferred_until.filter(|_| !self.shared.has(Planted::LostDeferral));
            Admitted {
                due: due.map_or(first_due, |until| until.max(first_due)),
                deferred_until,
                allowances: reserved.map(|reserved| reserved.allowances),
                notification: Arc::new(one),
            }
        };
        Ok(notifications.into_iter().map(admit).collect())
    }

    /// Stores what was admitted, all or none. When this answers `New`, it is durable.
    pub async fn accept_admitted(
        &self,
        idempotency: Option<Idempotency>,
        admitted: Vec<Admitted>,
    ) -> Result<Accepted, AcceptError> {
        if self.shared.is_draining() {
            return Err(AcceptError::Stopping);
        }
        self.hand_in(idempotency, admitted).await
    }

    /// Admits and stores notifications whose answer does not depend on what was decided.
    pub async fn accept(
        &self,
        idempotency: Option<Idempotency>,
        notifications: Vec<Notification>,
    ) -> Result<Accepted, AcceptError> {
        let admitted = self.admit(notifications).await?;
        self.hand_in(idempotency, admitted).await
    }

    /// Waits until everything that came in before this is answered: an empty request takes its turn behind it.
    pub(crate) async fn let_in(&self) {
        let _ = self.hand_in(None, vec![]).await;
    }

    async fn hand_in(
        &self,
        idempotency: Option<Idempotency>,
        admitted: Vec<Admitted>,
    ) -> Result<Accepted, AcceptError> {
        let (answer, answered) = oneshot::channel();
        let incoming = Incoming { idempotency, admitted, answer };
        self.shared.inbox.send(incoming).await.map_err(|_| AcceptError::Stopping)?;
        // The loop has it: from here on only the store's answer says what became of it.
        answered.await.map_err(|_| AcceptError::Unclear)?
    }
}

/// The loop: gathers, stores, answers. A caller that goes away changes nothing, for its request is already here.
pub(crate) async fn run(shared: Arc<Shared>, mut arrivals: mpsc::Receiver<Incoming>) {
    let gathers = shared.store.is_shared();
    let mut last = Last::default();
    while let Some(first) = arrivals.recv().await {
        assert!(!shared.has(Planted::PanicAtAccept), "a test wants this loop to end");
        let wait = if gathers { last.wait() } else { None };
        let (mut rows, mut callers) = (0, 0);
        let batch = gather(&mut arrivals, first, |incoming| {
            rows += incoming.admitted.len();
            callers += 1;
            match wait {
                _ if rows >= shared.settings.batch => More::No,
                Some((crowd, until)) if rows < COMPANY && callers < crowd => More::Until(until),
                Some(_) | None => More::IfThere,
            }
        })
        .await;
        let batch = shared.keep_what_fits(batch).await;
        if batch.is_empty() {
            continue;
        }
        let (answered, begun) = (batch.len(), Instant::now());
        take(&shared, batch).await;
        last = Last { answered, waiting: arrivals.len(), took: begun.elapsed() };
    }
}

/// A transaction costs about as much as so many rows in it.
const COMPANY: usize = 32;
/// Where the batch before had fewer callers there is no crowd to wait for.
const CROWD: usize = 8;
/// Upper bound on the wait, even if the store is slow.
const LONGEST_WAIT: Duration = Duration::from_millis(5);

/// The batch before.
#[derive(Default)]
struct Last {
    /// How many callers were answered.
    answered: usize,
    /// How many had come meanwhile.
    waiting: usize,
    took: Duration,
}

impl Last {
    /// For how many callers a batch waits, and until when. Where several nodes share the work of few callers each would make
    /// many small transactions; those who were just answered and go on come back in less time than those take.
    fn wait(&self) -> Option<(usize, Instant)> {
        let until = || Instant::now() + self.took.min(LONGEST_WAIT);
        (self.answered >= CROWD).then(|| (self.answered + self.waiting, until()))
    }
}

async fn take(shared: &Shared, batch: Vec<Incoming>) {
    match store(shared, &batch).await.inspect_err(|_| shared.counts.store_error()) {
        // Nothing of the batch was stored. Its requests are tried one by one, so that only the faulty ones are refused.
        Err(StoreError::Corrupt { .. }) if batch.len() > 1 => {
            for incoming in batch {
                Box::pin(take(shared, vec![incoming])).await;
            }
        }
        Ok(accepted) => {
            for (incoming, accepted) in batch.into_iter().zip(accepted) {
                let _ = incoming.answer.send(Ok(accepted));
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            for incoming in batch {
                let _ = incoming.answer.send(Err(AcceptError::Store(error.clone())));
            }
        }
    }
}

async fn store(shared: &Shared, batch: &[Incoming]) -> Result<Vec<Accepted>, StoreError> {
    let mut flows = flows(shared, batch).await?.into_iter();
    let now = shared.node.now();
    let lease = shared.node.grant();
    let mut held = Vec::with_capacity(batch.len());
    let mut requests = Vec::with_capacity(batch.len());
    for incoming in batch {
        let prepare = |admitted: &Admitted| {
            let flow = flows.next().expect("each arrival has a flow");
            arrival(shared, admitted.clone(), flow, lease, now)
        };
        let arrivals: Vec<(Arrival, Hold)> = incoming.admitted.iter().map(prepare).collect();
        let request = arrivals.iter().map(|(arrival, _)| arrival.clone()).collect();
        requests.push(Request { idempotency: incoming.idempotency.clone(), arrivals: request });
        held.push(arrivals);
    }
    shared.leases.asked(lease);
    match shared.store.accept(requests, now).await {
        Ok(Acceptance { answers: accepted, granted }) => {
            let granted = granted.contains(&lease.node);
            shared.leases.answered(lease, leased(&held, &accepted).filter(|_| granted));
            let new = held.iter().zip(&accepted).filter(|(_, accepted)| **accepted == Accepted::New);
            let new: Vec<&Arrival> =
                new.flat_map(|(arrivals, _)| arrivals).map(|(arrival, _)| arrival).collect();
            shared.counts.accepted(new.len());
            shared.queue_limit.accepted(new.len());
            shared.counts.deferred(deferred(batch, &accepted));
            shared.rollups.add(now, new.into_iter().map(accepted_one));
            for (arrivals, accepted) in held.iter().zip(&accepted) {
                journal::answered(shared, arrivals, accepted);
                hand_over(shared, arrivals, accepted, granted.then_some(lease));
            }
            Ok(accepted)
        }
        Err(error) => {
            shared.leases.answered(lease, []);
            shared.queue_limit.accepted(batch.iter().map(Incoming::count).sum());
            // The write may have happened. A lease must not stay with a node that does not know of it.
            let leased = held.iter().flatten().any(|(_, hold)| hold.is_leased());
            held.iter().flatten().for_each(|(_, hold)| shared.slots.let_go(hold));
            if leased {
                let _ = shared.reports.send(Report::Unclear(lease));
            }
            Err(error)
        }
    }
}

/// How many of the new ones an inbound limit defers.
fn deferred(batch: &[Incoming], accepted: &[Accepted]) -> usize {
    let new = batch.iter().zip(accepted).filter(|(_, accepted)| **accepted == Accepted::New);
    new.flat_map(|(incoming, _)| &incoming.admitted).filter(|one| one.deferred_until.is_some()).count()
}

/// What an arrival is counted as.
pub(crate) fn accepted_one(arrival: &Arrival) -> (Whose<'_>, Happened) {
    (Whose::of(arrival.flow, &arrival.notification), Happened::Accepted)
}

/// The rows of new requests that were handed in with a lease.
fn leased<'a>(
    held: &'a [Vec<(Arrival, Hold)>],
    accepted: &'a [Accepted],
) -> impl Iterator<Item = NotificationId> + 'a {
    let new = held.iter().zip(accepted).filter(|(_, accepted)| **accepted == Accepted::New);
    let rows = new.flat_map(|(arrivals, _)| arrivals);
    rows.filter(|(_, hold)| hold.is_leased()).map(|(arrival, _)| arrival.notification.id)
}

/// The number of the flow of each arrival, in their order; new flows are made.
async fn flows(shared: &Shared, batch: &[Incoming]) -> Result<Vec<FlowId>, StoreError> {
    let arrivals = batch.iter().flat_map(|incoming| &incoming.admitted);
    let keys: Vec<FlowKey> = arrivals.map(|admitted| FlowKey::of(&admitted.notification)).collect();
    flow_ids(shared, keys).await
}

/// The numbers of flows, in their order; new flows are made.
pub(crate) async fn flow_ids(shared: &Shared, keys: Vec<FlowKey>) -> Result<Vec<FlowId>, StoreError> {
    let known = shared.flow_names.ids(&keys);
    let unknown = keys.iter().zip(&known).filter(|(_, id)| id.is_none()).map(|(key, _)| key.clone());
    let unknown: Vec<FlowKey> = unknown.collect::<BTreeSet<FlowKey>>().into_iter().collect();
    let mut new = BTreeMap::new();
    if !unknown.is_empty() {
        let ids = shared.store.intern(unknown.clone()).await?;
        shared.flow_names.remember(unknown.iter().zip(ids.iter().copied()));
        new = unknown.into_iter().zip(ids).collect();
    }
    Ok(known.into_iter().zip(&keys).map(|(id, key)| id.unwrap_or_else(|| new[key])).collect())
}

/// Prepares one row: leased to this node if it is due and can be sent at once or soon, else left for a claim.
fn arrival(
    shared: &Shared,
    Admitted { notification, due, .. }: Admitted,
    flow: FlowId,
    lease: Lease,
    now: Timestamp,
) -> (Arrival, Hold) {
    let bucket = Bucket { flow, lane: Lane::Main, priority: notification.priority };
    shared.meet_flow_of(flow, &notification);
    let hold = if due <= now && shared.may_take_work() {
        shared.slots.take(&notification.tenant, bucket, notification.bytes(), now)
    } else {
        Hold::No
    };
    (Arrival { notification, flow, due, lease: hold.is_leased().then_some(lease) }, hold)
}

/// After the commit: leased rows go to the senders or wait for them, the others are announced. Where the store did not
/// grant the lease, because this node was declared dead, they wait for a claim.
fn hand_over(shared: &Shared, arrivals: &[(Arrival, Hold)], accepted: &Accepted, granted: Option<Lease>) {
    for (arrival, hold) in arrivals {
        let bucket = Bucket { flow: arrival.flow, lane: Lane::Main, priority: arrival.notification.priority };
        match (accepted, arrival.lease.and(granted), hold) {
            (Accepted::New, Some(lease), Hold::Prefetched { .. }) => {
                let back = shared.slots.prefetch(claimed(arrival, lease), shared.node.now());
                shared.give_back(back.into_iter().collect());
            }
            (Accepted::New, Some(lease), Hold::Slot(slot)) => {
                let _ = shared.claimed.send(InSlot { claimed: claimed(arrival, lease), slot: slot.clone() });
            }
            (Accepted::New, _, hold) => {
                shared.slots.let_go(hold);
                shared.announce(&arrival.notification, bucket, arrival.due);
            }
            (Accepted::Twin(_) | Accepted::Conflict, _, hold) => shared.slots.let_go(hold),
        }
    }
}

fn claimed(arrival: &Arrival, lease: Lease) -> Claimed {
    Claimed {
        notification: arrival.notification.clone(),
        flow: arrival.flow,
        lane: Lane::Main,
        due: arrival.due,
        progress: Progress::START,
        first_due: arrival.due,
        delay: Duration::ZERO,
        interruptions: 0,
        cancel_requested: false,
        lease,
    }
}
