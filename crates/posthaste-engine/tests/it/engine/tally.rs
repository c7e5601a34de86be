//! What a process counts of its own doings, and whether it notices that a part of it is gone.

use std::sync::Arc;

use posthaste_core::failure::FailureType;
use posthaste_core::state::State;
use posthaste_engine::store::Idempotency;
use posthaste_engine::tally::{Histogram, Tally};

use super::PLAIN;
use crate::rig::{FaultyStore, Rig, Script, Trouble, ada, http, ms, notification, pass, secs, send};

/// One try, and at most two quick ones behind it.
const QUICK: &str = r#"{"strategy": "none", "jitter": "none", "timeout": "10s", "deadLetter": false,
    "quick": {"tries": 2, "delay": "1s", "backoff": "constant", "jitter": false}}"#;

fn failed(tally: &Tally, wanted: FailureType) -> u64 {
    tally.attempts_failed.iter().find(|(failure_type, _)| *failure_type == wanted).unwrap().1
}

fn ended(tally: &Tally, wanted: State) -> u64 {
    tally.ends.iter().find(|(state, _)| *state == wanted).unwrap().1
}

/// The places and numbers of the counts that are not zero.
fn filled(histogram: &Histogram) -> Vec<(usize, u64)> {
    histogram.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_engine_has_counted_nothing() {
    let rig = Rig::new();
    let tally = rig.start().await.tally();
    assert_eq!((tally.accepted, tally.attempts_delivered, tally.store_errors), (0, 0, 0));
    assert!(tally.ends.iter().all(|(_, count)| *count == 0));
    assert!(tally.attempts_failed.iter().all(|(_, count)| *count == 0));
    assert_eq!((tally.lateness_main, tally.lateness_retry), Default::default());
}

#[tokio::test(start_paused = true)]
async fn attempts_retries_and_ends_are_counted_by_what_came_of_them() {
    let rig = Rig::new();
    rig.script("b", [Script::Answer(http(503)), Script::Answer(http(429))]);
    rig.always("c", Script::Answer(http(400)));
    let engine = rig.start().await;
    for to in ["a", "b", "c"] {
        send(&engine, notification(&engine, to, PLAIN)).await;
    }
    pass(secs(130)).await;
    let tally = engine.tally();
    assert_eq!((tally.accepted, tally.attempts_delivered), (3, 2));
    assert_eq!(failed(&tally, FailureType::Temporary), 1);
    assert_eq!(failed(&tally, FailureType::RateLimit), 1);
    assert_eq!(failed(&tally, FailureType::Permanent), 1);
    assert_eq!(tally.attempts_failed.iter().map(|(_, count)| count).sum::<u64>(), 3);
    assert_eq!((tally.retries_scheduled, tally.quick_tries), (2, 0));
    assert_eq!((ended(&tally, State::Succeeded), ended(&tally, State::DeadLetter)), (2, 1));
    assert_eq!(tally.ends.iter().map(|(_, count)| count).sum::<u64>(), 3);
    assert_eq!((tally.lateness_main.count(), tally.lateness_retry.count()), (3, 2));
    assert_eq!((tally.leases_lost, tally.store_errors), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn ends_without_an_attempt_are_counted_too() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut doomed = notification(&engine, "a", PLAIN);
    doomed.not_before = Some(engine.now().later(secs(60)));
    let mut expiring = notification(&engine, "a", PLAIN);
    expiring.not_before = doomed.not_before;
    expiring.expires_at = Some(engine.now().later(secs(5)));
    let (doomed, _) = (send(&engine, doomed).await, send(&engine, expiring).await);
    engine.cancel(doomed, &ada()).await.unwrap();
    pass(secs(10)).await;
    let tally = engine.tally();
    assert_eq!((ended(&tally, State::Cancelled), ended(&tally, State::Expired)), (1, 1));
    assert_eq!((tally.attempts_delivered, tally.lateness_main.count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn quick_tries_are_counted_and_the_attempt_only_once() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    send(&engine, notification(&engine, "a", QUICK)).await;
    pass(secs(10)).await;
    let tally = engine.tally();
    assert_eq!((tally.quick_tries, failed(&tally, FailureType::Temporary)), (2, 1));
    assert_eq!((tally.lateness_main.count(), ended(&tally, State::Failed)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_twin_is_not_counted_as_accepted() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let key = Idempotency {
        tenant: "default".parse().unwrap(),
        key: "k".to_owned(),
        hash: [0; 32],
        answer: vec![],
    };
    for _ in 0..2 {
        let pair = vec![notification(&engine, "a", PLAIN), notification(&engine, "b", PLAIN)];
        engine.accept(Some(key.clone()), pair).await.unwrap();
    }
    assert_eq!(engine.tally().accepted, 2);
}

#[tokio::test(start_paused = true)]
async fn lateness_is_counted_from_the_due_time_in_its_lane() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 1;
    rig.script("slow", [Script::Slowly(ms(300), http(503)), Script::Slowly(secs(2), http(200))]);
    let engine = rig.start().await;
    send(&engine, notification(&engine, "slow", PLAIN)).await;
    send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(120)).await;
    let tally = engine.tally();
    // The first was on time, the second waited for the one place; the retry was on time.
    let [first, second] = [0, Histogram::BOUNDS.iter().position(|bound| *bound == ms(500)).unwrap()];
    assert_eq!(filled(&tally.lateness_main), [(first, 1), (second, 1)]);
    assert!((ms(300)..ms(310)).contains(&tally.lateness_main.sum), "{:?}", tally.lateness_main.sum);
    assert_eq!(tally.lateness_retry.count(), 1);
    assert!(tally.lateness_retry.sum <= ms(5));
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_and_taken_back_is_counted_where_it_happens() {
    let rig = Rig::new();
    rig.always("slow", Script::Slowly(secs(2), http(200)));
    let first = rig.start().await;
    let store = Arc::new(FaultyStore::on(&rig.model));
    let cut_off = rig.start_on(store.clone()).await;
    send(&cut_off, notification(&cut_off, "slow", PLAIN)).await;
    pass(secs(1)).await;
    store.refuse(&["heartbeat", "settle"]);
    pass(secs(30)).await;
    assert_eq!((first.tally().leases_taken_back, ended(&first.tally(), State::Succeeded)), (1, 1));
    store.refuse(&["heartbeat"]);
    pass(secs(2)).await;
    let tally = cut_off.tally();
    assert_eq!((tally.leases_lost, tally.attempts_delivered), (1, 1));
    assert_eq!((tally.leases_taken_back, ended(&tally, State::Succeeded)), (0, 0));
    assert!(tally.store_errors > 10);
    assert_eq!(first.tally().store_errors, 0);
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_store_are_counted_in_every_loop() {
    for method in ["accept", "claim", "settle", "release", "wakes", "heartbeat"] {
        let rig = Rig::new();
        let store = Arc::new(FaultyStore::on(&rig.model));
        let engine = rig.start_on(store.clone()).await;
        pass(ms(10)).await;
        store.next(method, [Trouble::Refuse]);
        if method == "release" {
            store.next("claim", [Trouble::Refuse]);
        }
        let mut later = notification(&engine, "a", PLAIN);
        later.not_before = Some(engine.now().later(secs(1)));
        let _ = engine.accept(None, vec![later]).await;
        pass(secs(3)).await;
        let wanted = if method == "release" { 2 } else { 1 };
        assert_eq!(engine.tally().store_errors, wanted, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_breaks_down_leaves_the_engine_whole_and_so_does_a_drain() {
    let rig = Rig::new();
    rig.script("a", [Script::Panic]);
    let engine = rig.start().await;
    send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(70)).await;
    assert!(engine.is_whole());
    assert_eq!(failed(&engine.tally(), FailureType::Unknown), 1);
    engine.drain(secs(1)).await.unwrap();
    assert!(engine.is_whole());
}
