//! Operations, their batches and their items.

use std::collections::BTreeMap;

use async_trait::async_trait;
use posthaste_core::act::Seen;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{NotificationId, OperationId};
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
use posthaste_core::operation::{
    Batch, BatchItem, Decision, Deed, Operation, OperationChange, Refused, Skip, Stage, Staging, forwardable,
};
use posthaste_core::time::Timestamp;

use self::items::BatchRow;
pub use self::items::{Item, ItemPlace, OperationTable};
use super::ModelStore;
use super::planted::Planted;
use super::tables::Tables;
use crate::store::{
    Accepted, Audit, Change, Forwarded, Idempotency, Operations, Page, Rest, Result, UnfinishedOperation,
    Walk,
};

mod items;

impl Tables {
    /// Loads an operation, changes it and keeps it; not if `change` returns none.
    fn step<T>(
        &mut self,
        id: OperationId,
        change: impl FnOnce(&mut Self, &mut Operation) -> Option<T>,
    ) -> Option<(Operation, T)> {
        let mut operation = self.operations.operations.get(&id)?.clone();
        let made = change(self, &mut operation)?;
        self.operations.operations.insert(id, operation.clone());
        Some((operation, made))
    }

    /// What a forwarding takes, in its order: each with its flow's place in the quotas.
    fn to_forward(
        &self,
        operation: &Operation,
        quotas: &[(FlowId, u32)],
    ) -> Vec<(NotificationId, u32, Seen)> {
        let most = usize::try_from(operation.room_before_verdict()).unwrap_or(usize::MAX);
        let table = &self.operations;
        if self.has(Planted::ForwardWithoutFence) {
            let all = table.of(operation.id).filter_map(|(id, item)| match item.place {
                ItemPlace::Staged { seen, .. } | ItemPlace::Forwarded { seen, .. } => {
                    Some((id, item.batch, seen))
                }
                ItemPlace::Marked | ItemPlace::Skipped(_) => None,
            });
            return all.take(most).collect();
        }
        let picked = quotas.iter().flat_map(|(flow, limit)| {
            let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
            table.staged(operation.id, *flow).take(limit).map(|(id, item, seen)| (id, item.batch, seen))
        });
        picked.take(most).collect()
    }

    fn forward(
        &mut self,
        operation: &mut Operation,
        quotas: &[(FlowId, u32)],
        now: Timestamp,
    ) -> Result<(Vec<crate::store::Facts>, u32)> {
        let (id, canary, actor) = (operation.id, operation.is_canary(), operation.started_by.clone());
        let (mut done, mut shown) = (vec![], 0);
        let (mut skipped, mut batches_done) = (BTreeMap::<Skip, u32>::new(), 0);
        for (notification, batch, seen) in self.to_forward(operation, quotas) {
            let facts = self.facts_of(notification);
            let standing = facts.as_ref().map(|facts| &facts.standing);
            let letter =
                self.operations.items.get(&(id, notification)).and_then(|item| item.selected.dead_letter);
            let place = match (forwardable(operation.action, letter, seen, standing, now), facts) {
                (Ok(Deed::Act(act)), Some(facts)) => {
                    self.act(Change { id: notification, seen, act }, Some(&actor), now)?;
                    done.push(facts);
                    ItemPlace::Forwarded { seen, canary }
                }
                (Ok(Deed::Show(letter)), _) if self.show_deleted(letter, now) => {
                    shown += 1;
                    ItemPlace::Forwarded { seen, canary }
                }
                (Ok(_), _) => ItemPlace::Skipped(Skip::ChangedMeanwhile),
                (Err(why), _) => ItemPlace::Skipped(why),
            };
            if let ItemPlace::Skipped(why) = place {
                *skipped.entry(why).or_default() += 1;
            }
            if let Some(item) = self.operations.items.get_mut(&(id, notification)) {
                item.place = place;
            }
            batches_done += u32::from(self.operations.let_go(id, batch));
        }
        let made = u32::try_from(done.len()).unwrap_or(u32::MAX).saturating_add(shown);
        operation.forwarded(made, &skipped, batches_done);
        if made > 0 || !skipped.is_empty() {
            operation.moved(now);
        }
        Ok((done, shown))
    }

