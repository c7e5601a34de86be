//! Lists of operations, the time of their last step, how long they are kept, and restorations of soft-deleted dead letters.

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::NodeId;
use posthaste_core::operation::{
    Action, Looked, Operation, OperationChange, OperationState, Refused, Selected, Skip, decide,
};
use posthaste_core::reason::Reason;
use posthaste_core::retention::{Kind, LOOKED_AT};
use posthaste_core::state::{Lane, State};

use super::{
    adopt, dead, finish, first_staging, ids, join, marked, need, new_operation, quotas, stage, staged, start,
};
use crate::conformance::scene::{Scene, at, audit, good_attempt, tenant};
use crate::conformance::{Broken, Kept, Promise, list, same};
use crate::store::{Act, Ending, Next, Prune, Pruned, Rest, Settled, Walk};

pub(super) const PROMISES: &[Promise] = list![
    operations_are_listed_newest_first_for_their_tenant,
    a_restoration_brings_each_dead_letter_back_as_a_single_act_does,
    what_was_restored_meanwhile_is_left_out,
    an_operation_says_when_it_last_changed,
    an_operation_that_waits_for_destinations_forwards_what_is_to_be_their_probe,
    items_go_before_their_operation_and_only_once_it_has_ended,
    a_pass_over_items_goes_on_inside_an_operation,
];

/// Later than everything that these promises make.
const LATER: i64 = 86_400_000;

async fn letter_of(scene: &Scene, id: NotificationId) -> Result<DeadLetterId, Broken> {
    let letter = scene.facts(id).await?.standing.letter();
    letter.map(|(letter, _)| letter).ok_or_else(|| Broken::at_caller("it has no dead letter"))
}

async fn prune(scene: &Scene, kind: Kind, cut_off: i64, limit: usize) -> Result<Pruned, Broken> {
    let prune = Prune { kind, cut_off: at(cut_off), limit, now: at(LATER) };
    Ok(scene.store.prune(prune, audit("prune")).await?)
}

/// An operation that restores these, with all of them staged as the engine does it.
async fn restoring(scene: &Scene, selected: &[Selected]) -> Result<(Operation, NodeId), Broken> {
    let operation = new_operation(1, Action::Restore);
    let (id, node) = (operation.id, join(scene).await?);
    start(scene, &operation).await?;
    adopt(scene, id, node).await?;
    let walk = Walk { from: None, found: selected.to_vec(), next: None };
    need("mark", scene.store.mark(id, node, walk, at(31)).await?)?;
    let letters = selected.iter().filter_map(|one| one.dead_letter).collect();
    let letters = scene.store.letter_facts(letters).await?;
    let mut decisions = vec![];
    for one in selected {
        let facts = scene.facts(one.notification).await?;
        let own = |of: &&crate::store::LetterFacts| of.notification == one.notification;
        let hidden = letters.iter().flatten().find(own).is_some_and(|facts| facts.is_hidden());
        let found = Looked { flow: facts.bucket.flow, standing: &facts.standing, hidden };
        decisions.push((one.notification, decide(Action::Restore, *one, Some(found), at(32))));
    }
    need("stage", scene.store.stage(id, node, first_staging(1), decisions, at(32)).await?)?;
    Ok((operation, node))
}

/// A notification that died, was requeued and delivered, and its dead letter, which is soft-deleted.
async fn delivered_in_the_end(scene: &mut Scene) -> Result<Selected, Broken> {
    let notification = scene.in_state(State::DeadLetter).await?;
    let letter = letter_of(scene, notification.id).await?;
    scene.does(&notification, Act::Requeue, None, at(20)).await?;
    let lease = scene.lease().await?;
    scene.claim(&notification, Lane::Main, lease, at(21)).await?;
    let delivered = Next::End(Ending::Delivered);
    let settled = scene.settle(notification.id, lease, Some(good_attempt(2, 1)), delivered).await?;
    same("delivered", settled, Settled::Applied)?;
    same("soft-deleted", prune(scene, Kind::RequeuedLetters, LATER, 9).await?.removed, 1)?;
    Ok(Selected { notification: notification.id, dead_letter: Some(letter) })
}

