//! Connecting: ten at once, and what is refused says what is wrong and what to do.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use posthaste_engine::store::{Nodes, StoredSettings};
use posthaste_store::postgres::{ConnectError, PostgresOptions, PostgresStore, Probe, migrate};
use posthaste_store::schema::Step;
use tokio::task::JoinSet;

use super::server::Server;
use crate::scene::at;

async fn refused(url: &str, options: PostgresOptions) -> (ConnectError, String) {
    let error = PostgresStore::connect(url, options).await.err().unwrap();
    let said = error.to_string();
    assert!(!said.contains("secret"), "the password is told: {said}");
    (error, said)
}

fn few() -> PostgresOptions {
    PostgresOptions { connections: 2, ..PostgresOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_nodes_start_at_once_on_an_empty_database() {
    let server = Server::shared();
    let url = server.url(&server.empty_database());
    let mut starting = JoinSet::new();
    for number in 0..10 {
        let url = url.clone();
        starting.spawn(async move {
            let store = PostgresStore::connect(&url, few()).await.unwrap();
            store.join(format!("n{number}"), Duration::from_secs(9), at(0)).await.unwrap().node
        });
    }
    let mut nodes = starting.join_all().await;
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 10);
    let schema = migrate::status(&url, &few()).await.unwrap();
    let taken = |step: &Step| step.applied && step.applied_at.is_some();
    assert!(schema.refused.is_none() && !schema.steps.is_empty(), "{schema:?}");
    assert!(schema.steps.iter().all(taken), "{schema:?}");
    assert_eq!(migrate::up(&url, &few()).await.unwrap(), []);
}

#[tokio::test]
async fn a_database_that_is_behind_is_refused_with_the_command_that_helps() {
    let server = Server::shared();
    let url = server.url(&server.empty_database());
    let schema = migrate::status(&url, &few()).await.unwrap();
    assert!(matches!(schema.refused, Some(ConnectError::Behind { .. })), "{schema:?}");
    let steps = schema.steps;
    assert!(steps.iter().all(|step| !step.applied && step.applied_at.is_none()), "{steps:?}");
    let options = PostgresOptions { migrate: false, ..few() };
    let (error, said) = refused(&url, options.clone()).await;
    assert!(
        matches!(error, ConnectError::Behind { .. }) && said.contains("`posthaste migrate up`"),
        "{said}"
    );
    assert_eq!(migrate::up(&url, &few()).await.unwrap().len(), steps.len());
    PostgresStore::connect(&url, options).await.unwrap();
}

#[tokio::test]
async fn a_schema_that_is_newer_half_migrated_or_foreign_is_refused() {
    let server = Server::shared();
    let newer = server.database();
    server.sql(&newer, "insert into schema_migration values (99, '0099_later', 'x')");
    let (error, said) = refused(&server.url(&newer), few()).await;
    assert!(matches!(error, ConnectError::Newer { found: 99, .. }), "{said}");
    assert!(said.contains("schema 99") && said.contains("posthaste migrate status"), "{said}");
    let schema = migrate::status(&server.url(&newer), &few()).await.unwrap();
    assert!(matches!(schema.refused, Some(ConnectError::Newer { found: 99, .. })), "{schema:?}");
    assert_eq!(schema.steps.last().unwrap().name, "0099_later");

    let half = server.database();
    server.sql(&half, "update schema_migration set checksum = 'x'");
    let (error, said) = refused(&server.url(&half), few()).await;
    assert!(matches!(error, ConnectError::HalfMigrated { .. }), "{said}");
    assert!(said.contains("0001_first") && said.contains("`posthaste migrate up`"), "{said}");
    server.sql(&half, "delete from schema_migration");
    let (error, said) = refused(&server.url(&half), few()).await;
    assert!(matches!(error, ConnectError::HalfMigrated { .. }) && said.contains("queue"), "{said}");

    // Every step is on the list, and something that they made is gone.
    for table in ["queue", "audit"] {
        let half = server.database();
        server.sql(&half, &format!("drop table {table} cascade"));
        let (error, said) = refused(&server.url(&half), few()).await;
        assert!(matches!(error, ConnectError::HalfMigrated { .. }) && said.contains(table), "{said}");
        assert!(said.contains("`posthaste migrate up`"), "{said}");
        let schema = migrate::status(&server.url(&half), &few()).await.unwrap();
        assert!(matches!(schema.refused, Some(ConnectError::HalfMigrated { .. })), "{schema:?}");
    }

    let foreign = server.empty_database();
    server.sql(&foreign, "create table queue (message text)");
    let (error, said) = refused(&server.url(&foreign), few()).await;
    assert!(matches!(error, ConnectError::Foreign { .. }), "{said}");
    assert!(said.contains("(queue)") && said.contains("`posthaste migrate up`"), "{said}");
    assert_eq!(server.sql(&foreign, "select count(*) from pg_class where relname = 'schema_migration'"), "0");
}

#[tokio::test]
async fn whoever_cannot_connect_is_told_what_was_tried() {
    let server = Server::shared();
    let (error, said) = refused("postgres://ada:secret@127.0.0.1:1/posthaste", few()).await;
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{said}");
    assert!(said.contains("127.0.0.1:1 as ada") && said.contains("refused"), "{said}");
    let (error, said) = refused("postgres://ada:secret@no-such-host.invalid/posthaste", few()).await;
    assert!(matches!(error, ConnectError::Unreachable { .. }) && said.contains("no-such-host"), "{said}");

    let (error, said) = refused(&server.url("nowhere"), few()).await;
    assert!(
        matches!(error, ConnectError::NoDatabase { .. }) && said.contains("`createdb nowhere`"),
        "{said}"
    );

    server.sql("postgres", "create role locked login superuser password 'right'");
    let database = server.database();
    let as_locked = |word: &str| format!("postgres://locked{word}@127.0.0.1:{}/{database}", server.port());
    for word in [":secret", ""] {
        let (error, said) = refused(&as_locked(word), few()).await;
        assert!(matches!(error, ConnectError::NotLetIn { .. }), "{said}");
        assert!(said.contains("as locked") && said.contains("pg_hba.conf"), "{said}");
    }
    PostgresStore::connect(&as_locked(":right"), few()).await.unwrap();

    let (error, said) = refused("postgres://ada:secret@db.example", few()).await;
    assert!(matches!(error, ConnectError::BadUrl { .. }) && said.contains("names no database"), "{said}");
    // The server has no TLS, which `require` does not take.
    let (error, said) = refused(&format!("{}?sslmode=require", server.url(&database)), few()).await;
    assert!(matches!(error, ConnectError::NoTls { .. }) && said.contains("ssl = on"), "{said}");
}

#[tokio::test]
async fn a_server_that_only_reads_is_told_as_that() {
    let server = Server::shared();
    let database = server.database();
    server.sql("postgres", &format!("alter database {database} set default_transaction_read_only = on"));
    let (error, said) = refused(&server.url(&database), few()).await;
    assert!(matches!(error, ConnectError::OnlyReads { .. }), "{said}");
    assert!(said.contains("takes writes") && said.contains("several hosts"), "{said}");
}

#[tokio::test]
async fn a_way_to_let_users_in_that_is_not_known_is_told_as_that() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://ada:secret@{}/x?sslmode=disable", server.local_addr().unwrap());
    let asks = std::thread::spawn(move || {
        let (mut caller, _) = server.accept().unwrap();
        // It asks for GSSAPI, and waits until the caller has gone.
        caller.write_all(&[b'R', 0, 0, 0, 8, 0, 0, 0, 7]).unwrap();
        let _ = caller.read_to_end(&mut vec![]);
    });
    let (error, said) = refused(&url, few()).await;
    assert!(matches!(error, ConnectError::NotLetIn { .. }), "{said}");
    assert!(said.contains("unsupported authentication method") && !said.contains("asks for a"), "{said}");
    asks.join().unwrap();
}

