//! Retry operations: each item once, at the pace of its destination, whoever else acts and whichever node dies.

use std::sync::Arc;

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::id::{NotificationId, OperationId};
use posthaste_core::operation::{
    Action, Canary, CanaryState, Operation, OperationState, Selection, Skip, Window,
};
use posthaste_core::state::State;
use posthaste_engine::engine::Engine;
use posthaste_engine::operations::{NewOperation, OperationError};
use posthaste_engine::store::{Accepted, Operations};
use tokio::task::JoinSet;

use crate::rig::{
    FaultyStore, Rig, Script, Trouble, ada, http, ms, notification, pass, secs, send, someone_of,
};

/// One attempt.
const ONCE: &str = r#"{"strategy": "none", "maxAttempts": 1, "timeout": "10s", "quick": {"tries": 0}}"#;

/// So many dead letters. From then on everything is delivered.
async fn dead(rig: &Rig, engine: &Engine, count: usize) -> Vec<NotificationId> {
    rig.always("a", Script::Answer(http(503)));
    let mut ids = vec![];
    for _ in 0..count {
        ids.push(send(engine, notification(engine, "a", ONCE)).await);
    }
    pass(secs(5)).await;
    rig.always("a", Script::Answer(http(200)));
    for id in &ids {
        assert_eq!(rig.state(*id).await, State::DeadLetter);
    }
    ids
}

pub(super) fn all(action: Action) -> NewOperation {
    NewOperation { action, selection: Selection::All, rate: None, canary: None }
}

pub(super) async fn start(engine: &Engine, asked: NewOperation) -> OperationId {
    let operation = engine.new_operation(asked, &ada()).await.unwrap();
    let id = operation.id;
    assert_eq!(engine.start_operation(operation, None, &ada()).await.unwrap(), Accepted::New);
    id
}

pub(super) async fn stands(rig: &Rig, id: OperationId) -> Operation {
    rig.model.operation(id).await.unwrap().unwrap()
}

/// What every operation that ended has in common (I13).
pub(super) async fn ended(rig: &Rig, id: OperationId) -> Operation {
    let operation = stands(rig, id).await;
    let standing = &operation.standing;
    assert!(operation.is_finished(), "{standing:?}");
    assert_eq!(standing.total, standing.forwarded + standing.all_skipped(), "{standing:?}");
    assert_eq!(standing.batches, standing.batches_done, "{standing:?}");
    let held = rig.model.inspect(|tables| {
        tables.operations.items.iter().filter(|((of, _), item)| *of == id && item.place.is_held()).count()
    });
    assert_eq!(held, 0, "items are stuck");
    operation
}

fn requeues(rig: &Rig, id: NotificationId) -> usize {
    let events = rig.model.inspect(|tables| tables.events.get(&id).cloned().unwrap_or_default());
    events.iter().filter(|event| event.word == "requeue" || event.word == "retry").count()
}

