//! What the model keeps, and the only functions that change the state of a notification.
//!
//! Invariant: a notification is in `queue` or in `ended`, never in both. Every change of state goes through `change`,
//! `end`, `reopen` or `amend`, and each of them asks `State::next` first (law 3). The sets beside the tables and the
//! counters follow from the rows and are changed only where a row comes or goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::Attempt;
use posthaste_core::failure::FailureType;
use posthaste_core::flow::{Bucket, FlowId, FlowKey};
use posthaste_core::id::{DeadLetterId, KeyId, NotificationId};
use posthaste_core::inbound::AllTaken;
use posthaste_core::lease::{Lease, NodeId};
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::reason::Reason;
use posthaste_core::state::{Event, Lane, Leased, State};
use posthaste_core::time::Timestamp;

use super::counters::{Counters, Way};
use super::destinations::DestinationTable;
use super::groups::GroupTable;
use super::jobs::JobTable;
use super::operations::OperationTable;
use super::planted::Planted;
use super::records::RecordTable;
use super::retention::Passes;
use super::series::{DestinationHours, SeriesTable};
use crate::store::{
    AuditRow, Claimed, DeadLetterView, DueCursor, HistoryEvent, Progress, Result, Seen, Settings, StoreError,
};

/// Everything that the model keeps.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// What was accepted; it never changes.
    pub notifications: BTreeMap<NotificationId, Kept>,
    /// What lives.
    pub queue: BTreeMap<NotificationId, Row>,
    /// What has ended.
    pub ended: BTreeMap<NotificationId, Ended>,
    /// Attempts, by generation and number.
    pub attempts: BTreeMap<NotificationId, BTreeMap<(u32, u32), Attempt>>,
    /// What else happened to a notification, in its order.
    pub events: BTreeMap<NotificationId, Vec<HistoryEvent>>,
    /// Dead letters with their snapshots. They are changed only by `put_letter`.
    pub dead_letters: BTreeMap<DeadLetterId, DeadLetterView>,
    /// Nodes that joined and neither left nor were forgotten.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Audit rows, the first one first.
    pub audit: Vec<AuditRow>,
    /// The kept counters.
    pub counters: Counters,
    /// The kept failure groups.
    pub groups: GroupTable,
    pub(super) last_node: i64,
    pub(super) last_audit: i64,
    pub(super) passes: Passes,
    /// The counters of earlier hours were removed.
    pub(super) counters_from: i64,
    /// What each flow is.
    pub flows: BTreeMap<FlowId, FlowKey>,
    pub(super) flow_numbers: BTreeMap<FlowKey, FlowId>,
    pub(super) keys: BTreeMap<(Tenant, String), Key>,
    pub(super) settings: Settings,
    pub(super) records: RecordTable,
    /// What is known of destinations.
    pub destinations: DestinationTable,
    /// What is taken of inbound limits.
    pub inbound: AllTaken,
    pub(super) jobs: JobTable,
    pub(super) series: SeriesTable,
    pub(super) destination_hours: DestinationHours,
    /// Operations with their batches and items.
    pub operations: OperationTable,
    pub(super) key_uses: BTreeMap<KeyId, Timestamp>,
    /// Rows that nobody holds, as a claim looks for them.
    pub(super) waiting: BTreeSet<(Bucket, Timestamp, NotificationId)>,
    /// Rows that nobody holds, by the time they are due.
    pub(super) due: BTreeSet<DueCursor>,
    /// Rows that nobody holds, by the time they expire.
    pub(super) expiry: BTreeSet<(Timestamp, NotificationId)>,
    /// Rows of the retry lane, held or not.
    pub(super) retries: BTreeSet<DueCursor>,
    /// Rows that somebody holds.
    pub(super) held: BTreeSet<(Lease, NotificationId)>,
    pub(super) planted: Option<Planted>,
}

/// A notification with its flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// What was accepted.
    pub notification: Arc<Notification>,
    /// Its flow.
    pub flow: FlowId,
}

/// A row of the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What waits or is being sent.
    pub notification: Arc<Notification>,
    /// Its flow.
    pub flow: FlowId,
    /// Its lane.
    pub lane: Lane,
    /// When the next attempt is due.
    pub due: Timestamp,
    /// When the generation was first due.
    pub first_due: Timestamp,
    /// How long the last retry was put off.
    pub delay: Duration,
    /// Who holds it, if anyone does.
    pub lease: Option<Lease>,
    /// Where it stands in its attempts.
    pub progress: Progress,
    /// Leases taken back in a row.
    pub interruptions: u32,
    /// Whether somebody asked to cancel it.
    pub cancel: bool,
}

