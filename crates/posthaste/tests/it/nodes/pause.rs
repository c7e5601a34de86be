//! A node that stands still for longer than its leases last: others deliver what it held, and it must neither send it nor
//! record anything about it.

use std::time::Duration;

use posthaste_core::id::NotificationId;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::program::{PATIENCE, eventually, post, sink};
use super::leases::{Book, Strays};
use super::{CONCURRENCY, Cluster};

/// How many it holds: as many as a flow may have under way.
const HELD: u64 = CONCURRENCY as u64 / 2;
/// How long half of them take to be answered.
const SLOWLY: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stood_still_neither_sends_nor_records_what_was_taken_from_it() {
    let (cluster, sink) = (Cluster::new(2, CONCURRENCY), sink().await);
    let nodes = cluster.start().await;
    Book::open(&cluster);
    let policy = json!({"timeout": "8s", "quick": {"tries": 1, "delay": "3s", "jitter": false}});
    let one = |path: &str| json!({"channel": "webhook", "to": sink.url(path), "body": 1, "policy": policy});
    // Some fail once, and the node stops where it stands before the quick try that follows; some are answered meanwhile.
    let (failing, slow) = (one("/sequence/503,200"), one("/delay/4s"));
    let all: Vec<Value> = (0..HELD / 2).flat_map(|_| [failing.clone(), slow.clone()]).collect();
    post(&nodes[0].client(), "/v1/notifications/batch", &json!({"notifications": all})).await;
    timeout(PATIENCE, sink.wait_for(HELD)).await.expect("they arrive");
    nodes[0].freeze().await;
    timeout(PATIENCE, sink.wait_for(2 * HELD)).await.expect("the other node takes over");
    nodes[0].signal("CONT");
    let back = async || nodes[0].log().contains("was declared dead and joined again").then_some(());
    eventually(back).await.expect("it finds out that it was taken for dead");
    nodes[1].rest().await;
    // A stop waits for what is under way.
    for node in nodes {
        node.stop().await;
    }

    let (kept, book) = (cluster.kept(), Book::read(&cluster));
    kept.duplicates(&sink);
    assert_eq!(u64::from(kept.interruptions()), HELD);
    assert_eq!(book.strays(&sink), Strays::default(), "I4: sent after others had taken over");
    assert_eq!(sink.received(), 2 * HELD);
    for arrival in sink.arrivals().iter().filter(|arrival| arrival.path.starts_with("/delay")) {
        let id: NotificationId = arrival.id.as_deref().unwrap().parse().unwrap();
        let held_until = book.held_until(id, arrival.at);
        assert!(
            held_until >= arrival.at.later(SLOWLY),
            "I5: {id} was recorded before its holder had an answer"
        );
    }
    sink.stop().await;
}
