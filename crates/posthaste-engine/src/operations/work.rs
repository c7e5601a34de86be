//! The steps of an operation: mark a stretch, stage a batch, forward a chunk, leave out the rest, end.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use posthaste_core::filter::{Filter, List};
use posthaste_core::flow::FlowId;
use posthaste_core::id::NotificationId;
use posthaste_core::operation::{
    Action, Batch, BatchItem, Decision, MOST_TRIES, Operation, OperationChange, OperationState, Selected,
    Selection, Skip, Staging, Verdict, Window, decide, first_attempt, judge, selected,
};
use posthaste_core::rate::RateLimit;
use posthaste_core::series::Happened;
use tokio::time::Instant;

use super::ItemId;
use crate::acts::{Actor, after};
use crate::engine::Shared;
use crate::store::{Act, Audit, Facts, Forwarded, Rest, Result, StoreError, Walk};
use crate::{journal, series};

/// The most items that are forwarded, or left out, in one transaction: some milliseconds of the writer of a file.
const CHUNK: u32 = 100;
/// The same on a store that is a server.
const SHARED_CHUNK: u32 = 500;
/// The most flows that a step looks at.
const FLOWS: usize = 50;
/// The pause while every flow has enough that waits.
const PACE: Duration = Duration::from_millis(10);
/// The pause between two looks at a canary.
const CANARY: Duration = Duration::from_millis(50);
/// The pause before an item is tried again that could not be read.
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// Flows whose windows are remembered; all are forgotten beyond that.
const MOST_WINDOWS: usize = 100_000;

/// What follows a step.
pub(super) enum Next {
    /// There is more to do.
    Again,
    /// There is more to do later.
    After(Duration),
    /// Nothing, until somebody changes the operation.
    Wait,
}

/// What a node remembers of an operation between two steps. All of it may be lost.
pub(super) struct Work {
    pub(super) not_before: Instant,
    windows: HashMap<FlowId, Window>,
    rate: Option<RateLimit>,
    /// The last flow that was looked at: flows take turns.
    last: Option<FlowId>,
    /// How often a step has found something that cannot be read.
    damage: u32,
}

impl Default for Work {
    fn default() -> Self {
        Self { not_before: Instant::now(), windows: HashMap::new(), rate: None, last: None, damage: 0 }
    }
}

impl Work {
    /// Does the next step.
    pub(super) async fn step(&mut self, shared: &Shared, operation: Operation) -> Result<Next> {
        if operation.may_finish() {
            return finish(shared, &operation).await;
        }
        match operation.standing.state {
            OperationState::Cancelled | OperationState::Failed => {
                let which = Rest::Stopped(CHUNK as usize);
                shared.store.skip_items(operation.id, shared.node.id(), which, shared.node.now()).await?;
                Ok(Next::Again)
            }
            OperationState::Preparing => self.mark(shared, &operation).await,
            OperationState::Forwarding => self.forward(shared, &operation).await,
            OperationState::Waiting | OperationState::Paused | OperationState::Completed => Ok(Next::Wait),
        }
    }

    async fn mark(&mut self, shared: &Shared, operation: &Operation) -> Result<Next> {
        let found = match walk(shared, operation).await {
            Err(StoreError::Corrupt { what }) => {
                self.damage += 1;
                if self.damage < MOST_TRIES {
                    return Ok(Next::After(TRY_AGAIN));
                }
                let change = OperationChange::Fail { node: shared.node.id(), why: what };
                shared.store.change_operation(operation.id, change, None, shared.node.now()).await?;
                return Ok(Next::Again);
            }
            found => found?,
        };
        shared.store.mark(operation.id, shared.node.id(), found).await?;
        self.damage = 0;
        Ok(Next::Again)
    }

    async fn forward(&mut self, shared: &Shared, operation: &Operation) -> Result<Next> {
        if operation.is_canary() && operation.room_before_verdict() == 0 {
            return look_at_canary(shared, operation).await;
        }
        let now = shared.node.now();
        if let Some(rate) = operation.rate {
            let limit = self.rate.get_or_insert_with(|| RateLimit::new(f64::from(rate), now));
            if limit.room(now) == 0 {
                return Ok(Next::After(PACE));
            }
        }
        let flows = self.next_flows(shared, operation).await?;
        if flows.is_empty() {
            // At the end of the flows their turn begins again.
            if self.last.take().is_some() {
                return Ok(Next::Again);
            }
            return stage_or_wait(shared, operation).await;
        }
        self.last = flows.last().copied();
        let quotas = self.quotas(shared, operation, &flows).await?;
        if quotas.is_empty() {
            // All of these are full. The next ones may not be, but a look at many full flows must not take a whole core.
            if flows.len() == FLOWS {
                return Ok(Next::After(PACE));
            }
            self.last = None;
            // Others may go on while these wait.
            return stage_or_wait(shared, operation).await;
        }
        if flows.len() < FLOWS {
            self.last = None;
        }
        self.forward_chunk(shared, operation, quotas).await
    }

