//! Failure groups on PostgreSQL: nodes of the version before, many writers, and more groups than there may be.

use std::sync::Arc;

use posthaste_core::group::{GroupBy, MAX_GROUPS};
use posthaste_engine::store::Groups;
use posthaste_store::postgres::PostgresStore;
use tokio::task::JoinSet;

use super::older::buries_as_before;
use super::server::{Server, callers_time};
use crate::groups::{are_counted_with_others, bury, discard, join, letters, listed};

#[tokio::test]
async fn what_nodes_of_the_version_before_bury_and_resolve_is_counted() {
    let server = Server::shared();
    let database = server.database();
    let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
    buries_as_before(server, &database);
    assert_eq!(listed(&store, GroupBy::Fingerprint).await, [], "it has no fingerprint yet");
    assert_eq!(store.recount_groups().await.unwrap(), None);
    assert_eq!((store.fill_groups(10).await.unwrap(), store.fill_groups(10).await.unwrap()), (1, 0));
    assert_eq!(listed(&store, GroupBy::Fingerprint).await, [("404: gone".to_owned(), 1)]);
    assert_eq!(listed(&store, GroupBy::Destination).await, [("d".to_owned(), 1)]);
    assert_eq!(store.recount_groups().await.unwrap(), None);
    // The statements by which the version before resolves and restores.
    let resolve = |status: i16| {
        let sql = format!(
            "update dead_letter d
             set status = u.status, resolved_at = 1, resolved_by = 'ada'
             from (select id, {status}::smallint from dead_letter) as u (id, status)
             where d.id = any(array[u.id])"
        );
        server.sql(&database, &sql);
    };
    for (status, count) in [(2, 0), (0, 1), (1, 0)] {
        resolve(status);
        let counts: Vec<u64> =
            listed(&store, GroupBy::Fingerprint).await.into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts.into_iter().sum::<u64>(), count, "status {status}");
        assert_eq!(store.recount_groups().await.unwrap(), None);
    }
    // Soft-deleted and removed, as retention does.
    resolve(0);
    server.sql(&database, "update dead_letter set deleted_at = 1");
    assert_eq!(listed(&store, GroupBy::Tenant).await, []);
    server.sql(&database, "update dead_letter set deleted_at = null");
    assert_eq!(listed(&store, GroupBy::Tenant).await, [("acme".to_owned(), 1)]);
    server.sql(&database, "delete from dead_letter");
    assert_eq!(listed(&store, GroupBy::Tenant).await, []);
    assert_eq!(store.recount_groups().await.unwrap(), None);
}

#[tokio::test]
async fn beyond_the_limit_dead_letters_count_with_others() {
    let server = Server::shared();
    let database = server.database();
    let full = format!(
        "insert into failure_group (kind, tenant, id, writer, n, label)
         select 1, t.tenant, lpad(to_hex(n), 32, '0')::uuid, 0, 0, 'https://' || n
         from generate_series(1, {MAX_GROUPS}) as s (n), unnest(array['', 'acme']) as t (tenant)"
    );
    server.sql(&database, &full);
    let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
    let node = join(&store).await;
    are_counted_with_others(&store, node).await;
    assert_eq!(store.recount().await.unwrap(), None);
}

#[tokio::test]
async fn the_rows_of_a_group_that_grows_are_not_held_while_empty_groups_are_removed() {
    let server = Server::shared();
    let database = server.database();
    let (hot, empty) = ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002");
    let fill = format!(
        "insert into failure_group (kind, tenant, id, writer, n, label)
         select 1, 'acme', '{hot}', w, 1, 'https://hot' from generate_series(1, 6) as w;
         insert into failure_group (kind, tenant, id, writer, n, label)
         values (1, 'acme', '{empty}', 1, 2, 'https://empty'), (1, 'acme', '{empty}', 2, -2, 'https://empty')"
    );
    server.sql(&database, &fill);
    let url = server.url(&database);
    let store = Arc::new(PostgresStore::connect(&url, callers_time()).await.unwrap());
    let (holder, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let mut running = JoinSet::new();
    running.spawn(async move { connection.await.unwrap() });
    let hold = format!("begin; select from failure_group where id = '{empty}' for update");
    holder.batch_execute(&hold).await.unwrap();
    let mut pruning = JoinSet::new();
    pruning.spawn(async move { store.prune_groups(posthaste_core::time::Timestamp::EPOCH, 100).await });
    let waits = "
        select count(*)
        from pg_stat_activity
        where datname = current_database()
        and wait_event_type = 'Lock'";
    let begun = tokio::time::Instant::now();
    while server.sql(&database, waits) == "0" {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "it does not come to the empty group");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let rows = format!("select count(*) || ' ' || sum(n) from failure_group where id = '{hot}'");
    assert_eq!(server.sql(&database, &rows), "1 6", "it is folded and committed");
    let bury = format!("set lock_timeout = '5s'; update failure_group set n = n + 1 where id = '{hot}'");
    server.sql(&database, &bury);
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(pruning.join_next().await.unwrap().unwrap().unwrap(), 1);
    assert_eq!(
        server.sql(&database, "select string_agg(id || ' ' || n, ',') from failure_group"),
        format!("{hot} 7")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_of_one_group_add_up_and_are_folded() {
    let server = Server::shared();
    let database = server.database();
    let mut stores = vec![];
    for _ in 0..4 {
        stores.push(Arc::new(PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap()));
    }
    let mut working = JoinSet::new();
    for (worker, store) in stores.iter().cloned().enumerate() {
        working.spawn(async move {
            let node = join(&*store).await;
            for round in 0..10u128 {
                let first = 1_000_000 * (worker as u128 + 1) + 100 * round;
                bury(&*store, node, "https://a.example", first, 5).await;
                if let Some(letter) = letters(&*store, "https://a.example").await.first()
                    && letter.resolved_at.is_none()
                    && letter.id.to_bytes()[15] % 4 == worker as u8
                {
                    discard(&*store, letter).await;
                }
            }
        });
    }
    working.join_all().await;
    assert_eq!(stores[0].recount().await.unwrap(), None);
    let rows = "select count(*) > 4 from failure_group where kind = 0 and tenant = ''";
    let counts = listed(&*stores[0], GroupBy::Fingerprint).await;
    if server.sql(&database, rows) == "t" {
        stores[0].prune_groups(posthaste_core::time::Timestamp::EPOCH, 100).await.unwrap();
        assert_eq!(server.sql(&database, rows), "f");
    }
    assert_eq!(listed(&*stores[0], GroupBy::Fingerprint).await, counts);
    assert_eq!(stores[0].recount().await.unwrap(), None);
}
