//! Nodes that tell each other what waits.

use std::sync::Arc;

use posthaste_core::state::State;
use posthaste_engine::acts::Actor;
use posthaste_engine::store::Notice;
use posthaste_engine::store::Store as _;

use super::PLAIN;
use crate::rig::{FaultyStore, Rig, Script, http, ms, notification, pass, secs, send};

/// Long enough that no safety net finds anything within a test.
fn without_safety_net(rig: &mut Rig) {
    rig.settings.sweep = secs(3_600);
}

#[tokio::test(start_paused = true)]
async fn what_one_node_has_no_room_for_another_sends_at_once() {
    let mut rig = Rig::new();
    without_safety_net(&mut rig);
    rig.settings.concurrency = 2;
    rig.always("slow", Script::Slowly(secs(8), http(200)));
    let (full, idle) = (rig.start().await, rig.start().await);
    pass(secs(4)).await;
    let mut ids = vec![];
    for _ in 0..4 {
        ids.push(send(&full, notification(&full, "slow", PLAIN)).await);
    }
    pass(ms(200)).await;
    // A flow has half of the places of a node: one on each.
    let sent: usize = ids.iter().map(|id| rig.arrivals(*id).len()).sum();
    assert_eq!(sent, 2);
    drop((full, idle));
}

#[tokio::test(start_paused = true)]
async fn what_a_node_that_stops_gives_back_is_sent_at_once_by_another() {
    let mut rig = Rig::new();
    without_safety_net(&mut rig);
    rig.settings.concurrency = 1;
    rig.script("slow", [Script::Slowly(secs(3), http(200))]);
    let stopping = rig.start().await;
    let (first, second) = (
        send(&stopping, notification(&stopping, "slow", PLAIN)).await,
        send(&stopping, notification(&stopping, "slow", PLAIN)).await,
    );
    let other = rig.start().await;
    // The other had its look at the start, and may look again.
    pass(ms(1_500)).await;
    let third = send(&stopping, notification(&stopping, "other", PLAIN)).await;
    let asked = rig.elapsed();
    stopping.drain(secs(10)).await.unwrap();
    pass(secs(1)).await;
    for id in [first, second, third] {
        assert_eq!(rig.state(id).await, State::Succeeded);
        assert_eq!(rig.arrivals(id).len(), 1, "{asked:?}");
    }
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_setting_is_known_on_every_node_at_once() {
    let rig = Rig::new();
    let (one, other) = (rig.start().await, rig.start().await);
    pass(secs(4) + ms(300)).await;
    let actor = Actor::local("ada", None);
    one.put_setting("colour", Some("red".to_owned()), "paint", "colour", &actor).await.unwrap();
    pass(ms(1)).await;
    assert_eq!(other.settings().values.get("colour").map(String::as_str), Some("red"));
}

#[tokio::test(start_paused = true)]
async fn much_that_waits_is_told_ten_times_a_second() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 1;
    rig.always("slow", Script::Hang);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let mut ear = rig.model.listen();
    let engine = rig.start_on(store.clone()).await;
    for _ in 0..500 {
        send(&engine, notification(&engine, "slow", PLAIN)).await;
        pass(ms(2)).await;
    }
    let told = store.calls("tell");
    assert!((5..=11).contains(&told), "{told}");
    let notice = ear.next().await.unwrap();
    assert!(matches!(&notice, Notice::Due { buckets, .. } if buckets.len() == 1), "{notice:?}");
}
