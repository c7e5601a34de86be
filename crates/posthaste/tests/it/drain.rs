//! SIGTERM: nothing new is taken, what is under way ends, and what is left goes on after the next start.

use std::time::{Duration, Instant};

use fastrand::Rng;
use http::StatusCode;
use posthaste_wire::sink::Sink;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::kept::Kept;
use super::load::{Aim, CLIENTS, Load};
use super::program::{Home, PATIENCE, Program, eventually, get, post, sink};

/// Sends one notification and waits until it is at the sink.
async fn send_and_see(program: &Program, sink: &Sink, path: &str) -> String {
    let policy = json!({"timeout": "50s", "quick": {"tries": 0}});
    let body = json!({"channel": "webhook", "to": sink.url(path), "body": 1, "policy": policy});
    let sent = post(&program.client(), "/v1/notifications", &body).await;
    let id = sent["notificationId"].as_str().unwrap().to_owned();
    let arrived = eventually(async || {
        sink.arrivals().iter().any(|arrival| arrival.id.as_deref() == Some(&*id)).then_some(())
    });
    arrived.await.expect("it arrives");
    id
}

/// Waits until the program says that it is not ready any more.
async fn stopping(program: &Program) -> Value {
    let client = program.client();
    let refused = eventually(async || {
        let answer = client.get("/readyz").await.expect("a program that stops still answers");
        (answer.status == StatusCode::SERVICE_UNAVAILABLE).then(|| answer.json().unwrap())
    });
    refused.await.expect("readiness goes off")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_under_load_loses_nothing_and_sends_nothing_twice() {
    const PATHS: &[&str] = &["/ok", "/delay/100ms", "/flaky/20"];
    let mut rng = Rng::new();
    let (home, sink) = (Home::new(&["engine.concurrency=16", "server.drain_timeout=20s"]), sink().await);
    let mut program = home.start().await;
    // A slow one keeps the drain going for long enough to be looked at.
    let slow = send_and_see(&program, &sink, "/delay/3s").await;
    let load = Load::start(&program, Aim { sink: sink.url(""), paths: PATHS, bytes: 100 }, &mut rng);
    sleep(Duration::from_millis(300)).await;
    program.signal("TERM");
    let signalled = Instant::now();
    assert_eq!(stopping(&program).await["reason"], "this node is stopping");
    let mut ledger = load.ended().await;
    assert_eq!(ledger.refused.len(), CLIENTS, "each client is told to come back");
    for refused in &ledger.refused {
        assert_eq!(refused.json::<Value>().unwrap()["code"], "STOPPING");
    }
    let status = program.ended(Duration::from_secs(20)).await;
    assert_eq!(status.code(), Some(0), "after {:?}:\n{}", signalled.elapsed(), program.log());

    let stopped = Kept::read(home.file());
    assert_eq!(stopped.missing(&ledger), []);
    assert_eq!(stopped.interruptions(), 0);
    let waiting = stopped.all.values().filter(|one| one.live).count();
    assert!(waiting > 0, "the stop came too late to leave anything");
    let slow = slow.parse().unwrap();
    assert!(stopped.all[&slow].end.is_some(), "what was under way ended and was recorded");

    let program = home.start().await;
    ledger.repeat(&program.client(), &mut rng).await;
    program.rest().await;
    program.stop().await;
    let kept = Kept::read(home.file());
    kept.check(&ledger);
    assert_eq!((kept.duplicates(&sink), kept.interruptions()), (0, 0));
    assert_eq!(kept.all.len(), ledger.acknowledged.len() + 1);
    sink.stop().await;
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_with_exit_code_1() {
    for second in ["TERM", "INT"] {
        let (home, sink) = (Home::new(&["server.drain_timeout=50s"]), sink().await);
        let mut program = home.start().await;
        let id = send_and_see(&program, &sink, "/sequence/hang,200").await;
        program.signal("TERM");
        stopping(&program).await;
        program.signal(second);
        assert_eq!(program.ended(Duration::from_secs(10)).await.code(), Some(1), "after SIG{second}");
        goes_on(&home, &sink, &id).await;
        sink.stop().await;
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_longer_than_the_drain_time() {
    let (home, sink) = (Home::new(&["server.drain_timeout=1s"]), sink().await);
    let mut program = home.start().await;
    let id = send_and_see(&program, &sink, "/sequence/hang,200").await;
    let signalled = Instant::now();
    program.signal("TERM");
    assert_eq!(program.ended(Duration::from_secs(15)).await.code(), Some(0));
    assert!(signalled.elapsed() >= Duration::from_secs(1), "it was given its time");
    program.says("stopped with running attempts").await;
    goes_on(&home, &sink, &id).await;
    sink.stop().await;
}

#[tokio::test]
async fn a_stop_without_work_takes_no_time() {
    let home = Home::new(&["server.drain_timeout=50s"]);
    for signal in ["TERM", "INT"] {
        let mut program = home.start().await;
        // An idle connection is no reason to stay.
        let client = program.client();
        get(&client, "/v1/stats").await;
        program.signal(signal);
        assert_eq!(program.ended(Duration::from_secs(10)).await.code(), Some(0), "SIG{signal}");
    }
}

/// After the next start what hung is sent again, as the same attempt of the same notification.
async fn goes_on(home: &Home, sink: &Sink, id: &str) {
    let program = home.start().await;
    timeout(PATIENCE, sink.wait_for(2)).await.expect("it is sent again");
    program.rest().await;
    let shown = get(&program.client(), &format!("/v1/notifications/{id}")).await;
    assert_eq!(shown["words"], "Delivered");
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 1);
    let words: Vec<&str> =
        shown["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(words, ["interrupted"]);
    let arrivals: Vec<_> = sink.arrivals().into_iter().map(|arrival| (arrival.id, arrival.attempt)).collect();
    assert_eq!(arrivals, vec![(Some(id.to_owned()), Some(1)); 2]);
    program.stop().await;
}
