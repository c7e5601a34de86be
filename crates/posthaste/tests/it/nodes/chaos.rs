//! Everything at once: nodes that are killed, a node that stands still past its lease and goes on, a database that is
//! restarted under all of them, and load that never stops. Nothing is lost, nothing is held by two.

use std::time::Duration;

use fastrand::Rng;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::super::load::{Aim, Load, Pace, SILENCE};
use super::super::program::{Program, eventually, sink};
use super::leases::Book;
use super::{CONCURRENCY, Cluster, number};

/// How many are sent at least, unless the variable says otherwise.
const NOTIFICATIONS: u64 = 10_000;
/// The most work in flight of a node, which bounds the duplicates of each kill and pause: as many more wait for their
/// outcome to be recorded.
const IN_FLIGHT: u32 = 2 * CONCURRENCY;
/// How long a node stands still: longer than its leases last.
const PAUSE: Duration = Duration::from_secs(16);
/// How long a round takes.
const ROUND: Duration = Duration::from_secs(20);
/// Receivers that are well, that fail now and then in two ways, that are slow, and that refuse for good.
const PATHS: &[&str] = &[
    "/ok",
    "/ok",
    "/ok",
    "/flaky/20",
    "/flaky/20",
    "/flaky/20/reset",
    "/delay/15ms",
    "/delay/1s",
    "/status/400",
];

/// One round: one node stands still while the other two are killed and the database is restarted.
async fn round(cluster: &mut Cluster, nodes: &mut Vec<Program>, rng: &mut Rng) -> u32 {
    let paused = rng.usize(..3);
    let (first, second) = ((paused + 1) % 3, (paused + 2) % 3);
    let a_while =
        async |millis: u64, rng: &mut Rng| sleep(Duration::from_millis(millis + rng.u64(..1_000))).await;
    a_while(1_000, rng).await;
    let returned = returns(&nodes[paused]);
    nodes[paused].freeze().await;
    let resumed = tokio::time::Instant::now() + PAUSE;
    a_while(500, rng).await;
    kill(cluster, nodes, first).await;
    a_while(1_000, rng).await;
    block_in_place(|| cluster.server.order("restart")).unwrap();
    a_while(1_000, rng).await;
    kill(cluster, nodes, second).await;
    a_while(1_000, rng).await;
    kill(cluster, nodes, first).await;
    tokio::time::sleep_until(resumed).await;
    nodes[paused].signal("CONT");
    let back = async || (returns(&nodes[paused]) > returned).then_some(());
    eventually(back).await.expect("a node that stood still has lost its leases");
    a_while(1_000, rng).await;
    4
}

/// How often a node found out that it was taken for dead.
fn returns(node: &Program) -> usize {
    node.log().matches("was declared dead and joined again").count()
}

/// Kills a node and starts it again.
async fn kill(cluster: &Cluster, nodes: &mut Vec<Program>, place: usize) {
    nodes.remove(place).kill();
    nodes.insert(place, cluster.homes[place].start().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_is_held_by_two_whatever_happens() {
    let rounds = number("POSTHASTE_NODES_ROUNDS").unwrap_or(1);
    let count = number("POSTHASTE_NODES_NOTIFICATIONS").unwrap_or(NOTIFICATIONS);
    let seed = number("POSTHASTE_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("nodes: POSTHASTE_SEED={seed}, {rounds} rounds, {count} notifications");
    let mut rng = Rng::with_seed(seed);
    let (mut cluster, sink) = (Cluster::new(3, CONCURRENCY), sink().await);
    let mut nodes = cluster.start().await;
    Book::open(&cluster);
    let aim = Aim { sink: sink.url(""), paths: PATHS, bytes: 100 };
    let over = ROUND * u32::try_from(rounds).unwrap();
    let load = Load::through(&cluster.doors, aim, Pace { count, over, silence: SILENCE }, &mut rng);
    let mut troubles = 0;
    for _ in 0..rounds {
        troubles += round(&mut cluster, &mut nodes, &mut rng).await;
    }
    let mut ledger = load.ended().await;
    for node in &nodes {
        ledger.repeat(&node.client(), &mut rng).await;
    }
    nodes[0].rest().await;
    for node in nodes {
        node.stop().await;
    }

    let (kept, book) = (cluster.kept(), Book::read(&cluster));
    kept.check(&ledger);
    let (duplicates, strays) = (kept.duplicates(&sink), book.strays(&sink));
    eprintln!(
        "nodes: {} acknowledged, {} kept, {} refusals, {} unanswered, {} arrivals, {} leases, {} interruptions, \
         {duplicates} duplicates, {} late sends",
        ledger.acknowledged.len(),
        kept.all.len(),
        ledger.refused.len(),
        ledger.unanswered,
        sink.received(),
        book.len(),
        kept.interruptions(),
        strays.late,
    );
    assert!(duplicates <= troubles * IN_FLIGHT, "I8: {duplicates} duplicates after {troubles} troubles");
    let late = u64::from(strays.late);
    assert!(late <= rounds * u64::from(CONCURRENCY), "I4: {late} were sent after others had taken over");
    assert!(kept.interruptions() > 0, "some work was under way when nodes were killed");
    sink.stop().await;
}
