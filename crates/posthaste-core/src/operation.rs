//! Retry operations: one act on many notifications, in batches that go through stages, with progress.
//!
//! An operation is marked (its items are chosen), then each batch is staged (every item is decided) and forwarded (the act is
//! done). Stages only go forward, and each step can be repeated. Stores load an operation, ask these functions what a step
//! changes, and write the result with the items in one transaction.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::canary::{Canary, CanaryState, FirstAttempt, Verdict, first_attempt, judge};
pub use self::decide::{Deed, Looked, decide, forwardable};
pub use self::pace::{Window, rest, shares};
pub use self::selection::{Contradiction, Selection, narrow, selected};
pub use self::standing::{OperationEvent, Standing};
pub use self::words::{Action, OperationState, Skip, Stage, Staging};
use crate::act::Seen;
use crate::flow::FlowId;
use crate::id::{DeadLetterId, NotificationId, OperationId};
use crate::lease::NodeId;
use crate::notification::Tenant;
use crate::time::Timestamp;

mod canary;
mod decide;
mod pace;
mod selection;
mod standing;
mod words;

/// The most items of a batch (S4).
pub const BATCH: u32 = 1_000;
/// The most ids that an operation can be given.
pub const MOST_IDS: usize = 10_000;
/// How often an item that cannot be read is tried before it is ejected.
pub const MOST_TRIES: u32 = 5;

/// A retry operation as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub id: OperationId,
    /// Whose items only; none for all tenants.
    pub tenant: Option<Tenant>,
    pub action: Action,
    pub selection: Selection,
    /// What died, or was accepted, at this time or later is not selected.
    #[serde(with = "crate::micros")]
    pub cut_off: Timestamp,
    /// The most items a second.
    pub rate: Option<u32>,
    pub canary: Option<Canary>,
    pub started_by: String,
    pub key_id: Option<String>,
    pub address: Option<String>,
    #[serde(with = "crate::micros")]
    pub started_at: Timestamp,
    /// How far it is. Kept apart, because it changes.
    #[serde(skip)]
    pub standing: Standing,
    /// The node that works on it.
    #[serde(skip)]
    pub runner: Option<NodeId>,
}

/// An item that marking has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selected {
    pub notification: NotificationId,
    /// The dead letter that stands for it, where dead letters were selected.
    pub dead_letter: Option<DeadLetterId>,
}

/// A batch that is to be staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Counted from 1.
    pub number: u32,
    /// The id of its last staging.
    pub staging: Option<u64>,
    /// The items that are held, in the order of their ids.
    pub items: Vec<BatchItem>,
}

/// An item of a batch that is to be staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchItem {
    pub selected: Selected,
    /// How often it could not be read.
    pub tries: u32,
}

/// What staging decided about an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Its act is done while it is still as it was seen.
    Stage { flow: FlowId, seen: Seen },
    /// It is left out.
    Skip(Skip),
    /// It could not be read, and is tried again.
    TryAgain,
}

/// How a batch changes with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchMark {
    pub number: u32,
    pub items: u32,
    pub held: u32,
    pub stage: Stage,
}

/// What is to change about an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationChange {
    Pause {
        by: String,
    },
    Resume {
        by: String,
    },
    /// What is not forwarded is skipped.
    Cancel {
        by: String,
    },
    /// Only items are left whose destinations are open or blocked.
    WaitForBreaker {
        node: NodeId,
    },
    /// One of these destinations takes something again.
    GoOn {
        node: NodeId,
    },
    /// What the first items have shown.
    Canary {
        node: NodeId,
        verdict: Verdict,
    },
    /// It cannot go on. What is not forwarded is skipped.
    Fail {
        node: NodeId,
        why: String,
    },
    /// Nothing is left to do.
    Finish {
        node: NodeId,
    },
}

/// Why a change is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is finished, or being stopped.
    Finished,
    /// Another node works on it, or there is something left to do.
    NotNow,
}

/// Who stopped an operation whose canary failed.
pub const CANARY: &str = "canary";
/// Who paused an operation that waits for destinations.
pub const BREAKER: &str = "breaker";
/// Who stopped an operation that could not go on.
pub const ITSELF: &str = "posthaste";

impl Operation {
    /// Items that are marked or staged.
    pub fn held(&self) -> u64 {
        self.standing.remaining()
    }

    /// Whether nothing changes any more.
    pub const fn is_finished(&self) -> bool {
        self.standing.finished_at.is_some()
    }

    /// Whether the node may do a step.
    pub fn is_run_by(&self, node: NodeId) -> bool {
        !self.is_finished() && self.runner == Some(node)
    }

    /// The node works on it from now on; `alive` says whether the one that did so before lives.
    pub fn adopt(&mut self, node: NodeId, alive: bool, now: Timestamp) -> bool {
        let taken = self.runner.is_some_and(|runner| runner != node && alive);
        if self.is_finished() || taken {
            return false;
        }
        if self.runner.is_some_and(|runner| runner != node) {
            self.standing.note("adopted", None, now);
        }
        self.runner = Some(node);
        if self.standing.state == OperationState::Waiting {
            self.standing.state = OperationState::Preparing;
        }
        true
    }

