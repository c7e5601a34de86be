//! What operations select: ids of both kinds, dry runs with their failure groups, what is damaged, and what is restored.

use std::sync::Arc;

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::filter::{Filter, LetterStatus};
use posthaste_core::id::{NotificationId, OperationId};
use posthaste_core::job::{Job, Schedule};
use posthaste_core::operation::{Action, Operation, OperationState, Selection, Skip};
use posthaste_core::retention::Periods;
use posthaste_core::state::State;
use posthaste_engine::engine::Engine;
use posthaste_engine::jobs::JobSettings;
use posthaste_engine::operations::{NewOperation, Preview, Sampled};
use posthaste_engine::store::{Acts, Operations, Reads};

use crate::rig::{FaultyStore, Rig, Script, ada, http, ms, notification, pass, secs, send};

/// One attempt.
const ONCE: &str = r#"{"strategy": "none", "maxAttempts": 1, "timeout": "10s", "quick": {"tries": 0}}"#;

/// So many dead letters of a recipient, who answered like this. From then on everything is delivered.
async fn dead(rig: &Rig, engine: &Engine, to: &str, status: u16, count: usize) -> Vec<NotificationId> {
    rig.always(to, Script::Answer(http(status)));
    let mut ids = vec![];
    for _ in 0..count {
        let mut new = notification(engine, to, ONCE);
        new.destination = format!("http://{to}.example:9").into();
        ids.push(send(engine, new).await);
    }
    pass(secs(5)).await;
    rig.always(to, Script::Answer(http(200)));
    for id in &ids {
        assert_eq!(rig.state(*id).await, State::DeadLetter);
    }
    ids
}

fn asked(action: Action, selection: Selection) -> NewOperation {
    NewOperation { action, selection, rate: None, canary: None }
}

fn ids(texts: impl IntoIterator<Item = impl ToString>) -> Selection {
    Selection::Ids(texts.into_iter().map(|text| text.to_string()).collect())
}

async fn preview(engine: &Engine, asked: NewOperation) -> Preview {
    let operation = engine.new_operation(asked, &ada()).await.unwrap();
    engine.reads(None).preview_operation(&operation).await.unwrap()
}

/// Starts it and lets it end.
async fn done(rig: &Rig, engine: &Engine, asked: NewOperation) -> Operation {
    let operation = engine.new_operation(asked, &ada()).await.unwrap();
    let id: OperationId = operation.id;
    engine.start_operation(operation, None, &ada()).await.unwrap();
    pass(secs(5)).await;
    let operation = rig.model.operation(id).await.unwrap().unwrap();
    assert!(operation.is_finished(), "{:?}", operation.standing);
    operation
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_shows_the_failure_groups_of_what_it_counts_the_largest_first() {
    let rig = Rig::new();
    let engine = rig.start().await;
    dead(&rig, &engine, "a", 503, 3).await;
    dead(&rig, &engine, "b", 500, 5).await;
    let discarded = dead(&rig, &engine, "c", 502, 1).await[0];
    let shown = preview(&engine, asked(Action::Requeue, Selection::All)).await;
    assert_eq!((shown.total, shown.exact, shown.sample.len()), (9, true, 5));
    let counts: Vec<u64> = shown.groups.iter().map(|group| group.count).collect();
    assert_eq!(counts, [5, 3, 1], "{:?}", shown.groups);
    assert!(shown.groups[0].title.starts_with("500"), "{:?}", shown.groups);
    // Its id selects the same ones.
    let group = Selection::Group(shown.groups[1].id.to_string());
    let of_group = preview(&engine, asked(Action::Discard, group)).await;
    assert_eq!((of_group.total, of_group.groups), (3, vec![shown.groups[1].clone()]));
    let by_ids = ids([discarded]);
    let of_ids = preview(&engine, asked(Action::Requeue, by_ids)).await;
    assert_eq!(of_ids.groups, [shown.groups[2].clone()]);
    assert!(matches!(&of_ids.sample[0], Sampled::Letter(letter) if letter.notification.id == discarded));
}

#[tokio::test(start_paused = true)]
async fn of_ids_each_notification_is_counted_and_sent_once_and_what_is_resolved_not_at_all() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let all = dead(&rig, &engine, "a", 503, 3).await;
    let old = rig.dead_letter(all[0]).await.id;
    // It is sent again and dies again: another dead letter stands for it.
    rig.always("a", Script::Answer(http(503)));
    engine.requeue(old, &ada()).await.unwrap();
    pass(secs(5)).await;
    rig.always("a", Script::Answer(http(200)));
    let new = rig.model.facts(vec![all[0]]).await.unwrap()[0].standing.letter().unwrap().0;
    assert_ne!(old, new);
    engine.discard(rig.dead_letter(all[1]).await.id, &ada()).await.unwrap();
    let last = rig.dead_letter(all[2]).await.id;
    let texts: Vec<String> = vec![
        old.to_string(), // resolved, and the same notification as the next
        all[1].to_string(),
        new.to_string(),
        last.to_string(),
        all[2].to_string(),
        last.to_string(),
    ];
    let shown = preview(&engine, asked(Action::Requeue, ids(&texts))).await;
    assert_eq!((shown.total, shown.exact, shown.sample.len()), (2, true, 2));
    let done = done(&rig, &engine, asked(Action::Requeue, ids(&texts))).await;
    let standing = &done.standing;
    assert_eq!((standing.total, standing.forwarded), (3, 2), "{standing:?}");
    assert_eq!(standing.skipped.get(&Skip::AlreadyResolved), Some(&1));
    let Selection::Ids(kept) = &done.selection else { panic!("{:?}", done.selection) };
    assert_eq!(**kept, [all[1].to_string(), new.to_string(), all[2].to_string()]);
    assert_eq!(rig.state(all[0]).await, State::Succeeded);
}

