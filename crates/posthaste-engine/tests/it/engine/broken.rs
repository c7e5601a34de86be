//! A loop that ends, and a store that lost a part for good: the engine stops as a crash would stop it.

use std::sync::Arc;

use posthaste_core::state::State;

use super::PLAIN;
use crate::rig::{FaultyStore, Rig, Script, Trouble, ms, notification, pass, secs, send};

/// The method of the store in which each loop is made to panic.
const LOOPS: [(&str, &str); 5] = [
    ("accept", "accept"),
    ("claim", "claim"),
    ("settle", "settle"),
    ("wakes", "wake"),
    ("heartbeat", "heartbeat"),
];

#[tokio::test(start_paused = true)]
async fn an_engine_notices_at_once_when_one_of_its_loops_breaks_down() {
    for (method, name) in LOOPS {
        let rig = Rig::new();
        let store = Arc::new(FaultyStore::on(&rig.model));
        let engine = rig.start_on(store.clone()).await;
        pass(ms(10)).await;
        assert!(engine.is_whole());
        store.next(method, [Trouble::Panic]);
        let mut later = notification(&engine, "a", PLAIN);
        later.not_before = Some(engine.now().later(secs(1)));
        let _ = engine.accept(None, vec![later]).await;
        let broken = tokio::time::timeout(secs(10), engine.broken()).await;
        assert_eq!((broken, engine.failed_loop()), (Ok(name), Some(name)), "{method}");
        assert!(!engine.is_whole());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_a_part_for_good_breaks_the_engine() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    pass(secs(5)).await;
    assert!(engine.is_whole());
    store.lose_a_part();
    assert_eq!(tokio::time::timeout(secs(1), engine.broken()).await, Ok("store"));
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_loop_broke_down_beats_no_more_and_others_take_over() {
    for (method, _) in LOOPS {
        let rig = Rig::new();
        rig.script("hangs", [Script::Hang]);
        let store = Arc::new(FaultyStore::on(&rig.model));
        let engine = rig.start_on(store.clone()).await;
        let held = send(&engine, notification(&engine, "hangs", PLAIN)).await;
        pass(ms(10)).await;
        assert_eq!(rig.state(held).await, State::Processing);
        store.next(method, [Trouble::Panic]);
        let mut later = notification(&engine, "a", PLAIN);
        later.not_before = Some(engine.now().later(secs(1)));
        let _ = engine.accept(None, vec![later]).await;
        tokio::time::timeout(secs(10), engine.broken()).await.unwrap();
        // What was aborted ends the next time that it would be polled.
        pass(ms(1)).await;
        let beats = store.calls("heartbeat");
        let _other = rig.start().await;
        pass(secs(20)).await;
        assert_eq!(store.calls("heartbeat"), beats, "{method}");
        assert_eq!((rig.state(held).await, rig.arrivals(held).len()), (State::Succeeded, 2), "{method}");
        // Whoever asks the broken engine is refused and does not wait.
        let refused = engine.accept(None, vec![notification(&engine, "b", PLAIN)]).await;
        assert!(refused.is_err(), "{method}");
    }
}
