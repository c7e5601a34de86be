//! Nodes whose wall clocks are a minute wrong change nothing: everybody goes by the clock of the database.
//!
//! The clock is set wrong by libfaketime (Debian's package `faketime`), for each process.

use std::path::PathBuf;
use std::time::Duration;

use posthaste::clock::SystemClock;
use posthaste_core::id::NotificationId;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock as _;
use posthaste_wire::sink::Sink;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::program::{Home, PATIENCE, Program, get, post, sink};
use super::leases::{Book, Strays};
use super::{CONCURRENCY, Cluster};

/// How wrong the clocks are, in seconds.
const MINUTE: i64 = 60;
/// How much later than meant anything may come.
const LATE: Duration = Duration::from_millis(1_500);

/// Where the library is that sets the clock.
fn library() -> PathBuf {
    let places = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|place| place.path());
    let found =
        places.map(|place| place.join("faketime/libfaketimeMT.so.1")).find(|library| library.is_file());
    found.expect("libfaketime is missing: install it, on Debian with: sudo apt-get install faketime")
}

/// Three nodes: one whose wall clock is right, one whose is a minute ahead, one whose is a minute behind.
async fn three(cluster: &mut Cluster) -> Vec<Program> {
    let wrong = [0, MINUTE, -MINUTE];
    let set = |(home, wrong): (Home, &i64)| {
        home.with_variables(vec![
            ("LD_PRELOAD", library().display().to_string()),
            ("FAKETIME", format!("{wrong:+}s")),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ])
    };
    cluster.homes = std::mem::take(&mut cluster.homes).into_iter().zip(&wrong).map(set).collect();
    let nodes = cluster.start().await;
    for (node, wrong) in nodes.iter().zip(wrong) {
        // Its log shows what it takes for the time.
        let line = node.log().lines().last().unwrap().to_owned();
        let shown: Timestamp = line.split_whitespace().next().unwrap().parse().unwrap();
        let off = shown.as_millis() - SystemClock.now().as_millis();
        assert!((off - wrong * 1_000).abs() < 20_000, "the clock of the node is not as it was set: {line}");
    }
    nodes
}

/// When each attempt of a notification was at the sink.
fn arrivals(sink: &Sink, id: &str) -> Vec<Timestamp> {
    sink.arrivals()
        .into_iter()
        .filter(|arrival| arrival.id.as_deref() == Some(id))
        .map(|arrival| arrival.at)
        .collect()
}

/// That it came at its time, not before it and hardly after it.
fn assert_on_time(what: &str, meant: Timestamp, came: Timestamp) {
    let late = came.since(meant);
    assert!(came >= meant && late <= LATE, "{what}: meant {meant}, came {came}");
}

/// Sends one, answers its id and when it was accepted: the time in its id is that of the database too.
async fn send(node: &Program, body: Value) -> (String, Timestamp) {
    let before = SystemClock.now();
    let sent = post(&node.client(), "/v1/notifications", &body).await;
    let id = sent["notificationId"].as_str().unwrap().to_owned();
    let made = id.parse::<NotificationId>().unwrap().made_at();
    // Ids tell milliseconds, and the node knows the time of the database to within a trip there.
    assert_on_time("the time in the id", before.earlier(Duration::from_millis(500)), made);
    (id, before)
}

/// What is sent to this node is retried, put off, expired and left to others as if its clock were right.
async fn goes_by_the_database(node: &Program, other: &Program, sink: &Sink) {
    let policy = json!({"strategy": "fixed", "initialDelay": "2s", "maxAttempts": 3, "jitter": "none", "quick": {"tries": 0}});
    let failing =
        json!({"channel": "webhook", "to": sink.url("/sequence/503,503,200"), "body": 1, "policy": policy});
    let (retried, _) = send(node, failing).await;
    let asked =
        json!({"channel": "webhook", "to": sink.url("/retry-after/503/3"), "body": 1, "policy": policy});
    let (told, _) = send(node, asked).await;
    let later = SystemClock.now().later(Duration::from_secs(3));
    let put_off =
        json!({"channel": "webhook", "to": sink.url("/ok"), "body": 1, "notBefore": later.to_string()});
    let (put_off, _) = send(node, put_off).await;
    let expires = SystemClock.now().later(Duration::from_secs(3));
    let expiring = json!({"channel": "webhook", "to": sink.url("/status/503"), "body": 1, "policy": policy, "expiresAt": expires.to_string()});
    let (expiring, _) = send(node, expiring).await;
    let (plain, sent_at) = send(node, json!({"channel": "webhook", "to": sink.url("/ok"), "body": 1})).await;
    other.rest().await;

    assert_on_time("a first attempt", sent_at, arrivals(sink, &plain)[0]);
    let came = arrivals(sink, &retried);
    assert_eq!(came.len(), 3);
    for pair in came.windows(2) {
        assert_on_time("a retry", pair[0].later(Duration::from_secs(2)), pair[1]);
    }
    let came = arrivals(sink, &told);
    assert_on_time("a retry after what was asked", came[0].later(Duration::from_secs(3)), came[1]);
    assert_on_time("what was put off", later, arrivals(sink, &put_off)[0]);
    let ended = get(&other.client(), &format!("/v1/notifications/{expiring}")).await;
    assert_eq!(ended["state"], "expired", "{ended}");
    assert_eq!(arrivals(sink, &expiring).len(), 2, "it is tried until it expires");
    let times: Vec<Timestamp> = ended["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|made| made["startedAt"].as_str().unwrap().parse().unwrap())
        .collect();
    for (told, came) in times.iter().zip(arrivals(sink, &expiring)) {
        assert_on_time("the time of an attempt", *told, came);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_whose_clocks_are_a_minute_wrong_change_nothing() {
    let (mut cluster, sink) = (Cluster::new(3, CONCURRENCY), sink().await);
    let mut nodes = three(&mut cluster).await;
    Book::open(&cluster);
    tokio::join!(
        goes_by_the_database(&nodes[0], &nodes[1], &sink),
        goes_by_the_database(&nodes[1], &nodes[2], &sink),
        goes_by_the_database(&nodes[2], &nodes[0], &sink),
    );
    for node in &nodes {
        let log = node.log();
        assert!(
            !log.contains("declared dead") && !log.contains("node that died"),
            "somebody was taken for dead: {log}"
        );
    }
    // What the first holds is taken over as soon as the database says so, and no sooner, by those whose clocks are wrong.
    let before = sink.received();
    send(&nodes[0], json!({"channel": "webhook", "to": sink.url("/sequence/hang,200"), "body": 1})).await;
    timeout(PATIENCE, sink.wait_for(before + 1)).await.expect("it arrives");
    let killed = SystemClock.now();
    nodes.remove(0).kill();
    timeout(PATIENCE, sink.wait_for(before + 2)).await.expect("it is taken over");
    let taken = SystemClock.now().since(killed);
    assert!((Duration::from_secs(9)..Duration::from_secs(15)).contains(&taken), "it took {taken:?}");
    for arrival in sink.arrivals() {
        let off = arrival.at.as_millis()
            - arrival.timestamp.expect("every delivery tells when it was sent") * 1_000;
        assert!((0..10_000).contains(&off), "webhook-timestamp is off by {off} ms");
    }
    nodes[0].rest().await;
    for node in nodes {
        node.stop().await;
    }
    assert_eq!(Book::read(&cluster).strays(&sink), Strays::default());
    sink.stop().await;
}
