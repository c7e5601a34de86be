//! What a process counts of its own doings, and whether it notices that a part of it is gone.

use std::sync::Arc;

use posthaste_core::attempt::Outcome;
use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::state::State;
use posthaste_engine::metrics::{Histogram, Metrics};
use posthaste_engine::store::Idempotency;

use super::PLAIN;
use crate::rig::{FaultyStore, Rig, Script, Trouble, ada, http, ms, notification, pass, secs, send};

/// One try, and at most two quick ones behind it.
const QUICK: &str = r#"{"strategy": "none", "jitter": "none", "timeout": "10s", "deadLetter": false,
    "quick": {"tries": 2, "delay": "1s", "backoff": "constant", "jitter": false}}"#;

fn failed(metrics: &Metrics, wanted: FailureType) -> u64 {
    metrics.attempts_failed.iter().find(|(failure_type, _)| *failure_type == wanted).unwrap().1
}

fn ended(metrics: &Metrics, wanted: State) -> u64 {
    metrics.ends.iter().find(|(state, _)| *state == wanted).unwrap().1
}

/// The places and numbers of the counts that are not zero.
fn filled(histogram: &Histogram) -> Vec<(usize, u64)> {
    histogram.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_engine_has_counted_nothing() {
    let rig = Rig::new();
    let metrics = rig.start().await.metrics();
    assert_eq!((metrics.accepted, metrics.attempts_delivered, metrics.store_errors), (0, 0, 0));
    assert!(metrics.ends.iter().all(|(_, count)| *count == 0));
    assert!(metrics.attempts_failed.iter().all(|(_, count)| *count == 0));
    assert_eq!((metrics.lateness_main, metrics.lateness_retry), Default::default());
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
    let metrics = engine.metrics();
    assert_eq!((metrics.accepted, metrics.attempts_delivered), (3, 2));
    assert_eq!(failed(&metrics, FailureType::Temporary), 1);
    assert_eq!(failed(&metrics, FailureType::RateLimit), 1);
    assert_eq!(failed(&metrics, FailureType::Permanent), 1);
    assert_eq!(metrics.attempts_failed.iter().map(|(_, count)| count).sum::<u64>(), 3);
    assert_eq!((metrics.retries_scheduled, metrics.quick_tries), (2, 0));
    assert_eq!((ended(&metrics, State::Succeeded), ended(&metrics, State::DeadLetter)), (2, 1));
    assert_eq!(metrics.ends.iter().map(|(_, count)| count).sum::<u64>(), 3);
    assert_eq!((metrics.lateness_main.count(), metrics.lateness_retry.count()), (3, 2));
    assert_eq!((metrics.leases_lost, metrics.store_errors), (0, 0));
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
    let metrics = engine.metrics();
    assert_eq!((ended(&metrics, State::Cancelled), ended(&metrics, State::Expired)), (1, 1));
    assert_eq!((metrics.attempts_delivered, metrics.lateness_main.count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn quick_tries_are_counted_and_the_attempt_only_once() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    send(&engine, notification(&engine, "a", QUICK)).await;
    pass(secs(10)).await;
    let metrics = engine.metrics();
    assert_eq!((metrics.quick_tries, failed(&metrics, FailureType::Temporary)), (2, 1));
    assert_eq!((metrics.lateness_main.count(), ended(&metrics, State::Failed)), (1, 1));
    // Each try is a send, and the pauses between them are not.
    let [sends] = engine.send_times()[..] else { panic!("{:?}", engine.send_times()) };
    assert_eq!((sends.channel, sends.outcome), (Channel::Webhook, Outcome::Failed(FailureType::Temporary)));
    assert_eq!((sends.times.count(), filled(&sends.times)), (3, vec![(0, 3)]));
}

#[tokio::test(start_paused = true)]
async fn a_send_that_hangs_is_counted_with_its_timeout() {
    let rig = Rig::new();
    rig.always("a", Script::Hang);
    let engine = rig.start().await;
    send(&engine, notification(&engine, "a", QUICK)).await;
    send(&engine, notification(&engine, "b", QUICK)).await;
    pass(secs(15)).await;
    let told: Vec<_> = engine.send_times().iter().map(|one| (one.outcome, one.times.sum)).collect();
    assert_eq!(told, [(Outcome::Delivered, ms(0)), (Outcome::Failed(FailureType::Timeout), secs(10))]);
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
    assert_eq!(engine.metrics().accepted, 2);
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
    let metrics = engine.metrics();
    // The first was on time, the second waited for the one place; the retry was on time.
    let [first, second] = [0, Histogram::BOUNDS.iter().position(|bound| *bound == ms(500)).unwrap()];
    assert_eq!(filled(&metrics.lateness_main), [(first, 1), (second, 1)]);
    assert!((ms(300)..ms(310)).contains(&metrics.lateness_main.sum), "{:?}", metrics.lateness_main.sum);
    assert_eq!(metrics.lateness_retry.count(), 1);
    assert!(metrics.lateness_retry.sum <= ms(5));
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
    assert_eq!((first.metrics().leases_taken_back, ended(&first.metrics(), State::Succeeded)), (1, 1));
    store.refuse(&["heartbeat"]);
    pass(secs(2)).await;
    let metrics = cut_off.metrics();
    assert_eq!((metrics.leases_lost, metrics.attempts_delivered), (1, 1));
    assert_eq!((metrics.leases_taken_back, ended(&metrics, State::Succeeded)), (0, 0));
    assert!(metrics.store_errors > 10);
    assert_eq!(first.metrics().store_errors, 0);
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
        assert_eq!(engine.metrics().store_errors, wanted, "{method}");
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
    assert_eq!(failed(&engine.metrics(), FailureType::Unknown), 1);
    engine.drain(secs(1)).await.unwrap();
    assert!(engine.is_whole());
}
