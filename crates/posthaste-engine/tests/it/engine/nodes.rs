//! Nodes that crash, fall silent and come back.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::Outcome;
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_engine::clock::Clock;
use posthaste_engine::store::LEVEL;

use super::PLAIN;
use crate::rig::{FaultyStore, Rig, Script, Trouble, http, ms, notification, pass, secs, send};

fn interrupted() -> (String, Option<String>, u32, u32) {
    ("interrupted".to_owned(), None, 1, 1)
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_node_that_crashed_is_taken_over_without_spending_an_attempt() {
    let rig = Rig::new();
    rig.script("a", [Script::Hang]);
    let engine = rig.start().await;
    let other = rig.start().await;
    pass(secs(4) + ms(100)).await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    drop(engine);
    let crashed = rig.elapsed();
    pass(secs(11)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Processing, 1));
    pass(secs(4)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    let arrivals = rig.arrivals(id);
    assert_eq!(arrivals.iter().map(|arrival| arrival.0).collect::<Vec<_>>(), [1, 1]);
    let silent = arrivals[1].1 - crashed;
    assert!((secs(11)..=secs(14)).contains(&silent), "{silent:?}");
    assert_eq!(rig.events(id).await, [interrupted()]);
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Delivered)]);
    assert_eq!(rig.model.inspect(|tables| tables.nodes.len()), 1);
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_node_knows_the_level_of_the_cluster_by_its_heartbeat() {
    let rig = Rig::new();
    let engine = rig.start().await;
    pass(secs(2)).await;
    assert_eq!(engine.cluster_level(), LEVEL);
}

