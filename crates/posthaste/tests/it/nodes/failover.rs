//! The database's machine is lost and its standby takes over: the nodes find it by themselves.

use std::time::{Duration, Instant};

use fastrand::Rng;
use http::header::RETRY_AFTER;
use posthaste_store::postgres::own::OwnServer;
use serde_json::Value;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::super::frozen::Frozen;
use super::super::load::{Aim, Load, Pace, SILENCE};
use super::super::program::{eventually, sink};
use super::leases::{Book, Strays};
use super::{CONCURRENCY, Cluster, DATABASE};

const PATHS: &[&str] = &["/ok", "/ok", "/flaky/20", "/delay/100ms", "/status/400"];

/// A standby that has everything before its first server says that it is done.
async fn standby(first: &OwnServer) -> OwnServer {
    let standby = block_in_place(|| OwnServer::standby_of(first, &std::env::temp_dir())).unwrap();
    let sql = |sql: &str| block_in_place(|| first.sql("postgres", sql)).unwrap();
    sql("alter system set synchronous_standby_names = '*'");
    sql("select pg_reload_conf()");
    let follows =
        eventually(async || (sql("select sync_state from pg_stat_replication") == "sync").then_some(()));
    follows.await.expect("the standby follows");
    standby
}

/// How the first server is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// It ends, and its machine says so.
    Ends,
    /// It takes connections and says nothing any more.
    StandsStill,
}

async fn the_nodes_go_on_with_the_standby(loss: Loss) {
    let mut rng = Rng::new();
    let first = block_in_place(|| OwnServer::start(&std::env::temp_dir(), "")).unwrap();
    let mut second = standby(&first).await;
    // Where the standby is named first, a server that only reads is passed over; else one that is lost.
    let mut ports = [first.port(), second.port()];
    if loss == Loss::Ends {
        ports.reverse();
    }
    let url = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{DATABASE}", ports[0], ports[1]);
    let (mut cluster, sink) = (Cluster::on(first, &url, 2, CONCURRENCY), sink().await);
    let mut nodes = cluster.start().await;
    Book::open(&cluster);
    let aim = Aim { sink: sink.url(""), paths: PATHS, bytes: 100 };
    let pace = Pace { count: 2_000, over: Duration::from_secs(6), silence: SILENCE };
    let load = Load::through(&cluster.doors, aim, pace, &mut rng);
    sleep(Duration::from_secs(2)).await;

    let frozen = match loss {
        Loss::Ends => {
            block_in_place(|| cluster.server.order("stop")).unwrap();
            None
        }
        Loss::StandsStill => Some(Frozen::of(&cluster.server)),
    };
    let promoted = Instant::now();
    block_in_place(|| second.order("promote")).unwrap();
    for node in &mut nodes {
        node.ready().await;
    }
    let took = promoted.elapsed();
    let lost = std::mem::replace(&mut cluster.server, second);
    let mut ledger = load.ended().await;
    for refused in &ledger.refused {
        assert_eq!(refused.json::<Value>().unwrap()["code"], "STORE_UNAVAILABLE");
        assert!(refused.headers.contains_key(RETRY_AFTER), "{:?}", refused.headers);
    }
    assert!(ledger.refused.len() + usize::try_from(ledger.unanswered).unwrap() > 0, "it was away under load");
    let (kept, book) = cluster.end(nodes, &mut ledger, &mut rng).await;
    let (duplicates, interruptions) = (kept.duplicates(&sink), kept.interruptions());
    eprintln!(
        "failover, the first {loss:?}: {} acknowledged, {} refusals, {} unanswered, {duplicates} duplicates, ready {took:?} \
         after the standby was told",
        ledger.acknowledged.len(),
        ledger.refused.len(),
        ledger.unanswered,
    );
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(book.strays(&sink), Strays::default());
    assert_eq!((duplicates, interruptions), (0, 0), "no node was lost");
    drop((frozen, lost));
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_database_ends_the_nodes_go_on_with_its_standby() {
    the_nodes_go_on_with_the_standby(Loss::Ends).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_database_stands_still_the_nodes_go_on_with_its_standby() {
    the_nodes_go_on_with_the_standby(Loss::StandsStill).await;
}
