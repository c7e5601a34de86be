//! Retry operations in the simulation: who starts and stops them, and what has to be true of them.

use std::collections::BTreeMap;

use posthaste_core::id::NotificationId;
use posthaste_core::operation::{Action, Canary, Operation, OperationState, Selection, Skip};
use posthaste_engine::acts::Actor;
use posthaste_engine::engine::Engine;
use posthaste_engine::model_store::{ItemPlace, Tables};
use posthaste_engine::operations::NewOperation;
use posthaste_engine::store::{Change, Forwarded};

use super::world::World;

/// Starts an operation, or changes one that is not finished.
pub(super) async fn operate(world: &World, engine: &Engine) {
    let actor = Actor::local("simulation", None);
    let (what, place) = world.draw(|chance| (chance.usize(0..8), chance.usize(..)));
    let open: Vec<_> = world.model.inspect(|tables| {
        let open = tables.operations.operations.values().filter(|operation| !operation.is_finished());
        open.map(|operation| operation.id).collect()
    });
    let some = (!open.is_empty()).then(|| open[place % open.len()]);
    let _ = match (what, some) {
        (0, Some(id)) => engine.pause_operation(id, &actor).await,
        (1 | 2, Some(id)) => engine.resume_operation(id, &actor).await,
        (3, Some(id)) => engine.cancel_operation(id, &actor).await,
        _ => {
            let asked = ask(world);
            if let Ok(operation) = engine.new_operation(asked, &actor).await {
                let _ = engine.start_operation(operation, None, &actor).await;
            }
            return;
        }
    };
}

/// Lets every operation go on that somebody has paused. What waits for destinations has to go on by itself.
pub(super) async fn resume_all(world: &World, engine: &Engine) {
    let all: Vec<_> = world.model.inspect(|tables| {
        let all = tables.operations.operations.values();
        let paused = all.filter(|one| one.standing.state == OperationState::Paused);
        paused.filter(|one| !one.standing.waits_for_breaker).map(|one| one.id).collect()
    });
    for id in all {
        let _ = engine.resume_operation(id, &Actor::local("simulation", None)).await;
    }
}

fn ask(world: &World) -> NewOperation {
    let ids: Vec<NotificationId> =
        world.model.inspect(|tables| tables.notifications.keys().copied().collect());
    world.draw(|chance| {
        let action = match chance.u32(0..10) {
            0..6 => Action::Requeue,
            6 => Action::Discard,
            7 => Action::Restore,
            8 => Action::RetryNow,
            _ => Action::Cancel,
        };
        let some = ids.iter().filter(|_| chance.u32(0..3) == 0).map(ToString::to_string).take(40).collect();
        let selection = if action.is_about_dead_letters() && chance.bool() {
            Selection::All
        } else {
            Selection::Ids(some)
        };
        let rate = (chance.u32(0..4) == 0).then(|| chance.u32(1..20));
        let canary = (action.sends() && chance.u32(0..5) == 0)
            .then(|| Canary { size: chance.u32(1..5), max_failure_percent: chance.u32(0..100) });
        NewOperation { action, selection, rate, canary }
    })
}

/// The acts of a forwarding, as changes that were made.
pub(super) fn changes(forwarded: &Forwarded) -> Vec<Change> {
    let action = forwarded.operation.action;
    let change = |facts: &posthaste_engine::store::Facts| Change {
        id: facts.id,
        seen: facts.standing.seen(),
        act: action.act(facts.standing.state),
    };
    forwarded.done.iter().map(change).collect()
}

/// I12 and I13: what an operation says of itself is what its items say, and nothing is held twice.
pub(super) fn add_up(tables: &Tables) -> Result<(), String> {
    let mut holders = BTreeMap::new();
    for ((id, notification), item) in &tables.operations.items {
        if item.place.is_held()
            && let Some(other) = holders.insert(notification, id)
        {
            return Err(format!("I12: {notification} is held by {id} and {other}"));
        }
    }
    tables.operations.operations.values().try_for_each(|operation| one_adds_up(tables, operation))
}

fn one_adds_up(tables: &Tables, operation: &Operation) -> Result<(), String> {
    let (mut held, mut forwarded, mut skipped) = (0, 0, BTreeMap::<Skip, u64>::new());
    let (first, last) = (NotificationId::FIRST, NotificationId::LAST);
    for item in
        tables.operations.items.range((operation.id, first)..=(operation.id, last)).map(|(_, item)| item)
    {
        match item.place {
            ItemPlace::Marked | ItemPlace::Staged { .. } => held += 1,
            ItemPlace::Forwarded { .. } => forwarded += 1,
            ItemPlace::Skipped(why) => *skipped.entry(why).or_default() += 1,
        }
    }
    let standing = &operation.standing;
    let kept = held + forwarded + skipped.values().sum::<u64>();
    if operation.is_finished() && held == 0 && kept < standing.total {
        // Retention has begun to remove its items.
        let adds_up = standing.total == standing.forwarded + standing.all_skipped();
        return if adds_up { Ok(()) } else { Err(format!("I13: {} says {standing:?}", operation.id)) };
    }
    let said = (operation.held(), standing.forwarded, &standing.skipped);
    if said != (held, forwarded, &skipped)
        || standing.total != held + forwarded + skipped.values().sum::<u64>()
    {
        return Err(format!(
            "I13: {} says {standing:?}, holds {held}, {forwarded}, {skipped:?}",
            operation.id
        ));
    }
    if operation.is_finished() && held > 0 {
        return Err(format!("I13: {} is finished and holds {held}", operation.id));
    }
    Ok(())
}

/// I16: every operation has ended.
pub(super) fn all_ended(tables: &Tables) -> Result<(), String> {
    let open = tables.operations.operations.values().find(|operation| !operation.is_finished());
    open.map_or(Ok(()), |open| Err(format!("I16: {} is not finished: {:?}", open.id, open.standing)))
}
