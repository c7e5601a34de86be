//! The stream of events: what it sends, to whom, for how long, and what it says when something is missing.

use std::time::Duration;

use http::Method;
use posthaste::client::{EventStream, ServerEvent};
use posthaste::clock::SystemClock;
use posthaste_engine::clock::Clock as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use super::running::{ADMIN, Running, StoreKind};
use super::wrong_input::counters;
use crate::program::{PATIENCE, eventually};

/// The next event with a name, and its data.
async fn next(events: &mut EventStream<'_>) -> (ServerEvent, Value) {
    loop {
        let event = timeout(PATIENCE, events.next()).await.expect("an event comes").unwrap();
        let event = event.expect("the stream goes on");
        if !event.name.is_empty() {
            let data = serde_json::from_str(&event.data).unwrap();
            return (event, data);
        }
    }
}

/// The data of events of one name, up to the first in this state.
async fn until(events: &mut EventStream<'_>, state: &str) -> Vec<Value> {
    let mut seen = vec![];
    loop {
        let (_, data) = next(events).await;
        let is_last = data["state"] == state;
        seen.push(data);
        if is_last {
            return seen;
        }
    }
}

/// Reads to the end of a stream.
async fn ends(events: &mut EventStream<'_>) {
    let ended = async { while events.next().await.is_ok_and(|event| event.is_some()) {} };
    timeout(PATIENCE, ended).await.expect("the stream ends");
}

