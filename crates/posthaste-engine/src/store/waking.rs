//! What becomes due, what expires and what has waited for long, among the rows that nobody holds.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::act::Seen;
use posthaste_core::channel::Channel;
use posthaste_core::flow::Bucket;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::time::Timestamp;

use super::slice::slice;

slice! {
    /// What tells a node where to claim.
    pub trait Waking {
        /// Reads rows that nobody holds in the order of (due, id): those after the cursor `after` that are due at `until`
        /// or before, at most `limit` of them, and tells their buckets. A row whose flow is not known is read and not told.
        read Wakes: fn wakes(after: DueCursor, until: Timestamp, limit: usize) -> Wakes;

        /// Rows that nobody holds and that expire up to `until`, at most `limit`, the earliest first. `next` is the first
        /// expiry among the rows that are not told.
        read Expiring: fn expiring(until: Timestamp, limit: usize) -> Expiring;

        /// The buckets with rows that nobody holds, with the tenant and the earliest due time of each, in the order of the
        /// buckets after `after`: what a node asks at its start, and now and then as a safety net. Fewer than `limit` mean
        /// that there are no more. A bucket whose flow is not known is left out. The cost of a bucket does not depend on
        /// how many rows wait in it.
        read Buckets: fn buckets(after: Option<Bucket>, limit: usize) -> Vec<Waiting>;

        /// Rows that nobody holds, that are due before `due_before` and were first due before `first_due_before`, in the
        /// order of (due, id) after `after`: what may have been parked for too long. The notification is read only where the
        /// policy depends on it. Rows in the main lane that were first due later cost nothing.
        read Overdue: fn overdue(
            due_before: Timestamp,
            first_due_before: Timestamp,
            after: Option<DueCursor>,
            limit: usize,
        ) -> Vec<Overdue>;

        /// The same for rows whose message says itself how old it may become, whenever they were first due. All others cost
        /// nothing.
        read OwnAges: fn overdue_by_own_age(
            due_before: Timestamp,
            after: Option<DueCursor>,
            limit: usize,
        ) -> Vec<Overdue>;
    }
}

/// A place among rows in the order of their due times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueCursor {
    /// When the row at this place is due.
    pub due: Timestamp,
    /// The row.
    pub id: NotificationId,
}

impl DueCursor {
    /// Before every row.
    pub const START: Self = Self { due: Timestamp::MIN, id: NotificationId::FIRST };

    /// After every row that is due before that time.
    pub fn after_all_before(due: Timestamp) -> Self {
        Self::after_all_at(due.earlier(Duration::from_micros(1)))
    }

    /// After every row that is due at that time.
    pub const fn after_all_at(due: Timestamp) -> Self {
        Self { due, id: NotificationId::LAST }
    }
}

/// What became due in a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wakes {
    /// Where the rows wait that were read: each bucket once, in their order.
    pub buckets: Vec<Woken>,
    /// The cursor of the last row that was read, if the limit was reached: there may be more.
    pub more: Option<DueCursor>,
    /// If the limit was not reached: when the first row after `until` (and after the cursor) is due, if there is one.
    pub next: Option<Timestamp>,
}

/// A bucket in which rows became due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Woken {
    /// Where they wait.
    pub bucket: Bucket,
    /// The tenant of the flow.
    pub tenant: Tenant,
}

/// A bucket with rows that nobody holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Where they wait.
    pub bucket: Bucket,
    /// The tenant of the flow.
    pub tenant: Tenant,
    /// When the first of them is due.
    pub due: Timestamp,
}

/// Waiting rows whose time ran out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expiring {
    /// Those that expired first before the others.
    pub rows: Vec<ExpiringRow>,
    /// When the next row expires after that, if there is one.
    pub next: Option<Timestamp>,
}

/// A waiting row whose time ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiringRow {
    /// Which notification.
    pub id: NotificationId,
    /// How it stands.
    pub seen: Seen,
}

/// A row that has been due for long.
#[derive(Debug, Clone, PartialEq)]
pub struct Overdue {
    /// Which one.
    pub id: NotificationId,
    /// The tenant of its flow.
    pub tenant: Tenant,
    /// The channel of its flow.
    pub channel: Channel,
    /// What waits; none if its policy follows from tenant and channel alone.
    pub notification: Option<Arc<Notification>>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// How it stands.
    pub seen: Seen,
    /// When it is due.
    pub due: Timestamp,
    /// When the generation was first due.
    pub first_due: Timestamp,
}
