//! An outage of a receiver, and how it is met when it is back: the built program against a sink that counts.

use std::time::Duration;

use posthaste_core::time::Timestamp;
use posthaste_wire::sink::Dial;
use serde_json::json;
use tokio::time::timeout;

use super::program::{Home, PATIENCE, eventually, get, post, sink};

/// How many wait when the receiver is back.
const WAITING: usize = 3_000;
/// What it takes at once, and in a second.
const CONCURRENCY: usize = 16;
const RATE: usize = 200;
/// How long it takes over each.
const EACH: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_for_a_receiver_comes_by_a_ramp_and_never_faster_than_it_takes() {
    let sink = sink().await;
    let turn = |answer, delay| sink.inbox().turn(Some(Dial::read(answer, delay, None).unwrap()));
    let home =
        Home::new(&["breaker.failure_threshold=10", "breaker.first_break=3s", "breaker.break_duration=3s"]);
    let limit =
        format!("[destinations.\"http://{}\"]\nconcurrency = {CONCURRENCY}\nrate = {RATE}\n", sink.address());
    std::fs::write(home.path().join("posthaste.toml"), limit).unwrap();
    let program = home.start().await;
    turn("503", None);
    let policy = json!({"strategy": "fixed", "initialDelay": "1m", "maxAttempts": 9, "quick": {"tries": 0}});
    let one = json!({"channel": "webhook", "to": sink.url("/ok"), "body": 1, "policy": policy});
    let client = program.client();
    post(&client, "/v1/notifications/batch", &json!({"notifications": vec![one.clone(); 20]})).await;
    let opened = eventually(async || program.log().contains("destination opened").then_some(()));
    opened.await.expect("its breaker opens");
    for _ in 0..WAITING / 500 {
        post(&client, "/v1/notifications/batch", &json!({"notifications": vec![one.clone(); 500]})).await;
    }
    let failed = sink.received();
    assert!(failed < 40, "{failed} were sent to a receiver that is down");

    turn("path", Some("50ms"));
    let all = u64::try_from(WAITING).unwrap();
    timeout(2 * PATIENCE, sink.wait_for(failed + all)).await.expect("what waited arrives");
    let well = sink.arrivals().into_iter().filter(|one| one.status == Some(200));
    let arrivals: Vec<Timestamp> = well.map(|one| one.at).collect();
    let first = arrivals[0].later(EACH);
    let within = |from: u64, to: u64| {
        let after = |secs| first.later(Duration::from_millis(secs));
        arrivals.iter().filter(|at| **at >= after(from) && **at < after(to)).count()
    };
    // One at once and ten a second for 6 s, then twice as much, and so on.
    let steps = [within(0, 5_900), within(6_100, 11_900), within(12_100, 17_900)];
    for (step, most) in [(0, 59), (1, 116), (2, 232)] {
        assert!(steps[step] <= most + most / 10 + 2, "step {step}: {steps:?}");
        assert!(steps[step] >= most / 3, "it is used: {steps:?}");
    }
    for (place, at) in arrivals.iter().enumerate() {
        let before = |stretch: Duration| {
            arrivals[..=place].iter().rev().take_while(|one| one.later(stretch) > *at).count()
        };
        let step = u32::try_from(at.since(first).as_secs() / 6).unwrap().min(4);
        let (at_once, in_second) = (before(EACH), before(Duration::from_secs(1)));
        assert!(
            at_once <= CONCURRENCY.min(1 << step),
            "{at_once} at once, {:?} after it was back",
            at.since(first)
        );
        // What was under way while this process had no processor arrives late, together with what followed.
        assert!(in_second <= RATE + RATE / 10 + CONCURRENCY, "{in_second} in a second");
    }
    program.stop().await;
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_says_that_it_waits_for_a_breaker_and_goes_on_by_itself() {
    const DEAD: u64 = 20;
    let sink = sink().await;
    let turn = |answer| sink.inbox().turn(Some(Dial::read(answer, None, None).unwrap()));
    let home =
        Home::new(&["breaker.failure_threshold=5", "breaker.first_break=3s", "breaker.break_duration=3s"]);
    let program = home.start().await;
    let client = program.client();
    let policy = json!({"strategy": "fixed", "initialDelay": "2s", "maxAttempts": 30, "quick": {"tries": 0}});
    let one = json!({"channel": "webhook", "to": sink.url("/ok"), "body": 1, "policy": policy});
    let send = async |count: usize| {
        post(&client, "/v1/notifications/batch", &json!({"notifications": vec![one.clone(); count]})).await
    };
    // It does not want these, and is well.
    turn("400");
    send(20).await;
    eventually(async || (get(&client, "/v1/stats").await["inDeadLetter"] == DEAD).then_some(()))
        .await
        .expect("they die");
    turn("503");
    send(5).await;
    let opened = eventually(async || program.log().contains("destination opened").then_some(()));
    opened.await.expect("its breaker opens");

    let id = post(&client, "/v1/retry-operations", &json!({"all": true})).await["id"].clone();
    let path = format!("/v1/retry-operations/{}", id.as_str().unwrap());
    let waits =
        eventually(async || Some(get(&client, &path).await).filter(|shown| shown["state"] == "paused"));
    let shown = waits.await.expect("it waits");
    assert_eq!((&shown["pausedBy"], &shown["total"]), (&json!("breaker"), &json!(DEAD)));
    assert!(shown["forwarded"].as_u64().unwrap() <= 3, "no more than probes: {shown}");
    turn("200");
    let ended =
        eventually(async || Some(get(&client, &path).await).filter(|shown| shown["finishedAt"].is_string()));
    let shown = ended.await.expect("it goes on");
    assert_eq!((&shown["state"], &shown["forwarded"]), (&json!("completed"), &json!(DEAD)));
    assert_eq!(shown["pausedBy"], json!(null));
    program.rest().await;
    assert_eq!(get(&client, "/v1/stats").await["inDeadLetter"], 0);
    program.stop().await;
    sink.stop().await;
}
