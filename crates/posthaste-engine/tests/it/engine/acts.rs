//! What people ask for while a notification lives: cancel and retry now.

use posthaste_core::attempt::Outcome;
use posthaste_core::failure::FailureType;
use posthaste_core::id::NotificationId;
use posthaste_core::state::State;
use posthaste_engine::acts::ActError;
use posthaste_engine::engine::Engine;

use super::PLAIN;
use crate::rig::{
    BEGIN, Rig, Script, ada, assert_arrived, assert_at, http, ms, notification, pass, secs, send, someone_of,
};

fn refused_in<T>(answer: Result<T, ActError>) -> State {
    match answer {
        Err(ActError::Refused { state, .. }) => state,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was done"),
    }
}

/// The only audit row: who, what, to what, to how many, and whose.
fn assert_audited(rig: &Rig, action: &str, id: NotificationId) {
    let rows = rig.audit();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let audit = &rows[0].audit;
    assert_eq!((&*audit.actor, &*audit.action, rows[0].count), ("ada", action, 1));
    assert_eq!(audit.target, id.to_string());
    assert_eq!(audit.tenant.as_ref().map(|tenant| tenant.as_str()), Some("default"));
}

async fn waiting(engine: &Engine, to: &str) -> NotificationId {
    let mut new = notification(engine, to, PLAIN);
    new.not_before = Some(engine.now().later(secs(60)));
    send(engine, new).await
}

