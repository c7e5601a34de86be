//! The steps of an operation: marking, staging, forwarding, and leaving out what is left.

use std::collections::{BTreeMap, HashSet};

use posthaste_core::flow::FlowId;
use posthaste_core::id::{DeadLetterId, NotificationId, OperationId};
use posthaste_core::lease::NodeId;
use posthaste_core::operation::{
    Decision, Deed, Operation, Selected, Skip, Stage, StagedBatch, Staging, forwardable,
};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Change, Facts, Forwarded, Rest, Walk};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{lock, operation_uuid, refused, save, seen};
use crate::kept::operations::{
    Definitions, FORWARDED, MARKED, SKIPPED, StagedItem, count, decided, seen_staging, staging,
};
use crate::postgres::acts::{Locked, apply};
use crate::postgres::changes::Changes;
use crate::postgres::fault::Result;
use crate::postgres::flows::Flows;
use crate::postgres::planted::Planted;
use crate::postgres::rows::{Columns, bigint, letter_uuid, number, uuid};
use crate::postgres::tx::{Then, Tx, bind, statement};

/// A step of an operation, by a node.
pub(super) struct Step<'s> {
    pub(super) known: &'s Definitions,
    pub(super) id: OperationId,
    pub(super) node: NodeId,
    pub(super) now: Timestamp,
}

