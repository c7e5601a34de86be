//! What runs out of time: expiry and the greatest age.

use posthaste_core::id::NotificationId;
use posthaste_core::reason::Reason;
use posthaste_core::state::State;

use super::PLAIN;
use crate::rig::{BEGIN, Rig, Script, assert_arrived, assert_at, http, ms, notification, pass, secs, send};

/// Two places for one destination, and a try that may take ten minutes.
const PATIENT: &str = r#"{"strategy": "fixed", "initialDelay": "60s", "jitter": "none", "maxAttempts": 1,
    "timeout": "600s", "quick": {"tries": 0}}"#;

async fn filled() -> (Rig, posthaste_engine::engine::Engine) {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    rig.settings.age_check = secs(60);
    rig.longest_timeout = secs(600);
    rig.always("hangs", Script::Hang);
    let engine = rig.start().await;
    for _ in 0..2 {
        send(&engine, notification(&engine, "hangs", PATIENT)).await;
    }
    pass(ms(10)).await;
    assert_eq!(rig.channel.arrivals().len(), 2);
    (rig, engine)
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_time_expires_at_its_time() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut new = notification(&engine, "a", PLAIN);
    new.not_before = Some(BEGIN.later(secs(60)));
    new.expires_at = Some(BEGIN.later(ms(30_500)));
    let id = send(&engine, new).await;
    pass(ms(30_490)).await;
    assert_eq!(rig.state(id).await, State::Pending);
    pass(secs(60)).await;
    let view = rig.view(id).await;
    assert_eq!((view.state, view.progress.attempt), (State::Expired, 0));
    assert_at(view.end.unwrap().at.since(BEGIN), ms(30_500));
    assert!(rig.arrivals(id).is_empty());
    assert!(rig.events(id).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_retry_expires_at_its_time() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    let mut new = notification(&engine, "a", PLAIN);
    new.expires_at = Some(BEGIN.later(ms(90_500)));
    let id = send(&engine, new).await;
    pass(secs(300)).await;
    let view = rig.view(id).await;
    assert_eq!((view.state, view.progress.attempt), (State::Expired, 2));
    let end = view.end.unwrap();
    assert_at(end.at.since(BEGIN), ms(90_500));
    assert_eq!((end.reason, end.dead_letter), (None, None));
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(60))]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_the_expiry_ends_as_expired_and_a_success_still_counts() {
    for (status, state) in [(503, State::Expired), (200, State::Succeeded)] {
        let rig = Rig::new();
        rig.script("a", [Script::Slowly(secs(5), http(status))]);
        let engine = rig.start().await;
        let mut new = notification(&engine, "a", PLAIN);
        new.expires_at = Some(BEGIN.later(secs(2)));
        let id = send(&engine, new).await;
        pass(secs(4)).await;
        assert_eq!(rig.state(id).await, State::Processing);
        pass(secs(2)).await;
        assert_eq!(rig.state(id).await, state);
        assert_eq!(rig.attempts(id).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_expired_when_it_comes_is_stored_and_not_sent() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut new = notification(&engine, "a", PLAIN);
    new.expires_at = Some(BEGIN);
    let id = send(&engine, new).await;
    pass(ms(1)).await;
    assert_eq!(rig.state(id).await, State::Expired);
    assert!(rig.arrivals(id).is_empty());
    assert!(rig.attempts(id).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_parked_one_expires_at_its_time() {
    let (rig, engine) = filled().await;
    pass(secs(6)).await;
    let mut ids = vec![];
    for expiry in [ms(7_300), ms(43_700)] {
        let mut new = notification(&engine, "b", PLAIN);
        new.expires_at = Some(BEGIN.later(expiry));
        ids.push((send(&engine, new).await, expiry));
    }
    pass(secs(1)).await;
    for (id, expiry) in ids {
        assert_eq!(rig.state(id).await, State::Pending);
        pass((expiry + ms(10)).saturating_sub(rig.elapsed())).await;
        let view = rig.view(id).await;
        assert_eq!(view.state, State::Expired);
        assert_at(view.end.unwrap().at.since(BEGIN), expiry);
        assert!(rig.arrivals(id).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_parked_for_too_long_is_buried() {
    let (rig, engine) = filled().await;
    let policy = PLAIN.replacen('{', r#"{"maxAge": "30s", "#, 1);
    let old = send(&engine, notification(&engine, "b", &policy)).await;
    let without = policy.replacen('{', r#"{"deadLetter": false, "#, 1);
    let also_old = send(&engine, notification(&engine, "b", &without)).await;
    let young = send(&engine, notification(&engine, "b", PLAIN)).await;
    pass(secs(29)).await;
    assert_eq!(rig.state(old).await, State::Pending);
    pass(secs(62)).await;
    for id in [old, also_old] {
        assert_eq!(rig.state(id).await, State::DeadLetter);
        let dead = rig.dead_letter(id).await;
        assert_eq!((dead.reason, &*dead.text), (Reason::MaxAgeExceeded, Reason::MaxAgeExceeded.words()));
        assert!(dead.attempts.is_empty() && rig.arrivals(id).is_empty());
        assert_eq!(rig.view(id).await.progress.attempt, 0);
    }
    assert_eq!(rig.state(young).await, State::Pending);
    pass(secs(600)).await;
    assert_eq!(rig.state(young).await, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn one_look_buries_pages_of_what_is_too_old_behind_a_page_of_what_is_not() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    rig.settings.batch = 20;
    rig.settings.age_check = secs(60);
    rig.longest_timeout = secs(600);
    rig.always("hangs", Script::Hang);
    let engine = rig.start().await;
    // Every place for first attempts is taken, two by one destination and one by another.
    for destination in ["http://one", "http://one", "http://two"] {
        let mut new = notification(&engine, "hangs", PATIENT);
        new.destination = destination.into();
        send(&engine, new).await;
    }
    pass(secs(1)).await;
    assert_eq!(rig.channel.arrivals().len(), 3);
    let short = PLAIN.replacen('{', r#"{"maxAge": "30s", "#, 1);
    let (mut young, mut old) = (vec![], vec![]);
    for (policy, ids, count) in [(PLAIN, &mut young, 25), (&short, &mut old, 45)] {
        for number in 0..count {
            // Many of one destination, and many destinations.
            for destination in ["http://one".to_owned(), format!("http://{number}")] {
                let mut new = notification(&engine, "a", policy);
                new.destination = destination.as_str().into();
                ids.push(send(&engine, new).await);
            }
        }
    }
    pass(secs(58)).await;
    assert_eq!(in_state(&rig, &old, State::Pending).await, 90, "nobody has looked yet");
    pass(secs(2)).await;
    assert_eq!(in_state(&rig, &old, State::DeadLetter).await, 90);
    assert_eq!(in_state(&rig, &young, State::Pending).await, 50);
}

async fn in_state(rig: &Rig, ids: &[NotificationId], state: State) -> usize {
    let mut count = 0;
    for id in ids {
        count += usize::from(rig.state(*id).await == state);
    }
    count
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_after_an_attempt_is_buried_at_once() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    let policy = PLAIN.replacen('{', r#"{"maxAge": "30s", "#, 1);
    let id = send(&engine, notification(&engine, "a", &policy)).await;
    pass(secs(61)).await;
    assert_eq!(rig.dead_letter(id).await.reason, Reason::MaxAgeExceeded);
    assert_eq!(rig.arrivals(id).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn quick_tries_do_not_go_on_past_the_expiry() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    let policy = r#"{"strategy": "fixed", "initialDelay": "60s", "jitter": "none", "timeout": "5s",
        "quick": {"tries": 5, "delay": "1s", "backoff": "constant", "jitter": false}}"#;
    let mut new = notification(&engine, "a", policy);
    new.expires_at = Some(BEGIN.later(ms(2_500)));
    let id = send(&engine, new).await;
    pass(secs(10)).await;
    assert_eq!(rig.state(id).await, State::Expired);
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (1, secs(1)), (1, secs(2))]);
}
