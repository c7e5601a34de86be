//! The database takes commits and completes them only later, when every caller has given up: what they wrote is there then,
//! and no node may hold a notification that it does not know of.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use super::super::load::{Aim, Load, Pace};
use super::super::program::sink;
use super::leases::Book;
use super::{CONCURRENCY, Cluster};

/// How long commits stall: longer than a call to the store may take (15 s), and than a lease lasts (12 s).
const STALL: Duration = Duration::from_secs(20);
/// Receivers that are well, and those that fail now and then, so that a claim is under way when the stall begins.
const PATHS: &[&str] = &["/ok", "/flaky/50"];

/// While a standby is asked for that does not exist, a commit is written and visible to nobody, and its caller waits.
fn stall(cluster: &Cluster) {
    cluster.sql("alter system set synchronous_standby_names = 'nobody'");
    cluster.sql("select pg_reload_conf()");
}

fn resume(cluster: &Cluster) {
    cluster.sql("alter system reset synchronous_standby_names");
    cluster.sql("select pg_reload_conf()");
}

async fn what_was_acknowledged_ends(nodes: usize) {
    let mut rng = Rng::new();
    let (cluster, sink) = (Cluster::new(nodes, CONCURRENCY), sink().await);
    let mut nodes = cluster.start().await;
    Book::open(&cluster);
    let aim = Aim { sink: sink.url(""), paths: PATHS, bytes: 100 };
    let pace = Pace { count: 3_000, over: Duration::from_secs(6) };
    let load = Load::through(&cluster.doors, aim, pace, &mut rng);
    // Load is under way, and for how long is left to chance.
    sleep(Duration::from_millis(2_000 + rng.u64(..500))).await;
    stall(&cluster);
    sleep(STALL).await;
    resume(&cluster);
    for node in &mut nodes {
        node.ready().await;
    }
    let mut ledger = load.ended().await;
    assert!(ledger.refused.len() + usize::try_from(ledger.unanswered).unwrap() > 0, "it stalled under load");
    // Waits until nothing is live, as long as that becomes less, while every node runs.
    let (kept, _) = cluster.end(nodes, &mut ledger, &mut rng).await;
    eprintln!(
        "stall: {} acknowledged, {} kept, {} refusals, {} unanswered, {} interruptions, {} duplicates",
        ledger.acknowledged.len(),
        kept.all.len(),
        ledger.refused.len(),
        ledger.unanswered,
        kept.interruptions(),
        kept.duplicates(&sink),
    );
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_ends_though_commits_came_later_than_the_node_waited() {
    what_was_acknowledged_ends(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_ends_though_commits_came_later_than_both_nodes_waited() {
    what_was_acknowledged_ends(2).await;
}