impl Step<'_> {
    pub(super) async fn mark(&self, tx: &Tx, walk: &Walk) -> Result<Option<Operation>> {
        let &Self { known, id, node, now } = self;
        let Some(mut operation) = lock(tx, known, id).await? else { return refused(tx).await };
        if !operation.may_mark(node, walk.from.as_deref()) {
            return refused(tx).await;
        }
        let batch = operation.standing.batches + u32::from(operation.standing.open == 0);
        let first = insert(tx, id, batch, &walk.found, (MARKED, None)).await?;
        // Refused by the primary key if the operation has it already, by the other index if another one holds it.
        let rest: Vec<Selected> =
            walk.found.iter().filter(|selected| !first.contains(&selected.notification)).copied().collect();
        let elsewhere = if rest.is_empty() {
            HashSet::new()
        } else {
            insert(tx, id, batch, &rest, (SKIPPED, Some(Skip::InAnotherOperation.code()))).await?
        };
        let [held, elsewhere] =
            [first.len(), elsewhere.len()].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        if let Some(mark) = operation.marked(held, elsewhere, walk.next.clone()) {
            let sql = "
            insert into operation_batch (operation, number, stage, held)
            values ($1, $2, $3, $4)
            on conflict (operation, number) do update
            set stage = excluded.stage, held = excluded.held";
            let bound = bind![
                operation_uuid(id) => UUID,
                number(mark.number) => INT4,
                i16::from(mark.stage.code()) => INT2,
                number(mark.held) => INT4,
            ];
            tx.rows(sql, bound).await?;
        }
        operation.moved(now);
        save(tx, known, &operation).await?;
        Ok(Some(operation))
    }

    pub(super) async fn stage(
        &self,
        tx: &Tx,
        new: Staging,
        decisions: &[(NotificationId, Decision)],
    ) -> Result<Option<Operation>> {
        let &Self { known, id, node, now } = self;
        let Some(mut operation) = lock(tx, known, id).await? else { return refused(tx).await };
        let (of, staging) = (number(new.batch), staging(new.id));
        let sql = "select stage, staging from operation_batch where operation = $1 and number = $2";
        let rows = tx.rows(sql, bind![operation_uuid(id) => UUID, of => INT4]).await?;
        let read = |row: &Row| -> Result<(u8, Option<u64>)> {
            let mut columns = Columns::of(row);
            Ok((columns.code()?, seen_staging(columns.take()?)))
        };
        let found = rows.first().map(read).transpose()?;
        if !operation.may_forward(node) || found != Some((Stage::Staging.code(), new.after)) {
            return refused(tx).await;
        }
        let columns = Decided::of(decisions);
        let items = "
        update operation_item i
        set stage = u.stage, staging = $3, flow = u.flow, seen_state = u.state, seen_generation = u.generation,
            seen_attempt = u.attempt, reason = u.reason, tries = i.tries + u.tries
        from unnest($2::uuid[], $4::smallint[], $5::bigint[], $6::smallint[], $7::integer[], $8::integer[],
            $9::text[], $10::integer[]) as u (notification, stage, flow, state, generation, attempt, reason, tries)
        where i.operation = $1
        and i.notification = any(array[u.notification])";
        let items_bound = bind![
            operation_uuid(id) => UUID,
            columns.ids => UUID_ARRAY,
            staging => INT8,
            columns.stages => INT2_ARRAY,
            columns.flows => INT8_ARRAY,
            columns.states => INT2_ARRAY,
            columns.generations => INT4_ARRAY,
            columns.attempts => INT4_ARRAY,
            columns.reasons => TEXT_ARRAY,
            columns.tries => INT4_ARRAY,
        ];
        let StagedBatch { stage, skipped } =
            operation.staged(decisions.iter().map(|(_, decision)| *decision));
        let sql = "
        update operation_batch
        set stage = $3, staging = $4, held = held - $5
        where operation = $1
        and number = $2";
        let bound = bind![
            operation_uuid(id) => UUID,
            of => INT4,
            i16::from(stage.code()) => INT2,
            staging => INT8,
            number(skipped) => INT4,
        ];
        tx.send(None, &[statement!(items, items_bound), statement!(sql, bound)], Then::Continue).await?;
        operation.moved(now);
        save(tx, known, &operation).await?;
        Ok(Some(operation))
    }

    pub(super) async fn forward(
        &self,
        tx: &Tx,
        flows: &Flows,
        quotas: &[(FlowId, u32)],
    ) -> Result<Option<Forwarded>> {
        let &Self { known, id, node, now } = self;
        let Some(mut operation) = lock(tx, known, id).await? else { return refused(tx).await };
        if !operation.may_forward(node) && !tx.bug(Planted::ForwardWithoutFence) {
            return refused(tx).await;
        }
        let items = staged_items(tx, id, quotas, operation.room_before_verdict()).await?;
        let found = Locked::lock(tx, None, items.iter().map(|item| item.notification)).await?;
        let keys =
            flows.keys(tx, found.0.values().map(crate::postgres::acts::LockedNotification::flow)).await?;
        let mut written = Changes::new(now, Some(&operation.started_by));
        let (mut done, mut let_go): (Vec<Facts>, _) = (vec![], LetGo::default());
        let mut deeds = vec![];
        for item in &items {
            let standing = found.0.get(&item.notification).map(|found| &found.standing);
            deeds.push(forwardable(operation.action, item.dead_letter, item.seen, standing, now));
        }
        let shown = show(tx, &deeds, now).await?;
        for (item, deed) in items.iter().zip(deeds) {
            let (notification, seen) = (item.notification, item.seen);
            let skipped = match (deed, found.0.get(&notification)) {
                (Ok(Deed::Show(letter)), _) if shown.contains(&letter_uuid(letter)) => None,
                (Ok(Deed::Act(act)), Some(found)) => {
                    let change = Change { id: notification, seen, act };
                    if apply(&mut written, found, &change, now) {
                        done.push(found.facts(notification, &keys)?);
                        None
                    } else {
                        Some(Skip::ChangedMeanwhile)
                    }
                }
                (Ok(_), _) => Some(Skip::ChangedMeanwhile),
                (Err(why), _) => Some(why),
            };
            let_go.note((notification, item.batch), skipped, operation.is_canary());
        }
        written.write(tx, flows).await?;
        let batches_done = let_go.write(tx, id).await?;
        let shown = u32::try_from(shown.len()).unwrap_or(u32::MAX);
        operation.forwarded(count(&done) + shown, &let_go.skipped, batches_done);
        if !let_go.batches.is_empty() {
            operation.moved(now);
        }
        save(tx, known, &operation).await?;
        Ok(Some(Forwarded { operation, done, shown }))
    }

    pub(super) async fn skip(&self, tx: &Tx, which: Rest) -> Result<Option<Operation>> {
        let &Self { known, id, node, now } = self;
        let Some(mut operation) = lock(tx, known, id).await? else { return refused(tx).await };
        if !operation.is_run_by(node) {
            return refused(tx).await;
        }
        let (why, items) = match which {
            Rest::Stopped(limit) => {
                let Some(why) = operation.skips_rest() else { return refused(tx).await };
                (why, held_items(tx, id, limit).await?)
            }
            Rest::FirstOf(flow) => {
                let first = staged_items(tx, id, &[(flow, 1)], 1).await?;
                (Skip::Ejected, first.into_iter().map(|item| (item.notification, item.batch)).collect())
            }
        };
        let mut let_go = LetGo::default();
        for item in items {
            let_go.note(item, Some(why), false);
        }
        let batches_done = let_go.write(tx, id).await?;
        operation.forwarded(0, &let_go.skipped, batches_done);
        if !let_go.batches.is_empty() {
            operation.moved(now);
        }
        save(tx, known, &operation).await?;
        Ok(Some(operation))
    }
}

