//! The table of operations: their batches, their items, and what the steps do to them.

use std::collections::BTreeMap;

use posthaste_core::act::Seen;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{NotificationId, OperationId};
use posthaste_core::operation::{
    BatchMark, Decision, Operation, Selected, Skip, Stage, StagedBatch, Staging,
};

use crate::store::Walk;

/// Operations with their batches and items.
#[derive(Debug, Clone, Default)]
pub struct OperationTable {
    /// Every operation.
    pub operations: BTreeMap<OperationId, Operation>,
    /// Every item.
    pub items: BTreeMap<(OperationId, NotificationId), Item>,
    pub(super) batches: BTreeMap<(OperationId, u32), BatchRow>,
}

#[derive(Debug, Clone)]
pub(super) struct BatchRow {
    pub(super) stage: Stage,
    /// The staging whose items are forwarded.
    pub(super) staging: Option<u64>,
    /// Items that are marked or staged.
    pub(super) held: u32,
}

/// An item of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub(super) selected: Selected,
    pub(super) batch: u32,
    pub(super) tries: u32,
    /// How far it is.
    pub place: ItemPlace,
}

/// How far an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemPlace {
    /// It is chosen.
    Marked,
    /// Its act is decided.
    Staged {
        /// By which staging.
        staging: u64,
        /// Its flow.
        flow: FlowId,
        /// How it stood.
        seen: Seen,
    },
    /// Its act was done.
    Forwarded {
        /// How it stood before.
        seen: Seen,
        /// Whether the verdict on the canary depends on it.
        canary: bool,
    },
    /// It was left out.
    Skipped(Skip),
}

impl ItemPlace {
    /// Whether the operation holds it.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Marked | Self::Staged { .. })
    }
}

impl OperationTable {
    pub(super) fn holder(&self, notification: NotificationId) -> Option<OperationId> {
        let held = |((_, one), item): &(&(OperationId, NotificationId), &Item)| {
            *one == notification && item.place.is_held()
        };
        self.items.iter().find(held).map(|((id, _), _)| *id)
    }

    /// Whether an operation that is not finished has it as an item, whatever became of the item.
    pub(in crate::model_store) fn names(&self, notification: NotificationId) -> bool {
        let mut unfinished = self.operations.values().filter(|operation| !operation.is_finished());
        unfinished.any(|operation| self.items.contains_key(&(operation.id, notification)))
    }

    pub(super) fn of(&self, id: OperationId) -> impl Iterator<Item = (NotificationId, &Item)> {
        let all = self.items.range((id, NotificationId::FIRST)..=(id, NotificationId::LAST));
        all.map(|((_, notification), item)| (*notification, item))
    }

    /// An item is not held any more. Returns whether its batch is done by that.
    pub(super) fn let_go(&mut self, id: OperationId, batch: u32) -> bool {
        let Some(row) = self.batches.get_mut(&(id, batch)) else { return false };
        row.held = row.held.saturating_sub(1);
        let done = row.held == 0 && row.stage == Stage::Forwarding;
        if done {
            row.stage = Stage::Done;
        }
        done
    }

    pub(super) fn mark(&mut self, operation: &mut Operation, walk: Walk) {
        let id = operation.id;
        let batch = operation.standing.batches + u32::from(operation.standing.open == 0);
        let (mut held, mut elsewhere) = (0, 0);
        for selected in walk.found {
            let key = (id, selected.notification);
            if self.items.contains_key(&key) {
                continue;
            }
            let place = match self.holder(selected.notification) {
                Some(_) => ItemPlace::Skipped(Skip::InAnotherOperation),
                None => ItemPlace::Marked,
            };
            held += u32::from(place.is_held());
            elsewhere += u32::from(!place.is_held());
            self.items.insert(key, Item { selected, batch, tries: 0, place });
        }
        if let Some(BatchMark { number, held, stage, .. }) = operation.marked(held, elsewhere, walk.next) {
            self.batches.insert((id, number), BatchRow { stage, staging: None, held });
        }
    }

    pub(super) fn stage(
        &mut self,
        operation: &mut Operation,
        staging: Staging,
        decisions: Vec<(NotificationId, Decision)>,
    ) {
        let id = operation.id;
        let StagedBatch { stage, skipped } =
            operation.staged(decisions.iter().map(|(_, decision)| *decision));
        for (notification, decision) in decisions {
            let Some(item) = self.items.get_mut(&(id, notification)) else { continue };
            match decision {
                Decision::Stage { flow, seen } => {
                    item.place = ItemPlace::Staged { staging: staging.id, flow, seen };
                }
                Decision::Skip(why) => item.place = ItemPlace::Skipped(why),
                Decision::TryAgain => {
                    item.tries += 1;
                    item.place = ItemPlace::Marked;
                }
            }
        }
        if let Some(batch) = self.batches.get_mut(&(id, staging.batch)) {
            batch.stage = stage;
            batch.staging = Some(staging.id);
            batch.held = batch.held.saturating_sub(skipped);
        }
    }

    /// The staged items of a flow, those of the last staging only.
    pub(super) fn staged(
        &self,
        id: OperationId,
        flow: FlowId,
    ) -> impl Iterator<Item = (NotificationId, &Item, Seen)> {
        self.of(id).filter_map(move |(notification, item)| match item.place {
            ItemPlace::Staged { staging, flow: of, seen } if of == flow => {
                let batch = &self.batches[&(id, item.batch)];
                let current = batch.stage == Stage::Forwarding && batch.staging == Some(staging);
                current.then_some((notification, item, seen))
            }
            ItemPlace::Marked
            | ItemPlace::Staged { .. }
            | ItemPlace::Forwarded { .. }
            | ItemPlace::Skipped(_) => None,
        })
    }
}

/// What retention asks.
impl OperationTable {
    /// The items of an operation.
    pub(in crate::model_store) fn items_of(&self, id: OperationId) -> Vec<NotificationId> {
        self.of(id).map(|(notification, _)| notification).collect()
    }

    /// Removes an operation with its batches.
    pub(in crate::model_store) fn remove(&mut self, id: OperationId) {
        self.operations.remove(&id);
        self.batches.retain(|(of, _), _| *of != id);
    }
}
