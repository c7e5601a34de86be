//! Retry operations as both stores keep them: what was asked for and how far it is, each as JSON.

use posthaste_core::act::Seen;
use posthaste_core::flow::FlowId;
use posthaste_core::id::NotificationId;
use posthaste_core::lease::NodeId;
use posthaste_core::operation::{Decision, Operation, Standing};
use posthaste_engine::store::Facts;

use super::damage::{Damaged, Result};

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

/// Reads what `definition` and `standing` wrote.
pub(crate) fn operation(definition: &str, standing: &str, runner: Option<i64>) -> Result<Operation> {
    let bad = |error: serde_json::Error| Damaged(format!("an operation: {error}"));
    let asked: Operation = serde_json::from_str(definition).map_err(bad)?;
    let standing: Standing = serde_json::from_str(standing).map_err(bad)?;
    Ok(Operation { standing, runner: runner.map(NodeId), ..asked })
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
