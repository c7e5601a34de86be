//! How far an operation is, as it is kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CanaryState, OperationState, Skip};
use crate::time::Timestamp;

/// The most events that are kept of an operation: the first and the last ones.
pub(super) const MOST_EVENTS: usize = 100;

/// How far an operation is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Standing {
    pub state: OperationState,
    /// Where marking goes on; none at the start.
    pub cursor: Option<String>,
    /// Whether marking is over.
    pub walked: bool,
    /// Items that were selected so far.
    pub total: u64,
    /// Items that were staged so far.
    pub staged: u64,
    /// Items whose act was done.
    pub forwarded: u64,
    pub skipped: BTreeMap<Skip, u64>,
    pub batches: u32,
    pub batches_done: u32,
    /// Items of the batch that is being marked, and how many of them are held.
    pub open: u32,
    pub open_held: u32,
    pub canary_failed: u32,
    pub canary_state: CanaryState,
    pub paused_by: Option<String>,
    /// Nobody paused it: only items are left whose destinations are open or blocked.
    pub waits_for_breaker: bool,
    pub stopped_by: Option<String>,
    #[serde(with = "crate::micros::maybe")]
    pub finished_at: Option<Timestamp>,
    /// When it last went a step, or was changed by somebody.
    #[serde(with = "crate::micros::maybe")]
    pub changed_at: Option<Timestamp>,
    pub events: Vec<OperationEvent>,
}

/// Something that happened to an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationEvent {
    #[serde(with = "crate::micros")]
    pub at: Timestamp,
    pub event: String,
    pub by: Option<String>,
}

impl Standing {
    /// Items that were left out.
    pub fn all_skipped(&self) -> u64 {
        self.skipped.values().sum()
    }

    /// Items that are neither forwarded nor left out.
    pub fn remaining(&self) -> u64 {
        self.total.saturating_sub(self.forwarded + self.all_skipped())
    }

    pub(super) fn skip(&mut self, why: Skip, count: u32) {
        if count > 0 {
            *self.skipped.entry(why).or_default() += u64::from(count);
        }
    }

    /// Adds to the history. Of very many events those in the middle are dropped.
    pub fn note(&mut self, event: impl Into<String>, by: Option<&str>, at: Timestamp) {
        if self.events.len() >= MOST_EVENTS {
            self.events.remove(MOST_EVENTS / 2);
        }
        self.events.push(OperationEvent { at, event: event.into(), by: by.map(str::to_owned) });
    }
}
