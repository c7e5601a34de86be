//! Retry operations as both stores keep them: what was asked for and how far it is, each as JSON.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste_core::act::Seen;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{DeadLetterId, NotificationId, OperationId};
use posthaste_core::lease::NodeId;
use posthaste_core::operation::{Decision, Operation, Standing};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::Facts;

use super::damage::{Damaged, MaybeDamage, Result, unless_damaged};

/// About what a batch counts among the bytes that a chunk of retention removes.
pub(crate) const BATCH_BYTES: i64 = 64;

/// An item that is marked.
pub(crate) const MARKED: u8 = 0;
/// An item whose act is decided.
pub(crate) const STAGED: u8 = 1;
/// An item whose act was done.
pub(crate) const FORWARDED: u8 = 2;
/// An item that was left out.
pub(crate) const SKIPPED: u8 = 3;

pub(crate) fn definition(operation: &Operation) -> Result<String> {
    serde_json::to_string(operation).map_err(|error| Damaged(format!("an operation: {error}")))
}

pub(crate) fn standing(operation: &Operation) -> Result<String> {
    serde_json::to_string(&operation.standing).map_err(|error| Damaged(format!("an operation: {error}")))
}

/// What was asked for, as `definition` wrote it.
pub(crate) fn asked(definition: &str) -> Result<Operation> {
    serde_json::from_str(definition).map_err(|error| Damaged(format!("an operation: {error}")))
}

/// The operation with what `standing` wrote.
pub(crate) fn stands(asked: Operation, standing: &str, runner: Option<i64>) -> Result<Operation> {
    let bad = |error: serde_json::Error| Damaged(format!("an operation: {error}"));
    let standing: Standing = serde_json::from_str(standing).map_err(bad)?;
    Ok(Operation { standing, runner: runner.map(NodeId), ..asked })
}

/// When an operation ended, by its standing; none while it has not, or if that cannot be read.
pub(crate) fn finished_at(standing: &str) -> Option<Timestamp> {
    serde_json::from_str::<Standing>(standing).ok()?.finished_at
}

/// Definitions of operations that are not finished. They never change and may have 10,000 ids, so each is read once.
#[derive(Debug, Default)]
pub(crate) struct Definitions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    asked: HashMap<OperationId, Operation>,
    damaged: HashSet<OperationId>,
}

/// More than there can be operations that are not finished; all are forgotten beyond that.
const MOST_DEFINITIONS: usize = 256;

impl Definitions {
    pub(crate) fn get(&self, id: OperationId) -> Option<Operation> {
        self.known().asked.get(&id).cloned()
    }

    /// Keeps the definition of an operation until it is finished.
    pub(crate) fn note(&self, operation: &Operation) {
        let mut known = self.known();
        if operation.is_finished() {
            known.asked.remove(&operation.id);
        } else if !known.asked.contains_key(&operation.id) {
            if known.asked.len() >= MOST_DEFINITIONS {
                known.asked.clear();
            }
            let asked = Operation { standing: Standing::default(), runner: None, ..operation.clone() };
            known.asked.insert(asked.id, asked);
        }
    }

    /// A new operation: whatever was known by its id is not it.
    pub(crate) fn start(&self, operation: &Operation) {
        self.known().asked.remove(&operation.id);
        self.note(operation);
    }

    /// None for an operation that cannot be read, so that the others go on. It is told once.
    pub(crate) fn unless_damaged<T, F: MaybeDamage>(
        &self,
        id: OperationId,
        read: std::result::Result<T, F>,
    ) -> std::result::Result<Option<T>, F> {
        let is_damage = read.as_ref().is_err_and(MaybeDamage::is_damage);
        if is_damage && !self.known().damaged.insert(id) {
            return Ok(None);
        }
        unless_damaged(&id, read)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The columns of a decision: stage, flow, how it stood, and why it is left out.
pub(crate) fn decided(decision: Decision) -> (u8, Option<FlowId>, Option<Seen>, Option<&'static str>) {
    match decision {
        Decision::Stage { flow, seen } => (STAGED, Some(flow), Some(seen), None),
        Decision::Skip(why) => (SKIPPED, None, None, Some(why.code())),
        Decision::TryAgain => (MARKED, None, None, None),
    }
}

/// A staged item that is to be forwarded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StagedItem {
    pub(crate) notification: NotificationId,
    pub(crate) dead_letter: Option<DeadLetterId>,
    pub(crate) batch: u32,
    pub(crate) seen: Seen,
}

/// The number of acts that were done.
pub(crate) fn count(done: &[Facts]) -> u32 {
    u32::try_from(done.len()).unwrap_or(u32::MAX)
}

/// A staging id in a signed column.
pub(crate) const fn staging(id: u64) -> i64 {
    id.cast_signed()
}

/// The staging id of such a column.
pub(crate) fn seen_staging(column: Option<i64>) -> Option<u64> {
    column.map(i64::cast_unsigned)
}
