//! What was told of each operation that is not finished. Whoever listens is told of a new state at once, and of new counts at
//! most once a second, on every node: each looks at all operations, whichever node works on them.

use std::collections::HashMap;
use std::time::Duration;

use posthaste_core::id::OperationId;
use posthaste_core::notification::Tenant;
use posthaste_core::operation::{CanaryState, Operation, OperationState, Standing};
use tokio::time::Instant;

use crate::engine::Shared;
use crate::journal;
use crate::store::{Result, StoreError, UnfinishedOperation};

/// Minimum pause between two counts of one operation.
const COUNTS: Duration = Duration::from_secs(1);

/// What was told last, and when.
#[derive(Default)]
pub(super) struct Told(HashMap<OperationId, Last>);

struct Last {
    at: Instant,
    tenant: Option<Tenant>,
    state: (OperationState, CanaryState, Option<String>),
    counts: Counts,
}

/// The numbers that are told: total, staged, forwarded, skipped, batches that are done, failed items of the canary.
type Counts = [u64; 6];

impl Told {
    /// Tells of an operation, if there is something new to say.
    pub(super) fn look(&mut self, shared: &Shared, operation: &Operation) {
        let (standing, now) = (&operation.standing, Instant::now());
        if let Some(last) = self.0.get(&operation.id) {
            let (is_same_state, is_same) = (state(standing) == last.state, counts(standing) == last.counts);
            if is_same_state && (is_same || now < last.at + COUNTS) {
                return;
            }
        }
        let (state, counts) = (state(standing), counts(standing));
        let last = Last { at: now, tenant: operation.tenant.clone(), state, counts };
        self.0.insert(operation.id, last);
        journal::progressed(shared, operation);
    }

    /// Tells of those that are not among the unfinished ones any more. They are read only where somebody listens.
    pub(super) async fn ended(&mut self, shared: &Shared, unfinished: &[UnfinishedOperation]) -> Result<()> {
        let is_over = |id: &OperationId| !unfinished.iter().any(|one| one.operation.id == *id);
        let over: Vec<OperationId> = self.0.keys().filter(|id| is_over(id)).copied().collect();
        for id in over {
            let is_heard = self.0.get(&id).is_some_and(|last| shared.live.hears_of(last.tenant.as_ref()));
            let ended = match is_heard {
                true => shared.store.operation(id).await,
                false => Ok(None),
            };
            let ended = match ended {
                // It is told to nobody, and does not keep the others waiting.
                Err(StoreError::Corrupt { .. }) => None,
                ended => ended?,
            };
            self.0.remove(&id);
            // Where there are very many, one that is not finished may be left out of a look.
            if let Some(operation) = ended.filter(Operation::is_finished) {
                journal::progressed(shared, &operation);
            }
        }
        Ok(())
    }
}

fn state(standing: &Standing) -> (OperationState, CanaryState, Option<String>) {
    (standing.state, standing.canary_state, standing.paused_by.clone())
}

fn counts(standing: &Standing) -> Counts {
    let (done, failed) = (u64::from(standing.batches_done), u64::from(standing.canary_failed));
    [standing.total, standing.staged, standing.forwarded, standing.all_skipped(), done, failed]
}