/// Shows soft-deleted dead letters that are resolved. Returns which ones. Their ends are locked already.
async fn show(tx: &Tx, deeds: &[std::result::Result<Deed, Skip>], now: Timestamp) -> Result<HashSet<Uuid>> {
    let letter = |deed: &std::result::Result<Deed, Skip>| match deed {
        Ok(Deed::Show(letter)) => Some(letter_uuid(*letter)),
        Ok(Deed::Act(_)) | Err(_) => None,
    };
    let mut letters: Vec<Uuid> = deeds.iter().filter_map(letter).collect();
    if letters.is_empty() {
        return Ok(HashSet::new());
    }
    letters.sort_unstable();
    let sql = "
        update dead_letter
        set deleted_at = null, restored_at = $2
        where id = any($1)
        and deleted_at is not null
        and status <> 0
        returning id";
    let rows = tx.rows(sql, bind![letters => UUID_ARRAY, now.as_micros() => INT8]).await?;
    rows.iter().map(|row| Columns::of(row).take()).collect()
}

/// Inserts items in id order, so that two operations cannot deadlock. Returns those that were inserted.
async fn insert(
    tx: &Tx,
    id: OperationId,
    batch: u32,
    found: &[Selected],
    as_what: (u8, Option<&str>),
) -> Result<HashSet<NotificationId>> {
    let mut found = found.to_vec();
    found.sort_unstable();
    found.dedup_by_key(|selected| selected.notification);
    let ids: Vec<Uuid> = found.iter().map(|selected| uuid(selected.notification)).collect();
    let letters: Vec<Option<Uuid>> =
        found.iter().map(|selected| selected.dead_letter.map(letter_uuid)).collect();
    let sql = "
        insert into operation_item (operation, notification, dead_letter, batch, stage, tries, canary, reason)
        select $1, u.notification, u.dead_letter, $4, $5, 0, false, $6
        from unnest($2::uuid[], $3::uuid[]) as u (notification, dead_letter)
        order by u.notification
        on conflict do nothing
        returning notification";
    let bound = bind![
        operation_uuid(id) => UUID,
        ids => UUID_ARRAY,
        letters => UUID_ARRAY,
        number(batch) => INT4,
        i16::from(as_what.0) => INT2,
        as_what.1 => TEXT,
    ];
    let rows = tx.rows(sql, bound).await?;
    rows.iter().map(|row| Columns::of(row).notification_id()).collect()
}

/// Decisions in columns.
#[derive(Default)]
struct Decided {
    ids: Vec<Uuid>,
    stages: Vec<i16>,
    flows: Vec<Option<i64>>,
    states: Vec<Option<i16>>,
    generations: Vec<Option<i32>>,
    attempts: Vec<Option<i32>>,
    reasons: Vec<Option<&'static str>>,
    tries: Vec<i32>,
}

impl Decided {
    fn of(decisions: &[(NotificationId, Decision)]) -> Self {
        let mut all = Self::default();
        for (notification, decision) in decisions {
            let (stage, flow, seen, reason) = decided(*decision);
            all.ids.push(uuid(*notification));
            all.stages.push(i16::from(stage));
            all.flows.push(flow.map(|flow| flow.0));
            all.states.push(seen.map(|seen| i16::from(seen.state.code())));
            all.generations.push(seen.map(|seen| number(seen.generation)));
            all.attempts.push(seen.map(|seen| number(seen.attempt)));
            all.reasons.push(reason);
            all.tries.push(i32::from(*decision == Decision::TryAgain));
        }
        all
    }
}

