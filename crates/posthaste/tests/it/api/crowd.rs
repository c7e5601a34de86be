//! Lists that hang: a tenant that asks for many of them keeps no other tenant from reading.

use std::time::Duration;

use http::Method;
use tokio::task::{JoinSet, spawn_blocking};

use super::running::{Running, StoreKind, Told};
use crate::postgres;
use crate::program::eventually;

/// How many lists the tenant asks for at once: more than the store has connections.
const ASKED: usize = 16;
/// Longer than a test waits.
const LONG: Duration = Duration::from_secs(600);

/// Runs a statement in the database of a running server.
async fn sql(name: &str, statement: &'static str) -> String {
    let name = name.to_owned();
    spawn_blocking(move || postgres::shared().sql(&name, statement).unwrap()).await.unwrap()
}

/// How many wait for the lock on the audit.
async fn waiting(name: &str) -> usize {
    let count = "select count(*) from pg_locks where relation = 'audit'::regclass and not granted";
    sql(name, count).await.parse().unwrap()
}

/// A lock on the audit, for which whoever reads it waits. It ends with this, also where the test fails.
struct Locked {
    database: String,
}

impl Locked {
    async fn audit_of(database: &str) -> Self {
        let name = database.to_owned();
        let lock = "begin; lock table audit in access exclusive mode; select pg_sleep(600)";
        // The session is ended from elsewhere, which is an error to it.
        std::thread::spawn(move || postgres::shared().sql(&name, lock).unwrap_err());
        let held = "select count(*) from pg_locks where relation = 'audit'::regclass and mode = 'AccessExclusiveLock' and granted";
        let is_held = eventually(async || (sql(database, held).await == "1").then_some(()));
        is_held.await.expect("the audit is locked");
        Self { database: database.to_owned() }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let end = "select pg_terminate_backend(pid) from pg_stat_activity where query like 'begin; lock table audit%'";
        let _ = postgres::shared().sql(&self.database, end);
    }
}

#[tokio::test]
async fn a_tenant_whose_lists_hang_keeps_no_other_from_reading() {
    let running = Running::with(StoreKind::Postgres, |config| {
        (config.store.lock_timeout, config.store.statement_timeout) = (LONG, LONG);
    })
    .await;
    let database = running.database().to_owned();
    let (key, b) = (running.key_of("a").await, running.tenant("b").await);
    let a = running.caller(Some(&key));
    let id = a.send(&running.webhook("/ok")).await;
    a.wait(&id, "succeeded").await;

    let locked = Locked::audit_of(&database).await;
    let mut asked = JoinSet::new();
    for _ in 0..ASKED {
        let caller = running.caller(Some(&key));
        asked.spawn(async move { caller.ask(Method::GET, "/v1/audit", &[], "").await });
    }
    eventually(async || (waiting(&database).await == 2).then_some(())).await.expect("two are being read");
    for list in
        ["/v1/notifications", "/v1/notifications/failed", "/v1/retry-queue", "/v1/dead-letters", "/v1/stats"]
    {
        for reader in [&b, &running.admin] {
            reader.get(list).await;
        }
    }
    running.caller(None).get("/readyz").await;
    // What is found by its id is no list.
    a.get(&format!("/v1/notifications/{id}")).await;
    let refused = a.ask(Method::GET, "/v1/stats", &[], "").await;
    refused.problem(429, "TOO_MANY_READS");
    assert_eq!(refused.headers["retry-after"], "1");
    let mut answers: Vec<Told> = vec![];
    while answers.len() < ASKED - 2 {
        answers.push(asked.join_next().await.unwrap().unwrap());
    }
    for answer in answers {
        answer.problem(429, "TOO_MANY_READS");
    }
    assert_eq!(waiting(&database).await, 2);

    drop(locked);
    for answer in asked.join_all().await {
        answer.is(200);
    }
    a.get("/v1/audit").await;
    running.stop().await;
}