#[tokio::test(start_paused = true)]
async fn everything_that_is_selected_is_sent_again_once() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let ids = dead(&rig, &engine, 1_200).await;
    let id = start(&engine, all(Action::Requeue)).await;
    pass(secs(30)).await;
    let standing = ended(&rig, id).await.standing;
    assert_eq!(standing.state, OperationState::Completed);
    assert_eq!((standing.total, standing.staged, standing.forwarded), (1_200, 1_200, 1_200));
    assert_eq!(standing.batches, 2);
    for id in ids {
        assert_eq!(
            (rig.state(id).await, rig.arrivals(id).len(), requeues(&rig, id)),
            (State::Succeeded, 2, 1)
        );
        let events = rig.events(id).await;
        assert_eq!(events, [("requeue".to_owned(), Some("ada".to_owned()), 1, 1)]);
    }
    let audit: Vec<_> = rig.audit().into_iter().map(|row| (row.audit.action, row.asked, row.count)).collect();
    assert_eq!(audit, [("start-operation".to_owned(), 1, 1), ("end-operation".to_owned(), 1_200, 1_200),]);
    assert_eq!(engine.metrics().operation_items, 1_200);
    assert_eq!(engine.metrics().operations_ended[0], (OperationState::Completed, 1));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_selects_nothing_ends_at_once() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let id = start(&engine, all(Action::Discard)).await;
    pass(ms(50)).await;
    let standing = ended(&rig, id).await.standing;
    assert_eq!((standing.state, standing.total), (OperationState::Completed, 0));
    let refused = engine.cancel_operation(id, &ada()).await;
    assert!(matches!(refused, Err(OperationError::Finished(_, "completed"))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn what_fails_after_the_start_is_not_selected() {
    let rig = Rig::new();
    let engine = rig.start().await;
    dead(&rig, &engine, 3).await;
    let asked = engine.new_operation(all(Action::Discard), &ada()).await.unwrap();
    let id = asked.id;
    // Ids carry milliseconds, so what dies in the one of the start may be selected.
    pass(ms(50)).await;
    let late = dead(&rig, &engine, 2).await;
    engine.start_operation(asked, None, &ada()).await.unwrap();
    pass(secs(1)).await;
    assert_eq!(ended(&rig, id).await.standing.total, 3);
    for id in late {
        assert_eq!(rig.dead_letter(id).await.status, DeadLetterStatus::Pending);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_shows_who_holds_it_and_a_single_act_wins() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let ids = dead(&rig, &engine, 3).await;
    let id = start(&engine, NewOperation { rate: Some(1), ..all(Action::Requeue) }).await;
    pass(ms(500)).await;
    let reads = engine.reads(None);
    let held = reads.held_by(ids.clone()).await.unwrap();
    assert_eq!(held.len(), 2, "{held:?}");
    let (waiting, holder) = held.first_key_value().unwrap();
    assert_eq!(*holder, id);
    engine.discard(rig.dead_letter(*waiting).await.id, &ada()).await.unwrap();
    pass(secs(10)).await;
    let standing = ended(&rig, id).await.standing;
    assert_eq!(standing.forwarded, 2);
    assert_eq!(standing.skipped.get(&Skip::ChangedMeanwhile), Some(&1));
    assert_eq!(rig.state(*waiting).await, State::Failed);
    assert_eq!(reads.held_by(ids).await.unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_kept_and_a_pause_holds_until_it_is_resumed() {
    let rig = Rig::new();
    let engine = rig.start().await;
    dead(&rig, &engine, 100).await;
    let id = start(&engine, NewOperation { rate: Some(10), ..all(Action::Requeue) }).await;
    pass(secs(4)).await;
    let forwarded = stands(&rig, id).await.standing.forwarded;
    assert!((35..=42).contains(&forwarded), "{forwarded} in 4 s");
    let paused = engine.pause_operation(id, &ada()).await.unwrap();
    assert_eq!(paused.standing.paused_by.as_deref(), Some("ada"));
    let before = paused.standing.forwarded;
    pass(secs(60)).await;
    assert_eq!(stands(&rig, id).await.standing.forwarded, before);
    engine.resume_operation(id, &ada()).await.unwrap();
    pass(secs(12)).await;
    assert_eq!(ended(&rig, id).await.standing.forwarded, 100);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_operation_lets_go_of_what_is_left() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let ids = dead(&rig, &engine, 300).await;
    let id = start(&engine, NewOperation { rate: Some(10), ..all(Action::Requeue) }).await;
    pass(secs(2)).await;
    engine.cancel_operation(id, &ada()).await.unwrap();
    pass(secs(2)).await;
    let standing = ended(&rig, id).await.standing;
    assert_eq!(standing.state, OperationState::Cancelled);
    assert_eq!(standing.skipped.get(&Skip::Cancelled), Some(&(300 - standing.forwarded)));
    assert!((10..40).contains(&standing.forwarded), "{standing:?}");
    let sent = ids.iter().filter(|id| requeues(&rig, **id) == 1).count() as u64;
    assert_eq!(sent, standing.forwarded);
    // They are free for the next one.
    let id = start(&engine, all(Action::Requeue)).await;
    pass(secs(10)).await;
    assert_eq!(ended(&rig, id).await.standing.forwarded, 300 - standing.forwarded);
}

#[tokio::test(start_paused = true)]
async fn a_failed_canary_stops_the_rest() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let ids = dead(&rig, &engine, 50).await;
    rig.always("a", Script::Slowly(secs(1), http(500)));
    let canary = Some(Canary { size: 10, max_failure_percent: 20 });
    let id = start(&engine, NewOperation { canary, ..all(Action::Requeue) }).await;
    pass(ms(500)).await;
    assert_eq!(stands(&rig, id).await.standing.forwarded, 10);
    pass(secs(10)).await;
    let standing = ended(&rig, id).await.standing;
    assert_eq!(standing.state, OperationState::Cancelled);
    assert_eq!(standing.stopped_by.as_deref(), Some("canary"));
    assert_eq!((standing.canary_state, standing.forwarded), (CanaryState::Failed, 10));
    assert!(standing.canary_failed > 2, "{standing:?}");
    assert_eq!(standing.skipped.get(&Skip::Cancelled), Some(&40));
    assert_eq!(ids.iter().filter(|id| requeues(&rig, **id) == 1).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_passes_is_followed_by_the_rest() {
    let rig = Rig::new();
    let engine = rig.start().await;
    dead(&rig, &engine, 50).await;
    rig.always("a", Script::Slowly(secs(1), http(200)));
    let canary = Some(Canary { size: 10, max_failure_percent: 20 });
    let id = start(&engine, NewOperation { canary, ..all(Action::Requeue) }).await;
    pass(ms(900)).await;
    assert_eq!(stands(&rig, id).await.standing.forwarded, 10);
    pass(secs(10)).await;
    let standing = ended(&rig, id).await.standing;
    assert_eq!((standing.state, standing.forwarded), (OperationState::Completed, 50));
    assert_eq!((standing.canary_state, standing.canary_failed), (CanaryState::Passed, 0));
}

#[tokio::test(start_paused = true)]
async fn no_more_than_a_thousand_wait_due_in_a_flow() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    let engine = rig.start().await;
    dead(&rig, &engine, 1_500).await;
    rig.always("a", Script::Slowly(ms(200), http(200)));
    let id = start(&engine, all(Action::Requeue)).await;
    let mut most = 0;
    for _ in 0..600 {
        pass(ms(20)).await;
        let flow = rig.model.inspect(|tables| tables.queue.values().next().map(|row| row.flow));
        let Some(flow) = flow else { continue };
        let now = engine.now();
        most = most.max(rig.model.due_rows(vec![flow], 5_000, now).await.unwrap()[0]);
    }
    assert!(most <= Window::MOST, "{most} waited");
    // A slow destination has few that wait, so that new ones are not behind many.
    assert!((4..200).contains(&most), "{most} waited");
    assert!(!stands(&rig, id).await.is_finished());
    engine.cancel_operation(id, &ada()).await.unwrap();
    pass(secs(60)).await;
    ended(&rig, id).await;
}

#[tokio::test(start_paused = true)]
async fn another_node_finishes_what_a_dead_one_began() {
    let rig = Rig::new();
    let first = rig.start().await;
    let ids = dead(&rig, &first, 1_100).await;
    let id = start(&first, NewOperation { rate: Some(100), ..all(Action::Requeue) }).await;
    let second = rig.start().await;
    pass(secs(2)).await;
    let before = stands(&rig, id).await;
    assert!(!before.is_finished());
    assert_eq!(before.runner, Some(first.node_id()));
    drop(first);
    pass(secs(60)).await;
    let after = ended(&rig, id).await;
    assert_eq!(after.runner, Some(second.node_id()));
    assert_eq!((after.standing.state, after.standing.forwarded), (OperationState::Completed, 1_100));
    assert!(ids.iter().all(|id| requeues(&rig, *id) == 1));
    assert!(after.standing.events.iter().any(|event| event.event == "adopted"));
}

/// I12: however many ask at once, in whatever way, each notification is sent again once.
#[tokio::test(start_paused = true)]
async fn of_many_retries_of_the_same_items_one_is_outstanding() {
    let rig = Rig::new();
    let engine = Arc::new(rig.start().await);
    let ids = dead(&rig, &engine, 40).await;
    rig.always("a", Script::Slowly(secs(30), http(200)));
    let mut asked = JoinSet::new();
    for number in 0..64 {
        let (engine, ids) = (engine.clone(), ids.clone());
        asked.spawn(async move {
            if number % 4 == 0 {
                let selection = Selection::Ids(ids.iter().map(ToString::to_string).collect());
                let asked = NewOperation { selection, ..all(Action::Requeue) };
                let operation = engine.new_operation(asked, &ada()).await.unwrap();
                engine.start_operation(operation, None, &ada()).await.unwrap();
            } else if number % 4 == 1 {
                let operation = engine.new_operation(all(Action::Requeue), &ada()).await.unwrap();
                engine.start_operation(operation, None, &ada()).await.unwrap();
            } else {
                let _ = engine.retry(ids[number % ids.len()], &ada()).await;
            }
        });
    }
    while asked.join_next().await.is_some() {}
    pass(secs(20)).await;
    for id in &ids {
        assert_eq!(requeues(&rig, *id), 1);
        assert_eq!(rig.view(*id).await.progress.generation, 2);
    }
    let operations = rig.model.operations(None, None, 100).await.unwrap().rows;
    assert_eq!(operations.len(), 32);
    let mut forwarded = 0;
    for operation in operations {
        forwarded += ended(&rig, operation.id).await.standing.forwarded;
    }
    assert!(forwarded <= 40, "{forwarded}");
    pass(secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_outlives_a_store_that_fails_and_answers_late() {
    let rig = Rig::new();
    let faulty = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(faulty.clone()).await;
    let ids = dead(&rig, &engine, 300).await;
    for method in ["forward", "stage", "mark", "change_operation", "adopt_operation", "skip_items"] {
        let late = Trouble::Stall { told: ms(100), done: secs(3) };
        faulty.next(method, [Trouble::Lie, Trouble::Refuse, late, Trouble::Lie]);
    }
    let id = start(&engine, NewOperation { rate: Some(50), ..all(Action::Requeue) }).await;
    pass(secs(40)).await;
    let standing = ended(&rig, id).await.standing;
    assert_eq!((standing.state, standing.forwarded), (OperationState::Completed, 300));
    assert!(ids.iter().all(|id| requeues(&rig, *id) == 1));
}

/// Twenty items, of which one meets these troubles.
async fn one_is_ejected(troubles: impl FnOnce(&FaultyStore)) {
    let rig = Rig::new();
    let faulty = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(faulty.clone()).await;
    dead(&rig, &engine, 20).await;
    troubles(&faulty);
    let id = start(&engine, all(Action::Requeue)).await;
    pass(secs(20)).await;
    let standing = ended(&rig, id).await.standing;
    assert_eq!((standing.state, standing.forwarded), (OperationState::Completed, 19));
    assert_eq!(standing.skipped.get(&Skip::Ejected), Some(&1));
}

#[tokio::test(start_paused = true)]
async fn an_item_that_cannot_be_read_is_ejected_and_the_rest_goes_on() {
    // Neither alone nor with others, as often as its batch is staged.
    one_is_ejected(|faulty| {
        let fine = vec![Trouble::ToldLate(ms(0)); 19];
        let staging = [vec![Trouble::Nonsense; 2], fine].concat();
        faulty.next("facts", vec![staging; 5].concat());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_item_that_cannot_be_forwarded_is_ejected_and_the_rest_goes_on() {
    // Of a chunk of 100, of its halves, and of one item as often as it is tried.
    one_is_ejected(|faulty| faulty.next("forward", vec![Trouble::Nonsense; 6 + 5])).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_another_tenants_cannot_be_selected_seen_or_stopped() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let ids = dead(&rig, &engine, 2).await;
    let eve = someone_of("other");
    let by_id = Selection::Ids([ids[0].to_string()].into());
    let refused = engine.new_operation(NewOperation { selection: by_id, ..all(Action::Requeue) }, &eve).await;
    assert!(matches!(refused, Err(OperationError::UnknownId { place: 0, .. })), "{refused:?}");
    let operation = engine.new_operation(all(Action::Requeue), &eve).await.unwrap();
    let id = operation.id;
    engine.start_operation(operation, None, &eve).await.unwrap();
    pass(secs(1)).await;
    assert_eq!(ended(&rig, id).await.standing.total, 0);
    let own = start(&engine, NewOperation { rate: Some(1), ..all(Action::Requeue) }).await;
    assert!(engine.reads(eve.tenant.clone()).operation(own).await.unwrap().is_none());
    let refused = engine.cancel_operation(own, &eve).await;
    assert!(matches!(refused, Err(OperationError::NotFound(_))), "{refused:?}");
    pass(secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_can_be_cancelled_and_retried_now() {
    const LATER: &str = r#"{"strategy": "fixed", "initialDelay": "1h", "maxAttempts": 3, "jitter": "none",
        "quick": {"tries": 0}}"#;
    let rig = Rig::new();
    let engine = rig.start().await;
    rig.script("a", vec![Script::Answer(http(503)); 6]);
    let mut ids = vec![];
    for _ in 0..6 {
        ids.push(send(&engine, notification(&engine, "a", LATER)).await);
    }
    pass(secs(1)).await;
    let some = Selection::Ids(ids[..2].iter().map(ToString::to_string).collect());
    let id = start(&engine, NewOperation { selection: some, ..all(Action::RetryNow) }).await;
    pass(secs(1)).await;
    assert_eq!(ended(&rig, id).await.standing.forwarded, 2);
    assert_eq!(rig.state(ids[0]).await, State::Succeeded);
    let filter = Selection::Filter([("status".to_owned(), "retrying".to_owned())].into());
    let id = start(&engine, NewOperation { selection: filter, ..all(Action::Cancel) }).await;
    pass(secs(1)).await;
    assert_eq!(ended(&rig, id).await.standing.forwarded, 4);
    assert_eq!(rig.state(ids[5]).await, State::Cancelled);
    let again = Selection::Ids([ids[5].to_string()].into());
    let id = start(&engine, NewOperation { selection: again, ..all(Action::Cancel) }).await;
    pass(secs(1)).await;
    assert_eq!(ended(&rig, id).await.standing.skipped.get(&Skip::AlreadyResolved), Some(&1));
}

#[tokio::test(start_paused = true)]
async fn ids_of_dead_letters_are_looked_up_together() {
    let rig = Rig::new();
    let faulty = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(faulty.clone()).await;
    let mut ids = vec![];
    for id in dead(&rig, &engine, 30).await {
        ids.push(rig.dead_letter(id).await.id.to_string());
        ids.push(id.to_string());
    }
    let by_ids =
        |ids: Vec<String>| NewOperation { selection: Selection::Ids(ids.into()), ..all(Action::Requeue) };
    engine.new_operation(by_ids(ids.clone()), &ada()).await.unwrap();
    assert_eq!([faulty.calls("notification_of"), faulty.calls("letter_facts")], [0, 1]);
    for (place, bad) in [(0, "dl_"), (59, "dl_0000000000000000000000000z"), (7, "nothing")] {
        let mut with_bad = ids.clone();
        bad.clone_into(&mut with_bad[place]);
        let refused = engine.new_operation(by_ids(with_bad), &ada()).await;
        assert!(
            matches!(&refused, Err(OperationError::UnknownId { place: at, id }) if (*at, id.as_str()) == (place, bad)),
            "{refused:?}"
        );
    }
}
