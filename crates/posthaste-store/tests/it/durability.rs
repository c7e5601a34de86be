//! One commit for many callers, and what happens when a commit fails.

use std::sync::Arc;

use posthaste_core::state::Lane;
use posthaste_engine::store::{KnownFlow, Nodes, Queue, Reads, StoreError};
use posthaste_store::sqlite::Options;
use tokio::task::JoinSet;

use crate::scene::{HOLD, Scene, at, delivered, fill, id, key, lease, quota, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_commit_serves_many_callers() {
    let scene = Scene::new();
    let store = Arc::new(scene.store);
    let acme = key("acme", "a");
    let flow = store.intern(vec![acme.clone()]).await.unwrap()[0];
    let before = store.commits();
    let mut callers = JoinSet::new();
    for number in 0..1_000 {
        let (store, acme) = (store.clone(), acme.clone());
        callers.spawn(async move {
            store.accept(vec![request(id(number), &acme, flow, None)], at(0)).await.unwrap();
        });
    }
    while let Some(done) = callers.join_next().await {
        done.unwrap();
    }
    let commits = store.commits() - before;
    assert!((1..=250).contains(&commits), "1,000 callers took {commits} commits");
    assert_eq!(store.stats(None, at(1)).await.unwrap().channels[0].1.queued, 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poisonous_command_fails_alone() {
    let scene = Scene::new();
    let store = Arc::new(scene.store);
    let acme = key("acme", "a");
    let flow = fill(&*store, &acme, 0, 1).await;
    let mut callers = JoinSet::new();
    for number in 0..200 {
        let (store, acme) = (store.clone(), acme.clone());
        // Every tenth caller hands in a notification that exists, beside one that does not.
        callers.spawn(async move {
            let mut requests = vec![request(id(1_000 + number), &acme, flow, None)];
            if number % 10 == 0 {
                requests.push(request(id(0), &acme, flow, None));
            }
            (number, store.accept(requests, at(0)).await)
        });
    }
    while let Some(done) = callers.join_next().await {
        let (number, answer) = done.unwrap();
        let stored = store.get(id(1_000 + number)).await.unwrap().is_some();
        assert_eq!(answer.is_ok(), number % 10 != 0, "{number}");
        assert_eq!(stored, answer.is_ok(), "{number}");
    }
    assert_eq!(store.recount().await.unwrap(), None);
}

#[tokio::test]
async fn a_flow_that_was_made_in_a_failed_call_is_not_remembered() {
    let scene = Scene::new();
    let store = &scene.store;
    store.limit_pages(1).await.unwrap();
    let mut refused = 0;
    for number in 0..200 {
        let long = "x".repeat(200);
        let made = store.intern(vec![key("acme", &format!("{long}{number}"))]).await;
        refused += usize::from(made.is_err());
    }
    assert!(refused > 0);
    store.limit_pages(0).await.unwrap();
    let long = "x".repeat(200);
    for number in 0..200 {
        let wanted = key("acme", &format!("{long}{number}"));
        let flow = store.intern(vec![wanted.clone()]).await.unwrap()[0];
        assert_eq!(store.flows(vec![flow]).await.unwrap(), [KnownFlow { id: flow, key: wanted }]);
    }
}

#[tokio::test]
async fn the_log_does_not_outgrow_its_bound_while_the_writer_never_rests() {
    let scene = Scene::with(Options { wal_bound: 1 << 20, ..Options::default() });
    let (store, acme) = (&scene.store, key("acme", "a"));
    let mut most = 0;
    for batch in 0..100 {
        fill(store, &acme, batch * 500, 500).await;
        most = most.max(std::fs::metadata(scene.path().with_extension("db-wal")).unwrap().len());
    }
    assert!((1 << 20..4 << 20).contains(&most), "the log grew to {most} bytes");
}

#[tokio::test]
async fn a_full_disk_is_an_error_that_loses_nothing_and_passes() {
    let scene = Scene::new();
    let (store, acme) = (&scene.store, key("acme", "a"));
    let node = store.join("one".to_owned(), HOLD, at(0)).await.unwrap().node;
    let flow = fill(store, &acme, 0, 100).await;
    store.limit_pages(60).await.unwrap();
    let mut kept = 100;
    let full = loop {
        let batch = (kept..kept + 50).map(|number| request(id(number), &acme, flow, None)).collect();
        match store.accept(batch, at(0)).await {
            Ok(_) => kept += 50,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::Unavailable { source: Some(_), .. }), "{full}");
    assert_eq!(scene.store.recount().await.unwrap(), None);
    // Reads go on, and what was acknowledged is there while the disk is full.
    assert!(store.get(id(kept - 1)).await.unwrap().is_some());
    assert!(store.get(id(kept)).await.unwrap().is_none());

    store.limit_pages(0).await.unwrap();
    let batch = (kept..kept + 50).map(|number| request(id(number), &acme, flow, None)).collect();
    store.accept(batch, at(0)).await.unwrap();
    kept += 50;
    let most = u32::try_from(kept).unwrap() + 1;
    let batch =
        store.claim(vec![quota(flow, Lane::Main, most)], lease(node, 1), at(1)).await.unwrap().claimed;
    assert_eq!(batch.len() as u128, kept);
    store.settle(batch.iter().map(delivered).collect(), at(2)).await.unwrap();
    let scene = scene.reopen();
    assert_eq!(scene.store.recount().await.unwrap(), None);
    assert_eq!(scene.store.stats(None, at(3)).await.unwrap().channels[0].1.delivered_24h as u128, kept);
}