async fn a_restoration_brings_each_dead_letter_back_as_a_single_act_does(mut scene: Scene) -> Kept {
    let requeued = delivered_in_the_end(&mut scene).await?;
    let hidden = scene.discarded().await?;
    same("soft-deleted", prune(&scene, Kind::DiscardedLetters, LATER, 9).await?.removed, 1)?;
    let discarded = scene.discarded().await?;
    let pending = scene.in_state(State::DeadLetter).await?;
    scene.does(&pending, Act::Delete, None, at(25)).await?;
    let mut selected = vec![requeued];
    for one in [&hidden, &discarded, &pending] {
        let dead_letter = Some(letter_of(&scene, one.id).await?);
        selected.push(Selected { notification: one.id, dead_letter });
    }
    let (operation, node) = restoring(&scene, &selected).await?;
    let quotas = quotas(&scene, operation.id, 9).await?;
    let done = need("forward", scene.store.forward(operation.id, node, quotas, at(40)).await?)?;
    let mut acted: Vec<NotificationId> = done.done.iter().map(|facts| facts.id).collect();
    acted.sort_unstable();
    let mut wanted = vec![discarded.id, pending.id];
    wanted.sort_unstable();
    same("revived", acted, wanted)?;
    same("shown and counted", (done.shown, done.operation.standing.forwarded), (2, 4))?;
    use DeadLetterStatus::{Cancelled, Pending, Requeued};
    let statuses = [Requeued, Cancelled, Pending, Pending];
    for (one, status) in selected.iter().zip(statuses) {
        let Some(letter) = one.dead_letter else { continue };
        let Some(found) = scene.store.dead_letter(letter).await? else {
            return Err(Broken::at_caller(format!("{letter} is not there")));
        };
        let stands = (found.status, found.deleted_at, found.restored_at);
        same("as it was", stands, (status, None, Some(at(40))))?;
    }
    same("delivered stays", scene.view(requeued.notification).await?.state, State::Succeeded)?;
    let failed = scene.view(hidden.id).await?;
    let reason = failed.end.and_then(|end| end.reason);
    same("discarded stays", (failed.state, reason), (State::Failed, Some(Reason::Discarded)))?;
    same("finished", finish(&scene, operation.id, node).await?.is_ok(), true)
}

async fn what_was_restored_meanwhile_is_left_out(mut scene: Scene) -> Kept {
    let selected = delivered_in_the_end(&mut scene).await?;
    let (operation, node) = restoring(&scene, &[selected]).await?;
    let Some(letter) = selected.dead_letter else { return Err(Broken::at_caller("no dead letter")) };
    same("by somebody", scene.store.show_deleted(letter, audit("restore")).await?, true)?;
    let quotas = quotas(&scene, operation.id, 9).await?;
    let done = need("forward", scene.store.forward(operation.id, node, quotas, at(40)).await?)?;
    same("nothing is done", (done.done.len(), done.shown), (0, 0))?;
    same("why", done.operation.standing.skipped.get(&Skip::ChangedMeanwhile), Some(&1))
}

async fn an_operation_says_when_it_last_changed(mut scene: Scene) -> Kept {
    let all = dead(&mut scene, 2).await?;
    let operation = new_operation(1, Action::Requeue);
    let id = operation.id;
    let node = staged(&scene, &operation, &ids(&all)).await?;
    let changed = async |scene: &Scene| {
        let found = need("the operation", scene.store.operation(id).await?)?;
        Ok::<_, Broken>(found.standing.changed_at)
    };
    same("staged", changed(&scene).await?, Some(at(32)))?;
    let all_flows = quotas(&scene, id, 1).await?;
    let first = *need("a flow", all_flows.first())?;
    need("forward", scene.store.forward(id, node, vec![first], at(33)).await?)?;
    same("forwarded", changed(&scene).await?, Some(at(33)))?;
    let none = vec![(first.0, 0)];
    need("forward", scene.store.forward(id, node, none, at(34)).await?)?;
    same("nothing was forwarded", changed(&scene).await?, Some(at(33)))?;
    let pause = |second| {
        let change = OperationChange::Pause { by: "bo".to_owned() };
        scene.store.change_operation(id, change, None, at(second))
    };
    same("paused", pause(35).await?.map(|made| made.is_ok()), Some(true))?;
    same("paused again", pause(36).await?.map(|made| made.is_ok()), Some(true))?;
    same("since the first pause", changed(&scene).await?, Some(at(35)))
}