async fn a_change_is_sent_as_it_is_shown_and_the_counters_are_those_of_the_stats(on: StoreKind) {
    let running = Running::start(on).await;
    let mut events = running.admin.stream("/v1/stream", None).await;
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    assert_eq!(events.headers()["cache-control"], "no-cache");
    let shown = running.admin.send_until(&running.webhook("/status/400"), "deadLetter").await;
    let mut changes = until(&mut events, "deadLetter").await;
    changes.retain(|data| data.get("state").is_some());
    let states: Vec<&str> = changes.iter().map(|data| data["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["pending", "processing", "deadLetter"]);
    let last = changes.last().unwrap();
    for name in
        ["notificationId", "tenant", "channel", "destination", "state", "stateCode", "attempt", "reasonCode"]
    {
        assert_eq!(last[name], shown[name], "{name}");
    }
    assert_eq!((&last["failureType"], &last["statusCode"]), (&json!("permanent"), &json!(400)));
    assert_eq!(last["deadLetterId"], shown["deadLetterId"]);
    assert!(last["at"].as_str() >= shown["createdAt"].as_str());
    assert_eq!(last.as_object().unwrap().len(), 12);
    let stats = loop {
        let (event, data) = next(&mut events).await;
        if event.name == "stats" && data["inDeadLetter"] == 1 {
            break data;
        }
    };
    assert_eq!(counters(stats), counters(running.admin.get("/v1/stats").await));
    running.stop().await;
}

async fn only_what_matches_is_sent_and_only_the_events_that_are_chosen(on: StoreKind) {
    let running = Running::start(on).await;
    let dead = "/v1/stream?events=notification&state=deadLetter&statusCode=400&q=paid";
    let mut events = running.admin.stream(dead, None).await;
    let mut wanted = running.webhook("/status/400");
    for sent in [running.webhook("/ok"), running.webhook("/status/400"), running.webhook("/status/410")] {
        running.admin.send(&sent).await;
    }
    wanted["eventKey"] = json!("order.Paid");
    let id = running.admin.send(&wanted).await;
    let (event, data) = next(&mut events).await;
    assert_eq!((event.name.as_str(), &data["notificationId"]), ("notification", &json!(id)));
    let mut counters = running.admin.stream("/v1/stream?events=stats&channel=webhook", None).await;
    running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    for _ in 0..2 {
        assert_eq!(next(&mut counters).await.0.name, "stats");
    }
    running.stop().await;
}

async fn one_that_comes_back_gets_what_came_meanwhile_or_is_told_that_it_missed_something(on: StoreKind) {
    let running = Running::start(on).await;
    let path = "/v1/stream?events=notification&status=delivered";
    let mut events = running.admin.stream(path, None).await;
    // The id to come back with is there before the first change.
    events.next().await.unwrap().unwrap();
    let first = events.last_id().unwrap().to_owned();
    drop(events);
    let ids = [
        running.admin.send(&running.webhook("/ok")).await,
        running.admin.send(&running.webhook("/ok")).await,
    ];
    for id in &ids {
        running.admin.wait(id, "succeeded").await;
    }
    let mut again = running.admin.stream(path, Some(&first)).await;
    let mut seen = [next(&mut again).await, next(&mut again).await];
    let second = seen[0].0.id.clone().unwrap();
    seen.sort_by_key(|(_, data)| data["notificationId"].as_str().unwrap().to_owned());
    for ((event, data), id) in seen.iter().zip(&ids) {
        assert_eq!((event.name.as_str(), &data["notificationId"]), ("notification", &json!(id)));
    }
    let mut third = running.admin.stream(path, Some(&second)).await;
    let (event, _) = next(&mut third).await;
    assert_ne!(event.id, Some(second.clone()));
    // A browser cannot send the header at first. Later it does, and then the header counts.
    let named = format!("{path}&lastEventId={second}");
    let mut fourth = running.admin.stream(&named, None).await;
    assert_eq!(next(&mut fourth).await.0.id, event.id);
    let mut fifth = running.admin.stream(&named, Some(&first)).await;
    assert_eq!(next(&mut fifth).await.0.id, Some(second.clone()));
    // An id of a node from before, or none of ours.
    let running = running.restart().await;
    for id in [second.as_str(), "nonsense", "1.", "9999999999.1"] {
        let mut later = running.admin.stream(path, Some(id)).await;
        let (event, data) = next(&mut later).await;
        assert_eq!((event.name.as_str(), data), ("missed", json!({"since": null})), "{id}");
    }
    running.stop().await;
}

async fn a_stream_ends_with_its_key(on: StoreKind) {
    let running = Running::start(on).await;
    let made =
        running.admin.post("/v1/keys", &json!({"name": "k", "tenant": "a", "role": "reader"})).await.is(201);
    let soon = SystemClock.now().later(Duration::from_secs(2));
    let expires = json!({"name": "k", "tenant": "a", "role": "reader", "expiresAt": soon.to_string()});
    let expires = running.admin.post("/v1/keys", &expires).await.is(201);
    let expires = running.caller(expires["key"].as_str());
    let (caller, other) = (running.caller(made["key"].as_str()), running.tenant("a").await);
    let (mut events, mut stays) =
        (caller.stream("/v1/stream", None).await, other.stream("/v1/stream", None).await);
    next(&mut events).await;
    let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    running.admin.ask(Method::DELETE, &path, &[], "").await.is(204);
    ends(&mut events).await;
    ends(&mut expires.stream("/v1/stream?events=notification", None).await).await;
    next(&mut stays).await;
    running.stop().await;
}

async fn a_stream_ends_when_the_server_stops(on: StoreKind) {
    let running = Running::start(on).await;
    let caller = running.caller(Some(ADMIN));
    let mut events = caller.stream("/v1/stream", None).await;
    next(&mut events).await;
    timeout(PATIENCE, running.stop()).await.expect("an open stream does not hold up the stop");
    ends(&mut events).await;
}

/// What one reader can have and what all can have, in a server with few connections.
async fn streams_are_bounded(on: StoreKind) {
    let running = Running::with(on, |config| config.server.connections = 8).await;
    let (a, b) = (running.tenant("a").await, running.tenant("b").await);
    let of_a = [a.stream("/v1/stream", None).await, a.stream("/v1/stream", None).await];
    let more = [a.stream("/v1/stream", None).await, a.stream("/v1/stream", None).await];
    let problem = a.ask(Method::GET, "/v1/stream", &[], "").await;
    problem.problem(429, "TOO_MANY_STREAMS");
    assert_eq!(problem.headers["retry-after"], "1");
    let of_b = [b.stream("/v1/stream", None).await, b.stream("/v1/stream", None).await];
    b.ask(Method::GET, "/v1/stream", &[], "").await.problem(503, "OVERLOADED");
    b.get("/v1/stats").await;
    drop((more, of_b));
    let again =
        eventually(async || (b.ask(Method::GET, "/v1/stream", &[], "").await.status == 200).then_some(()));
    again.await.expect("a stream that was closed makes room");
    drop(of_a);
    running.stop().await;
}

/// A reader that reads nothing is closed after the idle timeout, and the server goes on meanwhile.
async fn a_reader_that_does_not_read_is_dropped_and_the_server_goes_on(on: StoreKind) {
    let running = Running::with(on, |config| config.server.idle_timeout = Duration::from_secs(2)).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(running.address()).await.unwrap();
    let request = format!("GET /v1/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = vec![0; 16];
    stream.read_exact(&mut heard).await.unwrap();
    assert!(heard.starts_with(b"HTTP/1.1 200"));
    let open = async || {
        let metrics = running.admin.ask(Method::GET, "/metrics", &[], "").await;
        let text = String::from_utf8_lossy(&metrics.bytes).into_owned();
        let line = text.lines().find(|line| line.starts_with("posthaste_streams_open ")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(open().await, 1);
    // What is on its way fills the buffers of the two ends, and then the server has nobody to send to.
    let flood = json!({"notifications": vec![running.webhook("/ok"); 500]});
    let closed = eventually(async || {
        running.admin.post("/v1/notifications/batch", &flood).await.is(202);
        (open().await == 0).then_some(())
    });
    closed.await.expect("it is closed");
    running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    running.stop().await;
}

async fn more_than_200_changes_a_second_are_told_as_missed(on: StoreKind) {
    let running = Running::start(on).await;
    let mut events = running.admin.stream("/v1/stream?events=notification", None).await;
    let batch = json!({"notifications": vec![running.webhook("/ok"); 500]});
    running.admin.post("/v1/notifications/batch", &batch).await.is(202);
    let mut sent = 0;
    let (missed, data) = loop {
        let (event, data) = next(&mut events).await;
        if event.name == "missed" {
            break (event, data);
        }
        sent += 1;
    };
    assert!((200..=1_000).contains(&sent), "{sent}");
    assert!(data["since"].is_string(), "{data}");
    assert!(missed.id.is_some());
    let metrics = running.admin.ask(Method::GET, "/metrics", &[], "").await;
    let text = String::from_utf8_lossy(&metrics.bytes).into_owned();
    assert!(!text.contains("posthaste_stream_missed_total 0\n"));
    running.stop().await;
}

async fn operations_are_sent_as_lists_show_them_to_their_tenant(on: StoreKind) {
    let running = Running::start(on).await;
    let (a, b) = (running.tenant("a").await, running.tenant("b").await);
    a.send_until(&running.webhook("/sequence/400,200"), "deadLetter").await;
    let mut events = a.stream("/v1/stream?events=operation", None).await;
    let mut named = running.admin.stream("/v1/stream?events=operation&tenant=a", None).await;
    let mut others = b.stream("/v1/stream?events=operation,stats", None).await;
    let mut old = running.admin.stream("/v1/stream?events=stats,notification", None).await;
    let started = a.post("/v1/retry-operations", &json!({"all": true})).await.is(202);
    for stream in [&mut events, &mut named] {
        let mut seen = vec![];
        let (event, mut last) = loop {
            let (event, data) = next(stream).await;
            assert_eq!((event.name.as_str(), &data["id"]), ("operation", &started["id"]));
            seen.push(data["state"].as_str().unwrap().to_owned());
            if data["finishedAt"].is_string() {
                break (event, data);
            }
        };
        assert!(event.id.is_some());
        assert_eq!((seen[0].as_str(), seen.last().unwrap().as_str()), ("waiting", "completed"));
        assert!(last.as_object_mut().unwrap().remove("at").unwrap().is_string());
        assert_eq!(last, a.get("/v1/retry-operations").await["data"][0]);
    }
    let id = started["id"].as_str().unwrap();
    assert_eq!(running.admin.get(&format!("/v1/retry-operations/{id}")).await["forwarded"], 1);
    for stream in [&mut others, &mut old] {
        for _ in 0..3 {
            let (event, data) = next(stream).await;
            assert_ne!(event.name, "operation", "{data}");
        }
    }
    running.stop().await;
}

on_each_store! {
    operations_are_sent_as_lists_show_them_to_their_tenant;
    a_change_is_sent_as_it_is_shown_and_the_counters_are_those_of_the_stats;
    only_what_matches_is_sent_and_only_the_events_that_are_chosen;
    one_that_comes_back_gets_what_came_meanwhile_or_is_told_that_it_missed_something;
    a_stream_ends_with_its_key;
    a_stream_ends_when_the_server_stops;
    streams_are_bounded;
    a_reader_that_does_not_read_is_dropped_and_the_server_goes_on;
    more_than_200_changes_a_second_are_told_as_missed;
}