#[tokio::test]
async fn any_patience_can_be_had() {
    let server = Server::shared();
    let url = server.url(&server.database());
    for connect_timeout in [Duration::from_millis(999), Duration::from_secs(86_400)] {
        PostgresStore::connect(&url, PostgresOptions { connect_timeout, ..few() }).await.unwrap();
    }
}

#[tokio::test]
async fn sessions_have_their_time_limits() {
    let server = Server::shared();
    let database = server.database();
    for prepared in [true, false] {
        let statement_timeout = Duration::from_millis(300);
        let options = PostgresOptions { prepared, statement_timeout, ..few() };
        let store = PostgresStore::connect(&server.url(&database), options).await.unwrap();
        // Somebody holds the row that a setting has to change.
        let lock = "begin; update setting_version set version = version; select pg_sleep(1.5); rollback";
        let (server, database) = (Server::shared(), database.clone());
        let holding = tokio::task::spawn_blocking(move || server.sql(&database, lock));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let audit = posthaste_engine::store::Audit {
            key_id: None,
            address: None,
            tenant: None,
            actor: "ada".to_owned(),
            action: "set".to_owned(),
            target: "x".to_owned(),
            at: at(0),
        };
        let answer = store.put_setting("x".to_owned(), Some("1".to_owned()), audit).await;
        assert!(answer.is_err(), "prepared {prepared}: {answer:?}");
        holding.await.unwrap();
        assert_eq!(store.settings(None).await.unwrap().unwrap().version, 0);
    }
}

#[tokio::test]
async fn a_stricter_default_of_the_database_is_not_ours() {
    let server = Server::shared();
    let database = server.empty_database();
    server.sql(
        "postgres",
        &format!("alter database {database} set default_transaction_isolation = 'serializable'"),
    );
    let probe = Probe::connect(&server.url(&database)).await.unwrap();
    assert_eq!(probe.rows("show transaction_isolation").await.unwrap(), [["read committed"]]);
    let probe =
        Probe::connect(&format!("{}?options=-c%20work_mem%3D8MB", server.url(&database))).await.unwrap();
    assert_eq!(probe.rows("show work_mem").await.unwrap(), [["8MB"]]);
    assert_eq!(probe.rows("show transaction_isolation").await.unwrap(), [["read committed"]]);
}
