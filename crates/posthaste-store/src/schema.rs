//! The migration steps of a store, as both stores report them.

use posthaste_core::time::Timestamp;

/// The tables of the first step, in both stores. A later step that removes a table removes it from this list.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// From 1.
    pub version: u32,
    /// The name of its file. Empty for a step of a newer Posthaste on SQLite, which stores no names.
    pub name: String,
    pub applied: bool,
    /// `None` on SQLite, which stores only the number of applied steps.
    pub applied_at: Option<Timestamp>,
}

/// The steps of a store in order.
#[derive(Debug)]
pub struct Schema<E> {
    /// All steps that this program knows or that the store has applied.
    pub steps: Vec<Step>,
    /// Why this program cannot run on the store; `None` if it can.
    pub refused: Option<E>,
}
