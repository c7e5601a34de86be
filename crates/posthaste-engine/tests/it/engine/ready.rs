//! What a try waits for before it is made: it is no part of its time, and nothing else waits for it.

use std::sync::Arc;

use posthaste_core::attempt::Outcome;
use posthaste_core::failure::FailureType;
use posthaste_core::reply::{Fault, Reply};
use posthaste_core::state::State;

use super::PLAIN;
use crate::rig::{
    BEGIN, FaultyStore, Rig, Script, Wait, assert_arrived, assert_at, http, ms, notification, pass, secs,
    send,
};

/// Tries of at most five seconds, and one quick try.
const SHORT: &str = r#"{"strategy": "fixed", "initialDelay": "60s", "maxAttempts": 2, "jitter": "none",
    "timeout": "5s", "quick": {"tries": 1, "delay": "1s", "jitter": false}}"#;

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_channel_is_no_part_of_the_time_of_a_try() {
    let rig = Rig::new();
    rig.waits("a", [Wait::For(secs(4)), Wait::For(secs(4))]);
    rig.script("a", [Script::Slowly(secs(4), http(503)), Script::Slowly(secs(4), http(200))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", SHORT)).await;
    pass(secs(30)).await;
    // The quick try comes after its own wait and that of the channel.
    assert_arrived(&rig.arrivals(id), &[(1, secs(4)), (1, secs(13))]);
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Delivered)]);
    let attempts = rig.attempts(id).await;
    assert_at(attempts[0].started_at.since(BEGIN), secs(4));
    assert_at(attempts[0].duration, secs(13));
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_vain_is_the_outcome_of_a_try_that_was_not_made() {
    let rig = Rig::new();
    let reply = Reply::fault(Fault::Dns, "no place");
    rig.waits("a", [Wait::InVain(secs(2), reply.clone()), Wait::InVain(secs(2), reply)]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", SHORT)).await;
    pass(secs(30)).await;
    assert!(rig.arrivals(id).is_empty());
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Failed(FailureType::NetworkFailure))]);
    let attempts = rig.attempts(id).await;
    assert_eq!((attempts[0].error.as_deref(), attempts[0].quick_tries.len()), (Some("no place"), 1));
    assert_eq!(rig.state(id).await, State::RetryScheduled);
    pass(secs(60)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
}

#[tokio::test(start_paused = true)]
async fn a_drain_gives_back_what_waits_for_its_channel() {
    let rig = Rig::new();
    rig.waits("a", [Wait::Forever]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    assert_eq!((rig.state(id).await, engine.busy()), (State::Processing, 1));
    assert_eq!(engine.drain(secs(5)).await.unwrap(), 0);
    assert_at(rig.elapsed(), secs(1));
    assert_eq!(rig.state(id).await, State::Pending);
    assert!(rig.attempts(id).await.is_empty() && rig.events(id).await.is_empty());
    let _other = rig.start().await;
    pass(secs(1)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_a_try_finish_its_attempt_without_the_wait() {
    let rig = Rig::new();
    rig.waits("a", [Wait::For(ms(0)), Wait::Forever]);
    rig.script("a", [Script::Answer(http(503))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", SHORT)).await;
    pass(secs(2)).await;
    assert_eq!(engine.drain(secs(5)).await.unwrap(), 0);
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Delivered)]);
    assert_eq!(rig.arrivals(id).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_is_never_ready_is_tried_all_the_same() {
    let rig = Rig::new();
    rig.waits("a", [Wait::Forever]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(11)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(10))]);
    assert_eq!(rig.state(id).await, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn an_expiry_during_the_wait_counts() {
    let rig = Rig::new();
    rig.waits("a", [Wait::For(secs(4))]);
    let engine = rig.start().await;
    let mut letter = notification(&engine, "a", PLAIN);
    letter.expires_at = Some(BEGIN.later(secs(3)));
    let id = send(&engine, letter).await;
    pass(secs(6)).await;
    assert!(rig.arrivals(id).is_empty());
    assert_eq!(rig.state(id).await, State::Expired);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_the_wait_while_outcomes_cannot_be_recorded() {
    let rig = Rig::new();
    rig.waits("a", [Wait::For(secs(4))]);
    rig.script("slow", [Script::Slowly(secs(1), http(200))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let waits = send(&engine, notification(&engine, "a", PLAIN)).await;
    send(&engine, notification(&engine, "slow", PLAIN)).await;
    store.refuse(&["settle", "release"]);
    pass(secs(6)).await;
    assert!(!engine.is_recording());
    assert!(rig.arrivals(waits).is_empty());
    store.refuse(&[]);
    pass(secs(5)).await;
    assert_eq!((rig.state(waits).await, rig.arrivals(waits).len()), (State::Succeeded, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_during_the_wait_is_not_sent_under() {
    let rig = Rig::new();
    rig.waits("a", [Wait::For(secs(9))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let (engine, _other) = (rig.start_on(store.clone()).await, rig.start().await);
    pass(secs(4)).await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(ms(10)).await;
    store.refuse(&["heartbeat"]);
    pass(secs(15)).await;
    // The other node sent it, and this one does not.
    store.refuse(&[]);
    pass(secs(15)).await;
    assert_eq!(rig.arrivals(id).len(), 1);
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Delivered)]);
}