    /// Whether the node may mark what comes after the cursor.
    pub fn may_mark(&self, node: NodeId, cursor: Option<&str>) -> bool {
        self.is_run_by(node)
            && self.standing.state == OperationState::Preparing
            && !self.standing.walked
            && self.standing.cursor.as_deref() == cursor
    }

    /// How many more items the batch takes that is being marked.
    pub const fn room_in_batch(&self) -> u32 {
        BATCH.saturating_sub(self.standing.open)
    }

    /// A stretch was marked: so many items are held now, so many are another operation's. Without `next` the walk is over.
    pub fn marked(&mut self, held: u32, elsewhere: u32, next: Option<String>) -> Option<BatchMark> {
        let standing = &mut self.standing;
        let found = held + elsewhere;
        standing.total += u64::from(found);
        standing.skip(Skip::InAnotherOperation, elsewhere);
        if standing.open == 0 && found > 0 {
            standing.batches += 1;
        }
        standing.open += found;
        standing.open_held += held;
        standing.walked = next.is_none();
        standing.cursor = next;
        if standing.walked {
            standing.state = OperationState::Forwarding;
        }
        let (items, all_held) = (standing.open, standing.open_held);
        if items == 0 {
            return None;
        }
        let closed = standing.walked || items >= BATCH;
        let stage = match (closed, all_held) {
            (false, _) => Stage::Marking,
            (true, 0) => Stage::Done,
            (true, _) => Stage::Staging,
        };
        if closed {
            (standing.open, standing.open_held) = (0, 0);
        }
        standing.batches_done += u32::from(stage == Stage::Done);
        Some(BatchMark { number: standing.batches, items, held: all_held, stage })
    }

    /// Whether the node may stage or forward. While it waits for destinations, it forwards what is to be their probe.
    pub fn may_forward(&self, node: NodeId) -> bool {
        self.is_run_by(node) && self.is_forwarding()
    }

    fn is_forwarding(&self) -> bool {
        self.standing.state == OperationState::Forwarding || self.standing.waits_for_breaker
    }

    /// A batch was staged. Where an item is to be tried again, the batch stays, and is staged again as a whole.
    pub fn staged(&mut self, decisions: impl Iterator<Item = Decision>) -> StagedBatch {
        let (mut staged, mut skipped, mut again) = (0, 0, false);
        for decision in decisions {
            match decision {
                Decision::Stage { .. } => staged += 1,
                Decision::Skip(why) => {
                    self.standing.skip(why, 1);
                    skipped += 1;
                }
                Decision::TryAgain => again = true,
            }
        }
        let stage = match (again, staged) {
            (true, _) => Stage::Staging,
            (false, 0) => Stage::Done,
            (false, _) => Stage::Forwarding,
        };
        if !again {
            self.standing.staged += staged;
        }
        self.standing.batches_done += u32::from(stage == Stage::Done);
        StagedBatch { stage, skipped }
    }

    /// How many items may be forwarded before the canary is judged.
    pub fn room_before_verdict(&self) -> u32 {
        match &self.canary {
            Some(canary) if self.standing.canary_state == CanaryState::Running => {
                canary.size.saturating_sub(u32::try_from(self.standing.forwarded).unwrap_or(u32::MAX))
            }
            Some(_) | None => u32::MAX,
        }
    }

    /// Whether what is forwarded now belongs to the canary.
    pub fn is_canary(&self) -> bool {
        self.canary.is_some() && self.standing.canary_state == CanaryState::Running
    }

    /// So many items were forwarded, and these were left out. `batches_done` are those that hold nothing any more.
    pub fn forwarded(&mut self, forwarded: u32, skipped: &BTreeMap<Skip, u32>, batches_done: u32) {
        self.standing.forwarded += u64::from(forwarded);
        for (why, count) in skipped {
            self.standing.skip(*why, *count);
        }
        self.standing.batches_done += batches_done;
    }

    /// A step has changed something.
    pub const fn moved(&mut self, now: Timestamp) {
        self.standing.changed_at = Some(now);
    }

    /// Why what is left is skipped; none while it is to be forwarded.
    pub const fn skips_rest(&self) -> Option<Skip> {
        match self.standing.state {
            OperationState::Cancelled => Some(Skip::Cancelled),
            OperationState::Failed => Some(Skip::Ejected),
            OperationState::Waiting
            | OperationState::Preparing
            | OperationState::Forwarding
            | OperationState::Paused
            | OperationState::Completed => None,
        }
    }

