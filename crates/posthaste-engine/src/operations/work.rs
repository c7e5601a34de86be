//! The steps of an operation: mark a stretch, stage a batch, forward a chunk, leave out the rest, end.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use posthaste_core::flow::{FlowId, Gate};
use posthaste_core::id::NotificationId;
use posthaste_core::operation::{
    FirstAttempt, MOST_TRIES, Operation, OperationChange, OperationState, Verdict, Window, first_attempt,
    judge, shares,
};
use posthaste_core::rate::RateLimit;
use posthaste_core::series::Happened;
use tokio::time::Instant;

use super::LOOK;
use super::damage::Damaged;
use super::staging::{one_by_one, stage_next, stage_or_wait};
use super::walk::walk;
use crate::acts::{Actor, after};
use crate::engine::Shared;
use crate::store::{Act, Audit, Facts, Forwarded, Rest, Result, StoreError};
use crate::{journal, series};

/// The most items that are forwarded, or left out, in one transaction: some milliseconds of the writer of a file.
const CHUNK: u32 = 100;
/// The same on a store that is a server.
const SHARED_CHUNK: u32 = 500;
/// The most flows that a step looks at.
const FLOWS: usize = 50;
/// The pause while every flow has enough that waits.
pub(super) const PACE: Duration = Duration::from_millis(10);
/// The pause between two looks at a canary.
const CANARY: Duration = Duration::from_millis(50);
/// The pause before an item is tried again that could not be read.
pub(super) const TRY_AGAIN: Duration = Duration::from_millis(200);
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
    round: Round,
    /// Flows whose providers are known.
    met: HashSet<FlowId>,
    /// How often marking has found something that cannot be read.
    damage: u32,
    damaged: Damaged,
}

/// What was seen since the turn of the first flow began.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// Nothing was forwarded.
    is_idle: bool,
    flows: usize,
    /// How many of them go to destinations that are open or blocked.
    shut: usize,
}

impl Round {
    const fn new() -> Self {
        Self { is_idle: true, flows: 0, shut: 0 }
    }

    const fn is_shut(self) -> bool {
        self.flows > 0 && self.shut == self.flows
    }
}

