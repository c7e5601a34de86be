//! Retry operations: marking, staging, forwarding, and who may do each step.

use std::time::Duration;

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::filter::AuditFilter;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{NotificationId, OperationId};
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Notification;
use posthaste_core::operation::{
    Action, Canary, Decision, Looked, Operation, OperationChange, OperationState, Refused, Selected,
    Selection, Skip, Staging, Standing, Verdict, decide,
};
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use super::scene::{Scene, at, audit, tenant};
use super::{Broken, Kept, Promise, list, same};
use crate::store::{Accepted, Act, Idempotency, Rest, Walk};

mod keeping;

pub(super) const SUBJECTS: &[&[Promise]] = &[PROMISES, keeping::PROMISES];

const PROMISES: &[Promise] = list![
    an_operation_is_kept_once_for_its_key,
    only_the_runner_does_the_steps_of_an_operation,
    marking_keeps_its_cursor_with_its_items,
    a_notification_is_held_by_one_operation,
    only_items_of_the_last_staging_are_forwarded,
    a_batch_that_was_staged_since_it_was_read_is_not_staged,
    forwarding_does_the_act_once,
    what_changed_meanwhile_or_expired_is_left_out,
    a_stopped_operation_lets_go_of_everything,
    a_canary_bounds_what_is_forwarded,
    an_item_that_cannot_be_read_is_ejected_alone,
    due_rows_are_counted_by_flow,
];

/// How long a node of these tests lives without a heartbeat.
const HOLD: Duration = Duration::from_secs(60);

pub(super) fn new_operation(number: u128, action: Action) -> Operation {
    Operation {
        id: OperationId::new(Timestamp::from_millis(at(30).as_millis()), number),
        tenant: None,
        action,
        selection: Selection::All,
        cut_off: at(30),
        rate: None,
        canary: None,
        started_by: "ada (key_1)".to_owned(),
        key_id: Some("key_1".to_owned()),
        address: None,
        started_at: at(30),
        standing: Standing::default(),
        runner: None,
    }
}

async fn join(scene: &Scene) -> Result<NodeId, Broken> {
    Ok(scene.store.join("n".to_owned(), HOLD, at(0)).await?.node)
}

async fn start(scene: &Scene, operation: &Operation) -> Kept {
    let answer = scene.store.start_operation(operation.clone(), None, audit("start"), at(30)).await?;
    same("start", answer, Accepted::New)
}

fn need<T>(what: &str, found: Option<T>) -> Result<T, Broken> {
    found.ok_or_else(|| Broken::at_caller(format!("{what}: expected a step, found none")))
}

async fn adopt(scene: &Scene, id: OperationId, node: NodeId) -> Result<Operation, Broken> {
    need("adopt", scene.store.adopt_operation(id, node, at(31)).await?)
}

fn walk(from: Option<&str>, found: &[NotificationId], next: Option<&str>) -> Walk {
    let select = |id: &NotificationId| Selected { notification: *id, dead_letter: None };
    Walk {
        from: from.map(str::to_owned),
        found: found.iter().map(select).collect(),
        next: next.map(str::to_owned),
    }
}

/// Decides about every item of the next batch as the engine does, and stages it.
async fn stage(scene: &Scene, id: OperationId, node: NodeId, staging: u64) -> Result<Operation, Broken> {
    let operation = need("the operation", scene.store.operation(id).await?)?;
    let batch = need("a batch", scene.store.batch_to_stage(id).await?)?;
    let mut decisions = vec![];
    for item in &batch.items {
        let facts = scene.facts(item.selected.notification).await?;
        let found = Some(Looked { flow: facts.bucket.flow, standing: &facts.standing, hidden: false });
        decisions.push((item.selected.notification, decide(operation.action, item.selected, found, at(32))));
    }
    need(
        "stage",
        scene
            .store
            .stage(
                id,
                node,
                Staging { batch: batch.number, after: batch.staging, id: staging },
                decisions,
                at(32),
            )
            .await?,
    )
}

/// An operation over these, with all of them staged.
pub(super) async fn staged(
    scene: &Scene,
    operation: &Operation,
    found: &[NotificationId],
) -> Result<NodeId, Broken> {
    let node = marked(scene, operation, found).await?;
    stage(scene, operation.id, node, 1).await?;
    Ok(node)
}

