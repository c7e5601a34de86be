//! A rolling restart under load: each node in turn is stopped in order and started again, and nobody who sends or
//! receives can tell but by a 503.

use std::time::Duration;

use fastrand::Rng;
use http::header::RETRY_AFTER;
use serde_json::Value;
use tokio::time::sleep;

use super::super::load::{Aim, Load, Pace};
use super::super::program::sink;
use super::leases::{Book, Strays};
use super::{CONCURRENCY, Cluster};

const PATHS: &[&str] =
    &["/ok", "/ok", "/flaky/20", "/flaky/20/reset", "/delay/100ms", "/delay/1s", "/status/400"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_nothing_sends_nothing_twice_and_fails_nobody() {
    let mut rng = Rng::new();
    let (cluster, sink) = (Cluster::new(3, CONCURRENCY), sink().await);
    let mut nodes = cluster.start().await;
    Book::open(&cluster);
    let aim = Aim { sink: sink.url(""), paths: PATHS, bytes: 100 };
    // No node is killed, so a silence is a slow machine: a request that is handed in again after it may be kept twice.
    let pace = Pace { count: 3_000, over: Duration::from_secs(10), silence: Duration::from_secs(60) };
    let load = Load::through(&cluster.doors, aim, pace, &mut rng);
    for place in 0..3 {
        sleep(Duration::from_millis(500)).await;
        nodes.remove(place).stop().await;
        nodes.insert(place, cluster.homes[place].start().await);
    }
    let mut ledger = load.ended().await;
    for refused in &ledger.refused {
        assert!(refused.headers.contains_key(RETRY_AFTER));
        assert_eq!(refused.json::<Value>().unwrap()["code"], "STOPPING");
    }
    let (kept, book) = cluster.end(nodes, &mut ledger, &mut rng).await;
    eprintln!(
        "rolling: {} acknowledged, {} refusals, {} unanswered",
        ledger.acknowledged.len(),
        ledger.refused.len(),
        ledger.unanswered
    );
    assert_eq!((kept.duplicates(&sink), kept.interruptions()), (0, 0), "I8");
    assert_eq!(book.strays(&sink), Strays::default());
    // A request that broke off had not been read: it was handed in again, and nothing of it is kept twice.
    assert_eq!(kept.all.len(), ledger.acknowledged.len(), "what was answered is what is kept");
    assert!(!ledger.refused.is_empty(), "nodes stopped under load");
    sink.stop().await;
}
