//! The engine waits for no reads of people, and what is asked for by its key waits for no list.

use std::time::Duration;

use posthaste_core::id::DeadLetterId;
use posthaste_core::state::Lane;
use posthaste_engine::store::{DueCursor, Reads, Store};

use crate::scene::{HOLD, Scene, at, buried, delivered, fill, id, key, lease, quota};

/// Fails instead of waiting for ever for a reader that is occupied.
async fn answers<T>(what: &str, answer: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(Duration::from_secs(60), answer).await;
    answer.unwrap_or_else(|_| panic!("{what} waits for a reader that is occupied"))
}

/// Everything that the engine's loops ask.
async fn engine_reads(store: &dyn Store) {
    answers("wakes", store.wakes(DueCursor::after_all_at(at(-1)), at(1), 10)).await.unwrap();
    answers("expiring", store.expiring(at(1), 10)).await.unwrap();
    answers("buckets", store.buckets(None, 10)).await.unwrap();
    let flow = answers("intern", store.intern(vec![key("acme", "a")])).await.unwrap()[0];
    assert_eq!(answers("flows", store.flows(vec![flow])).await.unwrap().len(), 1);
    answers("overdue", store.overdue(at(1), at(1), None, 10)).await.unwrap();
    answers("settings", store.settings(None)).await.unwrap().unwrap();
    answers("accept", fill(store, &key("acme", "b"), 100, 1)).await;
    let node = answers("join", store.join("two".to_owned(), HOLD, at(0))).await.unwrap().node;
    answers("held", store.held(node, None, 10)).await.unwrap();
    let claimed =
        answers("claim", store.claim(vec![quota(flow, Lane::Main, 1)], lease(node, 2), at(1))).await;
    answers("settle", store.settle(vec![delivered(&claimed.unwrap().claimed[0])], at(2))).await.unwrap();
}

/// Everything that is asked for by its key, also on the way of a send or an act.
async fn key_reads(store: &dyn Store, letter: DeadLetterId) {
    answers("get", store.get(id(0))).await.unwrap().unwrap();
    answers("history", store.history(id(0))).await.unwrap();
    answers("facts", store.facts(vec![id(0)])).await.unwrap();
    answers("dead_letter", store.dead_letter(letter)).await.unwrap().unwrap();
    answers("notification_of", store.notification_of(letter)).await.unwrap().unwrap();
    let tenant = key("acme", "a").tenant;
    answers("idempotent", store.idempotent(tenant, "k".to_owned(), at(0))).await.unwrap();
}

/// Stores rows that wait and one dead letter.
async fn add_some(store: &dyn Store) -> DeadLetterId {
    let flow = fill(store, &key("acme", "a"), 0, 9).await;
    let node = store.join("one".to_owned(), HOLD, at(0)).await.unwrap().node;
    let claimed = store.claim(vec![quota(flow, Lane::Main, 1)], lease(node, 1), at(1)).await.unwrap();
    let letter = DeadLetterId::new(at(2), 1);
    store.settle(vec![buried(&claimed.claimed[0], letter)], at(2)).await.unwrap();
    letter
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_list_keeps_a_look_by_key_waiting() {
    let scene = Scene::new();
    let store = &scene.store;
    let letter = add_some(store).await;
    let occupied = store.occupy_lists().await;
    tokio::select! {
        biased;
        _ = store.page(Default::default(), None, 10) => panic!("the readers of lists are not occupied"),
        () = key_reads(store, letter) => {}
    }
    drop(occupied);
    answers("page", store.page(Default::default(), None, 10)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_of_people_keeps_the_engine_waiting() {
    let scene = Scene::new();
    let store = &scene.store;
    add_some(store).await;
    let occupied = store.occupy_people().await;
    tokio::select! {
        biased;
        _ = store.page(Default::default(), None, 10) => panic!("the readers of lists are not occupied"),
        _ = store.get(id(0)) => panic!("the readers by key are not occupied"),
        () = engine_reads(store) => {}
    }
    drop(occupied);
    answers("get", store.get(id(0))).await.unwrap().unwrap();
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_list_keeps_the_engine_or_a_look_by_key_waiting_on_postgres() {
    use crate::postgres::server::{Server, callers_time};
    use posthaste_store::postgres::PostgresOptions;
    let store = Server::shared().store(PostgresOptions { connections: 6, ..callers_time() }).await;
    let letter = add_some(&store).await;
    let occupied = store.occupy_lists().await.unwrap();
    tokio::select! {
        biased;
        _ = store.page(Default::default(), None, 10) => panic!("the places of lists are not occupied"),
        () = async {
            key_reads(&store, letter).await;
            engine_reads(&store).await;
        } => {}
    }
    drop(occupied);
    answers("page", store.page(Default::default(), None, 10)).await.unwrap();
}
