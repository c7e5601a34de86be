//! Breakers, pauses and limits that three nodes share.

use std::time::Duration;

use posthaste::clock::SystemClock;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock as _;
use posthaste_wire::sink::{Dial, Sink};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::super::program::{LOOK, PATIENCE, Program, eventually, post, sink};
use super::{CONCURRENCY, Cluster};

/// So long after it was opened by one node, the others may still begin.
const TOLD: Duration = Duration::from_secs(2);
/// How long it stays open each time.
const BREAK: Duration = Duration::from_secs(5);
/// How long a probe takes that is answered.
const ANSWERED: &str = "2s";

/// A heartbeat or two after the last one has started, every node knows its share.
async fn started(cluster: &Cluster) -> Vec<Program> {
    let nodes = cluster.start().await;
    sleep(Duration::from_secs(4)).await;
    nodes
}

async fn send(node: &Program, sink: &Sink, path: &str, count: usize) {
    let policy = json!({"strategy": "fixed", "initialDelay": "1s", "maxAttempts": 40, "jitter": "none", "timeout": "4s",
        "quick": {"tries": 0}});
    let one = json!({"channel": "webhook", "to": sink.url(path), "body": 1, "policy": policy});
    post(&node.client(), "/v1/notifications/batch", &json!({"notifications": vec![one; count]})).await;
}

fn turn(sink: &Sink, answer: &str, delay: Option<&str>) {
    sink.inbox().turn(Some(Dial::read(answer, delay, None).unwrap()));
}

fn between(sink: &Sink, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    sink.arrivals().iter().map(|one| one.at).filter(|at| *at >= from && *at < to).collect()
}

/// When it opened for the nth time, and until when.
async fn opened(cluster: &Cluster, times: usize) -> (Timestamp, Timestamp) {
    let found = eventually(async || {
        let rows =
            cluster.sql("select at || ' ' || until from destination_event where event = 1 order by number");
        let row = rows.lines().filter(|line| !line.trim().is_empty()).nth(times - 1)?;
        let (at, until) = row.trim().split_once(' ')?;
        let time = |text: &str| Timestamp::from_micros(text.parse().unwrap());
        Some((time(at), time(until)))
    });
    found.await.expect("it opens")
}

/// The place of the node that has the probe in hand.
async fn prober(cluster: &Cluster) -> usize {
    let found = eventually(async || {
        let rows = cluster.sql("select value from destination where value is not null");
        let value: Value = serde_json::from_str(rows.lines().next()?.trim()).ok()?;
        let node = value["breaker"]["node"].as_i64()?;
        let name = cluster.sql(&format!("select name from node where id = {node}"));
        name.trim().strip_prefix("node-")?.parse().ok()
    });
    found.await.expect("somebody has the probe")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_opened_stops_the_others_and_a_probe_that_died_with_its_node_comes_back() {
    let broken = ["breaker.failure_threshold=5", "breaker.first_break=5s", "breaker.break_duration=5s"];
    let (cluster, sink) = (Cluster::new(3, CONCURRENCY).with_settings(&broken), sink().await);
    let mut nodes = started(&cluster).await;
    // Probes are a part of the traffic before.
    for node in &nodes {
        send(node, &sink, "/ok", 100).await;
    }
    timeout(PATIENCE, sink.wait_for(300)).await.expect("they arrive");

    turn(&sink, "503", None);
    send(&nodes[0], &sink, "/ok", 5).await;
    let (at, until) = opened(&cluster, 1).await;
    turn(&sink, "503", Some(ANSWERED));
    while SystemClock.now() < at.later(TOLD) {
        for node in &nodes {
            send(node, &sink, "/ok", 5).await;
        }
        sleep(LOOK).await;
    }
    for node in &nodes {
        send(node, &sink, "/ok", 5).await;
    }
    let (at, again) = opened(&cluster, 2).await;
    let probes = between(&sink, until.earlier(BREAK - TOLD), at);
    assert_eq!(probes.len(), 1, "one probe in the cluster, and nothing else 2 s after it opened: {probes:?}");
    assert!(probes[0] >= until, "{probes:?} before {until}");

    // The second probe dies with its node.
    turn(&sink, "hang", None);
    let before = sink.received();
    timeout(PATIENCE, sink.wait_for(before + 1)).await.expect("the second probe");
    let killed = nodes.remove(prober(&cluster).await);
    let probe = sink.arrivals().last().unwrap().at;
    assert!(probe >= again, "{probe} before {again}");
    killed.kill();
    turn(&sink, "path", None);
    timeout(PATIENCE, sink.wait_for(before + 2)).await.expect("the third probe, by another node");
    let third = sink.arrivals()[usize::try_from(before).unwrap() + 1].at;
    assert!(third >= probe.later(Duration::from_secs(4)), "the second one may have been under way");
    nodes[0].rest().await;
    for node in nodes {
        node.stop().await;
    }
    let kept = cluster.kept();
    assert!(kept.interruptions() >= 1, "the probe came back");
    assert!(kept.duplicates(&sink) <= 1);
    assert_eq!(
        cluster.sql("select count(*) from ended where state <> 2").trim(),
        "0",
        "everything was delivered"
    );
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_429_that_one_node_got_pauses_all_of_them() {
    const ASKED: Duration = Duration::from_secs(7);
    let (cluster, sink) = (Cluster::new(3, CONCURRENCY), sink().await);
    let nodes = started(&cluster).await;
    send(&nodes[0], &sink, "/sequence/429,200?retry-after=7", 1).await;
    timeout(PATIENCE, sink.wait_for(1)).await.expect("it arrives");
    let asked = sink.arrivals()[0].at;
    sleep(TOLD).await;
    for node in &nodes {
        send(node, &sink, "/ok", 10).await;
    }
    timeout(PATIENCE, sink.wait_for(32)).await.expect("all of them arrive");
    let early = between(&sink, asked.later(TOLD), asked.later(ASKED));
    assert_eq!(early, [], "asked for silence at {asked}");
    for node in nodes {
        node.stop().await;
    }
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_concurrency_of_two_is_never_exceeded_by_three_nodes() {
    const EACH: Duration = Duration::from_millis(100);
    let sink = sink().await;
    let limit = format!("[destinations.\"http://{}\"]\nconcurrency = 2\n", sink.address());
    let cluster = Cluster::new(3, CONCURRENCY);
    for home in &cluster.homes {
        std::fs::write(home.path().join("posthaste.toml"), &limit).unwrap();
    }
    let nodes = started(&cluster).await;
    for node in &nodes {
        send(node, &sink, "/delay/100ms", 30).await;
    }
    timeout(PATIENCE, sink.wait_for(90))
        .await
        .expect("all of them arrive, also what came to the node without a share");
    let arrivals: Vec<Timestamp> = sink.arrivals().iter().map(|one| one.at).collect();
    for at in &arrivals {
        // What has arrived is not answered before that.
        let at_once = arrivals.iter().filter(|one| *one <= at && *at < one.later(EACH)).count();
        assert!(at_once <= 2, "{at_once} at once at {at}");
    }
    let took = arrivals[89].since(arrivals[0]);
    assert!(took < Duration::from_secs(30), "both places are used: {took:?}");
    nodes[0].rest().await;
    for node in nodes {
        node.stop().await;
    }
    assert_eq!(cluster.kept().duplicates(&sink), 0);
    sink.stop().await;
}
