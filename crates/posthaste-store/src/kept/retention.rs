//! How far a pass of retention came, and what one chunk of it takes.

use posthaste_core::retention::LOOKED_AT;
use posthaste_engine::store::{Prune, Pruned};

/// The most bytes of content that a chunk removes, besides one row: large rows take longer to remove.
pub(crate) const MAX_BYTES: i64 = 1024 * 1024;

/// A pass as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Pass {
    /// The last row that was looked at; none between two passes.
    pub(crate) after: Option<Vec<u8>>,
    /// How many rows it has removed so far.
    pub(crate) removed: i64,
}

impl Pass {
    /// Where the next look begins. Every id is greater than the empty one.
    pub(crate) fn start(&self) -> &[u8] {
        self.after.as_deref().unwrap_or_default()
    }

    /// The pass after a chunk that removed so many rows and goes on behind `next`; none if it is over.
    pub(crate) fn after(&self, removed: i64, next: Option<Vec<u8>>) -> Self {
        match next {
            Some(next) => Self { after: Some(next), removed: self.removed + removed },
            None => Self::default(),
        }
    }
}

/// What a chunk has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk<R> {
    /// What it removes, oldest first.
    pub(crate) rows: Vec<R>,
    /// Behind which row the next chunk goes on; none if the pass is over.
    pub(crate) next: Option<Vec<u8>>,
    looked_at: usize,
    bytes: i64,
}

impl<R> Chunk<R> {
    pub(crate) const fn new() -> Self {
        Self { rows: vec![], next: None, looked_at: 0, bytes: 0 }
    }

    /// Takes a row that was looked at, if it can be removed, with its size. Returns whether the chunk is full.
    pub(crate) fn take(&mut self, prune: &Prune, at: &[u8], row: Option<(R, i64)>) -> bool {
        self.looked_at += 1;
        if let Some((row, bytes)) = row {
            self.rows.push(row);
            self.bytes += bytes;
        }
        let full = self.rows.len() >= prune.limit
            || self.looked_at >= most_looked_at(prune)
            || self.bytes >= MAX_BYTES;
        if full {
            self.next = Some(at.to_vec());
        }
        full
    }
}

/// The most rows that a chunk looks at.
pub(crate) const fn most_looked_at(prune: &Prune) -> usize {
    prune.limit.saturating_mul(LOOKED_AT)
}

/// What is answered after a chunk.
pub(crate) fn answer(removed: i64, done: bool) -> Pruned {
    Pruned { removed: u64::try_from(removed).unwrap_or(0), done }
}
