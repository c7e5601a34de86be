//! The schema of a store as both kinds of store tell it: which steps there are, and which were taken.

use posthaste_core::time::Timestamp;

/// The tables that the first step makes, in both kinds of store. A later step that removes one takes it off this list.
pub(crate) const TABLES: &[&str] = &[
    "attempt",
    "audit",
    "counter",
    "dead_letter",
    "ended",
    "event",
    "flow",
    "idempotency_day",
    "idempotency_even",
    "idempotency_odd",
    "node",
    "notification",
    "queue",
    "setting",
    "setting_version",
];

/// A step of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its number, from 1.
    pub version: u32,
    /// The name of its file; empty where a newer Posthaste has taken it and did not leave a name.
    pub name: String,
    /// Whether it was taken.
    pub applied: bool,
    /// When it was taken, where the store notes that. SQLite notes only how many were.
    pub applied_at: Option<Timestamp>,
}

/// The steps of a store, in their order, and why this program cannot run on it, if it cannot.
#[derive(Debug)]
pub struct Schema<E> {
    /// Every step that is known here or was taken there.
    pub steps: Vec<Step>,
    /// None if it is in order.
    pub refused: Option<E>,
}