    fn skip_items(&mut self, operation: &mut Operation, which: Rest, now: Timestamp) -> Option<()> {
        let id = operation.id;
        let table = &self.operations;
        let (why, found): (Skip, Vec<NotificationId>) = match which {
            Rest::Stopped(limit) => {
                let why = operation.skips_rest()?;
                let held = table.of(id).filter(|(_, item)| item.place.is_held());
                let mut held: Vec<_> = held.map(|(notification, item)| (item.batch, notification)).collect();
                held.sort_unstable();
                (why, held.into_iter().take(limit).map(|(_, notification)| notification).collect())
            }
            Rest::FirstOf(flow) => (
                Skip::Ejected,
                table.staged(id, flow).map(|(notification, ..)| notification).take(1).collect(),
            ),
        };
        let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
        let lost = self.has(Planted::ItemLostAtCancel);
        let mut batches_done = 0;
        for (place, notification) in found.into_iter().enumerate() {
            let Some(item) = self.operations.items.get_mut(&(id, notification)) else { continue };
            if !(lost && place == 0) {
                item.place = ItemPlace::Skipped(why);
            }
            let batch = item.batch;
            batches_done += u32::from(self.operations.let_go(id, batch));
        }
        operation.forwarded(0, &BTreeMap::from([(why, count)]), batches_done);
        if count > 0 {
            operation.moved(now);
        }
        Some(())
    }
}

#[async_trait]
impl Operations for ModelStore {
    async fn start_operation(
        &self,
        operation: Operation,
        idempotency: Option<Idempotency>,
        audit: Audit,
        now: Timestamp,
    ) -> Result<Accepted> {
        let mut tables = self.lock();
        let answer = tables.know_key(idempotency, now);
        if answer == Accepted::New {
            tables.operations.operations.insert(operation.id, operation);
            tables.write_audit(audit, 1, 1);
        }
        Ok(answer)
    }

    async fn operation(&self, id: OperationId) -> Result<Option<Operation>> {
        Ok(self.lock().operations.operations.get(&id).cloned())
    }

    async fn operations(
        &self,
        tenant: Option<Tenant>,
        before: Option<OperationId>,
        limit: usize,
    ) -> Result<Page<Operation, OperationId>> {
        let tables = self.lock();
        let older = tables.operations.operations.range(..before.unwrap_or(OperationId::LAST)).rev();
        let fits = |operation: &&Operation| tenant.is_none() || operation.tenant == tenant;
        let rows: Vec<Operation> =
            older.map(|(_, operation)| operation).filter(fits).take(limit).cloned().collect();
        let next = rows.last().filter(|_| rows.len() == limit).map(|operation| operation.id);
        Ok(Page { rows, next })
    }

    async fn unfinished_operations(&self, limit: usize, now: Timestamp) -> Result<Vec<UnfinishedOperation>> {
        let tables = self.lock();
        let unfinished = tables.operations.operations.values().filter(|operation| !operation.is_finished());
        let show = |operation: &Operation| UnfinishedOperation {
            operation: operation.clone(),
            alive: operation.runner.is_some_and(|node| tables.lives(node, now)),
        };
        Ok(unfinished.take(limit).map(show).collect())
    }

    async fn adopt_operation(
        &self,
        id: OperationId,
        node: NodeId,
        now: Timestamp,
    ) -> Result<Option<Operation>> {
        let adopted = self.lock().step(id, |tables, operation| {
            let alive = operation.runner.is_some_and(|runner| tables.lives(runner, now));
            operation.adopt(node, alive, now).then_some(())
        });
        Ok(adopted.map(|(operation, ())| operation))
    }

    async fn mark(
        &self,
        id: OperationId,
        node: NodeId,
        walk: Walk,
        now: Timestamp,
    ) -> Result<Option<Operation>> {
        let marked = self.lock().step(id, |tables, operation| {
            let cursor = operation.standing.cursor.clone();
            if !operation.may_mark(node, walk.from.as_deref()) {
                return None;
            }
            tables.operations.mark(operation, walk);
            operation.moved(now);
            if tables.has(Planted::MarkingForgetsCursor) {
                operation.standing.cursor = cursor;
            }
            Some(())
        });
        Ok(marked.map(|(operation, ())| operation))
    }

    async fn batch_to_stage(&self, id: OperationId) -> Result<Option<Batch>> {
        let tables = self.lock();
        let table = &tables.operations;
        let waits =
            |((of, _), row): &(&(OperationId, u32), &BatchRow)| *of == id && row.stage == Stage::Staging;
        let Some(((_, number), row)) = table.batches.iter().find(waits) else { return Ok(None) };
        let held = table.of(id).filter(|(_, item)| item.batch == *number && item.place.is_held());
        let items = held.map(|(_, item)| BatchItem { selected: item.selected, tries: item.tries });
        Ok(Some(Batch { number: *number, staging: row.staging, items: items.collect() }))
    }