impl Row {
    /// The live state, which follows from the lane and the lease.
    pub const fn state(&self) -> State {
        State::live(self.lane, if self.lease.is_some() { Leased::Yes } else { Leased::No })
    }

    /// Where it waits.
    pub fn bucket(&self) -> Bucket {
        Bucket { flow: self.flow, lane: self.lane, priority: self.notification.priority }
    }

    /// Its place among the rows by due time.
    pub(super) fn place(&self) -> DueCursor {
        DueCursor { due: self.due, id: self.notification.id }
    }

    /// How an act sees it.
    pub const fn seen(&self) -> Seen {
        Seen { state: self.state(), generation: self.progress.generation, attempt: self.progress.attempt }
    }

    /// What the holder of `lease` works on.
    pub(super) fn claimed(&self, lease: Lease) -> Claimed {
        Claimed {
            notification: self.notification.clone(),
            flow: self.flow,
            lane: self.lane,
            due: self.due,
            progress: self.progress,
            first_due: self.first_due,
            delay: self.delay,
            interruptions: self.interruptions,
            cancel_requested: self.cancel,
            lease,
        }
    }

    /// The last attempt that was made, where the running or next one was not.
    pub(super) const fn attempts_made(&self) -> u32 {
        self.progress.attempt.saturating_sub(1)
    }
}

/// How a notification ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// In which state.
    pub state: State,
    /// When.
    pub at: Timestamp,
    /// Its generation, its last attempt and what its budget was counted from.
    pub progress: Progress,
    /// Why, if it was not delivered.
    pub reason: Option<Reason>,
    /// Why, in words.
    pub text: Option<String>,
    /// The dead letter that it ended as, also where that was discarded since.
    pub dead_letter: Option<DeadLetterId>,
    /// How the last attempt failed; none if it delivered or there was none.
    pub failure_type: Option<FailureType>,
    /// The status code of the last attempt.
    pub status_code: Option<u16>,
}

impl Ended {
    /// How an act sees it.
    pub const fn seen(&self) -> Seen {
        Seen { state: self.state, generation: self.progress.generation, attempt: self.progress.attempt }
    }
}

/// A node that joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it called itself.
    pub name: String,
    /// When it joined.
    pub joined: Timestamp,
    /// When it last said that it lives.
    pub beat: Timestamp,
    /// Until when it is alive.
    pub expires: Timestamp,
    /// Whether its leases are being taken back, so that it cannot come back to life.
    pub dead: bool,
    /// What it understands.
    pub level: u32,
}

/// An idempotency key with what its first request was answered.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) first_used: Timestamp,
    pub(super) hash: [u8; 32],
    pub(super) answer: Vec<u8>,
}

impl Tables {
    /// The state of a notification, if it exists.
    pub fn state(&self, id: NotificationId) -> Option<State> {
        self.seen(id).map(|seen| seen.state)
    }

    /// How a notification stands, if it exists.
    pub fn seen(&self, id: NotificationId) -> Option<Seen> {
        self.queue.get(&id).map(Row::seen).or_else(|| self.ended.get(&id).map(Ended::seen))
    }

    /// The counters as the rows have them: what the kept ones must be.
    pub fn recount(&self) -> Counters {
        let mut counters = Counters::default();
        for row in self.queue.values() {
            counters.queued(row, Way::In);
        }
        for (id, ended) in &self.ended {
            counters.ended(&self.notifications[id].notification, ended, Way::In);
        }
        counters
    }

    pub(super) fn has(&self, bug: Planted) -> bool {
        self.planted == Some(bug)
    }