/// How much of the flows that have their turn is forwarded now.
struct Quotas {
    quotas: Vec<(FlowId, u32)>,
    /// How many of these flows go to destinations that are open or blocked.
    shut: usize,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            not_before: Instant::now(),
            windows: HashMap::new(),
            rate: None,
            last: None,
            round: Round::new(),
            met: HashSet::new(),
            damage: 0,
            damaged: Damaged::default(),
        }
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
            OperationState::Paused if operation.standing.waits_for_breaker => {
                self.forward(shared, &operation).await
            }
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
                return changed(shared, operation, change).await;
            }
            found => found?,
        };
        shared.store.mark(operation.id, shared.node.id(), found, shared.node.now()).await?;
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
        if self.last.is_none() {
            self.round = Round::new();
        }
        let flows = self.next_flows(shared, operation).await?;
        let Quotas { quotas, shut } = self.quotas(shared, operation, &flows).await?;
        let waits = operation.standing.waits_for_breaker;
        if waits && shut < flows.len() {
            let change = OperationChange::GoOn { node: shared.node.id() };
            return changed(shared, operation, change).await;
        }
        self.round.flows += flows.len();
        self.round.shut += shut;
        self.round.is_idle &= quotas.is_empty();
        let is_last = flows.len() < FLOWS;
        self.last = flows.last().copied().filter(|_| !is_last);
        if !quotas.is_empty() {
            return self.forward_chunk(shared, operation, quotas).await;
        }
        if !is_last {
            // All of these are full. The next ones may not be, but a look at many full flows must not take a whole core.
            return Ok(Next::After(if waits { LOOK / 20 } else { PACE }));
        }
        match self.round {
            Round { is_idle: false, .. } => Ok(Next::Again),
            round => others(shared, operation, round.is_shut()).await,
        }
    }

    async fn next_flows(&self, shared: &Shared, operation: &Operation) -> Result<Vec<FlowId>> {
        shared.store.staged_flows(operation.id, self.last, FLOWS).await
    }

    /// How many of each flow are forwarded now: at the pace of its destination, and within chunk and rate.
    async fn quotas(&mut self, shared: &Shared, operation: &Operation, flows: &[FlowId]) -> Result<Quotas> {
        let now = shared.node.now();
        let chunk = if shared.store.is_shared() { SHARED_CHUNK } else { CHUNK };
        let mut left = chunk.min(u32::try_from(shared.settings.batch).unwrap_or(chunk));
        if let Some(limit) = &mut self.rate {
            left = left.min(limit.room(now));
        }
        let (mut rooms, shut) = if operation.action.sends() {
            self.rooms(shared, flows).await?
        } else {
            (vec![u32::MAX; flows.len()], 0)
        };
        for (flow, room) in flows.iter().zip(&mut rooms) {
            *room = (*room).min(self.damaged.most(*flow));
        }
        let quotas = flows.iter().copied().zip(shares(&rooms, left));
        Ok(Quotas { quotas: quotas.filter(|(_, most)| *most > 0).collect(), shut })
    }

    /// How many more of each flow may be made due, and how many go to destinations that are open or blocked.
    async fn rooms(&mut self, shared: &Shared, flows: &[FlowId]) -> Result<(Vec<u32>, usize)> {
        if self.windows.len() + self.met.len() > MOST_WINDOWS {
            self.windows.clear();
            self.met.clear();
        }
        shared.meet_flows(flows, &mut self.met).await?;
        let gates: Vec<Gate> = flows.iter().map(|flow| shared.gate_of(*flow)).collect();
        let some = flows.iter().zip(&gates).filter(|(_, gate)| **gate != Gate::Open);
        let some: Vec<FlowId> = some.map(|(flow, _)| *flow).collect();
        let waiting = if some.is_empty() {
            vec![]
        } else {
            shared.store.due_rows(some.clone(), Window::MOST, shared.node.now()).await?
        };
        let waiting: HashMap<FlowId, u32> = some.into_iter().zip(waiting).collect();
        let mut room = |(flow, gate): (&FlowId, &Gate)| {
            let Some(waiting) = waiting.get(flow) else { return 0 };
            let window = self.windows.entry(*flow).or_default();
            if !gate.is_shut() {
                *window = window.after(*waiting);
            }
            window.room(*gate, *waiting)
        };
        let rooms = flows.iter().zip(&gates).map(&mut room).collect();
        Ok((rooms, gates.iter().filter(|gate| gate.is_shut()).count()))
    }

    async fn forward_chunk(
        &mut self,
        shared: &Shared,
        operation: &Operation,
        quotas: Vec<(FlowId, u32)>,
    ) -> Result<Next> {
        match self.forward_some(shared, operation, quotas.clone()).await {
            Err(StoreError::Corrupt { what }) if quotas.len() == 1 => {
                self.narrow(shared, operation, quotas[0], &what).await
            }
            Err(StoreError::Corrupt { .. }) => {
                // One flow has something that cannot be read. The others do not wait for it.
                for quota in quotas {
                    match self.forward_some(shared, operation, vec![quota]).await {
                        Err(StoreError::Corrupt { what }) => {
                            self.narrow(shared, operation, quota, &what).await?;
                        }
                        done => {
                            done?;
                        }
                    }
                }
                Ok(Next::Again)
            }
            done => done,
        }
    }

    async fn forward_some(
        &mut self,
        shared: &Shared,
        operation: &Operation,
        quotas: Vec<(FlowId, u32)>,
    ) -> Result<Next> {
        let (id, node, now) = (operation.id, shared.node.id(), shared.node.now());
        let flows: Vec<FlowId> = quotas.iter().map(|(flow, _)| *flow).collect();
        let Some(forwarded) = shared.store.forward(id, node, quotas, now).await? else {
            return Ok(Next::Again);
        };
        let Forwarded { operation: stands, done, shown } = forwarded;
        if let Some(limit) = &mut self.rate {
            limit.spend(u32::try_from(done.len()).unwrap_or(u32::MAX).saturating_add(shown));
        }
        self.damaged.were_fine(&flows);
        announce(shared, operation, &done, shown).await;
        if stands.held() < operation.held() {
            return Ok(Next::Again);
        }
        // What is staged belongs to a batch that has to be staged again.
        stage_or_wait(shared, operation).await
    }

    /// Fewer items of the flow are forwarded together, until the one is found that cannot be read. It is ejected.
    async fn narrow(
        &mut self,
        shared: &Shared,
        operation: &Operation,
        (flow, most): (FlowId, u32),
        what: &str,
    ) -> Result<Next> {
        let id = operation.id;
        if most == 1 {
            tracing::warn!(operation = %id, error = what, "an item cannot be forwarded");
        }
        if self.damaged.note(flow, most) {
            let (node, now) = (shared.node.id(), shared.node.now());
            shared.store.skip_items(id, node, Rest::FirstOf(flow), now).await?;
            self.damaged.were_fine(&[flow]);
        }
        Ok(Next::Again)
    }
}

