//! Staging: every item of a batch is looked at and decided.

use std::collections::{HashMap, HashSet};

use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::operation::{
    Action, Batch, BatchItem, Decision, Looked, MOST_TRIES, Operation, Selected, Skip, Staging, decide,
};
use posthaste_core::time::Timestamp;

use super::work::{Next, PACE, TRY_AGAIN};
use crate::engine::Shared;
use crate::store::{Facts, LetterFacts, Result, StoreError};

/// A row that cannot be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unreadable;

/// An item as it was found.
pub(super) struct Found {
    pub(super) facts: std::result::Result<Facts, Unreadable>,
    /// Whether its dead letter is soft-deleted and resolved.
    hidden: bool,
}

impl Found {
    /// What is decided about it; to be tried again if it cannot be read.
    pub(super) fn decide(&self, action: Action, selected: Selected, now: Timestamp) -> Decision {
        let Ok(facts) = &self.facts else { return Decision::TryAgain };
        let looked = Looked { flow: facts.bucket.flow, standing: &facts.standing, hidden: self.hidden };
        decide(action, selected, Some(looked), now)
    }
}

/// Stages the next batch; if no batch waits, there is something to do later.
pub(super) async fn stage_or_wait(shared: &Shared, operation: &Operation) -> Result<Next> {
    Ok(stage_next(shared, operation).await?.unwrap_or(Next::After(PACE)))
}

/// Stages the next batch; none if no batch waits.
pub(super) async fn stage_next(shared: &Shared, operation: &Operation) -> Result<Option<Next>> {
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
    let selected: Vec<Selected> = items.iter().map(|item| item.selected).collect();
    let found = look(shared, action, &selected).await?;
    let now = shared.node.now();
    let decide = |item: &BatchItem| {
        let id = item.selected.notification;
        let decision = match found.get(&id) {
            Some(found) => found.decide(action, item.selected, now),
            None => decide(action, item.selected, None, now),
        };
        let last = decision == Decision::TryAgain && item.tries + 1 >= MOST_TRIES;
        (id, if last { Decision::Skip(Skip::Ejected) } else { decision })
    };
    Ok(items.iter().map(decide).collect())
}

/// Looks at items, each of another notification. One that does not exist is left out.
pub(super) async fn look(
    shared: &Shared,
    action: Action,
    items: &[Selected],
) -> Result<HashMap<NotificationId, Found>> {
    let ids: Vec<NotificationId> = items.iter().map(|item| item.notification).collect();
    let mut found = match shared.store.facts(ids.clone()).await {
        Ok(facts) => {
            facts.into_iter().map(|facts| (facts.id, Found { facts: Ok(facts), hidden: false })).collect()
        }
        // One of them cannot be read: the others can.
        Err(StoreError::Corrupt { .. }) => one_by_one(shared, ids.into_iter()).await?,
        Err(error) => return Err(error),
    };
    if action == Action::Restore {
        for notification in hidden(shared, items, &found).await? {
            found.entry(notification).and_modify(|found| found.hidden = true);
        }
    }
    Ok(found)
}

/// The notifications whose selected dead letter is soft-deleted and resolved. Of one that stands for its notification the
/// facts say it.
async fn hidden(
    shared: &Shared,
    items: &[Selected],
    found: &HashMap<NotificationId, Found>,
) -> Result<HashSet<NotificationId>> {
    let stands = |notification: &NotificationId| -> Option<DeadLetterId> {
        let facts = found.get(notification)?.facts.as_ref().ok()?;
        facts.standing.letter().map(|(letter, _)| letter)
    };
    let others = items.iter().filter_map(|item| Some((item.notification, item.dead_letter?)));
    let others: Vec<_> = others.filter(|(id, letter)| stands(id) != Some(*letter)).collect();
    if others.is_empty() {
        return Ok(HashSet::new());
    }
    let facts = shared.store.letter_facts(others.iter().map(|(_, letter)| *letter).collect()).await?;
    let hidden = others.into_iter().zip(facts).filter(|(_, facts)| facts.is_some_and(LetterFacts::is_hidden));
    Ok(hidden.map(|((notification, _), _)| notification).collect())
}

pub(super) async fn one_by_one(
    shared: &Shared,
    ids: impl Iterator<Item = NotificationId>,
) -> Result<HashMap<NotificationId, Found>> {
    let mut found = HashMap::new();
    for id in ids {
        match shared.store.facts(vec![id]).await {
            Ok(facts) => {
                let read = |facts: Facts| (facts.id, Found { facts: Ok(facts), hidden: false });
                found.extend(facts.into_iter().map(read));
            }
            Err(StoreError::Corrupt { what }) => {
                tracing::warn!(%id, error = what, "an item of an operation cannot be read");
                found.insert(id, Found { facts: Err(Unreadable), hidden: false });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