/// An operation over these, with all of them marked.
async fn marked(scene: &Scene, operation: &Operation, found: &[NotificationId]) -> Result<NodeId, Broken> {
    let node = join(scene).await?;
    start(scene, operation).await?;
    adopt(scene, operation.id, node).await?;
    need("mark", scene.store.mark(operation.id, node, walk(None, found, None), at(31)).await?)?;
    Ok(node)
}

/// A staging of a first batch that was not staged before.
const fn first_staging(id: u64) -> Staging {
    Staging { batch: 1, after: None, id }
}

async fn quotas(scene: &Scene, id: OperationId, limit: u32) -> Result<Vec<(FlowId, u32)>, Broken> {
    let flows = scene.store.staged_flows(id, None, 100).await?;
    Ok(flows.into_iter().map(|flow| (flow, limit)).collect())
}

async fn dead(scene: &mut Scene, count: usize) -> Result<Vec<Notification>, Broken> {
    let mut all = vec![];
    for _ in 0..count {
        all.push(scene.in_state(State::DeadLetter).await?);
    }
    Ok(all)
}

fn ids(all: &[Notification]) -> Vec<NotificationId> {
    all.iter().map(|notification| notification.id).collect()
}

async fn an_operation_is_kept_once_for_its_key(scene: Scene) -> Kept {
    let key = |hash, answer| Idempotency {
        tenant: tenant("acme"),
        key: "k".to_owned(),
        hash: [hash; 32],
        answer: vec![answer],
    };
    let (first, second) = (new_operation(1, Action::Requeue), new_operation(2, Action::Requeue));
    let store = &scene.store;
    let new = store.start_operation(first.clone(), Some(key(1, 7)), audit("start"), at(30)).await?;
    same("new", new, Accepted::New)?;
    let twin = store.start_operation(second.clone(), Some(key(1, 8)), audit("start"), at(31)).await?;
    same("a twin", twin, Accepted::Twin(vec![7]))?;
    let other = store.start_operation(second.clone(), Some(key(2, 8)), audit("start"), at(31)).await?;
    same("another body", other, Accepted::Conflict)?;
    same("the first", store.operation(first.id).await?, Some(first.clone()))?;
    same("the second", store.operation(second.id).await?, None)?;
    let rows = store.audit(AuditFilter::default(), None, 10).await?.rows;
    same("audit rows", rows.len(), 1)
}

async fn only_the_runner_does_the_steps_of_an_operation(mut scene: Scene) -> Kept {
    let all = dead(&mut scene, 1).await?;
    let (runner, other) = (join(&scene).await?, join(&scene).await?);
    let operation = new_operation(1, Action::Requeue);
    let id = operation.id;
    same("unknown", scene.store.adopt_operation(id, runner, at(31)).await?, None)?;
    start(&scene, &operation).await?;
    let adopted = adopt(&scene, id, runner).await?;
    same("adopted", (adopted.standing.state, adopted.runner), (OperationState::Preparing, Some(runner)))?;
    same("taken", scene.store.adopt_operation(id, other, at(32)).await?, None)?;
    let alive =
        |all: Vec<crate::store::UnfinishedOperation>| all.iter().map(|one| one.alive).collect::<Vec<_>>();
    same("its runner lives", alive(scene.store.unfinished_operations(10, at(32)).await?), [true])?;
    let whole = || walk(None, &ids(&all), None);
    same("marked by another", scene.store.mark(id, other, whole(), at(31)).await?, None)?;
    need("marked", scene.store.mark(id, runner, whole(), at(31)).await?)?;
    same("staged by another", scene.store.stage(id, other, first_staging(1), vec![], at(33)).await?, None)?;
    stage(&scene, id, runner, 1).await?;
    let quotas = quotas(&scene, id, 10).await?;
    same("forwarded by another", scene.store.forward(id, other, quotas.clone(), at(34)).await?, None)?;
    same("ended by another", finish(&scene, id, other).await?, Err(Refused::NotNow))?;
    // Its time is up, and the other one's is not.
    scene.store.heartbeat(other, HOLD, at(1_000)).await?;
    same("its runner is dead", alive(scene.store.unfinished_operations(10, at(1_000)).await?), [false])?;
    need("adopted by another", scene.store.adopt_operation(id, other, at(1_000)).await?)?;
    same("too late", scene.store.forward(id, runner, quotas.clone(), at(1_001)).await?, None)?;
    let done = need("forward", scene.store.forward(id, other, quotas, at(1_001)).await?)?;
    same("forwarded", done.done.len(), 1)?;
    let finished = finish(&scene, id, other).await?;
    same("finished", finished.map(|operation| operation.standing.state), Ok(OperationState::Completed))?;
    same("nothing is left", scene.store.unfinished_operations(10, at(1_002)).await?, vec![])?;
    same("adopt a finished one", scene.store.adopt_operation(id, other, at(1_002)).await?, None)
}