async fn an_operation_that_waits_for_destinations_forwards_what_is_to_be_their_probe(
    mut scene: Scene,
) -> Kept {
    let all = dead(&mut scene, 2).await?;
    let operation = new_operation(1, Action::Requeue);
    let id = operation.id;
    let node = staged(&scene, &operation, &ids(&all)).await?;
    let change = async |change| {
        let made = scene.store.change_operation(id, change, None, at(33)).await?;
        need("an operation", made)
    };
    let other = OperationChange::WaitForBreaker { node: NodeId(node.0 + 1) };
    same("not its runner", change(other).await?.err(), Some(Refused::NotNow))?;
    let waits = change(OperationChange::WaitForBreaker { node }).await?.map(|operation| operation.standing);
    let said = waits.map(|standing| (standing.state, standing.paused_by, standing.waits_for_breaker));
    same("it waits", said, Ok((OperationState::Paused, Some("breaker".to_owned()), true)))?;
    let kept = need("the operation", scene.store.operation(id).await?)?.standing;
    same("it is kept", (kept.state, kept.waits_for_breaker), (OperationState::Paused, true))?;
    let unfinished = scene.store.unfinished_operations(9, at(33)).await?;
    same("it is not over", unfinished.len(), 1)?;
    let flows = quotas(&scene, id, 1).await?;
    let probe = *need("a flow", flows.first())?;
    let first = need("the probe", scene.store.forward(id, node, vec![probe], at(34)).await?)?;
    same(
        "one is forwarded",
        (first.done.len(), first.operation.standing.state),
        (1, OperationState::Paused),
    )?;
    same("by ada", change(OperationChange::Pause { by: "ada".to_owned() }).await?.is_ok(), true)?;
    same("nothing is forwarded", scene.store.forward(id, node, flows.clone(), at(35)).await?, None)?;
    let not_by_itself = change(OperationChange::GoOn { node }).await?.err();
    same("hers is not lifted", not_by_itself, Some(Refused::NotNow))?;
    let kept = need("the operation", scene.store.operation(id).await?)?.standing;
    same("hers", (kept.paused_by.as_deref(), kept.waits_for_breaker), (Some("ada"), false))
}

/// An operation over so many dead letters that is finished at second 40.
async fn ended(scene: &mut Scene, number: u128, count: usize) -> Result<Operation, Broken> {
    let all = ids(&dead(scene, count).await?);
    let operation = new_operation(number, Action::Discard);
    let node = marked(scene, &operation, &all).await?;
    if count > 0 {
        stage(scene, operation.id, node, 1).await?;
    }
    let quotas = quotas(scene, operation.id, 99).await?;
    let done = need("forward", scene.store.forward(operation.id, node, quotas, at(39)).await?)?;
    same("forwarded", done.done.len(), count)?;
    same("finished", finish(scene, operation.id, node).await?.is_ok(), true)?;
    need("the operation", scene.store.operation(operation.id).await?)
}

