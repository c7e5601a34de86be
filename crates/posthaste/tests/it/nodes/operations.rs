//! Retry operations on several nodes: another process finishes what a killed one began.

use fastrand::Rng;
use tokio::task::block_in_place;

use super::{CONCURRENCY, Cluster, DATABASE};
use crate::kept::rows_of_database;
use crate::operations::{begin, check, finished, items, kills, some_while};
use crate::program::sink;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_finishes_the_operation_of_one_that_was_killed() {
    let (cluster, sink, mut rng) = (Cluster::new(2, CONCURRENCY), sink().await, Rng::new());
    let items = items();
    let mut nodes = cluster.start().await;
    let id = begin(&nodes[0], &sink, items).await;
    for kill in 0..kills() {
        some_while(&mut rng).await;
        let place = usize::try_from(kill % 2).unwrap();
        let killed = nodes.remove(place);
        killed.kill();
        some_while(&mut rng).await;
        nodes.insert(place, cluster.homes[place].start().await);
    }
    // The last runner is gone for good.
    nodes.remove(0).kill();
    let ended = finished(&nodes[0], &id, items).await;
    eprintln!("operation: {} events: {}", ended["total"], ended["events"]);
    nodes[0].rest().await;
    for node in nodes {
        node.stop().await;
    }
    let rows = |sql: &str| block_in_place(|| rows_of_database(&cluster.server, DATABASE, sql));
    check(&rows, items);
    sink.stop().await;
}
