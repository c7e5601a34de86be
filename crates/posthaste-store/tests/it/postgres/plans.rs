//! Plans last longer than what they were made for: the queue is empty one moment and full the next.

use std::time::Duration;

use posthaste_core::filter::Filter;
use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::NotificationId;
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Priority;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{DueCursor, Nodes, Queue, Reads, Settled, Waking};
use posthaste_store::postgres::{PostgresOptions, PostgresStore};

use super::server::{Server, callers_time};
use crate::scene::{at, delivered, fill, key, lease, quota, retried};

/// Claims so many and settles them, some to be tried again.
async fn work(store: &PostgresStore, flow: FlowId, node: NodeId, fence: i64, count: u32) {
    let batch =
        store.claim(vec![quota(flow, Lane::Main, count)], lease(node, fence), at(1)).await.unwrap().claimed;
    assert_eq!(batch.len(), count as usize);
    let outcomes = batch
        .iter()
        .enumerate()
        .map(|(place, claimed)| if place % 10 == 9 { retried(claimed, at(900)) } else { delivered(claimed) });
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
    let node = store.join("worker".to_owned(), Duration::from_secs(3_600), at(0)).await.unwrap().node;
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

/// The main and the retry lane of the first flow hold 20,000 rows each, and a node holds as many. All of them
/// are due, and expire, at the same moment. One row of each of 10,000 other flows waits behind them. Retries
/// have three attempts each.
const FILL: &str = "
    insert into flow (tenant, channel, destination)
    select 'acme', 0, n
    from generate_series(1, 10001) as n;
    insert into queue (id, flow, lane, priority, due, expires, first_due, delay, node, fence, attempt, base, generation,
        interruptions, cancel)
    select lpad(to_hex(n), 32, '0')::uuid, 1, (n % 3 = 1)::int, 2, 1000, 1000, 1000, 0,
        case when n % 3 = 2 then 1 end, case when n % 3 = 2 then 7 end, 1, 0, 1, 0, false
    from generate_series(1, 60000) as n
    union all
    select lpad(to_hex(60000 + n), 32, '0')::uuid, n, 0, 2, 2000, null, 2000, 0, null, null, 1, 0, 1, 0, false
    from generate_series(2, 10001) as n;
    insert into notification (id, flow, recipient, priority, content)
    select lpad(to_hex(n), 32, '0')::uuid, case when n <= 60000 then 1 else n - 60000 end, 'r', 2,
        '{\"body\":{\"text\":\"hello\"}}'
    from generate_series(1, 70001) as n;
    insert into attempt (notification, generation, number, started_at, duration, failure, status_code, error)
    select id, 1, n, 1, 1, 1, 503, 'e'
    from queue, generate_series(1, 3) as n
    where lane = 1";

/// How many rows and entries of indexes were read so far, by everybody whose connection has ended.
pub(super) fn read_so_far(server: &Server, database: &str) -> u64 {
    let others = "
        select count(*)
        from pg_stat_activity
        where datname = current_database()
        and backend_type = 'client backend'
        and pid <> pg_backend_pid()";
    while server.sql(database, others) != "0" {
        std::thread::sleep(Duration::from_millis(10));
    }
    let read = "
        select (select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables)
            + (select sum(idx_tup_read) from pg_stat_user_indexes)";
    server.sql(database, read).parse().unwrap()
}

/// A page of each look of the waking loop, from the beginning, from the middle and from the end of what
/// waits, and a page of the retry queue and of the notifications.
async fn look_everywhere(store: &PostgresStore) {
    const PAGE: usize = 500;
    let (due, now) = (Timestamp::from_micros(1_000), Timestamp::from_micros(3_000));
    let (middle, all) = (NotificationId::from_bytes(30_000u128.to_be_bytes()), NotificationId::LAST);
    let first = |lane| Bucket { flow: FlowId(1), lane, priority: Priority::Normal };
    for after in [None, Some(first(Lane::Main)), Some(first(Lane::Retry))] {
        assert_eq!(store.buckets(after, PAGE).await.unwrap().len(), PAGE);
    }
    for (due, id) in [(Timestamp::MIN, all), (due, middle), (due, all)] {
        let after = DueCursor { due, id };
        assert!(store.wakes(after, now, PAGE).await.unwrap().more.is_some());
        assert_eq!(store.overdue(now, now, Some(after), PAGE).await.unwrap().len(), PAGE);
    }
    assert_eq!(store.wakes(DueCursor::after_all_at(now), now, PAGE).await.unwrap().next, None);
    for after in [None, Some(middle)] {
        assert_eq!(store.held(NodeId(1), after, PAGE).await.unwrap().len(), PAGE);
    }
    let retries = store.retry_queue(Filter::default(), None, PAGE).await.unwrap().rows;
    assert_eq!(retries.iter().filter(|row| row.last_error.is_some()).count(), PAGE);
    assert_eq!(store.page(Filter::default(), None, PAGE).await.unwrap().rows.len(), PAGE);
    assert_eq!(store.expiring(now, PAGE).await.unwrap().rows.len(), PAGE);
    assert_eq!(store.expiring(Timestamp::from_micros(1), PAGE).await.unwrap().next, Some(due));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_look_reads_more_because_more_is_waiting() {
    const ROUNDS: u64 = 8;
    let server = Server::shared();
    // What the planner takes the tables for when it plans: unknown, well known, and empty.
    for known in ["unknown", "known", "empty"] {
        let database = server.database();
        server.sql(&database, FILL);
        match known {
            "known" => drop(server.sql(&database, "analyze")),
            "empty" => {
                server.sql(
                    &database,
                    "delete from queue; truncate flow, notification, attempt restart identity",
                );
                // A table with pages and no rows: it stays empty to the planner until somebody looks again.
                server.sql(&database, "vacuum (analyze, truncate off)");
                server.sql(&database, FILL);
            }
            _ => {}
        }
        let before = read_so_far(server, &database);
        let options = PostgresOptions { connections: 1, ..callers_time() };
        let store = PostgresStore::connect(&server.url(&database), options).await.unwrap();
        // More than the five rounds after which PostgreSQL makes one plan for all values.
        for _ in 0..ROUNDS {
            look_everywhere(&store).await;
        }
        drop(store);
        let read = (read_so_far(server, &database) - before) / ROUNDS;
        // 14 pages of at most 500 rows, with up to four rows and entries of indexes for each, and two with up
        // to twelve.
        assert!(read < 40_000, "{read} rows and entries were read in a round, tables {known}");
    }
}
