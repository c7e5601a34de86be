//! What the outside world knows: clients of what was acknowledged, sinks of what arrived.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Act, Change};

use super::inbound::Slots;
use super::life::Life;
use super::outages::Told;
use super::retention::Removed;

/// Which attempt: generation and number.
pub(super) type Number = (u32, u32);

/// One try as the sink's side saw it.
#[derive(Debug, Clone)]
pub(super) struct Try {
    pub(super) life: Arc<Life>,
    pub(super) began: Timestamp,
    pub(super) number: Number,
    /// Whether it is still under way.
    pub(super) active: bool,
    /// Whether it reached the sink.
    pub(super) arrived: bool,
    /// Whether the sink took the notification.
    pub(super) took: bool,
    /// Whether the sink left the sender in doubt about it.
    pub(super) unclear: bool,
    /// Whether the sender has the answer.
    pub(super) answered: bool,
}

/// A request under an idempotency key.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    /// The answers that its tries would have been given, each with the ids of that try.
    pub(super) offers: Vec<Vec<NotificationId>>,
    /// The answer that a client was given.
    pub(super) answer: Option<Vec<u8>>,
}

/// Everything that is known outside of the store.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) acknowledged: BTreeSet<NotificationId>,
    pub(super) keys: BTreeMap<String, Keyed>,
    pub(super) tries: BTreeMap<NotificationId, Vec<Try>>,
    pub(super) retry_after: BTreeMap<(NotificationId, Number), (Timestamp, Duration)>,
    /// Generations that a person opened.
    pub(super) opened: BTreeMap<NotificationId, u32>,
    pub(super) hurried: BTreeSet<(NotificationId, u32)>,
    /// Called off while it waited: it must never be sent again.
    pub(super) cancelled: BTreeSet<NotificationId>,
    /// Called off during this attempt: no other may begin.
    pub(super) cancel_requested: BTreeMap<NotificationId, Number>,
    /// Calls that were answered as an error and happened later, or will.
    pub(super) late: u64,
    /// What processes were told of destinations.
    pub(super) told: Told,
    /// What is known of reservations under inbound limits.
    pub(super) slots: Slots,
    /// What retention removed.
    pub(super) removed: Removed,
}

impl Ledger {
    /// Notes what the acts changed.
    pub(super) fn acted(&mut self, changes: &[Change], made: &[bool]) {
        for (change, _) in changes.iter().zip(made).filter(|(_, made)| **made) {
            let id = change.id;
            match change.act {
                Act::Cancel => drop(self.cancelled.insert(id)),
                Act::RequestCancel => {
                    self.cancel_requested.insert(id, (change.seen.generation, change.seen.attempt));
                }
                Act::RetryNow => drop(self.hurried.insert((id, change.seen.generation))),
                Act::Requeue | Act::Retry => *self.opened.entry(id).or_default() += 1,
                Act::Expire
                | Act::Bury { .. }
                | Act::Discard
                | Act::Replace { .. }
                | Act::Delete
                | Act::Restore => {}
            }
        }
    }
}