/// No flow has room: others may go on while these wait.
async fn others(shared: &Shared, operation: &Operation, is_shut: bool) -> Result<Next> {
    if let Some(next) = stage_next(shared, operation).await? {
        return Ok(next);
    }
    match (is_shut, operation.standing.waits_for_breaker) {
        (false, _) => Ok(Next::After(PACE)),
        (true, true) => Ok(Next::Wait),
        (true, false) => {
            let change = OperationChange::WaitForBreaker { node: shared.node.id() };
            changed(shared, operation, change).await
        }
    }
}

/// The runner makes a change.
async fn changed(shared: &Shared, operation: &Operation, change: OperationChange) -> Result<Next> {
    shared.store.change_operation(operation.id, change, None, shared.node.now()).await?;
    Ok(Next::Again)
}

/// What became due is announced, and what was done is told and counted.
async fn announce(shared: &Shared, operation: &Operation, done: &[Facts], shown: u32) {
    let act = |facts: &Facts| operation.action.act(facts.standing.state);
    for facts in done {
        after(shared, facts, &act(facts));
    }
    shared.counts.operation_items(done.len() + shown as usize);
    let cancelled = done.iter().filter(|facts| act(facts) == Act::Cancel);
    series::ended_waiting(shared, cancelled.map(|facts| (facts.id, Happened::Cancelled))).await;
    let actor = Actor::local(&operation.started_by, operation.tenant.clone());
    let named = shared.named(done.iter().map(|facts| (facts.id, &facts.tenant))).await;
    for facts in done {
        journal::acted(shared, &named, facts, &act(facts), &actor);
    }
}

async fn look_at_canary(shared: &Shared, operation: &Operation) -> Result<Next> {
    let Some(canary) = operation.canary else { return Ok(Next::Again) };
    let items = shared.store.canary_items(operation.id).await?;
    let facts = match shared.store.facts(items.iter().map(|(id, _)| *id).collect()).await {
        Ok(facts) => facts,
        // One that cannot be read tells nothing; the others do.
        Err(StoreError::Corrupt { .. }) => {
            let found = one_by_one(shared, items.iter().map(|(id, _)| *id)).await?;
            found.into_values().filter_map(|found| found.facts.ok()).collect()
        }
        Err(error) => return Err(error),
    };
    let facts: HashMap<NotificationId, Facts> = facts.into_iter().map(|facts| (facts.id, facts)).collect();
    let found = items.iter().filter_map(|(id, seen)| Some((facts.get(id)?, seen)));
    let attempts: Vec<_> = found
        .map(|(facts, seen)| {
            let attempt = first_attempt(operation.action, *seen, &facts.standing);
            (facts.bucket.flow, attempt)
        })
        .collect();
    let verdict = judge(canary, &attempts.iter().map(|(_, attempt)| *attempt).collect::<Vec<_>>(), true);
    let node = shared.node.id();
    if verdict != (Verdict::Wait { failed: operation.standing.canary_failed }) {
        let change = OperationChange::Canary { node, verdict };
        shared.store.change_operation(operation.id, change, None, shared.node.now()).await?;
    }
    if let Verdict::Passed { .. } | Verdict::Failed { .. } = verdict {
        return Ok(Next::Again);
    }
    let mut awaited = attempts.iter().filter(|(_, attempt)| *attempt == FirstAttempt::Awaited);
    match (awaited.all(|(flow, _)| shared.gate_of(*flow).is_shut()), operation.standing.waits_for_breaker) {
        (true, true) => Ok(Next::Wait),
        (false, false) => Ok(Next::After(CANARY)),
        (true, false) => changed(shared, operation, OperationChange::WaitForBreaker { node }).await,
        (false, true) => changed(shared, operation, OperationChange::GoOn { node }).await,
    }
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
