//! What a node holds goes on elsewhere: within 15 s of its death, at once when it stops in order.

use std::time::{Duration, Instant};

use posthaste_wire::sink::Sink;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::super::program::{PATIENCE, Program, get, post, sink};
use super::{CONCURRENCY, Cluster};

/// Sends some that stay at the sink at their first try and are answered at their second; answers their ids once all of
/// them are there.
async fn hold(node: &Program, sink: &Sink, count: u64) -> Vec<String> {
    let one = json!({"channel": "webhook", "to": sink.url("/sequence/hang,200"), "body": 1});
    let batch = json!({"notifications": vec![one; usize::try_from(count).unwrap()]});
    let answer = post(&node.client(), "/v1/notifications/batch", &batch).await;
    let id = |one: &serde_json::Value| one["notificationId"].as_str().unwrap().to_owned();
    let ids = answer["accepted"].as_array().unwrap().iter().map(id).collect();
    timeout(PATIENCE, sink.wait_for(count)).await.expect("they arrive");
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_node_held_is_delivered_by_another_within_15_seconds() {
    const HELD: u64 = 10;
    let (cluster, sink) = (Cluster::new(2, CONCURRENCY), sink().await);
    let mut nodes = cluster.start().await;
    let ids = hold(&nodes[0], &sink, HELD).await;
    nodes.remove(0).kill();
    let killed = Instant::now();
    timeout(PATIENCE, sink.wait_for(2 * HELD)).await.expect("they are sent again");
    let taken = killed.elapsed();
    eprintln!("takeover: {taken:?} after the kill");
    assert!(taken <= Duration::from_secs(15), "it took {taken:?}");
    // A node that lives may be slow to send a heartbeat; nothing is taken from it for that.
    assert!(taken >= Duration::from_secs(9), "it took {taken:?}, and leases last for 12 s");
    nodes[0].rest().await;
    for id in ids {
        let shown = get(&nodes[0].client(), &format!("/v1/notifications/{id}")).await;
        assert_eq!((&shown["words"], &shown["attempt"]), (&json!("Delivered"), &json!(1)), "{shown}");
        let events: Vec<_> =
            shown["events"].as_array().unwrap().iter().map(|event| &event["event"]).collect();
        assert_eq!(events, ["interrupted"]);
    }
    sink.stop().await;
}

/// As many as a flow may have under way on a node.
const PLACES: u64 = CONCURRENCY as u64 / 2;

/// Leases to the node what it sends at once and as much again, which waits in its memory. That is only so for a flow that
/// has just moved, and on a slow machine it may have come to rest again: then everything is done once more.
async fn lease_twice_as_much_as_is_sent(cluster: &Cluster, node: &Program, sink: &Sink) {
    let batch = |path: &str, count: u64| {
        let one = json!({"channel": "webhook", "to": sink.url(path), "body": 1});
        json!({"notifications": vec![one; usize::try_from(count).unwrap()]})
    };
    for _ in 0..10 {
        let before = sink.received();
        post(&node.client(), "/v1/notifications/batch", &batch("/ok", PLACES)).await;
        timeout(PATIENCE, sink.wait_for(before + PLACES)).await.expect("they arrive");
        post(&node.client(), "/v1/notifications/batch", &batch("/delay/2s", 2 * PLACES)).await;
        timeout(PATIENCE, sink.wait_for(before + 2 * PLACES)).await.expect("they arrive");
        let held = cluster.sql("select count(*) from queue where node is not null group by node");
        if held == (2 * PLACES).to_string() {
            return;
        }
        node.rest().await;
    }
    panic!("the node never held more than it sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_has_not_sent_when_it_stops_is_sent_by_another_within_a_second() {
    let (cluster, sink) = (Cluster::new(2, CONCURRENCY), sink().await);
    let mut nodes = cluster.start().await;
    // The other node looks everywhere by itself within a second or so of its start, and then every five seconds. In between
    // it has to be told.
    sleep(Duration::from_millis(6_800)).await;
    lease_twice_as_much_as_is_sent(&cluster, &nodes[0], &sink).await;
    let before = sink.received();
    let mut stopping = nodes.remove(0);
    stopping.signal("TERM");
    let stopped = Instant::now();
    timeout(PATIENCE, sink.wait_for(before + PLACES)).await.expect("the other node sends them");
    let taken = stopped.elapsed();
    eprintln!("takeover: {taken:?} after SIGTERM");
    assert!(taken <= Duration::from_secs(1), "it took {taken:?}");
    assert!(stopping.lives(), "it still waits for what it has under way");
    assert_eq!(stopping.ended(PATIENCE).await.code(), Some(0));
    nodes[0].rest().await;
    let kept = cluster.kept();
    assert_eq!((kept.duplicates(&sink), kept.interruptions()), (0, 0));
    sink.stop().await;
}