#[tokio::test(start_paused = true)]
async fn cancelled_while_it_waits_is_never_sent() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let id = waiting(&engine, "a").await;
    pass(secs(5)).await;
    assert_eq!(engine.cancel(id, &ada()).await.unwrap().standing.state, State::Pending);
    let view = rig.view(id).await;
    assert_eq!((view.state, view.progress.attempt), (State::Cancelled, 0));
    assert_audited(&rig, "cancel", id);
    assert_at(rig.audit()[0].audit.at.since(BEGIN), secs(5));
    assert_eq!(rig.events(id).await, [("cancel".to_owned(), Some("ada".to_owned()), 1, 1)]);
    pass(secs(200)).await;
    assert!(rig.arrivals(id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn cancelled_while_it_waits_for_a_retry_is_not_sent_again() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(5)).await;
    assert_eq!(engine.cancel(id, &ada()).await.unwrap().standing.state, State::RetryScheduled);
    pass(secs(200)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Cancelled, 1));
    assert_eq!(rig.view(id).await.progress.attempt, 1);
    assert_eq!(rig.events(id).await, [("cancel".to_owned(), Some("ada".to_owned()), 1, 2)]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_in_flight_a_success_counts_and_a_failure_ends_as_cancelled() {
    let failed = Outcome::Failed(FailureType::Temporary);
    let cases = [(200, State::Succeeded, Outcome::Delivered), (503, State::Cancelled, failed)];
    for (status, state, outcome) in cases {
        let rig = Rig::new();
        rig.always("a", Script::Slowly(secs(5), http(status)));
        let engine = rig.start().await;
        let id = send(&engine, notification(&engine, "a", PLAIN)).await;
        pass(secs(2)).await;
        assert_eq!(engine.cancel(id, &ada()).await.unwrap().standing.state, State::Processing);
        let view = rig.view(id).await;
        assert_eq!((view.state, view.cancel_requested), (State::Processing, true));
        assert_audited(&rig, "cancel", id);
        pass(secs(200)).await;
        assert_eq!(rig.state(id).await, state);
        assert_arrived(&rig.arrivals(id), &[(1, secs(0))]);
        assert_eq!(rig.outcomes(id).await, [(1, 1, outcome)]);
        assert_eq!(rig.events(id).await.len(), 1);
        assert!(rig.model.inspect(|tables| tables.dead_letters.is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_asked_of_a_node_that_dies_is_heard_by_the_next_one() {
    let rig = Rig::new();
    rig.always("a", Script::Hang);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(2)).await;
    engine.cancel(id, &ada()).await.unwrap();
    drop(engine);
    let _other = rig.start().await;
    pass(secs(30)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Cancelled, 1));
    assert!(rig.attempts(id).await.is_empty());
    let words: Vec<String> = rig.events(id).await.into_iter().map(|event| event.0).collect();
    assert_eq!(words, ["cancel", "interrupted"]);
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_cannot_be_cancelled_and_says_how_it_ended() {
    let rig = Rig::new();
    rig.always("bad", Script::Answer(http(400)));
    let engine = rig.start().await;
    let delivered = send(&engine, notification(&engine, "a", PLAIN)).await;
    let dead = send(&engine, notification(&engine, "bad", PLAIN)).await;
    let without = PLAIN.replacen('{', r#"{"deadLetter": false, "#, 1);
    let failed = send(&engine, notification(&engine, "bad", &without)).await;
    let cancelled = waiting(&engine, "a").await;
    engine.cancel(cancelled, &ada()).await.unwrap();
    let mut late = notification(&engine, "a", PLAIN);
    late.expires_at = Some(BEGIN);
    let expired = send(&engine, late).await;
    pass(ms(10)).await;
    let ends = [
        (delivered, State::Succeeded),
        (dead, State::DeadLetter),
        (failed, State::Failed),
        (cancelled, State::Cancelled),
        (expired, State::Expired),
    ];
    let audited = rig.audit().len();
    for (id, state) in ends {
        assert_eq!(refused_in(engine.cancel(id, &ada()).await), state);
        assert_eq!(refused_in(engine.retry_now(id, &ada()).await), state);
        if !matches!(state, State::DeadLetter | State::Failed) {
            assert_eq!(refused_in(engine.retry(id, &ada()).await), state);
        }
        assert_eq!(rig.state(id).await, state);
    }
    assert_eq!(rig.audit().len(), audited);
}

#[tokio::test(start_paused = true)]
async fn what_lives_cannot_be_retried() {
    let rig = Rig::new();
    rig.script("slow", [Script::Slowly(secs(5), http(503)), Script::Hang]);
    let engine = rig.start().await;
    let pending = waiting(&engine, "a").await;
    let id = send(&engine, notification(&engine, "slow", PLAIN)).await;
    pass(secs(1)).await;
    assert_eq!(refused_in(engine.retry_now(pending, &ada()).await), State::Pending);
    assert_eq!(refused_in(engine.retry(pending, &ada()).await), State::Pending);
    assert_eq!(refused_in(engine.retry_now(id, &ada()).await), State::Processing);
    assert_eq!(refused_in(engine.retry(id, &ada()).await), State::Processing);
    pass(secs(5)).await;
    assert_eq!(refused_in(engine.retry(id, &ada()).await), State::RetryScheduled);
    pass(secs(60)).await;
    assert_eq!(refused_in(engine.retry_now(id, &ada()).await), State::Retrying);
    assert!(rig.audit().is_empty() && rig.events(id).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn retry_now_makes_a_scheduled_retry_due_at_once() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(503)), Script::Answer(http(503))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(10)).await;
    assert_eq!(engine.retry_now(id, &ada()).await.unwrap().standing.state, State::RetryScheduled);
    pass(secs(100)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(10)), (3, secs(70))]);
    assert_audited(&rig, "retry-now", id);
    assert_eq!(rig.events(id).await, [("retry-now".to_owned(), Some("ada".to_owned()), 1, 2)]);
    assert_eq!(rig.state(id).await, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn what_is_another_tenants_is_not_found_and_does_not_change() {
    let rig = Rig::new();
    rig.always("bad", Script::Answer(http(400)));
    let engine = rig.start().await;
    let pending = waiting(&engine, "a").await;
    let dead = send(&engine, notification(&engine, "bad", PLAIN)).await;
    pass(ms(10)).await;
    let letter = rig.dead_letter(dead).await;
    let before = rig.model.inspect(|tables| format!("{:?}{:?}", tables.queue, tables.ended));
    let eve = someone_of("other");
    let answers = [
        engine.cancel(pending, &eve).await,
        engine.retry_now(pending, &eve).await,
        engine.retry(dead, &eve).await,
        engine.requeue(letter.id, &eve).await,
        engine.discard(letter.id, &eve).await,
        engine.restore(letter.id, &eve).await,
    ];
    for answer in answers {
        assert!(matches!(answer, Err(ActError::NotFound { .. })), "{answer:?}");
    }
    assert_eq!(rig.model.inspect(|tables| format!("{:?}{:?}", tables.queue, tables.ended)), before);
    assert_eq!(rig.dead_letter(dead).await, letter);
    assert!(rig.audit().is_empty());
    let unknown = engine.notification_id();
    assert!(matches!(engine.cancel(unknown, &ada()).await, Err(ActError::NotFound { .. })));
    engine.cancel(pending, &someone_of("default")).await.unwrap();
    assert_eq!(rig.state(pending).await, State::Cancelled);
}