async fn items_go_before_their_operation_and_only_once_it_has_ended(mut scene: Scene) -> Kept {
    let (one, empty) = (ended(&mut scene, 1, 3).await?, ended(&mut scene, 2, 0).await?);
    let open = new_operation(3, Action::Discard);
    let waiting = ids(&dead(&mut scene, 2).await?);
    let node = staged(&scene, &open, &waiting).await?;
    let none = Pruned { removed: 0, done: true };
    for kind in [Kind::OperationItems, Kind::Operations] {
        same("too young", prune(&scene, kind, 40, 9).await?, none)?;
    }
    let gone = Pruned { removed: 1, done: true };
    same("one without items", prune(&scene, Kind::Operations, LATER, 9).await?, gone)?;
    same("gone", scene.store.operation(empty.id).await?, None)?;
    same("it has items", scene.store.operation(one.id).await?, Some(one.clone()))?;
    let items = Pruned { removed: 3, done: true };
    same("its items", prune(&scene, Kind::OperationItems, LATER, 9).await?, items)?;
    same("what it says stays", scene.store.operation(one.id).await?, Some(one.clone()))?;
    same("again", prune(&scene, Kind::OperationItems, LATER, 9).await?, none)?;
    same("then itself", prune(&scene, Kind::Operations, LATER, 9).await?, gone)?;
    same("gone", scene.store.operation(one.id).await?, None)?;
    same("not in lists", scene.store.operations(None, None, 9).await?.rows.len(), 1)?;
    same("not what is under way", scene.store.held_by(waiting).await?.len(), 2)?;
    let cancel = OperationChange::Cancel { by: "bo".to_owned() };
    same("stopped", scene.store.change_operation(open.id, cancel, None, at(35)).await?.is_some(), true)?;
    need("let go", scene.store.skip_items(open.id, node, Rest::Stopped(9), at(36)).await?)?;
    same("it has not ended", prune(&scene, Kind::OperationItems, LATER, 9).await?, none)?;
    same("finished", finish(&scene, open.id, node).await?.is_ok(), true)?;
    let items = Pruned { removed: 2, done: true };
    same("what was left out goes too", prune(&scene, Kind::OperationItems, LATER, 9).await?, items)
}

async fn a_pass_over_items_goes_on_inside_an_operation(mut scene: Scene) -> Kept {
    for number in 1..=2 {
        ended(&mut scene, number, 3).await?;
    }
    let step = async |scene: &Scene, limit| prune(scene, Kind::OperationItems, LATER, limit).await;
    same("of the first", step(&scene, 2).await?, Pruned { removed: 2, done: false })?;
    same("of both", step(&scene, 2).await?, Pruned { removed: 2, done: false })?;
    same("of the second", step(&scene, 2).await?, Pruned { removed: 2, done: false })?;
    same("the end", step(&scene, 2).await?, Pruned { removed: 0, done: true })?;
    // Operations without items are passed over, a bounded number at once.
    let many = u128::try_from(LOOKED_AT).unwrap_or(u128::MAX);
    for number in 3..=many {
        ended(&mut scene, number, 0).await?;
    }
    ended(&mut scene, many + 1, 1).await?;
    same("looked at", step(&scene, 1).await?, Pruned { removed: 0, done: false })?;
    same("found", step(&scene, 1).await?, Pruned { removed: 1, done: false })?;
    same("the end", step(&scene, 1).await?, Pruned { removed: 0, done: true })
}

async fn operations_are_listed_newest_first_for_their_tenant(scene: Scene) -> Kept {
    let mut made = vec![];
    for number in 1..=3 {
        let whose = (number != 2).then(|| tenant("acme"));
        let operation = Operation { tenant: whose, ..new_operation(number, Action::Requeue) };
        start(&scene, &operation).await?;
        made.insert(0, operation);
    }
    let all = scene.store.operations(None, None, 2).await?;
    same("a page", (all.rows, all.next), (made[..2].to_vec(), Some(made[1].id)))?;
    let rest = scene.store.operations(None, Some(made[1].id), 2).await?;
    same("the rest", (rest.rows, rest.next), (made[2..].to_vec(), None))?;
    let own = scene.store.operations(Some(tenant("acme")), None, 10).await?;
    same("of a tenant", own.rows, vec![made[0].clone(), made[2].clone()])?;
    let none = scene.store.operations(Some(tenant("other")), None, 10).await?;
    same("of another", none.rows, vec![])
}