pub(super) async fn finish(
    scene: &Scene,
    id: OperationId,
    node: NodeId,
) -> Result<std::result::Result<Operation, Refused>, Broken> {
    let change = OperationChange::Finish { node };
    need("an operation", scene.store.change_operation(id, change, Some(audit("end")), at(40)).await?)
}

async fn marking_keeps_its_cursor_with_its_items(mut scene: Scene) -> Kept {
    let all = ids(&dead(&mut scene, 3).await?);
    let node = join(&scene).await?;
    let operation = new_operation(1, Action::Requeue);
    let id = operation.id;
    start(&scene, &operation).await?;
    adopt(&scene, id, node).await?;
    let store = &scene.store;
    same("before the start", store.mark(id, node, walk(Some("a"), &all, None), at(31)).await?, None)?;
    let first = need("first", store.mark(id, node, walk(None, &all[..2], Some("a")), at(31)).await?)?;
    same("its cursor", first.standing.cursor.as_deref(), Some("a"))?;
    same("the same again", store.mark(id, node, walk(None, &all[..2], Some("a")), at(31)).await?, None)?;
    same("nothing to stage yet", store.batch_to_stage(id).await?, None)?;
    let second = need("second", store.mark(id, node, walk(Some("a"), &all[1..], None), at(31)).await?)?;
    same("each once", (second.standing.total, second.standing.batches), (3, 1))?;
    same("its state", (second.standing.walked, second.standing.state), (true, OperationState::Forwarding))?;
    same("after the end", store.mark(id, node, walk(None, &all, None), at(31)).await?, None)?;
    let batch = need("a batch", store.batch_to_stage(id).await?)?;
    let mut sorted = all.clone();
    sorted.sort_unstable();
    let found: Vec<_> = batch.items.iter().map(|item| item.selected.notification).collect();
    same("its items", (batch.number, found), (1, sorted))?;
    same("what is kept", store.operation(id).await?, Some(second))
}

async fn a_notification_is_held_by_one_operation(mut scene: Scene) -> Kept {
    let all = dead(&mut scene, 2).await?;
    let (first, second) = (new_operation(1, Action::Requeue), new_operation(2, Action::Requeue));
    let node = staged(&scene, &first, &ids(&all[..1])).await?;
    same("held", scene.store.held_by(ids(&all)).await?, vec![(all[0].id, first.id)])?;
    start(&scene, &second).await?;
    adopt(&scene, second.id, node).await?;
    let marked =
        need("mark", scene.store.mark(second.id, node, walk(None, &ids(&all), None), at(31)).await?)?;
    same("left out", marked.standing.skipped.get(&Skip::InAnotherOperation), Some(&1))?;
    same(
        "held by both",
        scene.store.held_by(ids(&all)).await?,
        vec![(all[0].id, first.id), (all[1].id, second.id)],
    )?;
    let quotas = quotas(&scene, first.id, 9).await?;
    need("forward", scene.store.forward(first.id, node, quotas, at(33)).await?)?;
    same("held still", scene.store.held_by(ids(&all)).await?, vec![(all[1].id, second.id)])?;
    let third = new_operation(3, Action::Cancel);
    start(&scene, &third).await?;
    adopt(&scene, third.id, node).await?;
    let marked = need("mark", scene.store.mark(third.id, node, walk(None, &ids(&all), None), at(31)).await?)?;
    same("free again", (marked.standing.total, marked.held()), (2, 1))
}