    /// Runs a transaction that may find, half way, that it cannot be done; then nothing of it stays.
    pub(super) fn whole_or_nothing<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.clone();
        run(self).inspect_err(|_| *self = before)
    }

    /// Whether one of the names is taken, or given twice.
    pub(super) fn any_taken(&self, names: impl Iterator<Item = DeadLetterId>) -> bool {
        let mut given = BTreeSet::new();
        names.into_iter().any(|name| self.dead_letters.contains_key(&name) || !given.insert(name))
    }

    // ---- changes of state ----

    /// A new notification enters the queue.
    pub(super) fn enter(&mut self, row: Row) -> Result<()> {
        let id = row.notification.id;
        if self.notifications.contains_key(&id) {
            return Err(corrupt(format!("{id} exists already")));
        }
        self.notifications.insert(id, Kept { notification: row.notification.clone(), flow: row.flow });
        self.put(row);
        Ok(())
    }

    /// A row of the queue takes an arrow to another place in the queue.
    pub(super) fn change(&mut self, event: Event, row: Row) -> Result<()> {
        let id = row.notification.id;
        let old = self.queue.get(&id).ok_or_else(|| corrupt(format!("{id} is not in the queue")))?;
        follow(id, old.state(), event, row.state())?;
        self.replace(row);
        Ok(())
    }

    /// A row changes but for its state.
    pub(super) fn keep_state(&mut self, row: Row) -> Result<()> {
        let id = row.notification.id;
        if self.state(id) != Some(row.state()) {
            return Err(corrupt(format!("{id} changed its state without an arrow")));
        }
        self.replace(row);
        Ok(())
    }

    /// A notification leaves the queue for good.
    pub(super) fn end(&mut self, id: NotificationId, event: Event, ended: Ended) -> Result<()> {
        let old = self.queue.get(&id).ok_or_else(|| corrupt(format!("{id} is not in the queue")))?;
        follow(id, old.state(), event, ended.state)?;
        let row = self.take(id);
        self.counters.ended(&row.notification, &ended, Way::In);
        if self.has(Planted::CounterDrift) {
            self.counters.queued(&row, Way::In);
        }
        self.ended.insert(id, ended);
        Ok(())
    }

    /// A notification that had ended enters the queue again.
    pub(super) fn reopen(&mut self, event: Event, row: Row) -> Result<()> {
        let id = row.notification.id;
        let old = self.ended.remove(&id).ok_or_else(|| corrupt(format!("{id} has not ended")))?;
        follow(id, old.state, event, row.state())?;
        self.counters.ended(&row.notification, &old, Way::Out);
        self.put(row);
        Ok(())
    }

    /// A notification that has ended ends in another way.
    pub(super) fn amend(&mut self, id: NotificationId, event: Event, ended: Ended) -> Result<()> {
        let old = self.ended.get(&id).ok_or_else(|| corrupt(format!("{id} has not ended")))?;
        follow(id, old.state, event, ended.state)?;
        let notification = &self.notifications[&id].notification;
        self.counters.ended(notification, old, Way::Out);
        self.counters.ended(notification, &ended, Way::In);
        self.ended.insert(id, ended);
        Ok(())
    }

    /// The row as it is said, whatever it was: without the question for an arrow.
    pub(super) fn replace(&mut self, row: Row) {
        self.take(row.notification.id);
        self.put(row);
    }

    fn put(&mut self, row: Row) {
        let id = row.notification.id;
        match row.lease {
            Some(lease) => {
                self.held.insert((lease, id));
            }
            None => {
                self.waiting.insert((row.bucket(), row.due, id));
                self.due.insert(row.place());
                self.expiry.extend(row.notification.expires_at.map(|at| (at, id)));
            }
        }
        if row.lane == Lane::Retry {
            self.retries.insert(row.place());
        }
        self.counters.queued(&row, Way::In);
        self.queue.insert(id, row);
    }

    fn take(&mut self, id: NotificationId) -> Row {
        let row = self.queue.remove(&id).expect("whoever takes a row has looked it up");
        if let Some(lease) = row.lease {
            self.held.remove(&(lease, id));
        }
        self.waiting.remove(&(row.bucket(), row.due, id));
        self.due.remove(&row.place());
        if let Some(at) = row.notification.expires_at {
            self.expiry.remove(&(at, id));
        }
        self.retries.remove(&row.place());
        self.counters.queued(&row, Way::Out);
        row
    }
}

/// What makes no sense is an error that says what was found, never a panic.
pub(super) fn corrupt(what: String) -> StoreError {
    StoreError::Corrupt { what }
}

fn follow(id: NotificationId, from: State, event: Event, to: State) -> Result<()> {
    let allowed = from.next(event).map_err(|refused| corrupt(format!("{id}: {refused}")))?;
    if allowed != to {
        return Err(corrupt(format!("{id}: {from} leads to {allowed}, not to {to}")));
    }
    Ok(())
}