    async fn next_flows(&self, shared: &Shared, operation: &Operation) -> Result<Vec<FlowId>> {
        shared.store.staged_flows(operation.id, self.last, FLOWS).await
    }

    /// How many of each flow are forwarded now: at the pace of its destination, and within chunk and rate.
    async fn quotas(
        &mut self,
        shared: &Shared,
        operation: &Operation,
        flows: &[FlowId],
    ) -> Result<Vec<(FlowId, u32)>> {
        let now = shared.node.now();
        let chunk = if shared.store.is_shared() { SHARED_CHUNK } else { CHUNK };
        let mut left = chunk.min(u32::try_from(shared.settings.batch).unwrap_or(chunk));
        if let Some(limit) = &mut self.rate {
            left = left.min(limit.room(now));
        }
        if self.damage > 0 {
            // One at a time, until the one is found that cannot be read.
            return Ok(flows.first().map(|flow| (*flow, 1)).into_iter().collect());
        }
        let mut rooms = vec![u32::MAX; flows.len()];
        if operation.action.sends() {
            if self.windows.len() > MOST_WINDOWS {
                self.windows.clear();
            }
            let waiting = shared.store.due_rows(flows.to_vec(), Window::MOST, now).await?;
            for ((flow, waiting), room) in flows.iter().zip(waiting).zip(&mut rooms) {
                let window = self.windows.entry(*flow).or_default();
                *window = window.after(waiting);
                *room = window.room(waiting);
            }
        }
        let mut quotas = vec![];
        for (flow, room) in flows.iter().zip(rooms) {
            let most = room.min(left);
            if most > 0 {
                quotas.push((*flow, most));
                left -= most;
            }
        }
        Ok(quotas)
    }

    async fn forward_chunk(
        &mut self,
        shared: &Shared,
        operation: &Operation,
        quotas: Vec<(FlowId, u32)>,
    ) -> Result<Next> {
        let (id, node, now) = (operation.id, shared.node.id(), shared.node.now());
        let first = quotas.first().map(|(flow, _)| *flow);
        match shared.store.forward(id, node, quotas, now).await {
            Ok(Some(Forwarded { operation: stands, done })) => {
                if let Some(limit) = &mut self.rate {
                    limit.spend(u32::try_from(done.len()).unwrap_or(u32::MAX));
                }
                self.damage = 0;
                announce(shared, operation, &done).await;
                if stands.held() < operation.held() {
                    return Ok(Next::Again);
                }
                // What is staged belongs to a batch that has to be staged again.
                stage_or_wait(shared, operation).await
            }
            Ok(None) => Ok(Next::Again),
            Err(StoreError::Corrupt { what }) => {
                self.damage += 1;
                tracing::warn!(operation = %id, tries = self.damage, error = what, "an item cannot be forwarded");
                if let Some(flow) = first.filter(|_| self.damage > MOST_TRIES) {
                    shared.store.skip_items(id, node, Rest::FirstOf(flow), now).await?;
                    self.damage = 0;
                }
                Ok(Next::After(TRY_AGAIN))
            }
            Err(error) => Err(error),
        }
    }
}

/// What became due is announced, and what was done is told and counted.
async fn announce(shared: &Shared, operation: &Operation, done: &[Facts]) {
    let act = |facts: &Facts| operation.action.act(facts.standing.state);
    for facts in done {
        after(shared, facts, &act(facts));
    }
    shared.counts.operation_items(done.len());
    let cancelled = done.iter().filter(|facts| act(facts) == Act::Cancel);
    series::ended_waiting(shared, cancelled.map(|facts| (facts.id, Happened::Cancelled))).await;
    let actor = Actor::local(&operation.started_by, operation.tenant.clone());
    let named = shared.named(done.iter().map(|facts| (facts.id, &facts.tenant))).await;
    for facts in done {
        journal::acted(shared, &named, facts, &act(facts), &actor);
    }
}

