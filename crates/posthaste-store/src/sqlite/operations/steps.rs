//! The steps of an operation: marking, staging, forwarding, and leaving out what is left.

use std::collections::BTreeMap;
use std::sync::Arc;

use posthaste_core::flow::FlowId;
use posthaste_core::id::{NotificationId, OperationId};
use posthaste_core::lease::NodeId;
use posthaste_core::operation::{Decision, Deed, Operation, Skip, Stage, StagedBatch, Staging, forwardable};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Facts, Forwarded, Rest, Walk};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{load, save, seen};
use crate::kept::operations::{
    Definitions, FORWARDED, MARKED, SKIPPED, StagedItem, count, decided, seen_staging, staging,
};
use crate::sqlite::acts::Found;
use crate::sqlite::fault::Result;
use crate::sqlite::planted::Planted;
use crate::sqlite::retention::show;
use crate::sqlite::rows::{maybe_dead_letter_id, notification_id};
use crate::sqlite::writer::Tx;

/// A step of an operation, by a node.
pub(super) struct Step {
    pub(super) known: Arc<Definitions>,
    pub(super) id: OperationId,
    pub(super) node: NodeId,
    pub(super) now: Timestamp,
}

impl Step {
    pub(super) fn mark(&self, tx: &Tx<'_>, walk: &Walk) -> Result<Option<Operation>> {
        let &Self { ref known, id, node, now } = self;
        let Some(mut operation) = load(tx.conn, known, id)? else { return Ok(None) };
        if !operation.may_mark(node, walk.from.as_deref()) {
            return Ok(None);
        }
        let batch = operation.standing.batches + u32::from(operation.standing.open == 0);
        // Refused by the primary key if the operation has it already, by the other index if another one holds it.
        let mut insert = tx.conn.prepare_cached(
        "insert into operation_item (operation, notification, dead_letter, batch, stage, tries, canary, reason)
         values (?1, ?2, ?3, ?4, ?5, 0, 0, ?6)
         on conflict do nothing",
    )?;
        let (mut held, mut elsewhere) = (0, 0);
        for selected in &walk.found {
            let mut put = |stage: u8, reason: Option<&str>| {
                let letter = selected.dead_letter.map(posthaste_core::id::DeadLetterId::to_bytes);
                let notification = selected.notification.to_bytes();
                insert.execute(params![id.to_bytes(), notification, letter, batch, stage, reason])
            };
            if put(MARKED, None)? == 1 {
                held += 1;
            } else if put(SKIPPED, Some(Skip::InAnotherOperation.code()))? == 1 {
                elsewhere += 1;
            }
        }
        if let Some(mark) = operation.marked(held, elsewhere, walk.next.clone()) {
            let mut upsert = tx.conn.prepare_cached(
                "insert into operation_batch (operation, number, stage, held)
             values (?1, ?2, ?3, ?4)
             on conflict (operation, number) do update
             set stage = excluded.stage, held = excluded.held",
            )?;
            upsert.execute(params![id.to_bytes(), mark.number, mark.stage.code(), mark.held])?;
        }
        operation.moved(now);
        save(tx.conn, known, &operation)?;
        Ok(Some(operation))
    }

