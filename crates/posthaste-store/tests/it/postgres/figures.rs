//! Figures look at what is kept and at a bounded number of rows, whatever waits and is held.

use std::time::Duration;

use posthaste_core::notification::Tenant;
use posthaste_core::series::Span;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Reads, Series};
use posthaste_store::postgres::{PostgresOptions, PostgresStore};

use super::server::{Server, callers_time};
use crate::scene::at;

/// Gives a tenant that many destinations with a due row each, held by a node or by nobody.
fn add_rows(server: &Server, database: &str, tenant: &str, count: u32, due: i64, node: &str) {
    let sql = format!(
        "with made as (
             insert into flow (tenant, channel, destination)
             select '{tenant}', 0, n
             from generate_series(1, {count}) n
             returning id)
         insert into queue (id, flow, due, first_due, delay, node, fence, attempt, base, generation, interruptions,
             lane, priority, cancel)
         select gen_random_uuid(), id, {due} + id, 0, 0, {node}, {node}, 1, 0, 1, 0, id % 2, id % 4, false
         from made"
    );
    server.sql(database, &sql);
}

fn tenant(name: &str) -> Option<Tenant> {
    Some(name.parse().unwrap())
}

/// How many entries of indexes and rows of tables were read by everybody who has left the database.
async fn read(server: &Server, database: &str) -> u64 {
    let there = format!("select count(*) from pg_stat_activity where datname = '{database}'");
    while server.sql("postgres", &there) != "0" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let sql = "
        select (select sum(idx_tup_read) from pg_stat_user_indexes) + (select sum(seq_tup_read) from pg_stat_user_tables)";
    server.sql(database, sql).parse().unwrap()
}

async fn look(store: &PostgresStore) {
    let figures = store.stats(tenant("big"), at(0)).await.unwrap();
    assert!(figures.oldest_due > Some(Timestamp::from_micros(1_000_000)), "{figures:?}");
    let figures = store.stats(None, at(0)).await.unwrap();
    assert!(figures.oldest_due < Some(Timestamp::from_micros(1_000_000)), "{figures:?}");
}

/// What figures read with so many destinations of each kind, by plans from before and from after they were
/// made.
async fn read_by_figures(destinations: u32) -> [u64; 2] {
    let server = Server::shared();
    let database = server.database();
    let options = PostgresOptions { connections: 1, ..callers_time() };
    let store = PostgresStore::connect(&server.url(&database), options.clone()).await.unwrap();
    // What the planner knows stays as it is.
    server.sql(&database, "alter table queue set (autovacuum_enabled = off)");
    server.sql(&database, "vacuum analyze");
    for whose in [tenant("big"), None] {
        store.stats(whose, at(0)).await.unwrap();
    }
    // None of the tenant is among the longest due rows.
    add_rows(server, &database, "others", destinations, 0, "null");
    add_rows(server, &database, "big", destinations, 1_000_000, "null");
    add_rows(server, &database, "held", destinations, 0, "1");
    look(&store).await;
    drop(store);
    let before = read(server, &database).await;
    let store = PostgresStore::connect(&server.url(&database), options).await.unwrap();
    look(&store).await;
    drop(store);
    [before, read(server, &database).await - before]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_cost_the_same_however_much_waits_and_is_held() {
    let (few, many) = (read_by_figures(6_000).await, read_by_figures(24_000).await);
    for (few, many) in few.into_iter().zip(many) {
        assert!(
            many < few + few / 10,
            "{few} rows were read, and {many} with four times as much of everything"
        );
        assert!(many < 40_000, "{many} rows were read");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_row_of_a_tenant_is_found_behind_the_rows_of_others() {
    let server = Server::shared();
    let database = server.database();
    let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
    let oldest = async |whose: &str| store.stats(tenant(whose), at(0)).await.unwrap().oldest_due;
    let first = |whose: &str, due: i64| {
        let id = server.sql(&database, &format!("select min(id) from flow where tenant = '{whose}'"));
        Some(Timestamp::from_micros(due + id.parse::<i64>().unwrap()))
    };
    add_rows(server, &database, "others", 2_000, 0, "null");
    assert_eq!(oldest("small").await, None);
    add_rows(server, &database, "small", 500, 1_000_000, "null");
    assert_eq!(oldest("small").await, first("small", 1_000_000));
    // A tenant of any size is answered exactly while it is behind all others.
    add_rows(server, &database, "big", 5_000, -1_000_000, "null");
    assert_eq!(oldest("big").await, first("big", -1_000_000));
}

const DAY: i64 = 86_400_000_000;

/// Minutes of a day on two nodes, and hours of a destination. They are those of tenant `t0`, of as many others as are given, and
/// of the days before.
async fn read_by_series(others: u32, days: u32) -> u64 {
    const ROUNDS: u64 = 8;
    let server = Server::shared();
    let database = server.database();
    let (from, until) = (Timestamp::from_micros(100 * DAY), Timestamp::from_micros(101 * DAY));
    server.sql(
        &database,
        &format!(
            "insert into series (tenant, span, at, channel, node, weight, figures)
             select 't' || t, 0, (100 - d) * {DAY} + m * 60000000, 0, n, 1, '0:1'
             from generate_series(0, {others}) t, generate_series(0, {days} - 1) d, generate_series(0::bigint, 1439) m,
                 generate_series(1, 2) n;
             insert into destination_hour (at, tenant, node, place, channel, destination, count, figures)
             select (100 - d) * {DAY} + h * 3600000000, 't' || t, n, p, 0, 'd' || p, 1, '0:1'
             from generate_series(0, {others}) t, generate_series(0, {days} - 1) d, generate_series(0, 23) h,
                 generate_series(0, 49) p, generate_series(1, 2) n"
        ),
    );
    server.sql(&database, "vacuum analyze");
    let before = read(server, &database).await;
    let options = PostgresOptions { connections: 1, ..callers_time() };
    let store = PostgresStore::connect(&server.url(&database), options).await.unwrap();
    // More than the five rounds after which PostgreSQL makes one plan for all values.
    for _ in 0..ROUNDS {
        let rows = store.series(tenant("t0"), Span::Minute, from, until).await.unwrap();
        assert_eq!(rows.len(), 2 * 1_440);
        let rows = store.destination_hours(tenant("t0"), "d7".into(), from, until).await.unwrap();
        assert_eq!(rows.len(), 2 * 24);
    }
    drop(store);
    (read(server, &database).await - before) / ROUNDS
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_of_a_series_reads_the_rows_of_that_day_whatever_else_is_kept() {
    let (few, many) = (read_by_series(4, 2).await, read_by_series(16, 4).await);
    assert!(
        many < few + few / 5,
        "{few} rows were read, and {many} with eight times as much of others and of before"
    );
    assert!(many < 2 * (2 * 1_440 + 2 * 24), "{many} rows were read");
}
