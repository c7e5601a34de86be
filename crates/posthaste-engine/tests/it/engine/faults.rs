//! A store that fails: what was done is kept until it is written down, and nothing new is begun meanwhile.

use std::sync::Arc;

use posthaste_core::attempt::Outcome;
use posthaste_core::state::State;

use super::PLAIN;
use crate::rig::{
    BEGIN, FaultyStore, Rig, Script, Trouble, ada, assert_arrived, assert_at, http, ms, notification, pass,
    secs, send,
};

/// Every method that writes, and the ones that look for work.
const ALL: [&str; 12] = [
    "heartbeat",
    "accept",
    "claim",
    "settle",
    "release",
    "wakes",
    "expiring",
    "buckets",
    "overdue",
    "overdue_by_own_age",
    "transition",
    "settings",
];

#[tokio::test(start_paused = true)]
async fn while_outcomes_cannot_be_recorded_they_are_kept_and_nothing_new_is_sent() {
    let rig = Rig::new();
    rig.script("slow", [Script::Slowly(secs(2), http(200)), Script::Slowly(secs(4), http(503))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let first = send(&engine, notification(&engine, "slow", PLAIN)).await;
    let second = send(&engine, notification(&engine, "slow", PLAIN)).await;
    let mut later = notification(&engine, "a", PLAIN);
    later.not_before = Some(BEGIN.later(secs(10)));
    let later = send(&engine, later).await;
    pass(secs(1)).await;
    store.refuse(&["settle", "release"]);
    pass(ms(1_500)).await;
    assert!(!engine.is_recording());
    let during = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(28)).await;
    assert_eq!(rig.channel.arrivals().len(), 2);
    assert_eq!(rig.state(first).await, State::Processing);
    assert_eq!((rig.state(later).await, rig.state(during).await), (State::Pending, State::Pending));
    store.refuse(&[]);
    pass(secs(2)).await;
    assert!(engine.is_recording());
    for (id, came) in [(first, 0), (later, 30), (during, 30)] {
        assert_eq!(rig.state(id).await, State::Succeeded);
        assert_eq!(rig.arrivals(id).len(), 1);
        assert!(rig.arrivals(id)[0].1 >= secs(came));
        assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Delivered)]);
    }
    assert_at(rig.attempts(first).await[0].duration, secs(2));
    pass(secs(60)).await;
    assert_arrived(&rig.arrivals(second), &[(1, secs(0)), (2, secs(64))]);
    assert!(rig.events(second).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_not_sent_while_outcomes_cannot_be_recorded() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    rig.script("slow", vec![Script::Slowly(secs(2), http(200)); 10]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let mut ids = vec![];
    for _ in 0..10 {
        ids.push(send(&engine, notification(&engine, "slow", PLAIN)).await);
    }
    pass(secs(1)).await;
    assert_eq!((rig.channel.arrivals().len(), engine.busy()), (2, 2));
    store.refuse(&["settle"]);
    pass(secs(30)).await;
    assert_eq!(rig.channel.arrivals().len(), 2);
    store.refuse(&[]);
    pass(secs(20)).await;
    for id in ids {
        assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
        assert!(rig.events(id).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_gone_for_half_a_minute_costs_time_and_nothing_else() {
    let rig = Rig::new();
    rig.script("slow", [Script::Slowly(secs(3), http(200))]);
    rig.script("fails", [Script::Answer(http(503))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let slow = send(&engine, notification(&engine, "slow", PLAIN)).await;
    let fails = send(&engine, notification(&engine, "fails", PLAIN)).await;
    let mut later = notification(&engine, "a", PLAIN);
    later.not_before = Some(BEGIN.later(secs(10)));
    let later = send(&engine, later).await;
    pass(secs(1)).await;
    store.refuse(&ALL);
    pass(secs(30)).await;
    assert_eq!(rig.channel.arrivals().len(), 2);
    store.refuse(&[]);
    pass(secs(2)).await;
    assert_eq!((rig.state(slow).await, rig.state(later).await), (State::Succeeded, State::Succeeded));
    pass(secs(30)).await;
    assert_arrived(&rig.arrivals(fails), &[(1, secs(0)), (2, secs(60))]);
    for id in [slow, fails, later] {
        assert!(rig.events(id).await.is_empty());
    }
    assert_eq!(engine.busy(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_was_recorded_though_the_answer_was_an_error_is_not_repeated() {
    let rig = Rig::new();
    rig.script("fails", [Script::Answer(http(503))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("settle", [Trouble::Lie]);
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    store.next("settle", [Trouble::Lie, Trouble::Refuse]);
    let fails = send(&engine, notification(&engine, "fails", PLAIN)).await;
    pass(secs(120)).await;
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Delivered)]);
    assert_eq!(rig.arrivals(id).len(), 1);
    assert_arrived(&rig.arrivals(fails), &[(1, secs(1)), (2, secs(61))]);
    assert_eq!(rig.attempts(fails).await.len(), 2);
    assert_eq!(engine.busy(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_was_recorded_under_an_error_is_still_made_at_its_time() {
    let rig = Rig::new();
    rig.script("fails", [Script::Answer(http(503))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    pass(secs(6)).await;
    store.next("settle", [Trouble::Lie]);
    let policy = PLAIN.replace("60s", "1s");
    let id = send(&engine, notification(&engine, "fails", &policy)).await;
    pass(secs(2)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(6)), (2, secs(7))]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_recorded_long_after_the_error_is_woken_by_the_safety_net() {
    let rig = Rig::new();
    rig.script("fails", [Script::Answer(http(503))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("settle", [Trouble::Lie]);
    store.next("wakes", vec![Trouble::Refuse; 3]);
    let policy = PLAIN.replace("60s", "1s");
    let id = send(&engine, notification(&engine, "fails", &policy)).await;
    pass(secs(10)).await;
    let arrivals = rig.arrivals(id);
    assert_eq!(arrivals.len(), 2);
    assert!((secs(1)..=secs(6)).contains(&arrivals[1].1), "{arrivals:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_failed_or_lied_loses_nothing() {
    for trouble in [Trouble::Refuse, Trouble::Lie] {
        let rig = Rig::new();
        let store = Arc::new(FaultyStore::on(&rig.model));
        let engine = rig.start_on(store.clone()).await;
        let mut new = notification(&engine, "a", PLAIN);
        new.not_before = Some(BEGIN.later(secs(7)));
        let id = send(&engine, new).await;
        store.next("claim", [trouble, trouble]);
        pass(secs(10)).await;
        let arrivals = rig.arrivals(id);
        assert_eq!(arrivals.len(), 1, "{trouble:?}");
        assert!(arrivals[0].1 <= secs(8), "{trouble:?} {arrivals:?}");
        assert!(rig.events(id).await.is_empty());
        assert_eq!(engine.busy(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_for_due_work_that_failed_is_made_again() {
    for method in ["wakes", "buckets", "expiring", "overdue", "overdue_by_own_age", "flow"] {
        let rig = Rig::new();
        let store = Arc::new(FaultyStore::on(&rig.model));
        let engine = rig.start_on(store.clone()).await;
        let mut new = notification(&engine, "a", PLAIN);
        new.not_before = Some(BEGIN.later(secs(7)));
        let id = send(&engine, new).await;
        let mut dying = notification(&engine, "a", PLAIN);
        dying.not_before = Some(BEGIN.later(secs(60)));
        dying.expires_at = Some(BEGIN.later(secs(8)));
        let dying = send(&engine, dying).await;
        pass(secs(6)).await;
        store.next(method, vec![Trouble::Refuse; 3]);
        pass(secs(3)).await;
        assert_eq!(rig.arrivals(id).len(), 1, "{method}");
        assert!(rig.arrivals(id)[0].1 <= ms(7_700), "{method}");
        assert_eq!(rig.state(dying).await, State::Expired, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_was_made_though_the_answer_was_an_error_holds() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let mut new = notification(&engine, "a", PLAIN);
    new.not_before = Some(BEGIN.later(secs(7)));
    let id = send(&engine, new).await;
    store.next("transition", [Trouble::Lie]);
    assert!(engine.cancel(id, &ada()).await.is_err());
    assert!(engine.cancel(id, &ada()).await.is_err());
    assert_eq!(rig.state(id).await, State::Cancelled);
    assert_eq!((rig.audit().len(), rig.events(id).await.len()), (1, 1));
    pass(secs(20)).await;
    assert!(rig.arrivals(id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_can_never_be_recorded_is_set_aside_and_the_others_go_on() {
    let rig = Rig::new();
    rig.script("slow", vec![Script::Slowly(secs(1), http(200)); 3]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let mut ids = vec![];
    for _ in 0..3 {
        ids.push(send(&engine, notification(&engine, "slow", PLAIN)).await);
    }
    // Whatever comes together, and then the first of them alone.
    store.next("settle", [Trouble::Nonsense, Trouble::Nonsense]);
    pass(secs(5)).await;
    let mut states = vec![];
    for id in ids {
        states.push(rig.state(id).await);
    }
    assert_eq!(states.iter().filter(|state| **state == State::Processing).count(), 1);
    assert_eq!(states.iter().filter(|state| **state == State::Succeeded).count(), 2);
    assert_eq!((engine.busy(), engine.is_recording()), (0, true));
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_ended_does_not_keep_the_others_from_expiring() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let mut ids = vec![];
    for _ in 0..5 {
        let mut new = notification(&engine, "a", PLAIN);
        (new.not_before, new.expires_at) = (Some(BEGIN.later(secs(60))), Some(BEGIN.later(secs(10))));
        ids.push(send(&engine, new).await);
    }
    // The page makes no sense to the store, because of its first row.
    store.next("transition", [Trouble::Nonsense; 2]);
    pass(secs(11)).await;
    let mut expired = 0;
    for id in ids {
        expired += usize::from(rig.state(id).await == State::Expired);
    }
    assert_eq!(expired, 4);
}

#[tokio::test(start_paused = true)]
async fn the_safety_net_looks_soon_after_a_long_outage() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model).shared());
    let _engine = rig.start_on(store.clone()).await;
    pass(secs(20)).await;
    store.refuse(&["buckets"]);
    pass(secs(60)).await;
    store.refuse(&[]);
    // The sweep that began in the outage ends now.
    pass(secs(1)).await;
    let before = store.calls("buckets");
    pass(secs(30)).await;
    assert!(store.calls("buckets") > before + 2, "an outage counts as work of the sweep");
}