/// Only items of the last staging of their batch.
async fn staged_items(
    tx: &Tx,
    id: OperationId,
    quotas: &[(FlowId, u32)],
    room: u32,
) -> Result<Vec<StagedItem>> {
    let sql = "
        select i.notification, i.dead_letter, i.batch, i.seen_state, i.seen_generation, i.seen_attempt
        from unnest($2::bigint[], $3::bigint[]) with ordinality as quota (flow, most, place)
        cross join lateral (
            select i.*
            from operation_item i
            join operation_batch b on b.operation = i.operation and b.number = i.batch
            where i.operation = $1
            and i.flow = quota.flow
            and i.stage = 1
            and b.stage = 2
            and b.staging = i.staging
            order by i.notification
            limit quota.most) as i
        order by quota.place, i.notification
        limit $4";
    let flows: Vec<i64> = quotas.iter().map(|(flow, _)| flow.0).collect();
    let most: Vec<i64> = quotas.iter().map(|(_, limit)| i64::from(*limit)).collect();
    let bound = bind![
        operation_uuid(id) => UUID,
        flows => INT8_ARRAY,
        most => INT8_ARRAY,
        i64::from(room) => INT8,
    ];
    let rows = tx.rows(sql, bound).await?;
    let item = |row: &Row| {
        let mut columns = Columns::of(row);
        let (notification, letter): (_, Option<Uuid>) = (columns.notification_id()?, columns.take()?);
        let dead_letter = letter.map(|letter| DeadLetterId::from_bytes(letter.into_bytes()));
        Ok(StagedItem { notification, dead_letter, batch: columns.small()?, seen: seen(&mut columns)? })
    };
    rows.iter().map(item).collect()
}

/// Items that are not held any more.
#[derive(Default)]
struct LetGo {
    ids: Vec<Uuid>,
    stages: Vec<i16>,
    reasons: Vec<Option<&'static str>>,
    canary: Vec<bool>,
    batches: BTreeMap<u32, u32>,
    skipped: BTreeMap<Skip, u32>,
}

impl LetGo {
    fn note(&mut self, item: (NotificationId, u32), skipped: Option<Skip>, canary: bool) {
        self.ids.push(uuid(item.0));
        self.stages.push(i16::from(if skipped.is_some() { SKIPPED } else { FORWARDED }));
        self.reasons.push(skipped.map(Skip::code));
        self.canary.push(canary && skipped.is_none());
        *self.batches.entry(item.1).or_default() += 1;
        if let Some(why) = skipped {
            *self.skipped.entry(why).or_default() += 1;
        }
    }

    /// Returns how many batches are done by that.
    async fn write(&self, tx: &Tx, id: OperationId) -> Result<u32> {
        let items = "
            update operation_item i
            set stage = u.stage, reason = u.reason, canary = u.canary
            from unnest($2::uuid[], $3::smallint[], $4::text[], $5::boolean[])
                as u (notification, stage, reason, canary)
            where i.operation = $1
            and i.notification = any(array[u.notification])";
        let items_bound = bind![
            operation_uuid(id) => UUID,
            self.ids => UUID_ARRAY,
            self.stages => INT2_ARRAY,
            self.reasons => TEXT_ARRAY,
            self.canary => BOOL_ARRAY,
        ];
        // By itself: what was done before is not done by this.
        let ends = "
            update operation_batch b
            set stage = 3
            from unnest($2::integer[], $3::integer[]) as u (number, count)
            where b.operation = $1
            and b.number = u.number
            and b.stage = 2
            and b.held = u.count
            returning b.number";
        let held = "
            update operation_batch b
            set held = b.held - u.count
            from unnest($2::integer[], $3::integer[]) as u (number, count)
            where b.operation = $1
            and b.number = u.number";
        let numbers: Vec<i32> = self.batches.keys().copied().map(number).collect();
        let counts: Vec<i32> = self.batches.values().copied().map(number).collect();
        let bound = bind![operation_uuid(id) => UUID, numbers => INT4_ARRAY, counts => INT4_ARRAY];
        let steps = [statement!(items, items_bound), statement!(ends, bound), statement!(held, bound)];
        let answers = tx.send(None, &steps, Then::Continue).await?;
        Ok(answers.get(1).map_or(0, |ended| u32::try_from(ended.len()).unwrap_or(u32::MAX)))
    }
}

async fn held_items(tx: &Tx, id: OperationId, limit: usize) -> Result<Vec<(NotificationId, u32)>> {
    let sql = "
        select notification, batch
        from operation_item
        where operation = $1
        and stage < 2
        order by batch, notification
        limit $2";
    let rows = tx.rows(sql, bind![operation_uuid(id) => UUID, bigint(limit) => INT8]).await?;
    let item = |row: &Row| {
        let mut columns = Columns::of(row);
        Ok((columns.notification_id()?, columns.small()?))
    };
    rows.iter().map(item).collect()
}