/// Two flows, of which one has two damaged items in its midst.
#[tokio::test(start_paused = true)]
async fn a_damaged_item_holds_up_neither_the_others_of_its_flow_nor_other_flows() {
    let rig = Rig::new();
    let faulty = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(faulty.clone()).await;
    let first = dead(&rig, &engine, "a", 503, 200).await;
    let second = dead(&rig, &engine, "b", 503, 200).await;
    let mut sorted = second.clone();
    sorted.sort_unstable();
    faulty.damage(&[sorted[60], sorted[61]]);
    let operation = engine.new_operation(asked(Action::Requeue, Selection::All), &ada()).await.unwrap();
    let id = operation.id;
    engine.start_operation(operation, None, &ada()).await.unwrap();
    pass(ms(900)).await;
    for (of, wanted) in [(&first, 200), (&sorted[..60].to_vec(), 60)] {
        let sent = rig
            .model
            .inspect(|tables| of.iter().filter(|id| tables.state(**id) != Some(State::DeadLetter)).count());
        assert_eq!(sent, wanted, "before the damaged ones are given up");
    }
    pass(secs(5)).await;
    let standing = rig.model.operation(id).await.unwrap().unwrap().standing;
    assert_eq!((standing.state, standing.forwarded), (OperationState::Completed, 398), "{standing:?}");
    assert_eq!(standing.skipped.get(&Skip::Ejected), Some(&2));
}

/// A rig whose dead letters are soft-deleted an hour after their death, resolved or not.
fn deleting() -> Rig {
    let mut rig = Rig::new();
    let schedules = vec![(Job::DeadLetterCleanup, Some(Schedule::parse("0 * * * *").unwrap()))];
    rig.settings.jobs = JobSettings { schedules, expire_failed_after: secs(86_400) };
    let hour = secs(3_600);
    rig.settings.retention =
        Periods { dead_letters: hour, purge_pending_after: Some(hour), ..Periods::default() };
    rig
}

#[tokio::test(start_paused = true)]
async fn an_operation_restores_what_was_discarded_and_what_was_deleted() {
    let rig = deleting();
    let engine = rig.start().await;
    let all = dead(&rig, &engine, "a", 503, 3).await;
    let mut letters = vec![];
    for id in &all {
        letters.push(rig.dead_letter(*id).await.id);
    }
    engine.discard(letters[0], &ada()).await.unwrap();
    engine.requeue(letters[1], &ada()).await.unwrap();
    pass(secs(3 * 3_600)).await;
    let late = dead(&rig, &engine, "a", 503, 1).await[0];
    engine.discard(rig.dead_letter(late).await.id, &ada()).await.unwrap();
    let listed = |status| {
        let filter = Filter { statuses: vec![status], ..Filter::default() };
        let model = rig.model.clone();
        async move { model.dead_letters(filter, None, 9).await.unwrap().rows.len() }
    };
    assert_eq!((listed(LetterStatus::Deleted).await, listed(LetterStatus::Discarded).await), (3, 1));
    let deleted = Selection::Filter([("status".to_owned(), "deleted".to_owned())].into());
    assert_eq!(preview(&engine, asked(Action::Restore, deleted.clone())).await.total, 3);
    assert_eq!(preview(&engine, asked(Action::Restore, Selection::All)).await.total, 4);
    let done_one = done(&rig, &engine, asked(Action::Restore, deleted)).await;
    assert_eq!((done_one.standing.total, done_one.standing.forwarded), (3, 3));
    assert_eq!(listed(LetterStatus::Deleted).await, 0);
    let was = [DeadLetterStatus::Cancelled, DeadLetterStatus::Requeued, DeadLetterStatus::Pending];
    for (letter, status) in letters.iter().zip(was) {
        assert_eq!(rig.model.dead_letter(*letter).await.unwrap().unwrap().status, status, "as it was");
    }
    assert_eq!((rig.state(all[1]).await, rig.state(all[2]).await), (State::Succeeded, State::DeadLetter));
    assert_eq!(listed(LetterStatus::Discarded).await, 2);
    let rest = done(&rig, &engine, asked(Action::Restore, Selection::All)).await;
    assert_eq!((rest.standing.total, rest.standing.forwarded), (2, 2));
    assert_eq!(rig.state(late).await, State::DeadLetter);
    assert_eq!(engine.metrics().operation_items, 5);
}