/// The next stretch of what the operation selects.
async fn walk(shared: &Shared, operation: &Operation) -> Result<Walk> {
    let Operation { action, selection, tenant, cut_off, .. } = operation;
    let corrupt = |what: String| StoreError::Corrupt { what };
    let filter = selected(*action, selection, tenant.as_ref(), *cut_off);
    match (filter.map_err(|bad| corrupt(bad.to_string()))?, selection) {
        (Some(filter), _) => walk_list(shared, operation, filter).await,
        (None, Selection::Ids(ids)) => walk_ids(shared, operation, ids).await,
        (None, Selection::Filter(_) | Selection::Group(_) | Selection::All) => {
            Err(corrupt(format!("{} selects nothing", operation.id)))
        }
    }
}

async fn walk_list(shared: &Shared, operation: &Operation, filter: Filter) -> Result<Walk> {
    let from = operation.standing.cursor.clone();
    let limit = (operation.room_in_batch() as usize).min(shared.settings.batch);
    let bad = |_| StoreError::Corrupt { what: format!("the cursor of {}", operation.id) };
    let (found, next) = match operation.action.list() {
        List::DeadLetters => {
            let before = from.as_deref().map(str::parse).transpose().map_err(bad)?;
            let page = shared.store.dead_letters(filter, before, limit).await?;
            let select = page.rows.iter().map(|letter| Selected {
                notification: letter.notification.id,
                dead_letter: Some(letter.id),
            });
            (select.collect(), page.next.map(|next| next.to_string()))
        }
        List::Notifications | List::Failed | List::RetryQueue => {
            let before = from.as_deref().map(str::parse).transpose().map_err(bad)?;
            let page = shared.store.page(filter, before, limit).await?;
            let select = page
                .rows
                .iter()
                .map(|view| Selected { notification: view.notification.id, dead_letter: None });
            (select.collect(), page.next.map(|next| next.to_string()))
        }
    };
    Ok(Walk { from, found: latest(found), next })
}

async fn walk_ids(shared: &Shared, operation: &Operation, ids: &[String]) -> Result<Walk> {
    let from = operation.standing.cursor.clone();
    let start: usize = from.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
    let end = ids.len().min(start + (operation.room_in_batch() as usize).min(shared.settings.batch));
    let mut found = vec![];
    for id in &ids[start.min(end)..end] {
        match ItemId::parse(id) {
            Some(ItemId::Notification(notification)) => {
                found.push(Selected { notification, dead_letter: None });
            }
            Some(ItemId::Letter(letter)) => {
                let notification = shared.store.notification_of(letter).await?;
                let select = |notification| Selected { notification, dead_letter: Some(letter) };
                found.extend(notification.map(select));
            }
            None => {}
        }
    }
    let next = (end < ids.len()).then(|| end.to_string());
    Ok(Walk { from, found: latest(found), next })
}

/// Each notification once, by its latest dead letter: an earlier one is resolved already.
fn latest(found: Vec<Selected>) -> Vec<Selected> {
    let mut latest: BTreeMap<NotificationId, Selected> = BTreeMap::new();
    for one in found {
        let kept = latest.entry(one.notification).or_insert(one);
        *kept = one.max(*kept);
    }
    latest.into_values().collect()
}

/// Stages the next batch; if no batch waits, there is something to do later.
async fn stage_or_wait(shared: &Shared, operation: &Operation) -> Result<Next> {
    Ok(stage_next(shared, operation).await?.unwrap_or(Next::After(PACE)))
}

/// Stages the next batch; none if no batch waits.
async fn stage_next(shared: &Shared, operation: &Operation) -> Result<Option<Next>> {
    let Some(Batch { number, staging: after, items }) = shared.store.batch_to_stage(operation.id).await?
    else {
        return Ok(None);
    };
    let decisions = decisions(shared, operation.action, &items).await?;
    let again = decisions.iter().any(|(_, decision)| *decision == Decision::TryAgain);
    let staging = Staging { batch: number, after, id: (shared.random() >> 64) as u64 };
    let (node, now) = (shared.node.id(), shared.node.now());
    shared.store.stage(operation.id, node, staging, decisions, now).await?;
    Ok(Some(if again { Next::After(TRY_AGAIN) } else { Next::Again }))
}

