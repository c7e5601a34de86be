//! What people do with dead letters: manual retry, requeue, discard and restore.

use std::sync::Arc;

use posthaste_core::attempt::Outcome;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::id::NotificationId;
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_engine::acts::ActError;
use posthaste_engine::engine::Engine;
use posthaste_engine::store::{DeadLetterView, Reads};
use tokio::task::JoinSet;

use super::PLAIN;
use crate::rig::{
    FaultyStore, Rig, Script, Trouble, ada, assert_arrived, assert_at, http, ms, notification, pass, secs,
    send,
};

const TEMPORARY: Outcome = Outcome::Failed(FailureType::Temporary);

/// A notification that failed three times, at 0, 60 and 120 s, dead at 130 s.
async fn dead(rig: &Rig, engine: &Engine) -> NotificationId {
    rig.script("a", vec![Script::Answer(http(503)); 3]);
    let id = send(engine, notification(engine, "a", PLAIN)).await;
    pass(secs(130)).await;
    assert_eq!(rig.state(id).await, State::DeadLetter);
    id
}

fn actions(rig: &Rig) -> Vec<String> {
    rig.audit().into_iter().map(|row| row.audit.action).collect()
}

fn status_of<T>(answer: Result<T, ActError>) -> DeadLetterStatus {
    match answer {
        Err(ActError::Resolved { status, .. }) => status,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was done"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_manual_retry_goes_on_counting_with_a_fresh_budget() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let id = dead(&rig, &engine).await;
    rig.script("a", vec![Script::Answer(http(503)); 2]);
    let letter = rig.dead_letter(id).await.id;
    assert_eq!(engine.retry(id, &ada()).await.unwrap().standing.state, State::DeadLetter);
    pass(secs(200)).await;
    let first = [(1, secs(0)), (2, secs(60)), (3, secs(120))];
    let second = [(4, secs(130)), (5, secs(190)), (6, secs(250))];
    assert_arrived(&rig.arrivals(id), &[first, second].concat());
    let view = rig.view(id).await;
    assert_eq!((view.state, view.progress.generation, view.progress.attempt), (State::Succeeded, 2, 6));
    let outcomes = rig.outcomes(id).await;
    assert_eq!(outcomes[3..], [(2, 4, TEMPORARY), (2, 5, TEMPORARY), (2, 6, Outcome::Delivered)]);
    let letter = rig.model.dead_letter(letter).await.unwrap().unwrap();
    assert_eq!((letter.status, letter.resolved_by.as_deref()), (DeadLetterStatus::Requeued, Some("ada")));
    assert_eq!(letter.attempts.len(), 3);
    assert_eq!(actions(&rig), ["retry"]);
    assert_eq!(rig.audit()[0].audit.target, id.to_string());
    assert_eq!(rig.events(id).await, [("retry".to_owned(), Some("ada".to_owned()), 1, 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_second_death_makes_a_second_dead_letter() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(130)).await;
    let first = rig.dead_letter(id).await.id;
    engine.retry(id, &ada()).await.unwrap();
    pass(secs(130)).await;
    let second = rig.dead_letter(id).await;
    assert_ne!(first, second.id);
    let numbers: Vec<_> =
        second.attempts.iter().map(|attempt| (attempt.generation, attempt.number)).collect();
    assert_eq!(numbers, [(2, 4), (2, 5), (2, 6)]);
    assert_eq!(status_of(engine.requeue(first, &ada()).await), DeadLetterStatus::Requeued);
    engine.requeue(second.id, &ada()).await.unwrap();
    pass(secs(130)).await;
    let third = rig.dead_letter(id).await;
    let numbers: Vec<_> = third.attempts.iter().map(|attempt| (attempt.generation, attempt.number)).collect();
    assert_eq!(numbers, [(3, 1), (3, 2), (3, 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_one_without_a_dead_letter_can_be_retried() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(400))]);
    let engine = rig.start().await;
    let without = PLAIN.replacen('{', r#"{"deadLetter": false, "#, 1);
    let id = send(&engine, notification(&engine, "a", &without)).await;
    pass(secs(1)).await;
    assert_eq!(engine.retry(id, &ada()).await.unwrap().standing.state, State::Failed);
    pass(secs(1)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(1))]);
    assert_eq!(rig.state(id).await, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn requeue_starts_from_the_first_attempt_again() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let id = dead(&rig, &engine).await;
    rig.script("a", [Script::Answer(http(503))]);
    let letter = rig.dead_letter(id).await;
    engine.requeue(letter.id, &ada()).await.unwrap();
    pass(secs(100)).await;
    assert_arrived(&rig.arrivals(id)[3..], &[(1, secs(130)), (2, secs(190))]);
    assert_eq!(rig.outcomes(id).await[3..], [(2, 1, TEMPORARY), (2, 2, Outcome::Delivered)]);
    let view = rig.view(id).await;
    assert_eq!((view.state, view.progress.generation, view.progress.attempt), (State::Succeeded, 2, 2));
    let after = rig.model.dead_letter(letter.id).await.unwrap().unwrap();
    assert_eq!((after.status, after.resolved_by.as_deref()), (DeadLetterStatus::Requeued, Some("ada")));
    assert_eq!(after.attempts, letter.attempts);
    assert_eq!(actions(&rig), ["requeue"]);
    assert_eq!(rig.events(id).await, [("requeue".to_owned(), Some("ada".to_owned()), 1, 3)]);
    for answer in [
        engine.requeue(letter.id, &ada()).await,
        engine.discard(letter.id, &ada()).await,
        engine.restore(letter.id, &ada()).await,
    ] {
        assert_eq!(status_of(answer), DeadLetterStatus::Requeued);
    }
    assert_eq!(actions(&rig), ["requeue"]);
}

#[tokio::test(start_paused = true)]
async fn a_discarded_one_has_failed_for_good_until_it_is_restored() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let id = dead(&rig, &engine).await;
    let letter = rig.dead_letter(id).await;
    assert_eq!(status_of(engine.restore(letter.id, &ada()).await), DeadLetterStatus::Pending);
    engine.discard(letter.id, &ada()).await.unwrap();
    let view = rig.view(id).await;
    assert_eq!((view.state, view.end.as_ref().unwrap().reason), (State::Failed, Some(Reason::Discarded)));
    let gone = rig.dead_letter(id).await;
    assert_eq!((gone.status, gone.resolved_by.as_deref()), (DeadLetterStatus::Cancelled, Some("ada")));
    assert_eq!(status_of(engine.discard(letter.id, &ada()).await), DeadLetterStatus::Cancelled);
    assert_eq!(status_of(engine.requeue(letter.id, &ada()).await), DeadLetterStatus::Cancelled);
    pass(secs(600)).await;
    assert_eq!(rig.arrivals(id).len(), 3);
    engine.restore(letter.id, &ada()).await.unwrap();
    let view = rig.view(id).await;
    assert_eq!(
        (view.state, view.end.unwrap().reason),
        (State::DeadLetter, Some(Reason::MaxAttemptsExceeded))
    );
    let back = rig.dead_letter(id).await;
    assert!(back.restored_at.is_some_and(|at| at > letter.created_at), "its period counts from then");
    assert_eq!(DeadLetterView { restored_at: None, ..back }, letter);
    assert_eq!(actions(&rig), ["discard", "restore"]);
    let events: Vec<_> = rig.events(id).await.into_iter().map(|event| (event.0, event.1)).collect();
    let by_ada = |word: &str| (word.to_owned(), Some("ada".to_owned()));
    assert_eq!(events, [by_ada("discard"), by_ada("restore")]);
    engine.requeue(letter.id, &ada()).await.unwrap();
    pass(secs(1)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_discarded_one_can_still_be_retried_by_hand() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let id = dead(&rig, &engine).await;
    let letter = rig.dead_letter(id).await.id;
    engine.discard(letter, &ada()).await.unwrap();
    engine.retry(id, &ada()).await.unwrap();
    pass(secs(1)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert_eq!(status_of(engine.restore(letter, &ada()).await), DeadLetterStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn of_many_retries_at_once_exactly_one_is_made() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = Arc::new(rig.start_on(store.clone()).await);
    let id = dead(&rig, &engine).await;
    let letter = rig.dead_letter(id).await.id;
    rig.always("a", Script::Slowly(secs(5), http(200)));
    // Everyone looks before anyone acts.
    store.next("facts", vec![Trouble::ToldLate(ms(10)); 64]);
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let engine = engine.clone();
        tasks.spawn(async move {
            let done = match number % 2 {
                0 => engine.retry(id, &ada()).await,
                _ => engine.requeue(letter, &ada()).await,
            };
            match done {
                Ok(_) => 1,
                Err(ActError::Refused { .. } | ActError::Resolved { .. }) => 0,
                Err(other) => panic!("{other:?}"),
            }
        });
    }
    let made: u32 = tasks.join_all().await.into_iter().sum();
    assert_eq!(made, 1);
    pass(secs(60)).await;
    assert_eq!(rig.arrivals(id).len(), 4);
    assert_eq!(rig.view(id).await.progress.generation, 2);
    assert_eq!((actions(&rig).len(), rig.events(id).await.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_has_expired_is_not_sent_on_its_way_again_and_stays_a_dead_letter() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(400))]);
    let engine = rig.start().await;
    let mut new = notification(&engine, "a", PLAIN);
    new.expires_at = Some(engine.now().later(secs(30)));
    let id = send(&engine, new).await;
    pass(secs(60)).await;
    let letter = rig.dead_letter(id).await.id;
    assert!(matches!(engine.requeue(letter, &ada()).await, Err(ActError::Expired { .. })));
    assert!(matches!(engine.retry(id, &ada()).await, Err(ActError::Expired { .. })));
    assert_eq!(rig.dead_letter(id).await.status, DeadLetterStatus::Pending);
    assert!(actions(&rig).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_act_is_done_to_its_end_though_whoever_asked_goes_away() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(400))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    let letter = rig.dead_letter(id).await;
    // Far from any sweep, the change is stored at once and told late; the asker has gone by then.
    pass(ms(100)).await;
    store.next("transition", [Trouble::ToldLate(ms(200))]);
    let begun = rig.elapsed();
    let given_up = tokio::time::timeout(ms(100), engine.requeue(letter.id, &ada())).await;
    assert!(given_up.is_err());
    pass(secs(1)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert_at(rig.arrivals(id)[1].1, begun + ms(200));
    // A setting that is stored is known here, too.
    store.next("put_setting", [Trouble::ToldLate(ms(200))]);
    let who = ada();
    let put = engine.put_setting("x", Some("1".to_owned()), "put", "x", &who);
    assert!(tokio::time::timeout(ms(100), put).await.is_err());
    pass(ms(101)).await;
    assert_eq!(engine.settings().values.get("x").map(String::as_str), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_an_act_that_is_being_stored() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(400))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    let letter = rig.dead_letter(id).await;
    store.next("transition", [Trouble::DoneLate(secs(2))]);
    let who = ada();
    let (asked, left) = tokio::join!(engine.requeue(letter.id, &who), async {
        pass(ms(100)).await;
        engine.drain(secs(10)).await
    });
    assert_eq!((asked.unwrap().id, left.unwrap()), (id, 0));
    assert_eq!(rig.state(id).await, State::Pending);
}