    async fn stage(
        &self,
        id: OperationId,
        node: NodeId,
        staging: Staging,
        decisions: Vec<(NotificationId, Decision)>,
        now: Timestamp,
    ) -> Result<Option<Operation>> {
        let staged = self.lock().step(id, |tables, operation| {
            let row = tables.operations.batches.get(&(id, staging.batch))?;
            let twice = tables.has(Planted::StagedTwice);
            let overtaken = row.staging != staging.after && !tables.has(Planted::StagedUnseen);
            if !operation.may_forward(node) || ((row.stage != Stage::Staging || overtaken) && !twice) {
                return None;
            }
            tables.operations.stage(operation, staging, decisions);
            operation.moved(now);
            Some(())
        });
        Ok(staged.map(|(operation, ())| operation))
    }

    async fn staged_flows(
        &self,
        id: OperationId,
        after: Option<FlowId>,
        limit: usize,
    ) -> Result<Vec<FlowId>> {
        let tables = self.lock();
        let flow_of = |(_, item): (NotificationId, &Item)| match item.place {
            ItemPlace::Staged { flow, .. } => Some(flow),
            ItemPlace::Marked | ItemPlace::Forwarded { .. } | ItemPlace::Skipped(_) => None,
        };
        let mut flows: Vec<FlowId> = tables.operations.of(id).filter_map(flow_of).collect();
        flows.sort_unstable();
        flows.dedup();
        Ok(flows.into_iter().filter(|flow| after.is_none_or(|after| *flow > after)).take(limit).collect())
    }

    async fn due_rows(&self, flows: Vec<FlowId>, limit: u32, now: Timestamp) -> Result<Vec<u32>> {
        let tables = self.lock();
        let due = |flow: FlowId| {
            let waiting = tables.waiting.iter().filter(|(bucket, due, _)| bucket.flow == flow && *due <= now);
            u32::try_from(waiting.take(usize::try_from(limit).unwrap_or(usize::MAX)).count()).unwrap_or(limit)
        };
        Ok(flows.into_iter().map(due).collect())
    }

    async fn forward(
        &self,
        id: OperationId,
        node: NodeId,
        quotas: Vec<(FlowId, u32)>,
        now: Timestamp,
    ) -> Result<Option<Forwarded>> {
        let mut outcome = Ok((vec![], 0));
        let forwarded = self.lock().step(id, |tables, operation| {
            if !operation.may_forward(node) && !tables.has(Planted::ForwardWithoutFence) {
                return None;
            }
            outcome = tables.forward(operation, &quotas, now);
            Some(())
        });
        let (done, shown) = outcome?;
        Ok(forwarded.map(|(operation, ())| Forwarded { operation, done, shown }))
    }

    async fn skip_items(
        &self,
        id: OperationId,
        node: NodeId,
        which: Rest,
        now: Timestamp,
    ) -> Result<Option<Operation>> {
        let skipped = self.lock().step(id, |tables, operation| {
            if !operation.is_run_by(node) {
                return None;
            }
            tables.skip_items(operation, which, now)
        });
        Ok(skipped.map(|(operation, ())| operation))
    }

    async fn canary_items(&self, id: OperationId) -> Result<Vec<(NotificationId, Seen)>> {
        let tables = self.lock();
        let canary = |(notification, item): (NotificationId, &Item)| match item.place {
            ItemPlace::Forwarded { seen, canary: true } => Some((notification, seen)),
            ItemPlace::Marked
            | ItemPlace::Staged { .. }
            | ItemPlace::Forwarded { .. }
            | ItemPlace::Skipped(_) => None,
        };
        Ok(tables.operations.of(id).filter_map(canary).collect())
    }

    async fn change_operation(
        &self,
        id: OperationId,
        change: OperationChange,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Option<std::result::Result<Operation, Refused>>> {
        let mut tables = self.lock();
        let Some(mut operation) = tables.operations.operations.get(&id).cloned() else { return Ok(None) };
        if let Err(refused) = operation.change(&change, now) {
            return Ok(Some(Err(refused)));
        }
        if let Some(audit) = audit {
            let (asked, count) = operation.audit_numbers(&change);
            let [asked, count] = [asked, count].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            tables.write_audit(audit, asked, count);
        }
        tables.operations.operations.insert(id, operation.clone());
        Ok(Some(Ok(operation)))
    }

    async fn held_by(&self, ids: Vec<NotificationId>) -> Result<Vec<(NotificationId, OperationId)>> {
        let tables = self.lock();
        let held = |id: NotificationId| Some((id, tables.operations.holder(id)?));
        Ok(ids.into_iter().filter_map(held).collect())
    }
}
