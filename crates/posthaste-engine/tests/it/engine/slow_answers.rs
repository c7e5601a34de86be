//! How long a lease surely lasts, and what time it is, where the store takes its time to answer.
//!
//! Settings::default holds for 12 s, the plain policy's timeout is 10 s: so a try begins only if an answer of the store was
//! under way for less than two seconds.

use std::sync::Arc;

use posthaste_core::id::NotificationId;
use posthaste_core::state::State;
use posthaste_engine::engine::Engine;

use super::PLAIN;
use crate::rig::{BEGIN, FaultyStore, Rig, Script, Trouble, http, ms, notification, pass, secs, send};

/// The answer that granted the lease was under way for 5 s and no other followed: 7 s are left, too few for a try. The
/// lease ends, another node takes the row over, and nobody sends beside it.
async fn not_begun_under(rig: &Rig, engine: &Engine, id: NotificationId) {
    pass(secs(6)).await;
    assert!(rig.arrivals(id).is_empty(), "the lease does not outlast the try");
    assert_eq!(rig.state(id).await, State::Processing);
    pass(secs(12)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    assert_eq!(rig.events(id).await.len(), 1, "it was taken back from the node once");
    assert!(engine.is_whole());
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_from_the_asking_of_a_heartbeat_not_from_its_answer() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let _other = rig.start().await;
    pass(secs(4)).await;
    store.next("heartbeat", [Trouble::ToldLate(secs(5))]);
    let before = store.calls("heartbeat");
    pass(secs(1)).await;
    assert_eq!(store.calls("heartbeat"), before + 1, "a heartbeat is under way");
    store.refuse(&["heartbeat"]);
    pass(ms(4_600)).await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    not_begun_under(&rig, &engine, id).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_from_the_asking_of_a_second_join_not_from_its_answer() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let _other = rig.start().await;
    pass(secs(4)).await;
    store.refuse(&["heartbeat"]);
    pass(secs(20)).await;
    assert_eq!(rig.model.inspect(|tables| tables.nodes.len()), 1, "it was declared dead");
    store.next("join", [Trouble::ToldLate(secs(5))]);
    store.refuse(&[]);
    pass(secs(1)).await;
    assert_eq!(store.calls("join"), 2, "the second join is under way");
    store.refuse(&["heartbeat"]);
    pass(ms(4_300)).await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    not_begun_under(&rig, &engine, id).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_from_the_asking_of_the_first_join_not_from_its_answer() {
    let rig = Rig::new();
    let _other = rig.start().await;
    let store = Arc::new(FaultyStore::on(&rig.model));
    store.next("join", [Trouble::ToldLate(secs(5))]);
    store.refuse(&["heartbeat"]);
    let engine = rig.start_on(store.clone()).await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    not_begun_under(&rig, &engine, id).await;
}

/// A node whose every word from the store about the time meets this trouble.
async fn in_doubt(rig: &Rig, trouble: Trouble) -> Engine {
    let store = Arc::new(FaultyStore::on(&rig.model));
    store.next("join", [trouble]);
    store.next("heartbeat", vec![trouble; 1_000]);
    rig.start_on(store).await
}

/// Tries that are short enough to begin under any of these leases at once.
fn short() -> String {
    PLAIN.replace("10s", "5s")
}

#[tokio::test(start_paused = true)]
async fn no_retry_comes_early_though_a_node_may_think_it_is_earlier_than_it_is() {
    let rig = Rig::new();
    rig.script("a", [Script::Slowly(ms(1), http(503))]);
    // Its time is that of the asking, 3 s ago.
    let engine = in_doubt(&rig, Trouble::ToldLate(secs(3))).await;
    // This one knows the time and sends what is due at once.
    let _other = rig.start().await;
    let early = BEGIN.later(rig.elapsed()).since(engine.now());
    assert!(early >= secs(2), "the clock is {early:?} slow");
    let id = send(&engine, notification(&engine, "a", &short())).await;
    pass(secs(70)).await;
    let arrivals = rig.arrivals(id);
    assert_eq!(arrivals.iter().map(|arrival| arrival.0).collect::<Vec<_>>(), [1, 2]);
    let waited = arrivals[1].1 - arrivals[0].1;
    assert!(waited >= secs(60), "the retry came {waited:?} after the attempt");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_it_is_due_though_it_may_be_later_than_a_node_thinks() {
    let rig = Rig::new();
    // Its time is that of the answer; it may be up to 3 s later for all it knows.
    let engine = in_doubt(&rig, Trouble::DoneLate(secs(3))).await;
    let mut ids = vec![];
    for due in [58, 60] {
        let mut new = notification(&engine, "a", &short());
        new.not_before = Some(BEGIN.later(secs(due)));
        ids.push((send(&engine, new).await, secs(due)));
    }
    pass(secs(70)).await;
    for (id, due) in ids {
        let arrivals = rig.arrivals(id);
        assert_eq!(arrivals.len(), 1);
        assert!(arrivals[0].1 >= due, "{arrivals:?}, due {due:?}");
    }
}