async fn only_items_of_the_last_staging_are_forwarded(mut scene: Scene) -> Kept {
    let all = dead(&mut scene, 2).await?;
    let node = join(&scene).await?;
    let operation = new_operation(1, Action::Requeue);
    let id = operation.id;
    start(&scene, &operation).await?;
    adopt(&scene, id, node).await?;
    need("mark", scene.store.mark(id, node, walk(None, &ids(&all), None), at(31)).await?)?;
    let facts = scene.facts(all[0].id).await?;
    let good = Decision::Stage { flow: facts.bucket.flow, seen: facts.standing.seen() };
    let decisions = vec![(all[0].id, good), (all[1].id, Decision::TryAgain)];
    let store = &scene.store;
    let half = need("stage", store.stage(id, node, first_staging(5), decisions, at(32)).await?)?;
    same("not staged as a whole", half.standing.staged, 0)?;
    let quota = vec![(facts.bucket.flow, 9)];
    let none = need("forward", store.forward(id, node, quota.clone(), at(33)).await?)?;
    same("nothing is forwarded", none.done, vec![])?;
    let batch = need("the batch again", store.batch_to_stage(id).await?)?;
    let tries: Vec<_> = batch.items.iter().map(|item| (item.selected.notification, item.tries)).collect();
    same("its items", tries, [(all[0].id, 0), (all[1].id, 1)])?;
    let staged = stage(&scene, id, node, 6).await?;
    same("staged", staged.standing.staged, 2)?;
    let again = vec![(all[0].id, good), (all[1].id, good)];
    same(
        "staged twice",
        store.stage(id, node, Staging { batch: 1, after: Some(6), id: 7 }, again, at(33)).await?,
        None,
    )?;
    same("no batch is left", store.batch_to_stage(id).await?, None)?;
    let done = need("forward", store.forward(id, node, quotas(&scene, id, 9).await?, at(34)).await?)?;
    same("forwarded", (done.done.len(), done.operation.standing.forwarded), (2, 2))
}

async fn a_batch_that_was_staged_since_it_was_read_is_not_staged(mut scene: Scene) -> Kept {
    let all = dead(&mut scene, 2).await?;
    let node = join(&scene).await?;
    let operation = new_operation(1, Action::Requeue);
    let id = operation.id;
    start(&scene, &operation).await?;
    adopt(&scene, id, node).await?;
    need("mark", scene.store.mark(id, node, walk(None, &ids(&all), None), at(31)).await?)?;
    let store = &scene.store;
    let decisions =
        || vec![(all[0].id, Decision::TryAgain), (all[1].id, Decision::Skip(Skip::ChangedMeanwhile))];
    same("its last staging", need("a batch", store.batch_to_stage(id).await?)?.staging, None)?;
    let first = need("stage", store.stage(id, node, first_staging(5), decisions(), at(32)).await?)?;
    same("one is left out", (first.held(), first.standing.all_skipped()), (1, 1))?;
    // The same decisions again: the answer to the first was an error.
    let late = store.stage(id, node, first_staging(6), decisions(), at(33)).await?;
    same("staged as it was read before", late, None)?;
    let batch = need("the batch again", store.batch_to_stage(id).await?)?;
    same("what is left of it", (batch.staging, batch.items.len()), (Some(5), 1))?;
    same("the operation", store.operation(id).await?, Some(first))?;
    let last = stage(&scene, id, node, 7).await?;
    same("staged", (last.standing.staged, last.held()), (1, 1))?;
    same("held", store.held_by(ids(&all)).await?, vec![(all[0].id, id)])
}