    /// Makes a change. One that is there already is not an error.
    pub fn change(&mut self, change: &OperationChange, now: Timestamp) -> Result<(), Refused> {
        let stopped = self.skips_rest().is_some();
        match change {
            OperationChange::Pause { .. }
            | OperationChange::Resume { .. }
            | OperationChange::Cancel { .. }
            | OperationChange::WaitForBreaker { .. }
            | OperationChange::GoOn { .. }
            | OperationChange::Canary { .. }
            | OperationChange::Fail { .. }
                if stopped || self.is_finished() =>
            {
                Err(Refused::Finished)
            }
            OperationChange::Pause { by } => {
                self.pause(by, now);
                Ok(())
            }
            OperationChange::Resume { by } => {
                self.resume(by, now);
                Ok(())
            }
            OperationChange::Cancel { by } => {
                self.stop(OperationState::Cancelled, by, "cancelled", now);
                Ok(())
            }
            OperationChange::WaitForBreaker { node } if self.may_forward(*node) => {
                self.wait_for_breaker(now);
                Ok(())
            }
            OperationChange::GoOn { node } if self.may_forward(*node) => {
                if self.standing.waits_for_breaker {
                    self.resume(BREAKER, now);
                }
                Ok(())
            }
            OperationChange::Canary { node, verdict } if self.may_forward(*node) && self.is_canary() => {
                self.judged(*verdict, now);
                Ok(())
            }
            OperationChange::Fail { node, why } if self.is_run_by(*node) => {
                self.stop(OperationState::Failed, ITSELF, why, now);
                Ok(())
            }
            OperationChange::Finish { node } if self.is_run_by(*node) && self.may_finish() => {
                self.finish(now);
                Ok(())
            }
            OperationChange::WaitForBreaker { .. }
            | OperationChange::GoOn { .. }
            | OperationChange::Canary { .. }
            | OperationChange::Fail { .. }
            | OperationChange::Finish { .. } => Err(Refused::NotNow),
        }
    }

    /// How many changes the audit row of a change asks for and counts.
    pub const fn audit_numbers(&self, change: &OperationChange) -> (u64, u64) {
        match change {
            OperationChange::Finish { .. } => (self.standing.total, self.standing.forwarded),
            OperationChange::Pause { .. }
            | OperationChange::Resume { .. }
            | OperationChange::Cancel { .. }
            | OperationChange::WaitForBreaker { .. }
            | OperationChange::GoOn { .. }
            | OperationChange::Canary { .. }
            | OperationChange::Fail { .. } => (1, 1),
        }
    }

    /// Whether only the end is left to be written.
    pub fn may_finish(&self) -> bool {
        let over = self.skips_rest().is_some() || (self.standing.walked && self.is_forwarding());
        !self.is_finished() && over && self.held() == 0
    }

    /// Whoever pauses what waits for destinations keeps it paused when they are back.
    fn pause(&mut self, by: &str, now: Timestamp) {
        if self.standing.state != OperationState::Paused || self.standing.waits_for_breaker {
            self.standing.waits_for_breaker = false;
            self.standing.state = OperationState::Paused;
            self.standing.paused_by = Some(by.to_owned());
            self.moved(now);
            self.standing.note("paused", Some(by), now);
        }
    }

    fn wait_for_breaker(&mut self, now: Timestamp) {
        if !self.standing.waits_for_breaker {
            self.pause(BREAKER, now);
            self.standing.waits_for_breaker = true;
        }
    }

    fn resume(&mut self, by: &str, now: Timestamp) {
        if self.standing.state == OperationState::Paused {
            self.standing.state = match (self.standing.walked, self.runner) {
                (true, _) => OperationState::Forwarding,
                (false, Some(_)) => OperationState::Preparing,
                (false, None) => OperationState::Waiting,
            };
            (self.standing.paused_by, self.standing.waits_for_breaker) = (None, false);
            self.moved(now);
            self.standing.note("resumed", Some(by), now);
        }
    }

    fn stop(&mut self, state: OperationState, by: &str, event: &str, now: Timestamp) {
        self.standing.state = state;
        (self.standing.paused_by, self.standing.waits_for_breaker) = (None, false);
        self.moved(now);
        self.standing.stopped_by = Some(by.to_owned());
        self.standing.note(event, Some(by), now);
    }

    fn judged(&mut self, verdict: Verdict, now: Timestamp) {
        self.moved(now);
        match verdict {
            Verdict::Wait { failed } => self.standing.canary_failed = failed,
            Verdict::Passed { failed } => {
                self.standing.canary_failed = failed;
                self.standing.canary_state = CanaryState::Passed;
                self.standing.note("canaryPassed", None, now);
            }
            Verdict::Failed { failed } => {
                self.standing.canary_failed = failed;
                self.standing.canary_state = CanaryState::Failed;
                self.stop(OperationState::Cancelled, CANARY, "canaryFailed", now);
            }
        }
    }

    fn finish(&mut self, now: Timestamp) {
        self.moved(now);
        if self.is_forwarding() {
            self.standing.state = OperationState::Completed;
        }
        let standing = &mut self.standing;
        (standing.paused_by, standing.waits_for_breaker) = (None, false);
        if self.canary.is_some() && standing.canary_state == CanaryState::Running {
            standing.canary_state = CanaryState::NotNeeded;
        }
        // A batch that was being marked when the operation was stopped holds nothing any more.
        standing.batches_done = standing.batches;
        (standing.open, standing.open_held) = (0, 0);
        standing.finished_at = Some(now);
        standing.note(standing.state.name(), None, now);
    }
}

/// What became of a batch that was staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagedBatch {
    pub stage: Stage,
    /// Items that are not held any more.
    pub skipped: u32,
}

#[cfg(test)]
mod tests;
