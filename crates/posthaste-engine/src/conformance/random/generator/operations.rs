//! Calls of retry operations: mostly the next step that makes sense, now and then any.

use posthaste_core::id::{DeadLetterId, NotificationId, OperationId};
use posthaste_core::operation::{
    Action, Canary, Decision, Looked, Operation, OperationChange, Selected, Selection, Skip, Staging,
    Standing, Verdict, decide,
};

use super::{Generator, TENANTS, tenant};
use crate::store::{LetterFacts, Rest, Store, Walk, operations};

impl Generator {
    pub(super) async fn operation_call(&mut self, store: &dyn Store) -> operations::Call {
        let open = store.unfinished_operations(9, self.now).await.unwrap_or_default();
        if open.is_empty() || (open.len() < 4 && self.rng.u32(0..12) == 0) {
            return self.start_operation();
        }
        let operation = open[self.rng.usize(..open.len())].operation.clone();
        let (id, now) = (operation.id, self.now);
        let Some(runner) = operation.runner.filter(|node| self.nodes.contains(node)) else {
            return operations::Call::Adopt { id, node: self.some_node(), now };
        };
        let node = if self.rng.u32(0..15) == 0 { self.some_node() } else { runner };
        match self.rng.u32(0..20) {
            0 => operations::Call::Adopt { id, node, now },
            1 => self.change_operation(id, node),
            2 => operations::Call::HeldBy { ids: self.some_ids(5) },
            3 => operations::Call::SkipItems { id, node, which: Rest::Stopped(self.rng.usize(1..4)), now },
            4 => {
                let flow = self.flows[self.rng.usize(..self.flows.len())].1;
                operations::Call::SkipItems { id, node, which: Rest::FirstOf(flow), now }
            }
            5 => {
                let flows = self.flows.iter().map(|(_, flow)| *flow).collect();
                operations::Call::DueRows { flows, limit: self.rng.u32(1..6), now }
            }
            6 => operations::Call::CanaryItems { id },
            7..10 => self.forward(id, node),
            10..13 => {
                // Mostly a batch that was staged before.
                let decisions = vec![(self.some_ids(1).pop(), Decision::Skip(Skip::Ejected))];
                let decisions = decisions.into_iter().filter_map(|(id, what)| Some((id?, what))).collect();
                let staging = Staging { batch: 1, after: None, id: self.rng.u64(..) };
                operations::Call::Stage { id, node, staging, decisions, now }
            }
            _ => self.next_step(store, &operation, node).await,
        }
    }

    fn start_operation(&mut self) -> operations::Call {
        let whose = self.rng.bool().then(|| tenant(TENANTS[self.rng.usize(..TENANTS.len())]));
        let canary =
            (self.rng.u32(0..3) == 0).then(|| Canary { size: self.rng.u32(1..3), max_failure_percent: 10 });
        let operation = Operation {
            id: OperationId::new(self.now, self.rng.u128(..)),
            tenant: whose,
            action: Action::ALL[self.rng.usize(..Action::ALL.len())],
            selection: Selection::All,
            cut_off: self.now,
            rate: None,
            canary,
            started_by: "random".to_owned(),
            key_id: None,
            address: None,
            started_at: self.now,
            standing: Standing::default(),
            runner: None,
        };
        let audit = self.audit("act");
        operations::Call::Start { operation, idempotency: None, audit, now: self.now }
    }

    async fn next_step(
        &mut self,
        store: &dyn Store,
        operation: &Operation,
        node: posthaste_core::lease::NodeId,
    ) -> operations::Call {
        let id = operation.id;
        let standing = &operation.standing;
        if operation.skips_rest().is_some() && operation.held() > 0 {
            return operations::Call::SkipItems { id, node, which: Rest::Stopped(3), now: self.now };
        }
        if operation.may_finish() {
            let (change, audit) = (OperationChange::Finish { node }, Some(self.audit("act")));
            return operations::Call::Change { id, change, audit, now: self.now };
        }
        if !standing.walked {
            let found = self.some_selected(store, operation.action).await;
            let next = (self.rng.u32(0..3) > 0).then(|| self.rng.u32(0..9).to_string());
            return operations::Call::Mark {
                id,
                node,
                walk: Walk { from: standing.cursor.clone(), found, next },
                now: self.now,
            };
        }
        match store.batch_to_stage(id).await.ok().flatten() {
            Some(batch) => {
                let items: Vec<Selected> = batch.items.iter().map(|item| item.selected).collect();
                let decisions = self.decisions(store, operation.action, &items).await;
                // Now and then the batch was staged since it was read.
                let after = if self.rng.u32(0..10) == 0 { Some(self.rng.u64(..)) } else { batch.staging };
                let staging = Staging { batch: batch.number, after, id: self.rng.u64(..) };
                operations::Call::Stage { id, node, staging, decisions, now: self.now }
            }
            None => self.forward(id, node),
        }
    }