#[tokio::test(start_paused = true)]
async fn a_node_can_ask_for_the_level_before_its_first_heartbeat() {
    let rig = Rig::new();
    let engine = rig.start().await;
    engine.learn_level().await.unwrap();
    assert_eq!(engine.cluster_level(), LEVEL);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_after_the_crash_takes_the_work_over_too() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 600;
    rig.script("a", vec![Script::Hang; 300]);
    let engine = rig.start().await;
    let mut ids = vec![];
    for _ in 0..300 {
        ids.push(send(&engine, notification(&engine, "a", PLAIN)).await);
    }
    pass(secs(1)).await;
    drop(engine);
    let held = rig.model.inspect(|tables| tables.queue.values().filter(|row| row.lease.is_some()).count());
    assert_eq!(held, 300);
    rig.script("a", []);
    let _other = rig.start().await;
    pass(secs(17)).await;
    for id in ids {
        assert_eq!(rig.state(id).await, State::Succeeded);
        assert_eq!(rig.events(id).await, [interrupted()]);
        assert_eq!(rig.attempts(id).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_interrupted_twenty_times_in_a_row_is_buried() {
    let rig = Rig::new();
    rig.always("a", Script::Hang);
    let mut engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    for crashes in 1..=20 {
        pass(ms(100)).await;
        assert_eq!(rig.arrivals(id).len(), crashes);
        drop(engine);
        engine = rig.start().await;
        pass(secs(17)).await;
        if crashes < 20 {
            assert_eq!(rig.state(id).await, State::Processing, "after {crashes}");
        }
    }
    assert_eq!(rig.state(id).await, State::DeadLetter);
    let dead = rig.dead_letter(id).await;
    assert_eq!((dead.reason, &*dead.text), (Reason::Interrupted, Reason::Interrupted.words()));
    assert_eq!(rig.events(id).await, vec![interrupted(); 20]);
    assert!(rig.attempts(id).await.is_empty());
    pass(secs(300)).await;
    assert_eq!(rig.arrivals(id).len(), 20);
    drop(engine);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_in_between_starts_the_count_of_interruptions_again() {
    let rig = Rig::new();
    rig.script("a", [Script::Hang, Script::Answer(http(503))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    drop(engine);
    let _other = rig.start().await;
    pass(secs(18)).await;
    assert_eq!(rig.state(id).await, State::RetryScheduled);
    assert_eq!(rig.model.inspect(|tables| tables.queue[&id].interruptions), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_declared_dead_joins_again_and_goes_on() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let other = rig.start().await;
    pass(secs(5)).await;
    let before: Vec<_> = rig.model.inspect(|tables| tables.nodes.keys().copied().collect());
    store.refuse(&["heartbeat"]);
    pass(secs(20)).await;
    assert_eq!(rig.model.inspect(|tables| tables.nodes.len()), 1);
    store.refuse(&[]);
    pass(secs(1)).await;
    let after: Vec<_> = rig.model.inspect(|tables| tables.nodes.keys().copied().collect());
    assert_eq!((after.len(), before.contains(&after[1])), (2, false));
    drop(other);
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert!(rig.events(id).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_lease_would_end_before_the_try_does_not_begin_it() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let other = rig.start().await;
    pass(secs(4) + ms(100)).await;
    store.refuse(&["heartbeat"]);
    pass(secs(8)).await;
    // The last heartbeat holds until 15 s; a try may take 10.
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(2)).await;
    assert!(rig.arrivals(id).is_empty());
    assert_eq!(rig.state(id).await, State::Processing);
    pass(secs(12)).await;
    store.refuse(&[]);
    pass(secs(10)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    assert_eq!(rig.events(id).await, [interrupted()]);
    assert_eq!((engine.busy(), other.busy()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_comes_after_the_lease_was_lost_changes_nothing() {
    let rig = Rig::new();
    rig.script("a", [Script::Slowly(secs(8), http(400)), Script::Slowly(secs(9), http(200))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let _other = rig.start().await;
    pass(secs(4) + ms(100)).await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    store.refuse(&["heartbeat", "settle"]);
    pass(secs(18)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Processing, 2));
    store.refuse(&[]);
    pass(ms(1_500)).await;
    assert_eq!((rig.state(id).await, engine.busy()), (State::Processing, 0));
    pass(secs(5)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Delivered)]);
    assert_eq!(rig.events(id).await, [interrupted()]);
    assert_eq!(engine.busy(), 0);
    assert!(engine.is_recording());
}

#[tokio::test(start_paused = true)]
async fn two_nodes_share_a_backlog_and_send_nothing_twice() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 16;
    rig.always("a", Script::Slowly(ms(100), http(200)));
    let engine = rig.start().await;
    let other = rig.start().await;
    let many: Vec<_> = (0..500).map(|_| notification(&engine, "a", PLAIN)).collect();
    let ids: Vec<_> = many.iter().map(|new| new.id).collect();
    engine.accept(None, many).await.unwrap();
    let mut shared = Duration::ZERO;
    for step in 0..100 {
        pass(ms(100)).await;
        if other.busy() > 0 {
            shared = ms(100) * (step + 1);
            break;
        }
    }
    assert!(shared > Duration::ZERO && shared <= secs(6), "{shared:?}");
    pass(secs(10)).await;
    for id in ids {
        assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_leased_to_a_node_after_it_was_forgotten_is_delivered_all_the_same() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let other = rig.start().await;
    pass(secs(5)).await;
    store.refuse(&["heartbeat"]);
    store.next("accept", [Trouble::DoneLate(secs(20))]);
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    store.refuse(&[]);
    pass(secs(10)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    assert_eq!((engine.busy(), other.busy()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_longer_than_the_hold_nobody_buries_the_living() {
    let mut rig = Rig::new();
    rig.always("a", Script::Slowly(secs(1), http(200)));
    let stores: Vec<_> = (0..3).map(|_| Arc::new(FaultyStore::on(&rig.model))).collect();
    let mut engines = vec![];
    for store in &stores {
        rig.seed += 1;
        engines.push(rig.start_on(store.clone()).await);
        // Their hearts do not beat together.
        pass(ms(370)).await;
    }
    let mut ids = vec![];
    for engine in &engines {
        ids.push(send(engine, notification(engine, "a", PLAIN)).await);
    }
    pass(ms(500)).await;
    let all =
        ["heartbeat", "settle", "claim", "release", "reclaim", "wakes", "expiring", "buckets", "settings"];
    stores.iter().for_each(|store| store.refuse(&all));
    pass(secs(30)).await;
    for store in &stores {
        store.refuse(&[]);
        // Nor do they all find the store again at the same moment.
        pass(secs(2)).await;
    }
    pass(secs(20)).await;
    for id in ids {
        assert_eq!(rig.state(id).await, State::Succeeded);
        assert_eq!(rig.arrivals(id).len(), 1);
        assert!(rig.events(id).await.is_empty());
    }
    assert_eq!(rig.model.inspect(|tables| tables.nodes.len()), 3);
    drop(engines);
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_that_cannot_be_taken_from_keeps_nobody_from_the_settings() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model).deaf());
    let engine = rig.start_on(store.clone()).await;
    drop(rig.start().await);
    pass(secs(11)).await;
    store.refuse(&["reclaim"]);
    pass(secs(5)).await;
    assert!(store.calls("reclaim") > 0);
    let other = rig.start().await;
    other.put_setting("colour", Some("red".to_owned()), "paint", "colour", &crate::rig::ada()).await.unwrap();
    pass(secs(2)).await;
    assert_eq!(engine.settings().values.get("colour").map(String::as_str), Some("red"));
}

#[tokio::test(start_paused = true)]
async fn a_node_beats_while_it_takes_back_from_many_dead_ones_on_a_slow_store() {
    let rig = Rig::new();
    rig.script("a", vec![Script::Hang; 8]);
    let mut held = vec![];
    for _ in 0..8 {
        let dies = rig.start().await;
        held.push(send(&dies, notification(&dies, "a", PLAIN)).await);
        pass(ms(10)).await;
    }
    assert_eq!(rig.channel.arrivals().len(), 8);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let (us, _) = engine.nodes().await.unwrap();
    // One after the other, these take three times as long as a heartbeat holds.
    store.next("reclaim", vec![Trouble::DoneLate(secs(5)); 100]);
    let (mut taking, mut beats) = (0, store.calls("heartbeat"));
    while rig.model.inspect(|tables| tables.nodes.len()) > 1 {
        assert!(rig.elapsed() < secs(120), "they are taken back one day");
        pass(ms(500)).await;
        let expires = rig.model.inspect(|tables| tables.nodes[&us].expires);
        assert!(expires > rig.clock.now(), "the node lost its own leases while it took back");
        if store.calls("reclaim") > taking {
            assert!(store.calls("heartbeat") > beats, "no heartbeat between two of them");
            (taking, beats) = (store.calls("reclaim"), store.calls("heartbeat"));
            let id = send(&engine, notification(&engine, "b", PLAIN)).await;
            pass(ms(10)).await;
            assert_eq!(rig.state(id).await, State::Succeeded, "its leases outlast a try");
        }
    }
    assert!(taking >= 8);
    pass(secs(10)).await;
    for id in held {
        assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 2));
    }
}
