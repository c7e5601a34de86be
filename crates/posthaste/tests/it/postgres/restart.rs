//! PostgreSQL goes away and comes back: callers are told to come back, nothing is lost, and all goes on by itself.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fastrand::Rng;
use http::StatusCode;
use http::header::RETRY_AFTER;
use posthaste_store::postgres::own::OwnServer;
use posthaste_wire::sink::Sink;
use serde_json::{Value, json};

use crate::frozen::Frozen;
use crate::kept::Kept;
use crate::load::{Aim, Ledger, Load};
use crate::program::{Home, Program, eventually, get, json as read, sink};

const PATHS: &[&str] = &["/ok", "/ok", "/flaky/20", "/delay/100ms"];
/// How long a caller may wait for the answer that there is no store: at most for a statement and for a connection, and much
/// longer on a busy machine.
const TOLD_WITHIN: Duration = Duration::from_secs(15);

/// While the server is away it takes nothing, says so, and lives.
async fn refuses(program: &mut Program, sink: &Sink) {
    let client = program.client();
    let body = json!({"channel": "webhook", "to": sink.url("/ok"), "body": 1});
    for _ in 0..3 {
        let asked = Instant::now();
        let answer = client.post("/v1/notifications", &body).await.unwrap();
        assert!(asked.elapsed() < TOLD_WITHIN, "told after {:?}", asked.elapsed());
        let problem = read(&answer, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(problem["code"], "STORE_UNAVAILABLE");
        assert!(answer.headers.contains_key(RETRY_AFTER), "{:?}", answer.headers);
    }
    let one = "ntf_01m7expnsre7j8fn39ecb261ns";
    let paths = [
        "/v1/stats",
        "/v1/notifications",
        "/v1/nodes",
        "/v1/audit",
        "/v1/retry-queue",
        "/v1/dead-letters",
        "/v1/keys",
    ];
    for path in paths.map(str::to_owned).into_iter().chain([format!("/v1/notifications/{one}")]) {
        let asked = Instant::now();
        let answer = client.get(&path).await.unwrap();
        assert!(asked.elapsed() < TOLD_WITHIN, "{path} answered after {:?}", asked.elapsed());
        let problem = read(&answer, StatusCode::SERVICE_UNAVAILABLE);
        // A read changes nothing, so it does not say that something may have happened.
        assert_eq!(problem["detail"], "the store cannot serve now; ask again", "{path}");
    }
    let asked = Instant::now();
    let answer = client.get("/readyz").await.unwrap();
    assert!(asked.elapsed() < TOLD_WITHIN, "/readyz answered after {:?}", asked.elapsed());
    let told = read(&answer, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(told["reason"], "the store does not answer", "{told}");
    get(&client, "/healthz").await;
    let figures = client.get("/metrics").await.unwrap();
    let figures = String::from_utf8_lossy(&figures.body).into_owned();
    assert!(figures.contains("\nposthaste_store_up 0\n"), "{figures}");
    assert!(
        figures.contains("\nposthaste_store_errors_total ") && !figures.contains("posthaste_queued"),
        "{figures}"
    );
    assert!(program.lives());
}

/// Once the store answers, no reason of before is given: it does not answer, or what was sent while it was away.
async fn reasons_do_not_linger(program: &Program) {
    let client = program.client();
    let mut answers = false;
    let ready = eventually(async || {
        let answer = client.get("/readyz").await.unwrap();
        let told: Value = answer.json().unwrap();
        let reason = told["reason"].as_str().unwrap_or_default().to_owned();
        assert!(!reason.contains("disk"), "{reason}");
        assert!(!(answers && reason.contains("does not answer")), "{reason}");
        answers |= client.get("/v1/nodes").await.unwrap().status == StatusCode::OK;
        (answer.status == StatusCode::OK).then_some(())
    });
    ready.await.expect("it becomes ready");
}

/// Everything that was acknowledged has arrived.
async fn all_arrived(sink: &Sink, ledger: &Ledger) {
    let arrived: BTreeSet<String> = sink.arrivals().into_iter().filter_map(|arrival| arrival.id).collect();
    let missing: Vec<_> =
        ledger.acknowledged.keys().filter(|id| !arrived.contains(&id.to_string())).collect();
    assert!(
        missing.is_empty(),
        "{} of {} are missing: {missing:?}",
        missing.len(),
        ledger.acknowledged.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_database_is_away_callers_are_told_and_afterwards_all_goes_on() {
    let mut server = OwnServer::start(&std::env::temp_dir(), "").unwrap();
    server.sql("postgres", "create database p").unwrap();
    let home = Home::new(&["engine.concurrency=32"])
        .with_database(server.url("p"), "127.0.0.1:0".parse().unwrap())
        .with_variables(vec![("POSTHASTE__STORE__CONNECT_TIMEOUT", "2s".to_owned())]);
    let (mut program, sink, mut rng) = (home.start().await, sink().await, Rng::new());
    let mut ledger = Ledger::default();
    for round in 0..3 {
        let aim = Aim { sink: sink.url(""), paths: PATHS, bytes: 100 };
        let load = Load::start(&program, aim, &mut rng);
        let flowing = sink.received() + 100;
        eventually(async || (sink.received() > flowing).then_some(())).await.expect("it is delivered");
        server.order("stop").unwrap();
        let stopped = Instant::now();
        let more = load.ended().await;
        assert!(stopped.elapsed() < TOLD_WITHIN, "callers were told after {:?}", stopped.elapsed());
        assert!(!more.refused.is_empty(), "round {round}");
        for refused in &more.refused {
            assert_eq!(refused.json::<Value>().unwrap()["code"], "STORE_UNAVAILABLE");
        }
        ledger.add(more);
        if round < 2 {
            refuses(&mut program, &sink).await;
        }
        server.order("start").unwrap();
        reasons_do_not_linger(&program).await;
        ledger.repeat(&program.client(), &mut rng).await;
        program.rest().await;
        all_arrived(&sink, &ledger).await;
    }
    program.stop().await;
    Kept::read_database(&server, "p").check(&ledger);
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_stopped_while_the_database_is_away_ends_and_another_takes_its_work_up() {
    let mut server = OwnServer::start(&std::env::temp_dir(), "").unwrap();
    server.sql("postgres", "create database p").unwrap();
    let home = Home::new(&["engine.concurrency=8", "server.drain_timeout=2s", "store.connect_timeout=2s"])
        .with_database(server.url("p"), "127.0.0.1:0".parse().unwrap());
    let (mut program, sink, mut rng) = (home.start().await, sink().await, Rng::new());
    let load = Load::start(&program, Aim { sink: sink.url(""), paths: PATHS, bytes: 100 }, &mut rng);
    eventually(async || (sink.received() > 100).then_some(())).await.expect("it is delivered");
    server.order("stop").unwrap();
    let mut ledger = load.ended().await;
    program.signal("TERM");
    program.ended(Duration::from_secs(20)).await;
    drop(program);

    // One that starts before the database does says so, and does not wait.
    let mut early = home.spawn();
    assert_eq!(early.ended(Duration::from_secs(20)).await.code(), Some(1));
    // What it said last may still be on its way here.
    let said = eventually(async || early.log().contains("PostgreSQL cannot be reached").then_some(()));
    said.await.expect("it says why");
    drop(early);

    server.order("start").unwrap();
    let program = home.start().await;
    ledger.repeat(&program.client(), &mut rng).await;
    program.rest().await;
    all_arrived(&sink, &ledger).await;
    program.stop().await;
    Kept::read_database(&server, "p").check(&ledger);
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_database_says_nothing_callers_are_told_within_its_timeouts() {
    let server = OwnServer::start(&std::env::temp_dir(), "").unwrap();
    server.sql("postgres", "create database p").unwrap();
    let settings = ["store.connect_timeout=2s", "store.statement_timeout=1s", "store.lock_timeout=1s"];
    let home = Home::new(&settings).with_database(server.url("p"), "127.0.0.1:0".parse().unwrap());
    let (mut program, sink, mut rng) = (home.start().await, sink().await, Rng::new());
    let load = Load::start(&program, Aim { sink: sink.url(""), paths: PATHS, bytes: 100 }, &mut rng);
    eventually(async || (sink.received() > 100).then_some(())).await.expect("it is delivered");
    let frozen = Frozen::of(&server);
    let silent = Instant::now();
    let mut ledger = load.ended().await;
    assert!(silent.elapsed() < TOLD_WITHIN, "callers were told after {:?}", silent.elapsed());
    refuses(&mut program, &sink).await;
    drop(frozen);
    program.ready().await;
    ledger.repeat(&program.client(), &mut rng).await;
    program.rest().await;
    all_arrived(&sink, &ledger).await;
    program.stop().await;
    Kept::read_database(&server, "p").check(&ledger);
    sink.stop().await;
}