async fn forwarding_does_the_act_once(mut scene: Scene) -> Kept {
    let all = dead(&mut scene, 3).await?;
    let operation = new_operation(1, Action::Requeue);
    let id = operation.id;
    let node = staged(&scene, &operation, &ids(&all)).await?;
    let flows = quotas(&scene, id, 9).await?;
    same("a flow each", flows.len(), 3)?;
    let before = scene.facts(all[0].id).await?;
    let letter = need("its dead letter", before.standing.letter())?.0;
    let one = need("forward", scene.store.forward(id, node, flows[..1].to_vec(), at(35)).await?)?;
    same("what was forwarded", one.done, vec![before])?;
    same("its progress", (one.operation.standing.forwarded, one.operation.held()), (1, 2))?;
    let view = scene.view(all[0].id).await?;
    same("it is live", (view.state, view.progress.generation, view.due), (State::Pending, 2, Some(at(35))))?;
    let shown = need("the dead letter", scene.store.dead_letter(letter).await?)?;
    same(
        "resolved",
        (shown.status, shown.resolved_by.as_deref()),
        (DeadLetterStatus::Requeued, Some("ada (key_1)")),
    )?;
    let events = scene.store.history(all[0].id).await?.events;
    same("who", events.last().and_then(|event| event.actor.as_deref()), Some("ada (key_1)"))?;
    let again = need("again", scene.store.forward(id, node, flows[..1].to_vec(), at(36)).await?)?;
    same("nothing", again.done, vec![])?;
    same("too early", finish(&scene, id, node).await?, Err(Refused::NotNow))?;
    let rest = need("the rest", scene.store.forward(id, node, flows[1..].to_vec(), at(37)).await?)?;
    same("in the order of the flows", rest.done.len(), 2)?;
    same("the batch is done", rest.operation.standing.batches_done, 1)?;
    let finished = finish(&scene, id, node).await?;
    same("the end", finished.map(|operation| operation.standing.finished_at), Ok(Some(at(40))))?;
    let rows = scene.store.audit(AuditFilter::default(), None, 10).await?.rows;
    let numbers: Vec<_> = rows.iter().map(|row| (row.audit.action.as_str(), row.asked, row.count)).collect();
    same("the audit", numbers, [("end", 3, 3), ("start", 1, 1)])
}

async fn what_changed_meanwhile_or_expired_is_left_out(mut scene: Scene) -> Kept {
    let mut all = dead(&mut scene, 2).await?;
    let (mut draft, lease, grave) = (scene.draft(), scene.lease().await?, scene.grave());
    draft.expires_at = Some(at(33));
    scene.accept(&draft, at(0), Some(lease)).await?;
    scene.fail(&draft, lease, super::scene::burial(grave)).await?;
    all.push(draft);
    let operation = new_operation(1, Action::Requeue);
    let id = operation.id;
    let node = staged(&scene, &operation, &ids(&all)).await?;
    scene.does(&all[0], Act::Requeue, None, at(33)).await?;
    let quotas = quotas(&scene, id, 9).await?;
    let done = need("forward", scene.store.forward(id, node, quotas, at(34)).await?)?;
    same("forwarded", done.done.iter().map(|facts| facts.id).collect::<Vec<_>>(), [all[1].id])?;
    let standing = done.operation.standing;
    same(
        "by reason",
        standing.skipped.into_iter().collect::<Vec<_>>(),
        [(Skip::ChangedMeanwhile, 1), (Skip::Expired, 1)],
    )?;
    same("the batch is done", (standing.batches, standing.batches_done), (1, 1))?;
    same("its generation", scene.view(all[0].id).await?.progress.generation, 2)
}

async fn a_stopped_operation_lets_go_of_everything(mut scene: Scene) -> Kept {
    let all = dead(&mut scene, 3).await?;
    let operation = new_operation(1, Action::Discard);
    let id = operation.id;
    let node = staged(&scene, &operation, &ids(&all)).await?;
    let flows = quotas(&scene, id, 9).await?;
    need("forward", scene.store.forward(id, node, flows[..1].to_vec(), at(34)).await?)?;
    let store = &scene.store;
    let not_yet = store.skip_items(id, node, Rest::Stopped(9), at(35)).await?;
    same("it goes on", not_yet, None)?;
    let cancel = OperationChange::Cancel { by: "bo".to_owned() };
    let unknown = new_operation(9, Action::Requeue).id;
    let missing = store.change_operation(unknown, cancel.clone(), None, at(35)).await?;
    same("unknown", missing, None)?;
    let stopped = store.change_operation(id, cancel.clone(), Some(audit("cancel")), at(35)).await?;
    same("stopped", stopped.map(|made| made.is_ok()), Some(true))?;
    let twice = store.change_operation(id, cancel, Some(audit("cancel")), at(35)).await?;
    same("twice", twice, Some(Err(Refused::Finished)))?;
    same("forward", store.forward(id, node, flows[1..].to_vec(), at(36)).await?, None)?;
    let one = need("skip", store.skip_items(id, node, Rest::Stopped(1), at(36)).await?)?;
    same("one", (one.held(), one.standing.all_skipped()), (1, 1))?;
    let rest = need("skip", store.skip_items(id, node, Rest::Stopped(9), at(36)).await?)?;
    same("the rest", (rest.held(), rest.standing.skipped.get(&Skip::Cancelled)), (0, Some(&2)))?;
    same("held", store.held_by(ids(&all)).await?, vec![])?;
    let finished = finish(&scene, id, node).await?;
    same("the end", finished.map(|operation| operation.standing.state), Ok(OperationState::Cancelled))?;
    let states = [State::Failed, State::DeadLetter, State::DeadLetter];
    for (notification, state) in all.iter().zip(states) {
        same("untouched", scene.state(notification).await?, state)?;
    }
    Ok(())
}

