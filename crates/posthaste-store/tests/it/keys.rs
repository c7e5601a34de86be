//! Idempotency keys of days ago leave the file while nobody sends anything.

use std::time::Duration;

use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Accepted, Idempotency, Queue, Request};
use posthaste_store::sqlite::SqliteStore;

use crate::scene::{Scene, at, beside};

const OLD: usize = 10_000;

async fn send(store: &SqliteStore, keys: impl Iterator<Item = usize>, now: Timestamp) -> Vec<Accepted> {
    let request = |number| {
        let key = Idempotency {
            tenant: "acme".parse().unwrap(),
            key: format!("key {number}"),
            hash: [0; 32],
            answer: vec![],
        };
        Request { idempotency: Some(key), arrivals: vec![] }
    };
    store.accept(keys.map(request).collect(), now).await.unwrap().answers
}

#[tokio::test]
async fn forgotten_keys_are_removed_while_nothing_else_is_done() {
    let scene = Scene::new();
    let later = |days: u32| at(0).later(Idempotency::LIFE * days);
    send(&scene.store, 0..OLD, at(0)).await;
    // One command of two days later, and no other one after it.
    assert_eq!(send(&scene.store, OLD..=OLD, later(2)).await, [Accepted::New]);
    let kept = "select (select count(*) from idempotency_even) + (select count(*) from idempotency_odd)";
    let left = || beside(&scene.path(), |conn| conn.query_row(kept, [], |row| row.get::<_, i64>(0)).unwrap());
    while left() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(send(&scene.store, OLD..=OLD, later(2)).await, [Accepted::Twin(vec![])]);
    assert_eq!(send(&scene.store, 0..1, later(2)).await, [Accepted::New]);
}
