//! Plans last longer than what they were made for: the queue is empty one moment and full the next.

use std::time::Duration;

use posthaste_core::flow::FlowId;
use posthaste_core::lease::NodeId;
use posthaste_core::state::Lane;
use posthaste_engine::store::{Settled, Store};
use posthaste_store::postgres::{PostgresOptions, PostgresStore};

use super::server::{Server, callers_time};
use crate::scene::{at, delivered, fill, key, lease, quota, retried};

/// Claims so many and settles them, some to be tried again.
async fn work(store: &PostgresStore, flow: FlowId, node: NodeId, fence: i64, count: u32) {
    let jobs =
        store.claim(vec![quota(flow, Lane::Main, count)], lease(node, fence), at(1)).await.unwrap().jobs;
    assert_eq!(jobs.len(), count as usize);
    let outcomes = jobs
        .iter()
        .enumerate()
        .map(|(place, job)| if place % 10 == 9 { retried(job, at(900)) } else { delivered(job) });
    let settled = store.settle(outcomes.collect(), at(2)).await.unwrap();
    assert!(settled.iter().all(|how| *how == Settled::Applied), "{settled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_was_made_for_an_empty_queue_does_not_walk_a_full_one() {
    const ROWS: u128 = 10_000;
    let server = Server::shared();
    let database = server.database();
    // One connection, which has the plans.
    let options = PostgresOptions { connections: 1, ..callers_time() };
    let store = PostgresStore::connect(&server.url(&database), options).await.unwrap();
    let key = key("acme", "d");
    let (node, _) = store.join("worker", Duration::from_secs(3_600), at(0)).await.unwrap();
    let flow = fill(&store, &key, 0, 10).await;
    work(&store, flow, node, 1, 10).await;
    server.sql(&database, "delete from queue");
    // A table with pages and no rows: it stays empty to the planner until somebody looks again.
    server.sql(&database, "vacuum (analyze, truncate off)");
    // The plans that were kept are void now, and made anew for hardly any rows.
    fill(&store, &key, 10, 10).await;
    work(&store, flow, node, 2, 10).await;
    fill(&store, &key, 20, ROWS).await;
    for fence in 3..8 {
        work(&store, flow, node, fence, 100).await;
    }
    // The last connection tells what it has read as it ends.
    drop(store);
    let read = loop {
        let sql = "
            select t.n_tup_ins, i.idx_tup_read
            from pg_stat_user_tables t
            join pg_stat_user_indexes i on i.relid = t.relid
            where i.indexrelname = 'queue_pkey'";
        let told = server.sql(&database, sql);
        let (written, read) = told.split_once('|').unwrap();
        if written.parse::<u128>().unwrap() >= ROWS {
            break read.parse::<u128>().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    // Each of the 500 is looked up to be leased and to be settled, and twice if it is to be tried again.
    assert!((900..3_000).contains(&read), "{read} entries of queue_pkey were read");
}
