//! How an engine stops.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::Outcome;
use posthaste_core::state::State;
use posthaste_engine::accept::AcceptError;
use tokio::time::Instant;

use super::PLAIN;
use crate::rig::{
    BEGIN, FaultyStore, Rig, Script, Trouble, assert_arrived, assert_at, http, ms, notification, pass, secs,
    send,
};

#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_finished_and_the_rest_waits() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    rig.always("slow", Script::Slowly(secs(5), http(200)));
    let engine = rig.start().await;
    let mut ids = vec![];
    for _ in 0..6 {
        ids.push(send(&engine, notification(&engine, "slow", PLAIN)).await);
    }
    pass(secs(1)).await;
    assert_eq!((rig.channel.arrivals().len(), engine.busy()), (2, 2));
    assert_eq!(engine.drain(secs(30)).await.unwrap(), 0);
    assert_at(rig.elapsed(), secs(5));
    for id in &ids[..2] {
        assert_eq!(rig.state(*id).await, State::Succeeded);
        assert_eq!(rig.outcomes(*id).await, [(1, 1, Outcome::Delivered)]);
    }
    for id in &ids[2..] {
        assert_eq!(rig.state(*id).await, State::Pending);
        assert!(rig.arrivals(*id).is_empty() && rig.attempts(*id).await.is_empty());
        assert!(rig.events(*id).await.is_empty());
    }
    assert!(rig.model.inspect(|tables| tables.nodes.is_empty()));
    let _other = rig.start().await;
    pass(secs(60)).await;
    for id in ids {
        assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_and_unsent_is_given_back_as_if_nothing_had_been() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    pass(ms(10)).await;
    store.refuse(&["heartbeat"]);
    pass(secs(3)).await;
    // Its lease does not outlast a try, so it waits for a heartbeat.
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    assert_eq!((rig.state(id).await, engine.busy()), (State::Processing, 1));
    let (left, ()) = tokio::join!(engine.drain(secs(10)), async {
        pass(secs(1)).await;
        store.refuse(&[]);
    });
    assert_eq!(left.unwrap(), 0);
    assert_eq!(rig.state(id).await, State::Pending);
    assert!(
        rig.arrivals(id).is_empty() && rig.attempts(id).await.is_empty() && rig.events(id).await.is_empty()
    );
    assert!(rig.model.inspect(|tables| tables.nodes.is_empty()));
    let _other = rig.start().await;
    pass(secs(1)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_unsent_goes_back_to_its_lane() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(503))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(55)).await;
    store.refuse(&["heartbeat"]);
    pass(secs(6)).await;
    assert_eq!(rig.state(id).await, State::Retrying);
    let (left, ()) = tokio::join!(engine.drain(secs(10)), async {
        pass(secs(1)).await;
        store.refuse(&[]);
    });
    assert_eq!(left.unwrap(), 0);
    let view = rig.view(id).await;
    assert_eq!((view.state, view.progress.attempt), (State::RetryScheduled, 2));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_in_its_quick_tries_is_finished() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(503)), Script::Answer(http(503))]);
    let engine = rig.start().await;
    let policy = r#"{"strategy": "fixed", "initialDelay": "60s", "jitter": "none", "timeout": "5s",
        "quick": {"tries": 3, "delay": "2s", "backoff": "constant", "jitter": false}}"#;
    let id = send(&engine, notification(&engine, "a", policy)).await;
    pass(secs(1)).await;
    assert_eq!(engine.drain(secs(30)).await.unwrap(), 0);
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (1, secs(2)), (1, secs(4))]);
}

