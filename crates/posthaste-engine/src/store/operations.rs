//! Retry operations: what each acts on, how far it is, and who works on it.

use posthaste_core::act::Seen;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{NotificationId, OperationId};
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
pub use posthaste_core::operation::{
    Batch, BatchItem, Decision, Operation, OperationChange, Refused, Selected, Skip, Staging,
};
use posthaste_core::time::Timestamp;

use super::acts::{Audit, Facts};
use super::queue::{Accepted, Idempotency};
use super::reads::Page;
use super::slice::slice;

slice! {
    /// Operations, their batches and their items. A notification is held by at most one operation: that in which it is marked
    /// or staged. Every step of the work is refused (`None`) unless the node that asks is the runner, and where somebody has
    /// paused it, or it was stopped or finished meanwhile.
    pub trait Operations {
        /// Keeps a new operation with its audit row, unless its idempotency key is known.
        write Start: fn start_operation(
            operation: Operation,
            idempotency: Option<Idempotency>,
            audit: Audit,
            now: Timestamp,
        ) -> Accepted;

        /// An operation as it stands.
        read Get: fn operation(id: OperationId) -> Option<Operation>;

        /// Operations, newest first; with a tenant only those of that tenant.
        read List: fn operations(
            tenant: Option<Tenant>,
            before: Option<OperationId>,
            limit: usize,
        ) -> Page<Operation, OperationId>;

        /// The oldest operations that are not finished, at most `limit`. `now` tells which runners live.
        read Unfinished: fn unfinished_operations(limit: usize, now: Timestamp) -> Vec<UnfinishedOperation>;

        /// Makes the node the runner, unless another one is that lives.
        write Adopt: fn adopt_operation(id: OperationId, node: NodeId, now: Timestamp) -> Option<Operation>;

        /// Marks what a walk has found, if it began at the cursor of the operation, and keeps the new cursor; without one the
        /// walk is over. An item that another operation holds is left out. One that this operation has already is passed over.
        write Mark: fn mark(
            id: OperationId,
            node: NodeId,
            walk: Walk,
            now: Timestamp,
        ) -> Option<Operation>;

        /// The first batch that is to be staged.
        read ToStage: fn batch_to_stage(id: OperationId) -> Option<Batch>;

        /// Writes what was decided about each item of a batch, under a fresh staging id, if the batch is to be staged and was
        /// not staged since it was read: else items that were left out meanwhile would be counted twice. If an
        /// item is to be tried again, the whole batch is staged once more: only items of the last staging are forwarded.
        write Stage: fn stage(
            id: OperationId,
            node: NodeId,
            staging: Staging,
            decisions: Vec<(NotificationId, Decision)>,
            now: Timestamp,
        ) -> Option<Operation>;

        /// The flows with staged items, in the order of their numbers after `after`.
        read StagedFlows: fn staged_flows(
            id: OperationId,
            after: Option<FlowId>,
            limit: usize,
        ) -> Vec<FlowId>;

        /// How many rows of each flow are due and held by nobody, counted up to `limit`.
        read DueRows: fn due_rows(flows: Vec<FlowId>, limit: u32, now: Timestamp) -> Vec<u32>;

        /// Does the act on staged items of each flow, up to the number beside it and the bound of the canary, and marks them
        /// as forwarded. One that is not as it was seen is left out. `Restore` shows a soft-deleted dead letter that is resolved,
        /// as `show_deleted` does.
        write Forward: fn forward(
            id: OperationId,
            node: NodeId,
            quotas: Vec<(FlowId, u32)>,
            now: Timestamp,
        ) -> Option<Forwarded>;

        /// Leaves out items that are held: all of an operation that is being stopped, or the first staged one of a flow.
        write SkipItems: fn skip_items(
            id: OperationId,
            node: NodeId,
            which: Rest,
            now: Timestamp,
        ) -> Option<Operation>;

        /// What was forwarded before the verdict on the canary, and how each stood before.
        read CanaryItems: fn canary_items(id: OperationId) -> Vec<(NotificationId, Seen)>;

        /// Makes a change, with its audit row if it was made: of the end it has the numbers of items that were selected and
        /// forwarded. `None` if there is no such operation.
        write Change: fn change_operation(
            id: OperationId,
            change: OperationChange,
            audit: Option<Audit>,
            now: Timestamp,
        ) -> Option<std::result::Result<Operation, Refused>>;

        /// The operations that hold these notifications.
        read HeldBy: fn held_by(ids: Vec<NotificationId>) -> Vec<(NotificationId, OperationId)>;
    }
}

/// An operation that is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedOperation {
    /// The operation.
    pub operation: Operation,
    /// Whether its runner lives.
    pub alive: bool,
}

/// A stretch of a walk over what an operation selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Where it began.
    pub from: Option<String>,
    /// What it found; no more than the batch has room for.
    pub found: Vec<Selected>,
    /// Where the next one begins; none at the end.
    pub next: Option<String>,
}

/// Which items are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Up to so many items of an operation that is being stopped.
    Stopped(usize),
    /// The first staged item of the flow, because it cannot be read.
    FirstOf(FlowId),
}

/// What a step of forwarding has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    /// The operation after it.
    pub operation: Operation,
    /// How each notification stood whose act was done, in the order of the flows that were asked for.
    pub done: Vec<Facts>,
    /// How many soft-deleted dead letters were shown again, beside those.
    pub shown: u32,
}