async fn decisions(
    shared: &Shared,
    action: Action,
    items: &[BatchItem],
) -> Result<Vec<(NotificationId, Decision)>> {
    let ids: Vec<NotificationId> = items.iter().map(|item| item.selected.notification).collect();
    let found = match shared.store.facts(ids).await {
        Ok(facts) => facts.into_iter().map(|facts| (facts.id, Ok(facts))).collect(),
        // One of them cannot be read: the others can.
        Err(StoreError::Corrupt { .. }) => {
            one_by_one(shared, items.iter().map(|item| item.selected.notification)).await?
        }
        Err(error) => return Err(error),
    };
    let now = shared.node.now();
    let decide = |item: &BatchItem| {
        let id = item.selected.notification;
        let decision = match found.get(&id) {
            Some(Ok(facts)) => decide(action, item.selected, Some((facts.bucket.flow, &facts.standing)), now),
            None => decide(action, item.selected, None, now),
            Some(Err(())) if item.tries + 1 < MOST_TRIES => Decision::TryAgain,
            Some(Err(())) => Decision::Skip(Skip::Ejected),
        };
        (id, decision)
    };
    Ok(items.iter().map(decide).collect())
}

async fn one_by_one(
    shared: &Shared,
    ids: impl Iterator<Item = NotificationId>,
) -> Result<HashMap<NotificationId, std::result::Result<Facts, ()>>> {
    let mut found = HashMap::new();
    for id in ids {
        match shared.store.facts(vec![id]).await {
            Ok(facts) => found.extend(facts.into_iter().map(|facts| (facts.id, Ok(facts)))),
            Err(StoreError::Corrupt { what }) => {
                tracing::warn!(%id, error = what, "an item of an operation cannot be read");
                found.insert(id, Err(()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

async fn look_at_canary(shared: &Shared, operation: &Operation) -> Result<Next> {
    let Some(canary) = operation.canary else { return Ok(Next::Again) };
    let items = shared.store.canary_items(operation.id).await?;
    let facts = match shared.store.facts(items.iter().map(|(id, _)| *id).collect()).await {
        Ok(facts) => facts,
        // One that cannot be read tells nothing; the others do.
        Err(StoreError::Corrupt { .. }) => {
            one_by_one(shared, items.iter().map(|(id, _)| *id)).await?.into_values().flatten().collect()
        }
        Err(error) => return Err(error),
    };
    let facts: HashMap<NotificationId, Facts> = facts.into_iter().map(|facts| (facts.id, facts)).collect();
    let attempts: Vec<_> = items
        .iter()
        .filter_map(|(id, seen)| Some(first_attempt(operation.action, *seen, &facts.get(id)?.standing)))
        .collect();
    let verdict = judge(canary, &attempts, true);
    let known = Verdict::Wait { failed: operation.standing.canary_failed };
    if verdict != known {
        let change = OperationChange::Canary { node: shared.node.id(), verdict };
        shared.store.change_operation(operation.id, change, None, shared.node.now()).await?;
    }
    Ok(match verdict {
        Verdict::Wait { .. } => Next::After(CANARY),
        Verdict::Passed { .. } | Verdict::Failed { .. } => Next::Again,
    })
}

async fn finish(shared: &Shared, operation: &Operation) -> Result<Next> {
    let now = shared.node.now();
    let audit = Audit {
        tenant: operation.tenant.clone(),
        actor: operation.started_by.clone(),
        action: "end-operation".to_owned(),
        target: operation.id.to_string(),
        at: now,
        key_id: operation.key_id.clone(),
        address: operation.address.clone(),
    };
    let change = OperationChange::Finish { node: shared.node.id() };
    let made = shared.store.change_operation(operation.id, change, Some(audit), now).await?;
    if let Some(Ok(ended)) = made {
        let standing = &ended.standing;
        let (state, skipped) = (standing.state.name(), standing.all_skipped());
        tracing::info!(
            operation = %ended.id, state, total = standing.total, forwarded = standing.forwarded, skipped,
            "operation ended"
        );
        shared.counts.operation_ended(standing.state);
    }
    // The next turn tells of the end.
    Ok(Next::Again)
}

#[cfg(test)]
mod tests {
    use posthaste_core::id::DeadLetterId;
    use posthaste_core::time::Timestamp;

    use super::*;

    #[test]
    fn of_two_dead_letters_of_a_notification_the_later_one_is_selected_in_any_order() {
        let at = Timestamp::from_millis;
        let [one, two] = [1, 2].map(|number| NotificationId::new(at(1), number));
        let select = |notification, letter| Selected {
            notification,
            dead_letter: Some(DeadLetterId::new(at(letter), 1)),
        };
        let (old, new, other) = (select(one, 10), select(one, 20), select(two, 5));
        assert_eq!(latest(vec![old, other, new]), [new, other]);
        assert_eq!(latest(vec![new, old]), [new]);
    }
}
