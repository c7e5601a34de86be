//! Taking steps of the schema beside others who do so, or who use the tables.

use std::pin::pin;
use std::time::Duration;

use posthaste_store::postgres::{PostgresOptions, PostgresStore, migrate};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use super::server::Server;

/// The lock of whoever changes the schema.
const LOCK: &str = "select pg_advisory_xact_lock(x'706f737468617374'::bigint)";

fn few() -> PostgresOptions {
    PostgresOptions { connections: 2, ..PostgresOptions::default() }
}

/// Somebody else at the database.
async fn other(url: &str, running: &mut JoinSet<()>) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    running.spawn(async move { connection.await.unwrap() });
    client
}

/// A new database that lacks the last four steps, the first of which changes the table `node`.
fn behind(server: &Server) -> String {
    let database = server.database();
    let page = include_str!("../../../../../docs/migrations.md");
    let back = page.split("```sql").nth(1).unwrap().split("```").next().unwrap();
    server.sql(&database, back);
    database
}

/// Whether a step waits for a table.
fn waits(server: &Server, database: &str) -> bool {
    let sql = "select count(*) from pg_locks where relation = 'node'::regclass and not granted";
    server.sql(database, sql) != "0"
}

#[tokio::test]
async fn a_start_with_nothing_to_change_does_not_wait_for_whoever_changes_the_schema() {
    let (server, mut running) = (Server::shared(), JoinSet::new());
    let url = server.url(&server.database());
    let holder = other(&url, &mut running).await;
    holder.batch_execute(&format!("begin; {LOCK}")).await.unwrap();
    timeout(Duration::from_secs(20), PostgresStore::connect(&url, few())).await.expect("at once").unwrap();
    assert_eq!(migrate::up(&url, &few()).await.unwrap(), []);
}

#[tokio::test]
async fn a_step_waits_for_whoever_changes_the_schema() {
    let (server, mut running) = (Server::shared(), JoinSet::new());
    let url = server.url(&server.empty_database());
    let holder = other(&url, &mut running).await;
    holder.batch_execute(&format!("begin; {LOCK}")).await.unwrap();
    let options = few();
    let mut waiting = pin!(migrate::up(&url, &options));
    assert!(timeout(Duration::from_secs(2), &mut waiting).await.is_err(), "it waits");
    holder.batch_execute("rollback").await.unwrap();
    assert!(!timeout(Duration::from_secs(20), waiting).await.expect("it goes on").unwrap().is_empty());
}

#[tokio::test]
async fn a_step_that_gave_way_to_somebody_is_tried_again() {
    let (server, mut running) = (Server::shared(), JoinSet::new());
    let database = behind(server);
    let url = server.url(&database);
    let holder = other(&url, &mut running).await;
    holder.batch_execute("set deadlock_timeout = '1min'; begin; lock table node").await.unwrap();
    let mut stepping = JoinSet::new();
    stepping.spawn({
        let url = url.clone();
        async move { migrate::up(&url, &few()).await }
    });
    while !waits(server, &database) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Each waits for the other now, and the server ends the step, which looks for that first.
    holder.batch_execute(&format!("{LOCK}; rollback")).await.unwrap();
    let taken = stepping.join_next().await.unwrap().unwrap().unwrap().len();
    assert_eq!(server.sql(&database, "select max(version) - 2 from schema_migration"), taken.to_string());
}

/// The connection of a process that stands still stays open.
#[tokio::test]
async fn whoever_stands_still_in_the_middle_of_a_step_keeps_nobody_from_it() {
    let (server, mut running) = (Server::shared(), JoinSet::new());
    let database = behind(server);
    let url = server.url(&database);
    let holder = other(&url, &mut running).await;
    holder.batch_execute("begin; lock table node").await.unwrap();
    // Without sessions, which have their limits.
    let options = PostgresOptions { prepared: false, ..few() };
    let mut first = pin!(migrate::up(&url, &options));
    while !waits(server, &database) {
        assert!(timeout(Duration::from_millis(10), &mut first).await.is_err(), "the table is taken");
    }
    // The first takes no step from here on.
    holder.batch_execute("rollback").await.unwrap();
    let second = timeout(Duration::from_secs(30), migrate::up(&url, &options)).await;
    assert!(second.expect("it need not wait for ever").is_ok());
}
