//! A node that stands still for longer than its leases last: others deliver what it held, and it must not.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::program::{eventually, post, sink};
use super::Cluster;
use super::leases::Book;

/// How many are sent at once: few, so that much more waits in memory.
const CONCURRENCY: u32 = 8;
/// How many are handed to the node at a time.
const BATCH: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stood_still_does_not_send_what_was_taken_from_it() {
    let (cluster, sink) = (Cluster::new(2, CONCURRENCY), sink().await);
    let nodes = cluster.start().await;
    Book::open(&cluster);
    let one =
        json!({"channel": "webhook", "to": sink.url("/delay/5ms"), "body": 1, "policy": {"timeout": "5s"}});
    let batch = json!({"notifications": vec![one; BATCH]});
    let (client, mut sent) = (nodes[0].client(), BTreeSet::new());
    // Only a flow that moves is held in memory: the first batches make it move, the last is held.
    for _ in 0..4 {
        let answer = post(&client, "/v1/notifications/batch", &batch).await;
        let ids = answer["accepted"].as_array().unwrap().iter();
        sent.extend(ids.map(|one| one["notificationId"].as_str().unwrap().to_owned()));
    }
    nodes[0].freeze().await;
    let t0 = std::time::Instant::now();
    let arrived =
        || -> BTreeSet<String> { sink.arrivals().into_iter().filter_map(|arrival| arrival.id).collect() };
    eventually(async || (arrived() == sent).then_some(())).await.expect("the other node delivers all of it");
    eprintln!("taken after {:?}", t0.elapsed());
    nodes[0].signal("CONT");
    let back = async || nodes[0].log().contains("was declared dead and joined again").then_some(());
    eventually(back).await.expect("it finds out that it was taken for dead");
    nodes[1].rest().await;
    for mut node in nodes {
        node.signal("TERM");
        let t = std::time::Instant::now();
        node.ended(std::time::Duration::from_secs(50)).await;
        if t.elapsed().as_secs() > 5 {
            eprintln!("SLOW {:?}\n{}", t.elapsed(), node.log());
        }
    }

    let (kept, book) = (cluster.kept(), Book::read(&cluster));
    let (duplicates, strays) = (kept.duplicates(&sink), book.strays(&sink));
    let interrupted = kept.interruptions();
    eprintln!("pause: {interrupted} interruptions, {duplicates} duplicates, {} late sends", strays.late);
    assert!(interrupted > 3 * CONCURRENCY, "it held more than it could have under way: {interrupted}");
    assert!(duplicates <= 2 * CONCURRENCY, "I8: {duplicates} duplicates");
    // What had looked at its lease and was not on its way yet when everything stopped can be sent late, and nothing else.
    assert!(strays.late <= CONCURRENCY, "I4: {} were sent after others had taken over", strays.late);
    assert_eq!(kept.all.len(), sent.len());
    sink.stop().await;
}
