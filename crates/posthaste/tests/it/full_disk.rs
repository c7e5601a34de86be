//! A full disk: what cannot be stored is refused, what was acknowledged stays, and with room again it goes on.
//!
//! A limit on the size of files plays the disk: it needs no root, and a write past it fails as one to a full disk does.

use std::process::Command;
use std::time::{Duration, Instant};

use fastrand::Rng;
use http::StatusCode;
use http::header::RETRY_AFTER;
use posthaste_wire::sink::Sink;
use serde_json::{Value, json};

use super::kept::Kept;
use super::load::{Aim, CLIENTS, Ledger, Load};
use super::program::{Home, Program, eventually, get, json as read, sink, size_beside};

/// No file may grow beyond 8192 blocks, which are half a KiB in some shells and a whole one in others.
const LIMIT: &str = "trap '' XFSZ; ulimit -S -f 8192";
const PATHS: &[&str] = &["/ok", "/flaky/20", "/delay/50ms"];
const CONCURRENCY: u32 = 16;

/// A program on a disk that was just filled, and what it acknowledged until then.
async fn filled(sink: &Sink, rng: &mut Rng) -> (Home, Program, Ledger) {
    let home = Home::new(&[&format!("engine.concurrency={CONCURRENCY}"), "server.drain_timeout=1s"]);
    let program = home.start_after(LIMIT).await;
    let load = Load::start(&program, Aim { sink: sink.url(""), paths: PATHS, bytes: 20_000 }, rng);
    let ledger = load.ended().await;
    assert_eq!(ledger.refused.len(), CLIENTS, "each client was refused at last: {}", program.log());
    for refused in &ledger.refused {
        assert_eq!(refused.json::<Value>().unwrap()["code"], "STORE_UNAVAILABLE");
    }
    assert!(ledger.acknowledged.len() > 20, "there was room at first: {}", ledger.acknowledged.len());
    let (log, most) = (size_beside(&home, "-wal"), 8192 * 1024);
    assert!((most / 4..=most).contains(&log), "the limit is what stopped it: {log}");
    (home, program, ledger)
}

/// It refuses what it cannot store, and answers what it can.
async fn refuses_and_answers(program: &mut Program, sink: &Sink, ledger: &Ledger) {
    let client = program.client();
    // Larger than what was refused last: that one may have been stored together with others, and a small one could still fit.
    let body = json!({"channel": "webhook", "to": sink.url("/ok"), "body": "x".repeat(240_000)});
    let lines = || program.log().matches("the store could not serve requests").count();
    let (begun, before) = (Instant::now(), lines());
    for _ in 0..20 {
        let answer = client.post("/v1/notifications", &body).await.unwrap();
        let problem = read(&answer, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(problem["code"], "STORE_UNAVAILABLE");
        assert!(answer.headers.contains_key(RETRY_AFTER));
    }
    let (told, seconds) = (lines() - before, begun.elapsed().as_secs() as usize);
    assert!(before > 0 && told <= seconds + 1, "{told} lines in {seconds} s: {}", program.log());
    for id in ledger.acknowledged.keys().take(20) {
        assert_eq!(get(&client, &format!("/v1/notifications/{id}")).await["notificationId"], id.to_string());
    }
    get(&client, "/healthz").await;
    get(&client, "/v1/stats").await;
    get(&client, "/v1/notifications?limit=10").await;
    let unready = eventually(async || {
        let answer = client.get("/readyz").await.unwrap();
        (answer.status == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    });
    unready.await.expect("it says that it cannot record outcomes");
    assert!(program.lives());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_and_loses_nothing_and_after_a_restart_with_room_all_is_delivered() {
    let (sink, mut rng) = (sink().await, Rng::new());
    let (home, mut program, mut ledger) = filled(&sink, &mut rng).await;
    refuses_and_answers(&mut program, &sink, &ledger).await;
    // It cannot record that it leaves, but it does not hang on that.
    program.signal("TERM");
    program.ended(Duration::from_secs(20)).await;
    drop(program);

    let program = home.start().await;
    ledger.repeat(&program.client(), &mut rng).await;
    program.rest().await;
    program.stop().await;
    let kept = Kept::read(home.file());
    kept.check(&ledger);
    let duplicates = kept.duplicates(&sink);
    // As many as it may keep unrecorded, and as many again that were on their way (ADR 9).
    assert!(duplicates <= 2 * CONCURRENCY, "{duplicates} outcomes could not be recorded");
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_a_full_disk_has_room_again_it_goes_on_by_itself() {
    let (sink, mut rng) = (sink().await, Rng::new());
    let (home, mut program, mut ledger) = filled(&sink, &mut rng).await;
    refuses_and_answers(&mut program, &sink, &ledger).await;
    let room = ["--pid", &program.id().to_string(), "--fsize=unlimited:"];
    assert!(Command::new("prlimit").args(room).status().unwrap().success());

    program.ready().await;
    ledger.repeat(&program.client(), &mut rng).await;
    program.rest().await;
    program.stop().await;
    let kept = Kept::read(home.file());
    kept.check(&ledger);
    assert_eq!(
        (kept.duplicates(&sink), kept.interruptions()),
        (0, 0),
        "every outcome was kept until it was recorded"
    );
    sink.stop().await;
}
