//! A server that goes away: callers are told at once, nothing that was acknowledged is lost, and it serves
//! again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_engine::store::{Accepted, Acts, Nodes, Queue, Reads, Settings, StoreError, StoredSettings};
use posthaste_store::postgres::{ConnectError, PostgresOptions, PostgresStore};
use tokio::task::JoinSet;

use super::server::{Server, callers_time};
use crate::scene::{at, id, key, request};

/// Accepts until told to stop, and answers with what was acknowledged and how often the store could not
/// serve.
async fn keep_accepting(
    store: Arc<PostgresStore>,
    stop: Arc<AtomicBool>,
    accepted: Arc<AtomicU64>,
    worker: u128,
) -> (Vec<NotificationId>, usize) {
    let key = key("acme", "d");
    let flow = store.intern(vec![key.clone()]).await.unwrap()[0];
    let (mut kept, mut refused) = (vec![], 0);
    for number in worker * 1_000_000.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match store.accept(vec![request(id(number), &key, flow, None)], at(0)).await {
            Ok(answers) => {
                assert_eq!(answers.answers, [Accepted::New]);
                accepted.fetch_add(1, Ordering::Relaxed);
                kept.push(id(number));
            }
            Err(StoreError::Unavailable { .. }) => {
                refused += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
    (kept, refused)
}

async fn more_are_accepted(accepted: &AtomicU64) {
    let before = accepted.load(Ordering::Relaxed);
    let more = async {
        while accepted.load(Ordering::Relaxed) < before + 50 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), more).await.expect("the store serves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_loses_nothing_and_is_used_again() {
    let mut server = Server::start();
    let database = server.database();
    let options = PostgresOptions { connect_timeout: Duration::from_secs(1), ..callers_time() };
    let store = Arc::new(PostgresStore::connect(&server.url(&database), options).await.unwrap());
    let (stop, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut working = JoinSet::new();
    for worker in 1..4 {
        working.spawn(keep_accepting(store.clone(), stop.clone(), accepted.clone(), worker));
    }
    more_are_accepted(&accepted).await;
    server = tokio::task::spawn_blocking(move || {
        server.order("restart");
        server
    })
    .await
    .unwrap();
    more_are_accepted(&accepted).await;
    server = tokio::task::spawn_blocking(move || {
        server.order("stop");
        server
    })
    .await
    .unwrap();
    let error = store.stats(None, at(0)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    server = tokio::task::spawn_blocking(move || {
        server.order("start");
        server
    })
    .await
    .unwrap();
    more_are_accepted(&accepted).await;
    stop.store(true, Ordering::Relaxed);
    let (mut kept, mut refused) = (vec![], 0);
    for (ids, times) in working.join_all().await {
        kept.extend(ids);
        refused += times;
    }
    assert!(refused > 0, "the restarts were noticed");
    assert_eq!(store.facts(kept.clone()).await.unwrap().len(), kept.len());
    assert_eq!(store.recount().await.unwrap(), None);

    // The same server, told not to wait for the disk.
    for setting in ["fsync", "full_page_writes"] {
        server.sql("postgres", &format!("alter system set {setting} = off"));
        server.sql("postgres", "select pg_reload_conf()");
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while server.sql("postgres", &format!("show {setting}")) != "off" {
            assert!(std::time::Instant::now() < until);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let options = PostgresOptions { connections: 1, ..PostgresOptions::default() };
        let error = PostgresStore::connect(&server.url(&database), options.clone()).await.err().unwrap();
        let said = error.to_string();
        assert!(matches!(error, ConnectError::NotDurable { .. }), "{said}");
        assert!(said.contains(&format!("{setting}=off")) && said.contains("unsafe_durability"), "{said}");
        let options = PostgresOptions { unsafe_durability: true, ..options };
        PostgresStore::connect(&server.url(&database), options).await.unwrap();
        server.sql("postgres", &format!("alter system set {setting} = on"));
        server.sql("postgres", "select pg_reload_conf()");
    }
}

/// Whoever waits for a server that has stopped without hanging up is told so, and the next connection is a
/// new one.
#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for() {
    let server = Server::shared();
    let short = Duration::from_millis(500);
    let options = PostgresOptions {
        application_name: "silent".to_owned(),
        connections: 1,
        statement_timeout: short,
        connect_timeout: Duration::from_secs(5),
        ..callers_time()
    };
    let store = PostgresStore::connect(&server.schema(), options).await.unwrap();
    let pid = server.sql("postgres", "select pid from pg_stat_activity where application_name = 'silent'");
    let tell = |signal: &str| {
        let told = std::process::Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(told.success(), "{signal} {pid}");
    };
    tell("-STOP");
    let error = store.settings(None).await;
    tell("-CONT");
    let error = error.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unavailable { what, .. } if what.contains("does not answer")),
        "{error}"
    );
    assert_eq!(store.settings(None).await.unwrap(), Some(Settings::default()));
}

#[tokio::test]
async fn whoever_only_looks_leaves_connections_to_those_who_work() {
    let (server, mut running) = (Server::shared(), JoinSet::new());
    let url = server.schema();
    let store = Arc::new(PostgresStore::connect(&url, callers_time()).await.unwrap());
    let hold = Duration::from_secs(9);
    let node = store.join("n".to_owned(), hold, at(0)).await.unwrap().node;
    let (holder, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    running.spawn(async move { connection.await.unwrap() });
    holder.batch_execute("begin; lock table idempotency_even").await.unwrap();
    let mut looking = JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        let looked = async move { store.idempotent("acme".parse().unwrap(), "key".to_owned(), at(0)).await };
        looking.spawn(looked);
    }
    let waiting =
        "select count(*) from pg_locks where relation = 'idempotency_even'::regclass and not granted";
    while holder.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let beat = tokio::time::timeout(Duration::from_secs(20), store.heartbeat(node, hold, at(1))).await;
    beat.expect("a heartbeat need not wait for them").unwrap();
    holder.batch_execute("rollback").await.unwrap();
    assert!(looking.join_all().await.into_iter().all(|found| found.unwrap().is_none()));
}