    /// Notifications, and for a restoration mostly a dead letter of one of them.
    async fn some_selected(&mut self, store: &dyn Store, action: Action) -> Vec<Selected> {
        let found = self.some_ids(6).into_iter();
        let mut found: Vec<Selected> =
            found.map(|notification| Selected { notification, dead_letter: None }).collect();
        let letter = self.some_grave().filter(|_| action == Action::Restore && self.rng.u32(0..4) > 0);
        if let Some(letter) = letter
            && let Some(Some(facts)) = store.letter_facts(vec![letter]).await.unwrap_or_default().pop()
        {
            found.retain(|one| one.notification != facts.notification);
            found.push(Selected { notification: facts.notification, dead_letter: Some(letter) });
        }
        found
    }

    async fn decisions(
        &mut self,
        store: &dyn Store,
        action: Action,
        items: &[Selected],
    ) -> Vec<(NotificationId, Decision)> {
        let ids = items.iter().map(|item| item.notification).collect();
        let facts = store.facts(ids).await.unwrap_or_default();
        let named: Vec<DeadLetterId> = items.iter().filter_map(|item| item.dead_letter).collect();
        let of = store.letter_facts(named.clone()).await.unwrap_or_default();
        let letters = named.into_iter().zip(of);
        let letters: Vec<DeadLetterId> = letters
            .filter(|(_, facts)| facts.is_some_and(LetterFacts::is_hidden))
            .map(|(letter, _)| letter)
            .collect();
        let mut all = vec![];
        for item in items {
            let found = facts.iter().find(|facts| facts.id == item.notification);
            let hidden = |letter| letters.contains(&letter);
            let hidden = item.dead_letter.is_some_and(hidden);
            let found =
                found.map(|facts| Looked { flow: facts.bucket.flow, standing: &facts.standing, hidden });
            let decision = match self.rng.u32(0..12) {
                0 => Decision::TryAgain,
                1 => Decision::Skip(Skip::Ejected),
                _ => decide(action, *item, found, self.now),
            };
            all.push((item.notification, decision));
        }
        all
    }

    fn forward(&mut self, id: OperationId, node: posthaste_core::lease::NodeId) -> operations::Call {
        let flows: Vec<_> = self.flows.iter().map(|(_, flow)| *flow).collect();
        let quotas = flows.into_iter().map(|flow| (flow, self.rng.u32(0..4))).collect();
        operations::Call::Forward { id, node, quotas, now: self.now }
    }

    fn change_operation(&mut self, id: OperationId, node: posthaste_core::lease::NodeId) -> operations::Call {
        let by = "random".to_owned();
        let failed = self.rng.u32(0..3);
        let change = match self.rng.u32(0..16) {
            0..3 => OperationChange::Pause { by },
            3..8 => OperationChange::Resume { by },
            8 => OperationChange::Cancel { by },
            9 => OperationChange::Fail { node, why: "it broke".to_owned() },
            10..12 => OperationChange::WaitForBreaker { node },
            12..14 => OperationChange::GoOn { node },
            _ => {
                let all = [Verdict::Wait { failed }, Verdict::Passed { failed }, Verdict::Failed { failed }];
                OperationChange::Canary { node, verdict: all[self.rng.usize(0..3)] }
            }
        };
        let audit = self.rng.bool().then(|| self.audit("act"));
        operations::Call::Change { id, change, audit, now: self.now }
    }
}
