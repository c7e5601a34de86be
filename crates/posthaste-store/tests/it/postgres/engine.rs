//! The engine on a real server, in real time: two nodes share the work.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use posthaste_core::notification::Notification;
use posthaste_engine::store::{Accepted, Reads};
use posthaste_store::postgres::{PostgresOptions, PostgresStore, Time};

use super::server::{Server, callers_time};
use crate::engine::{Sink, delivered, notification, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_deliver_a_thousand_with_retries_and_the_counters_agree() {
    let url = Server::shared().schema();
    let options = PostgresOptions { time: Time::Database, connections: 8, ..callers_time() };
    let (mut stores, mut engines) = (vec![], vec![]);
    for _ in 0..2 {
        let store = Arc::new(PostgresStore::connect(&url, options.clone()).await.unwrap());
        engines.push(start(store.clone(), Sink::FailsEach(3, AtomicU64::new(0)), Instant::now()).await);
        stores.push(store);
    }
    let mut ids = vec![];
    for round in 0..10 {
        let engine = &engines[round % 2];
        let batch: Vec<Notification> = (0..100).map(|number| notification(engine, number % 7)).collect();
        ids.extend(batch.iter().map(|one| one.id));
        assert_eq!(engine.accept(None, batch).await.unwrap(), Accepted::New);
    }
    delivered(&*stores[0], &ids).await;
    let now = engines[0].now();
    for engine in engines {
        assert_eq!(engine.drain(Duration::from_secs(5)).await.unwrap(), 0);
    }
    assert_eq!(stores[1].recount().await.unwrap(), None);
    let (_, webhooks) = stores[1].stats(None, now).await.unwrap().channels[0];
    assert_eq!(
        (webhooks.delivered_24h, webhooks.ended_24h, webhooks.sending, webhooks.in_retry),
        (1_000, 1_000, 0, 0)
    );
    for id in ids {
        let history = stores[0].history(id).await.unwrap();
        let numbers: Vec<u32> = history.attempts.iter().map(|attempt| attempt.number).collect();
        assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>(), "{id}");
    }
}
