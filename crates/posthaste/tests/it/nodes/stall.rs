//! The database takes commits and completes them only later, when every caller has given up: what they wrote is there then,
//! and no node may hold a notification that it does not know of.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};
use posthaste::client::Client;
use posthaste_core::id::NotificationId;
use posthaste_wire::sink::Sink;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::load::{Aim, Ledger, Load, MOST_ATTEMPTS, Pace, SILENCE};
use super::super::program::{Program, eventually, get, sink};
use super::leases::Book;
use super::{CONCURRENCY, Cluster};

/// How long commits stall: longer than a call to the store may take (15 s), and than a lease lasts (12 s).
const STALL: Duration = Duration::from_secs(20);
/// How many notifications there are of each kind.
const EACH: usize = 20;
/// How many notifications a node sends at once: so many that arrivals leave room for the retries to the same destination.
const PLACES: u32 = 128;

impl Cluster {
    /// Lets every commit wait. While a standby is asked for that does not exist, what is committed is written and seen by
    /// nobody.
    fn stall(&self) {
        self.sql("alter system set synchronous_standby_names = 'nobody'");
        self.sql("select pg_reload_conf()");
    }

    /// Lets every commit that waits complete.
    fn resume(&self) {
        self.sql("alter system reset synchronous_standby_names");
        self.sql("select pg_reload_conf()");
    }
}

fn batch(sink: &Sink, path: &str) -> Value {
    let policy = json!({
        "strategy": "fixed", "initialDelay": "3s", "maxAttempts": MOST_ATTEMPTS, "jitter": "none",
        "quick": {"tries": 0},
    });
    let one = json!({"channel": "webhook", "to": sink.url(path), "body": {}, "policy": policy});
    json!({"notifications": vec![one; EACH]})
}

fn note(ledger: &mut Ledger, path: &str, answer: &Value) {
    for one in answer["accepted"].as_array().unwrap() {
        let id: NotificationId = one["notificationId"].as_str().unwrap().parse().unwrap();
        ledger.acknowledged.insert(id, path.to_owned());
    }
}

/// Waits until so many have failed once and wait for their retry, so that no outcome is left to be recorded.
async fn failed_once(node: &Program, count: usize) {
    let client = node.client();
    let waiting = eventually(async || {
        let stats = get(&client, "/v1/stats").await;
        (stats["inRetry"] == count && stats["sending"] == 0).then_some(())
    });
    waiting.await.expect("what failed waits for its retry");
}

/// Hands in a batch under a key; answers with what was acknowledged, if anything was.
async fn keyed(client: &Client, key: &str, body: &Value) -> Option<Value> {
    let header = (HeaderName::from_static("idempotency-key"), HeaderValue::from_str(key).unwrap());
    let body = Bytes::from(body.to_string());
    let answer = client.send(Method::POST, "/v1/notifications/batch", &[header], body).await.ok()?;
    (answer.status == StatusCode::ACCEPTED).then(|| answer.json().unwrap())
}

/// Retries become due and batches come in while no commit completes. Both are leased by commits that complete after the node
/// was told that they failed, and after it gave back what it could not see.
async fn what_was_leased_by_late_commits_ends(count: usize) {
    let (cluster, sink) = (Cluster::new(count, PLACES), sink().await);
    let (nodes, mut ledger) = (cluster.start().await, Ledger::default());
    let retried = "/sequence/503,200";
    for (place, node) in nodes.iter().enumerate() {
        // The first key of a day and the first send to a destination are transactions of their own, which would stall first.
        for path in ["/ok", retried] {
            let answer = keyed(&node.client(), &format!("before-{place}-{path}"), &batch(&sink, path)).await;
            note(&mut ledger, path, &answer.expect("it is taken"));
        }
    }
    failed_once(&nodes[0], count * EACH).await;

    cluster.stall();
    let body = batch(&sink, "/ok");
    for (place, node) in nodes.iter().enumerate() {
        let client = node.client().within(Duration::from_secs(1));
        let taken = keyed(&client, &format!("during-{place}"), &body).await;
        assert_eq!(taken, None, "nothing is acknowledged that is not durable");
    }
    sleep(STALL).await;
    cluster.resume();
    for (place, node) in nodes.iter().enumerate() {
        let client = node.client();
        let answer = eventually(async || keyed(&client, &format!("during-{place}"), &body).await).await;
        note(&mut ledger, "/ok", &answer.expect("the same request is taken once commits complete"));
    }
    // While every node runs: one that stops gives back what it holds, known or not.
    nodes[0].rest().await;
    for mut node in nodes {
        node.ready().await;
        node.stop().await;
    }
    let kept = cluster.kept();
    kept.check(&ledger);
    eprintln!(
        "stall, {count} nodes: {} acknowledged, {} interruptions, {} duplicates",
        ledger.acknowledged.len(),
        kept.interruptions(),
        kept.duplicates(&sink),
    );
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_leased_by_commits_that_came_late_ends() {
    what_was_leased_by_late_commits_ends(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_nodes_leased_by_commits_that_came_late_ends() {
    what_was_leased_by_late_commits_ends(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_under_load_ends_though_commits_stalled() {
    let mut rng = Rng::new();
    let (cluster, sink) = (Cluster::new(2, CONCURRENCY), sink().await);
    let mut nodes = cluster.start().await;
    Book::open(&cluster);
    let aim = Aim { sink: sink.url(""), paths: &["/ok", "/flaky/50"], bytes: 100 };
    let pace = Pace { count: 3_000, over: Duration::from_secs(6), silence: SILENCE };
    let load = Load::through(&cluster.doors, aim, pace, &mut rng);
    sleep(Duration::from_millis(2_000 + rng.u64(..500))).await;
    cluster.stall();
    sleep(STALL).await;
    cluster.resume();
    for node in &mut nodes {
        node.ready().await;
    }
    let mut ledger = load.ended().await;
    assert!(ledger.refused.len() + usize::try_from(ledger.unanswered).unwrap() > 0, "it stalled under load");
    let (kept, _) = cluster.end(nodes, &mut ledger, &mut rng).await;
    eprintln!(
        "stall under load: {} acknowledged, {} refusals, {} unanswered, {} interruptions, {} duplicates",
        ledger.acknowledged.len(),
        ledger.refused.len(),
        ledger.unanswered,
        kept.interruptions(),
        kept.duplicates(&sink),
    );
    sink.stop().await;
}