async fn a_canary_bounds_what_is_forwarded(mut scene: Scene) -> Kept {
    let all = dead(&mut scene, 4).await?;
    let canary = Some(Canary { size: 2, max_failure_percent: 10 });
    let operation = Operation { canary, ..new_operation(1, Action::Requeue) };
    let id = operation.id;
    let node = staged(&scene, &operation, &ids(&all)).await?;
    let flows = quotas(&scene, id, 9).await?;
    let before: Vec<_> = {
        let mut seen = vec![];
        for notification in &all[..2] {
            seen.push((notification.id, scene.facts(notification.id).await?.standing.seen()));
        }
        seen
    };
    let store = &scene.store;
    let first = need("forward", store.forward(id, node, flows.clone(), at(34)).await?)?;
    same("the first ones", first.done.len(), 2)?;
    same("how they stood", store.canary_items(id).await?, before)?;
    let none = need("forward", store.forward(id, node, flows.clone(), at(35)).await?)?;
    same("no more", none.done, vec![])?;
    let verdict = OperationChange::Canary { node, verdict: Verdict::Passed { failed: 0 } };
    let judged = store.change_operation(id, verdict, None, at(36)).await?;
    same("judged", judged.map(|made| made.is_ok()), Some(true))?;
    let rest = need("forward", store.forward(id, node, flows, at(37)).await?)?;
    same("the rest", rest.done.len(), 2)?;
    same("the canary is what it was", store.canary_items(id).await?.len(), 2)
}

async fn an_item_that_cannot_be_read_is_ejected_alone(mut scene: Scene) -> Kept {
    let all = dead(&mut scene, 2).await?;
    let operation = new_operation(1, Action::Requeue);
    let id = operation.id;
    let node = staged(&scene, &operation, &ids(&all)).await?;
    let flow = scene.facts(all[0].id).await?.bucket.flow;
    let ejected = need("eject", scene.store.skip_items(id, node, Rest::FirstOf(flow), at(34)).await?)?;
    same("ejected", ejected.standing.skipped.get(&Skip::Ejected), Some(&1))?;
    same("held", scene.store.held_by(ids(&all)).await?, vec![(all[1].id, id)])?;
    same("its flow is empty", scene.store.staged_flows(id, None, 9).await?.contains(&flow), false)
}

async fn due_rows_are_counted_by_flow(mut scene: Scene) -> Kept {
    let (one, other) = (scene.waiting().await?, scene.draft());
    let mut flows = vec![];
    for notification in [&one, &other] {
        flows.push(scene.flow_of(notification).await?);
    }
    let mut more = scene.draft();
    (more.destination, more.to) = (one.destination.clone(), one.to.clone());
    more.priority = posthaste_core::notification::Priority::Critical;
    scene.accept(&more, at(0), None).await?;
    let mut later = scene.draft();
    (later.destination, later.to) = (one.destination.clone(), one.to.clone());
    scene.accept(&later, at(50), None).await?;
    let count = |limit, second| scene.store.due_rows(flows.clone(), limit, at(second));
    same("due", count(9, 1).await?, [2, 0])?;
    same("up to the limit", count(1, 1).await?, [1, 0])?;
    same("due later", count(9, 50).await?, [3, 0])?;
    let lease = scene.lease().await?;
    let (lane, priority) = (posthaste_core::state::Lane::Main, one.priority);
    let bucket = posthaste_core::flow::Bucket { flow: flows[0], lane, priority };
    let quota = posthaste_core::flow::Quota { bucket, limit: 1 };
    scene.store.claim(vec![quota], lease, at(1)).await?;
    same("what is held is not waiting", scene.store.due_rows(flows.clone(), 9, at(1)).await?, [1, 0])
}
