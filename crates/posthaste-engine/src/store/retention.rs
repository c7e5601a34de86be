//! Retention: rows that have outlived their period are removed, a chunk at a time.

use posthaste_core::id::DeadLetterId;
use posthaste_core::retention::Kind;
use posthaste_core::time::Timestamp;

use super::acts::Audit;
use super::slice::slice;

slice! {
    /// What is removed because of its age. Nothing that lives is touched, and nothing that an operation which is not finished
    /// names; what a dead letter names stays until that is purged.
    pub trait Retention {
        /// Goes on with the pass over one kind: looks at the next rows, oldest first, and removes those that have outlived their
        /// period. How far the pass came is kept in the same transaction. At the end of a pass `audit` is written with the
        /// number of rows that the pass has removed, if there are any, and the next call begins a new pass.
        write Prune: fn prune(prune: Prune, audit: Audit) -> Pruned;

        /// Shows a soft-deleted dead letter in lists again, with the status that it had. Only one that is resolved: one that is
        /// pending is restored with its notification, by `transition`. False if there is no such dead letter; else the
        /// audit row is written.
        write ShowDeleted: fn show_deleted(dead_letter: DeadLetterId, audit: Audit) -> bool;
    }
}

/// A chunk of a pass. It looks at `LOOKED_AT` times as many rows as it may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prune {
    /// What is removed.
    pub kind: Kind,
    /// What ended before this time is removed.
    pub cut_off: Timestamp,
    /// The most that are removed: rows, or notifications with everything that belongs to them.
    pub limit: usize,
    /// When: soft-deleted dead letters are marked with it.
    pub now: Timestamp,
}

/// What came of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruned {
    /// The rows that were removed. A notification counts as one, with everything that belongs to it.
    pub removed: u64,
    /// Whether the pass is over.
    pub done: bool,
}
