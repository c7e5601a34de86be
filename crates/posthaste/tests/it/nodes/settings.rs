//! What is set on one node holds on all of them within two seconds.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode};
use posthaste::client::Client;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::program::{LOOK, Program, get, json as answered, post, sink};
use super::{CONCURRENCY, Cluster};

/// How long a change may take to reach every node.
const WITHIN: Duration = Duration::from_secs(2);

/// Asks until it is so, and answers how long that took.
async fn becomes(what: &str, mut ask: impl AsyncFnMut() -> bool) -> Duration {
    let changed = Instant::now();
    while !ask().await {
        assert!(changed.elapsed() <= WITHIN, "{what}: not within {WITHIN:?}");
        sleep(LOOK).await;
    }
    eprintln!("settings: {what} after {:?}", changed.elapsed());
    changed.elapsed()
}

async fn status(client: &Client, path: &str) -> StatusCode {
    client.get(path).await.unwrap().status
}

/// Three nodes that were started at the same moment on an empty database.
async fn at_once(cluster: &Cluster) -> Vec<Program> {
    let mut nodes: Vec<Program> = cluster.homes.iter().map(|home| home.spawn()).collect();
    for node in &mut nodes {
        node.ready().await;
    }
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_policies_and_cursors_of_one_node_are_those_of_all_within_two_seconds() {
    let (cluster, sink) = (Cluster::new(3, CONCURRENCY), sink().await);
    let mut nodes = at_once(&cluster).await;
    // As if one more had been started at that moment, and the secret of cursors that it made were the one that stayed.
    let secret = "ab".repeat(32);
    cluster.sql(&format!(
        "update setting set value = '{secret}' where name = 'secret:cursors';
         update setting_version set version = version + 1"
    ));
    nodes.remove(2).stop().await;
    nodes.push(cluster.homes[2].start().await);
    let [a, b, c] = &nodes[..] else { panic!("there are three") };

    // A key works where it was not made, and stops to work where it was not revoked.
    let made = answered(
        &a.client().post("/v1/keys", &json!({"name": "k", "tenant": "acme"})).await.unwrap(),
        StatusCode::CREATED,
    );
    let with_key =
        |node: &Program| Client::new(&format!("http://{}", node.address()), made["key"].as_str()).unwrap();
    let (on_b, on_c) = (with_key(b), with_key(c));
    becomes("a key works on b", async || status(&on_b, "/v1/stats").await == StatusCode::OK).await;
    becomes("a key works on c", async || status(&on_c, "/v1/stats").await == StatusCode::OK).await;
    let revoke = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    let gone = b.client().send(Method::DELETE, &revoke, &[], Bytes::new()).await.unwrap();
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    let refused = async |client: &Client| status(client, "/v1/stats").await == StatusCode::UNAUTHORIZED;
    becomes("a revoked key is refused on c", async || refused(&on_c).await).await;
    assert!(refused(&on_b).await, "it is refused at once where it was revoked");

    // A policy is shown by another node and used by a third.
    let policy = json!({"strategy": "fixed", "initialDelay": "50ms", "maxAttempts": 3, "jitter": "none"});
    let put =
        a.client().send(Method::PUT, "/v1/policies/channel:webhook", &[], policy.to_string().into()).await;
    assert_eq!(put.unwrap().status, StatusCode::OK);
    let begun = Instant::now();
    let shown = async |node: &Program| {
        let answer = node.client().get("/v1/policies/channel:webhook").await.unwrap();
        answer.status == StatusCode::OK && answer.json::<Value>().unwrap()["effective"]["maxAttempts"] == 3
    };
    becomes("a policy is shown by b", async || shown(b).await).await;
    sleep(WITHIN.saturating_sub(begun.elapsed())).await;
    let send = json!({"channel": "webhook", "to": sink.url("/status/503"), "body": 1, "policy": {"quick": {"tries": 0}}});
    let id =
        post(&c.client(), "/v1/notifications", &send).await["notificationId"].as_str().unwrap().to_owned();
    c.rest().await;
    let dead = get(&b.client(), &format!("/v1/notifications/{id}")).await;
    assert_eq!((&dead["state"], &dead["attempts"].as_array().unwrap().len()), (&json!("deadLetter"), &3));

    // A list that began on one node goes on at another.
    for node in [a, b, c] {
        let send = json!({"channel": "webhook", "to": sink.url("/ok"), "body": 1});
        post(&node.client(), "/v1/notifications", &send).await;
    }
    let (mut seen, mut cursor) = (vec![], String::new());
    for node in [a, b, c, a] {
        let page = get(&node.client(), &format!("/v1/notifications?limit=1{cursor}")).await;
        seen.extend(page["data"].as_array().unwrap().iter().map(|one| one["notificationId"].to_string()));
        if let Some(next) = page["nextCursor"].as_str() {
            cursor = format!("&cursor={next}");
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4, "every notification was on one of the pages");
    for node in nodes {
        node.stop().await;
    }
    sink.stop().await;
}