    pub(super) fn stage(
        &self,
        tx: &Tx<'_>,
        new: Staging,
        decisions: &[(NotificationId, Decision)],
    ) -> Result<Option<Operation>> {
        let &Self { ref known, id, node, now } = self;
        let Some(mut operation) = load(tx.conn, known, id)? else { return Ok(None) };
        let (number, staging) = (new.batch, staging(new.id));
        let mut select = tx.conn.prepare_cached(
            "select stage, staging
         from operation_batch
         where operation = ?1
         and number = ?2",
        )?;
        let read = |row: &Row<'_>| Ok((row.get::<_, u8>(0)?, seen_staging(row.get(1)?)));
        let found = select.query_row(params![id.to_bytes(), number], read).optional()?;
        if !operation.may_forward(node) || found != Some((Stage::Staging.code(), new.after)) {
            return Ok(None);
        }
        let mut update = tx.conn.prepare_cached(
            "update operation_item
         set stage = ?3, staging = ?4, flow = ?5, seen_state = ?6, seen_generation = ?7, seen_attempt = ?8,
             reason = ?9, tries = tries + ?10
         where operation = ?1
         and notification = ?2",
        )?;
        for (notification, decision) in decisions {
            let (stage, flow, seen, reason) = decided(*decision);
            update.execute(params![
                id.to_bytes(),
                notification.to_bytes(),
                stage,
                staging,
                flow.map(|flow| flow.0),
                seen.map(|seen| seen.state.code()),
                seen.map(|seen| seen.generation),
                seen.map(|seen| seen.attempt),
                reason,
                u8::from(*decision == Decision::TryAgain),
            ])?;
        }
        let StagedBatch { stage, skipped } =
            operation.staged(decisions.iter().map(|(_, decision)| *decision));
        let mut update = tx.conn.prepare_cached(
            "update operation_batch
         set stage = ?3, staging = ?4, held = held - ?5
         where operation = ?1
         and number = ?2",
        )?;
        update.execute(params![id.to_bytes(), number, stage.code(), staging, skipped])?;
        operation.moved(now);
        save(tx.conn, known, &operation)?;
        Ok(Some(operation))
    }

    pub(super) fn forward(&self, tx: &mut Tx<'_>, quotas: &[(FlowId, u32)]) -> Result<Option<Forwarded>> {
        let &Self { ref known, id, node, now } = self;
        let Some(mut operation) = load(tx.conn, known, id)? else { return Ok(None) };
        if !operation.may_forward(node) && !tx.bug(Planted::ForwardWithoutFence) {
            return Ok(None);
        }
        let mut room = operation.room_before_verdict();
        let (mut done, mut shown, mut let_go) = (vec![], 0, LetGo::default());
        for (flow, limit) in quotas {
            let items = staged_items(tx.conn, id, *flow, (*limit).min(room))?;
            room -= u32::try_from(items.len()).unwrap_or(room);
            for item in items {
                let outcome = forward_one(tx, &operation, item, now)?;
                let_go.note(item.batch, outcome.as_ref().err().copied());
                match outcome {
                    Ok(Done::Acted(facts)) => done.push(facts),
                    Ok(Done::Shown) => shown += 1,
                    Err(_) => {}
                }
            }
        }
        let batches_done = let_go.write(tx.conn, id)?;
        operation.forwarded(count(&done) + shown, &let_go.skipped, batches_done);
        if !let_go.batches.is_empty() {
            operation.moved(now);
        }
        save(tx.conn, known, &operation)?;
        Ok(Some(Forwarded { operation, done, shown }))
    }

    pub(super) fn skip(&self, tx: &Tx<'_>, which: Rest) -> Result<Option<Operation>> {
        let &Self { ref known, id, node, now } = self;
        let Some(mut operation) = load(tx.conn, known, id)? else { return Ok(None) };
        if !operation.is_run_by(node) {
            return Ok(None);
        }
        let (why, items) = match which {
            Rest::Stopped(limit) => {
                let Some(why) = operation.skips_rest() else { return Ok(None) };
                (why, held_items(tx.conn, id, limit)?)
            }
            Rest::FirstOf(flow) => {
                let first = staged_items(tx.conn, id, flow, 1)?;
                (Skip::Ejected, first.into_iter().map(|item| (item.notification, item.batch)).collect())
            }
        };
        let mut update = tx.conn.prepare_cached(
            "update operation_item
         set stage = 3, reason = ?3
         where operation = ?1
         and notification = ?2",
        )?;
        let mut let_go = LetGo::default();
        for (notification, batch) in items {
            update.execute(params![id.to_bytes(), notification.to_bytes(), why.code()])?;
            let_go.note(batch, Some(why));
        }
        let batches_done = let_go.write(tx.conn, id)?;
        operation.forwarded(0, &let_go.skipped, batches_done);
        if !let_go.batches.is_empty() {
            operation.moved(now);
        }
        save(tx.conn, known, &operation)?;
        Ok(Some(operation))
    }
}

/// What was done to an item.
enum Done {
    Acted(Facts),
    /// Its dead letter is shown in lists again.
    Shown,
}