#[tokio::test(start_paused = true)]
async fn when_patience_is_over_the_rest_is_counted_and_delivered_by_another_node() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 6;
    rig.script("hangs", vec![Script::Hang; 3]);
    let engine = rig.start().await;
    let other = rig.start().await;
    let mut ids = vec![];
    for _ in 0..5 {
        ids.push(send(&engine, notification(&engine, "hangs", PLAIN)).await);
    }
    pass(secs(1)).await;
    assert_eq!(engine.drain(secs(4)).await.unwrap(), 3);
    assert_at(rig.elapsed(), secs(5));
    pass(secs(20)).await;
    for (number, id) in ids.into_iter().enumerate() {
        assert_eq!(rig.state(id).await, State::Succeeded);
        let events: Vec<String> = rig.events(id).await.into_iter().map(|event| event.0).collect();
        let (tries, expected): (usize, &[&str]) = if number < 3 { (2, &["interrupted"]) } else { (1, &[]) };
        assert_eq!(
            (rig.arrivals(id).len(), &events[..]),
            (tries, &expected.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()[..])
        );
    }
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_record_gives_back_what_is_unsent() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.refuse(&["settle"]);
    let sent = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    let unsent = send(&engine, notification(&engine, "a", PLAIN)).await;
    let (left, ()) = tokio::join!(engine.drain(secs(10)), async {
        pass(secs(3)).await;
        store.refuse(&[]);
    });
    assert_eq!(left.unwrap(), 0);
    assert_eq!((rig.state(sent).await, rig.state(unsent).await), (State::Succeeded, State::Pending));
    assert!(rig.arrivals(unsent).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_what_is_unsent_while_outcomes_cannot_be_recorded() {
    let rig = Rig::new();
    rig.script("slow", [Script::Slowly(ms(500), http(200))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let sent = send(&engine, notification(&engine, "slow", PLAIN)).await;
    store.refuse(&["settle", "release"]);
    // It is leased before the first outcome fails to be recorded, and told after that.
    store.next("accept", [Trouble::ToldLate(secs(1))]);
    let unsent = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    assert_eq!((engine.is_recording(), engine.busy()), (false, 2));
    assert_eq!(rig.state(unsent).await, State::Processing);
    // Only the outcome that is not recorded is left.
    assert_eq!(engine.drain(secs(5)).await.unwrap(), 1);
    assert!(rig.arrivals(unsent).is_empty());
    assert_eq!(rig.arrivals(sent).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_takes_in_nothing_new() {
    let rig = Rig::new();
    rig.script("slow", [Script::Slowly(secs(5), http(200))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "slow", PLAIN)).await;
    pass(secs(1)).await;
    let (left, ()) = tokio::join!(engine.drain(secs(30)), async {
        pass(secs(1)).await;
        let refused = engine.accept(None, vec![notification(&engine, "a", PLAIN)]).await;
        assert!(matches!(refused, Err(AcceptError::Stopping)), "{refused:?}");
    });
    assert_eq!(left.unwrap(), 0);
    let refused = engine.accept(None, vec![notification(&engine, "a", PLAIN)]).await;
    assert!(matches!(refused, Err(AcceptError::Stopping)), "{refused:?}");
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert_eq!(rig.model.inspect(|tables| tables.notifications.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_on_its_way_in_is_answered_as_it_was_stored() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("accept", [Trouble::ToldLate(secs(1))]);
    let mut new = notification(&engine, "a", PLAIN);
    new.not_before = Some(BEGIN.later(secs(60)));
    let id = new.id;
    let (accepted, left) = tokio::join!(engine.accept(None, vec![new]), async {
        pass(ms(100)).await;
        engine.drain(secs(30)).await
    });
    let is_stored = rig.model.inspect(|tables| tables.notifications.contains_key(&id));
    assert_eq!((accepted.is_ok(), left.unwrap()), (is_stored, 0));
    assert!(is_stored);
}

#[tokio::test(start_paused = true)]
async fn nothing_that_was_refused_as_stopping_is_stored() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    // Stored at once, told late: the stop comes in between. The second waits in the inbox behind it.
    store.next("accept", [Trouble::ToldLate(secs(5))]);
    let (first, second, third) = (
        notification(&engine, "a", PLAIN),
        notification(&engine, "a", PLAIN),
        notification(&engine, "a", PLAIN),
    );
    let ids = [first.id, second.id, third.id];
    let (one, two, three, left) = tokio::join!(
        engine.accept(None, vec![first]),
        async {
            pass(ms(50)).await;
            engine.accept(None, vec![second]).await
        },
        async {
            pass(ms(150)).await;
            engine.accept(None, vec![third]).await
        },
        async {
            pass(ms(100)).await;
            engine.drain(secs(0)).await
        },
    );
    left.unwrap();
    assert!(matches!(one, Err(AcceptError::Unclear)), "{one:?}");
    assert!(matches!(two, Err(AcceptError::Unclear)), "{two:?}");
    assert!(matches!(three, Err(AcceptError::Stopping)), "{three:?}");
    for (id, answer) in ids.into_iter().zip([one, two, three]) {
        let is_stored = rig.model.inspect(|tables| tables.notifications.contains_key(&id));
        assert!(!is_stored || matches!(answer, Err(AcceptError::Unclear)), "{id}: {answer:?}");
    }
    assert!(rig.model.inspect(|tables| tables.notifications.contains_key(&ids[0])));
}

#[tokio::test(start_paused = true)]
async fn stopping_twice_is_stopping_once() {
    let rig = Rig::new();
    let engine = rig.start().await;
    assert_eq!(engine.drain(secs(1)).await.unwrap(), 0);
    assert_eq!(engine.drain(secs(1)).await.unwrap(), 0);
    assert!(rig.model.inspect(|tables| tables.nodes.is_empty()));
}

/// Stops while a claim of rows for places and for memory is under way; answers how long that took.
async fn stopped_during_a_claim(trouble: Trouble, others: bool) -> Duration {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    rig.always("a", Script::Slowly(ms(10), http(200)));
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let all = (0..200).map(|_| notification(&engine, "a", PLAIN)).collect();
    engine.accept(None, all).await.unwrap();
    pass(ms(100)).await;
    store.next("claim", [trouble]);
    pass(ms(100)).await;
    // Another node may have everything before the claim is done.
    let _other = if others { Some(rig.start().await) } else { None };
    pass(ms(800)).await;
    let asked = Instant::now();
    assert_eq!(engine.drain(secs(30)).await.unwrap(), 0);
    asked.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_answered_during_a_stop_does_not_hold_it_up() {
    let full = stopped_during_a_claim(Trouble::ToldLate(secs(2)), false).await;
    let empty = stopped_during_a_claim(Trouble::DoneLate(secs(2)), true).await;
    for took in [full, empty] {
        assert!((ms(500)..secs(2)).contains(&took), "it took {took:?}");
    }
}
