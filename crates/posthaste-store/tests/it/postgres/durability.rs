//! What is acknowledged is on the disk of the server that answers, whatever a role, a database or another
//! server is set to.

use std::time::Duration;

use posthaste_engine::store::{DurabilityLevel, Queue, StoreError};
use posthaste_store::postgres::own::OwnServer;
use posthaste_store::postgres::{PostgresOptions, PostgresStore};

use super::server::{Server, callers_time};
use crate::scene::{at, id, key, request};

/// Writes down at each commit of a notification what the transaction waits for.
const WITNESS: &str = "
    create table witness (waited text);
    create function note() returns trigger language plpgsql as $$
        begin insert into witness values (current_setting('synchronous_commit')); return null; end $$;
    create constraint trigger note after insert on notification
        deferrable initially deferred for each row execute function note()";

fn few(prepared: bool) -> PostgresOptions {
    PostgresOptions { connections: 2, prepared, ..callers_time() }
}

async fn accept(store: &PostgresStore, number: u128) -> Result<(), StoreError> {
    let key = key("acme", "d");
    let flow = store.intern(vec![key.clone()]).await?[0];
    store.accept(vec![request(id(number), &key, flow, None)], at(0)).await.map(drop)
}

#[tokio::test]
async fn commits_wait_for_the_disk_whatever_the_defaults_are() {
    let server = Server::shared();
    for (prepared, unsafe_durability) in [(true, false), (false, false), (true, true), (false, true)] {
        let database = server.database();
        server.sql(&database, WITNESS);
        let mut number = 0;
        for whose in [format!("database {database}"), format!("role postgres in database {database}")] {
            for default in ["off", "local", "remote_write", "on", "remote_apply"] {
                server.sql("postgres", &format!("alter {whose} set synchronous_commit = {default}"));
                let options = PostgresOptions { unsafe_durability, ..few(prepared) };
                let store = PostgresStore::connect(&server.url(&database), options).await.unwrap();
                number += 1;
                accept(&store, number).await.unwrap();
                let waited = server.sql(&database, "delete from witness returning waited");
                let replaced = default == "off" && !unsafe_durability;
                let wanted = if replaced { "on" } else { default };
                assert_eq!(waited, wanted, "{whose}, prepared {prepared}, unsafe {unsafe_durability}");
                let level = if wanted == "off" { DurabilityLevel::Unsafe } else { DurabilityLevel::Full };
                assert_eq!(store.durability().level(), level);
            }
        }
    }
}

fn set(server: &OwnServer, setting: &str, value: &str) {
    server.sql("postgres", &format!("alter system set {setting} = {value}")).unwrap();
    server.sql("postgres", "select pg_reload_conf()").unwrap();
    while server.sql("postgres", &format!("show {setting}")).unwrap() != value {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The store answers that it is refused, and why.
fn assert_refused(answer: Result<(), StoreError>) {
    let Err(error @ StoreError::Unavailable { .. }) = answer else { panic!("{answer:?}") };
    let said = error.to_string();
    assert!(said.contains("would lose in a crash") && said.contains("fsync"), "{said}");
}

#[test]
fn after_a_failover_a_server_that_keeps_nothing_is_refused() {
    let below = std::env::temp_dir();
    let mut first = OwnServer::start(&below, "").unwrap();
    let mut second = OwnServer::standby_of(&first, &below).unwrap();
    first.sql("postgres", "create database d").unwrap();
    set(&second, "fsync", "off");
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", first.port(), second.port());
    let url = format!("postgres://postgres@{hosts}/d");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let connect = |prepared, unsafe_durability| {
        let connect_timeout = Duration::from_secs(10);
        let options = PostgresOptions { migrate: true, unsafe_durability, connect_timeout, ..few(prepared) };
        runtime.block_on(PostgresStore::connect(&url, options)).unwrap()
    };
    let stores = [connect(true, false), connect(false, false)];
    let allowing = connect(true, true);
    for (number, store) in (0..).zip(stores.iter().chain([&allowing])) {
        runtime.block_on(accept(store, number)).unwrap();
        assert_eq!(store.durability().level(), DurabilityLevel::Full);
    }

    first.order("stop").unwrap();
    second.order("promote").unwrap();
    for store in &stores {
        // The old connections end first.
        let refused = || runtime.block_on(accept(store, 10)).unwrap_err();
        while !refused().to_string().contains("would lose in a crash") {}
        assert_refused(runtime.block_on(accept(store, 10)));
        assert_eq!(store.durability().level(), DurabilityLevel::Refused);
    }
    while runtime.block_on(accept(&allowing, 11)).is_err() {}
    assert_eq!(allowing.durability().level(), DurabilityLevel::Unsafe);

    set(&second, "fsync", "on");
    for (number, store) in (20..).zip(&stores) {
        runtime.block_on(accept(store, number)).unwrap();
        assert_eq!(store.durability().level(), DurabilityLevel::Full);
    }

    // Behind a pooler a connection may lead to another server at any time.
    set(&second, "full_page_writes", "off");
    let [_, pooled] = &stores;
    assert_refused(runtime.block_on(accept(pooled, 30)));
    set(&second, "full_page_writes", "on");
    runtime.block_on(accept(pooled, 31)).unwrap();
}