/// Only items of the last staging of their batch.
fn staged_items(conn: &Connection, id: OperationId, flow: FlowId, limit: u32) -> Result<Vec<StagedItem>> {
    let mut select = conn.prepare_cached(
        "select i.notification, i.dead_letter, i.batch, i.seen_state, i.seen_generation, i.seen_attempt
         from operation_item i
         cross join operation_batch b on b.operation = i.operation and b.number = i.batch
         where i.operation = ?1
         and i.flow = ?2
         and i.stage = 1
         and b.stage = 2
         and b.staging = i.staging
         order by i.notification
         limit ?3",
    )?;
    let mut rows = select.query(params![id.to_bytes(), flow.0, limit])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        found.push(StagedItem {
            notification: notification_id(row, 0)?,
            dead_letter: maybe_dead_letter_id(row, 1)?,
            batch: row.get(2)?,
            seen: seen(row, 3)?,
        });
    }
    Ok(found)
}

fn forward_one(
    tx: &mut Tx<'_>,
    operation: &Operation,
    item: StagedItem,
    now: Timestamp,
) -> Result<std::result::Result<Done, Skip>> {
    let found = Found::look(tx.conn, item.notification)?;
    let standing = found.as_ref().map(|found| &found.standing);
    let deed = forwardable(operation.action, item.dead_letter, item.seen, standing, now);
    let outcome = match (deed, found) {
        (Ok(Deed::Act(act)), Some(found)) => {
            found.perform(tx, &act, Some(&operation.started_by), now)?;
            Ok(Done::Acted(found.facts(tx)?))
        }
        (Ok(Deed::Show(letter)), _) if show(tx, letter, now)? => Ok(Done::Shown),
        (Ok(_), _) => Err(Skip::ChangedMeanwhile),
        (Err(why), _) => Err(why),
    };
    let mut update = tx.conn.prepare_cached(
        "update operation_item
         set stage = ?3, reason = ?4, canary = ?5
         where operation = ?1
         and notification = ?2",
    )?;
    let (stage, reason) = match &outcome {
        Ok(_) => (FORWARDED, None),
        Err(why) => (SKIPPED, Some(why.code())),
    };
    let canary = outcome.is_ok() && operation.is_canary();
    let (id, notification) = (operation.id.to_bytes(), item.notification.to_bytes());
    update.execute(params![id, notification, stage, reason, canary])?;
    Ok(outcome)
}

/// Items that are not held any more.
#[derive(Default)]
struct LetGo {
    batches: BTreeMap<u32, u32>,
    skipped: BTreeMap<Skip, u32>,
}

impl LetGo {
    fn note(&mut self, batch: u32, skipped: Option<Skip>) {
        *self.batches.entry(batch).or_default() += 1;
        if let Some(why) = skipped {
            *self.skipped.entry(why).or_default() += 1;
        }
    }

    /// Returns how many batches are done by that.
    fn write(&self, conn: &Connection, id: OperationId) -> Result<u32> {
        // By itself: what was done before is not done by this.
        let mut end = conn.prepare_cached(
            "update operation_batch
             set stage = 3
             where operation = ?1
             and number = ?2
             and stage = 2
             and held = ?3",
        )?;
        let mut let_go = conn.prepare_cached(
            "update operation_batch
             set held = held - ?3
             where operation = ?1
             and number = ?2",
        )?;
        let mut done = 0;
        for (number, count) in &self.batches {
            done += u32::from(end.execute(params![id.to_bytes(), number, count])? > 0);
            let_go.execute(params![id.to_bytes(), number, count])?;
        }
        Ok(done)
    }
}

fn held_items(conn: &Connection, id: OperationId, limit: usize) -> Result<Vec<(NotificationId, u32)>> {
    let mut select = conn.prepare_cached(
        "select notification, batch
         from operation_item
         where operation = ?1
         and stage < 2
         order by batch, notification
         limit ?2",
    )?;
    let mut rows = select.query(params![id.to_bytes(), i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        found.push((notification_id(row, 0)?, row.get(1)?));
    }
    Ok(found)
}
