//! What waits in memory: it saves claims, and it never waits there for long.

use std::collections::HashSet;
use std::sync::Arc;

use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Body, Notification};
use posthaste_core::state::State;
use posthaste_engine::engine::Engine;

use super::PLAIN;
use crate::rig::{BEGIN, FaultyStore, Rig, Script, http, ms, notification, pass, secs, send};

/// A destination that has just delivered forty in no time, and hangs from now on.
async fn moved_then_hung(rig: &Rig, engine: &Engine) {
    for _ in 0..40 {
        send(engine, notification(engine, "a", PLAIN)).await;
    }
    pass(ms(10)).await;
    rig.always("a", Script::Slowly(secs(8), http(200)));
}

async fn send_many(engine: &Engine, count: usize) -> Vec<NotificationId> {
    let mut ids = vec![];
    for _ in 0..count {
        ids.push(send(engine, notification(engine, "a", PLAIN)).await);
    }
    ids
}

async fn in_state(rig: &Rig, ids: &[NotificationId], state: State) -> usize {
    let mut count = 0;
    for id in ids {
        count += usize::from(rig.state(*id).await == state);
    }
    count
}

#[tokio::test(start_paused = true)]
async fn what_comes_to_a_flow_that_moves_is_sent_without_a_claim() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    moved_then_hung(&rig, &engine).await;
    rig.always("a", Script::Slowly(ms(20), http(200)));
    pass(ms(10)).await;
    let claims = store.calls("claim");
    let ids = send_many(&engine, 20).await;
    assert_eq!(in_state(&rig, &ids, State::Processing).await, 20, "all are leased as they are stored");
    pass(ms(400)).await;
    assert_eq!(in_state(&rig, &ids, State::Succeeded).await, 20);
    assert_eq!(store.calls("claim"), claims);
    for id in ids {
        assert_eq!(rig.arrivals(id).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_memory_too_long_goes_back_to_the_store() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    let engine = rig.start().await;
    moved_then_hung(&rig, &engine).await;
    let ids = send_many(&engine, 20).await;
    assert_eq!(in_state(&rig, &ids, State::Processing).await, 20);
    pass(secs(4)).await;
    assert_eq!(in_state(&rig, &ids, State::Processing).await, 2, "only what is being sent is held");
    assert_eq!((in_state(&rig, &ids, State::Pending).await, engine.busy()), (18, 2));
    pass(secs(120)).await;
    assert_eq!(in_state(&rig, &ids, State::Succeeded).await, 20);
    for id in ids {
        assert_eq!(rig.arrivals(id).len(), 1);
        assert!(rig.events(id).await.is_empty(), "going back is no interruption");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_gives_back_what_waits_in_memory() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    let engine = rig.start().await;
    moved_then_hung(&rig, &engine).await;
    let ids = send_many(&engine, 20).await;
    assert_eq!(engine.drain(secs(30)).await.unwrap(), 0);
    assert_eq!(in_state(&rig, &ids, State::Succeeded).await, 2);
    assert_eq!(in_state(&rig, &ids, State::Pending).await, 18);
    let _other = rig.start().await;
    pass(secs(120)).await;
    for id in ids {
        assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_in_the_store_goes_before_what_comes_later_and_is_claimed_in_fewer_steps() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    rig.always("a", Script::Slowly(ms(10), http(200)));
    let first = send_many(&engine, 400).await;
    pass(ms(1)).await;
    let last = send(&engine, notification(&engine, "a", PLAIN)).await;
    assert_eq!(rig.state(last).await, State::Pending);
    pass(secs(10)).await;
    assert_eq!(in_state(&rig, &first, State::Succeeded).await, 400);
    let order: Vec<NotificationId> = rig.channel.arrivals().into_iter().map(|(id, ..)| id).collect();
    assert_eq!(order.last(), Some(&last));
    assert!(store.calls("claim") < 100, "{} claims for 400 rows, two places at a time", store.calls("claim"));
}

#[tokio::test(start_paused = true)]
async fn what_comes_to_a_flow_that_moves_waits_behind_what_is_in_the_store() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    let engine = rig.start().await;
    rig.always("a", Script::Slowly(ms(10), http(200)));
    let mut waiting = send_many(&engine, 400).await;
    // The flow has moved, so there is room in memory.
    pass(ms(600)).await;
    let sent = rig.channel.arrivals().len();
    assert!((50..200).contains(&sent), "{sent}");
    for _ in 0..10 {
        waiting.push(send(&engine, notification(&engine, "a", PLAIN)).await);
        pass(ms(7)).await;
    }
    pass(secs(10)).await;
    let order: Vec<NotificationId> = rig.channel.arrivals().into_iter().map(|(id, ..)| id).collect();
    assert_eq!(order.len(), 410);
    assert_eq!(order[400..], waiting[400..], "those that came later were sent last, in their order");
}

/// The bound on what waits in memory.
const MOST_BYTES: usize = 64 << 20;
/// A large body, within what a notification may be.
const LARGE: usize = 200 << 10;

/// A notification with a large body.
fn large(engine: &Engine) -> Notification {
    let mut new = notification(engine, "a", PLAIN);
    new.content.body = Body::Text("x".repeat(LARGE));
    new
}

/// How many bytes the bodies take that are leased and not being sent.
fn bytes_in_memory(rig: &Rig) -> usize {
    let leased = rig.model.inspect(|tables| {
        tables
            .queue
            .values()
            .filter(|row| row.lease.is_some())
            .map(|row| row.notification.clone())
            .collect::<Vec<_>>()
    });
    let sent: HashSet<NotificationId> = rig.channel.arrivals().into_iter().map(|(id, ..)| id).collect();
    let waits = leased.iter().filter(|one| !sent.contains(&one.id));
    let body = |one: &Arc<Notification>| match &one.content.body {
        Body::Text(text) | Body::Json(text) => text.len(),
    };
    waits.map(body).sum()
}

/// A rig whose flow has just sent a thousand small ones in no time, and hangs from now on.
async fn fast_then_hung(rig: &Rig, engine: &Engine) {
    let small = (0..1_000).map(|_| notification(engine, "a", PLAIN)).collect();
    engine.accept(None, small).await.unwrap();
    pass(ms(10)).await;
    assert_eq!(rig.channel.arrivals().len(), 1_000);
    rig.always("a", Script::Slowly(secs(8), http(200)));
}

#[tokio::test(start_paused = true)]
async fn large_ones_that_come_in_wait_in_memory_up_to_its_bound_and_then_in_the_store() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 64;
    let engine = rig.start().await;
    fast_then_hung(&rig, &engine).await;
    let ids = {
        let all: Vec<Notification> = (0..400).map(|_| large(&engine)).collect();
        let ids: Vec<NotificationId> = all.iter().map(|one| one.id).collect();
        engine.accept(None, all).await.unwrap();
        ids
    };
    pass(ms(10)).await;
    let bytes = bytes_in_memory(&rig);
    assert!((MOST_BYTES * 9 / 10..=MOST_BYTES).contains(&bytes), "{bytes} bytes wait in memory");
    assert!(in_state(&rig, &ids, State::Pending).await > 0);
}

#[tokio::test(start_paused = true)]
async fn large_ones_that_are_claimed_wait_in_memory_up_to_its_bound() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 64;
    let engine = rig.start().await;
    let later = |_| {
        let mut new = large(&engine);
        new.not_before = Some(BEGIN.later(secs(10)));
        new
    };
    let all: Vec<Notification> = (0..450).map(later).collect();
    let ids: Vec<NotificationId> = all.iter().map(|one| one.id).collect();
    engine.accept(None, all).await.unwrap();
    pass(ms(9_900)).await;
    fast_then_hung(&rig, &engine).await;
    pass(ms(200)).await;
    let bytes = bytes_in_memory(&rig);
    assert!((1..=MOST_BYTES).contains(&bytes), "{bytes} bytes wait in memory");
    // What had no room waits in the store, and all is sent in the end.
    assert!(in_state(&rig, &ids, State::Pending).await > 0);
    rig.always("a", Script::Slowly(ms(10), http(200)));
    pass(secs(30)).await;
    assert_eq!(in_state(&rig, &ids, State::Succeeded).await, 450);
    assert_eq!((rig.channel.arrivals().len(), engine.busy()), (1_450, 0));
}
