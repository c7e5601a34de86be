//! Calls that were answered as an error and happen later: nothing stays with a node that does not know of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::state::State;
use posthaste_engine::engine::Engine;
use posthaste_engine::model_store::ModelStore;

use super::PLAIN;
use crate::rig::{FaultyStore, Rig, Script, Trouble, ada, http, ms, notification, pass, secs, send};

/// A store that gives up on a call after 15 s, which happens after 25 s.
const STALL: [Trouble; 1] = [Trouble::Stall { told: secs(15), done: secs(25) }];

fn held(rig: &Rig) -> usize {
    rig.model.inspect(|tables| tables.queue.values().filter(|row| row.lease.is_some()).count())
}

#[tokio::test(start_paused = true)]
async fn what_an_accept_leased_after_it_was_answered_as_an_error_is_delivered() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("accept", STALL);
    let new = notification(&engine, "a", PLAIN);
    let id = new.id;
    assert!(engine.accept(None, vec![new]).await.is_err());
    pass(secs(10) + ms(1)).await;
    assert_eq!(rig.state(id).await, State::Processing, "it is held, and nobody knows of it");
    pass(secs(8)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    assert!(rig.events(id).await.is_empty(), "no interruption is counted");
    assert_eq!((engine.metrics().leases_given_back, held(&rig)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_claim_leased_after_it_was_answered_as_an_error_is_delivered() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(503))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(30)).await;
    // The claim of the retry, and the one that follows before it happens.
    store.next("claim", [STALL[0]; 2]);
    pass(secs(100)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 2));
    assert_eq!(held(&rig), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_node_works_on_is_never_given_back() {
    let rig = Rig::new();
    rig.always("slow", Script::Slowly(secs(9), http(200)));
    let engine = rig.start().await;
    let mut ids = vec![];
    // More than there are places: some are sent, some wait in memory, some in the store.
    for _ in 0..600 {
        ids.push(send(&engine, notification(&engine, "slow", PLAIN)).await);
        pass(ms(20)).await;
    }
    pass(secs(120)).await;
    for id in ids {
        assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    }
    let metrics = engine.metrics();
    assert_eq!((metrics.leases_given_back, metrics.leases_lost), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn rows_that_are_settled_while_the_leases_are_compared_are_no_difference() {
    let rig = Rig::new();
    rig.always("a", Script::Slowly(ms(50), http(200)));
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("held", [Trouble::ToldLate(ms(500)); 20]);
    for _ in 0..2_000 {
        send(&engine, notification(&engine, "a", PLAIN)).await;
        pass(ms(20)).await;
        assert_eq!(engine.unknown_leases(), 0);
    }
    assert!(store.calls("held") > 4);
}

#[tokio::test(start_paused = true)]
async fn an_answer_under_an_earlier_grant_does_not_hide_a_lease_that_is_used() {
    let mut rig = Rig::new();
    rig.always("a", Script::Slowly(secs(18), http(200)));
    rig.settings.hold = secs(4);
    rig.settings.beat = secs(1);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    // Another node declares it dead and takes the row back, and does not send it.
    let idle = Arc::new(FaultyStore::on(&rig.model));
    idle.refuse(&["claim"]);
    let _other = rig.start_on(idle).await;
    pass(secs(3)).await;
    // The accept is done at once and answered after the node was declared dead and has joined again.
    store.next("accept", [Trouble::ToldLate(secs(14))]);
    store.refuse(&["heartbeat"]);
    let new = notification(&engine, "a", r#"{"timeout": "30s", "maxAttempts": 2}"#);
    let id = new.id;
    let accepted = async { engine.accept(None, vec![new]).await.unwrap() };
    let back = async {
        pass(secs(6)).await;
        store.refuse(&[]);
    };
    tokio::join!(accepted, back);
    pass(secs(60)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    assert_eq!(engine.metrics().leases_given_back, 0);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_recorded_for_long_stays_in_hand() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.refuse(&["settle"]);
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(60)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Processing, 1));
    store.refuse(&[]);
    pass(secs(5)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    assert_eq!(engine.metrics().leases_given_back, 0);
}

#[tokio::test(start_paused = true)]
async fn a_difference_that_lasts_is_shown() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("accept", [Trouble::Lie]);
    let new = notification(&engine, "a", PLAIN);
    let id = new.id;
    store.refuse(&["release"]);
    assert!(engine.accept(None, vec![new]).await.is_err());
    pass(secs(30)).await;
    assert_eq!(engine.unknown_leases(), 1);
    assert!(engine.leases_unknown_for() > secs(20), "{:?}", engine.leases_unknown_for());
    store.refuse(&[]);
    pass(secs(10)).await;
    assert_eq!((engine.unknown_leases(), engine.leases_unknown_for()), (0, Duration::ZERO));
    assert_eq!(rig.state(id).await, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_what_was_stuck_takes_effect() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("accept", STALL);
    let new = notification(&engine, "a", PLAIN);
    let id = new.id;
    assert!(engine.accept(None, vec![new]).await.is_err());
    pass(secs(10) + ms(1)).await;
    engine.cancel(id, &ada()).await.unwrap();
    pass(secs(8)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Cancelled, 0));
}

/// A cluster whose time runs ahead of that of a node, as it does for a machine that slept.
fn ahead(rig: &mut Rig) -> Arc<Mutex<Duration>> {
    let (clock, ahead) = (rig.clock, Arc::new(Mutex::new(Duration::ZERO)));
    let by = ahead.clone();
    rig.model = ModelStore::with_clock(move || {
        use posthaste_engine::clock::Clock as _;
        clock.now().later(*by.lock().unwrap())
    });
    ahead
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_not_granted_is_not_used() {
    let mut rig = Rig::new();
    let ahead = ahead(&mut rig);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let slept: Engine = rig.start_on(store.clone()).await;
    let other = rig.start().await;
    pass(secs(7)).await;
    // The node does not learn that it was declared dead before it accepts.
    store.refuse(&["heartbeat"]);
    *ahead.lock().unwrap() = secs(60);
    pass(secs(2)).await;
    assert_eq!(rig.model.inspect(|tables| tables.nodes.len()), 1);
    // A short try, for which a lease that was granted would last.
    let id = send(&slept, notification(&slept, "a", r#"{"timeout": "1s"}"#)).await;
    pass(secs(6)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    assert_eq!(slept.metrics().attempts_delivered + other.metrics().attempts_delivered, 1);
    assert_eq!(slept.metrics().attempts_delivered, 0);
}
