//! Sending: what is handed in arrives as it was handed in, once for each key, and is shown as it was taken.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, Method};
use posthaste::clock::SystemClock;
use posthaste::http::server::{self, Limits};
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock;
use posthaste_wire::listener;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::running::{Running, StoreKind, quick, slow};

/// A receiver that keeps each request whole, headers and all, and answers 200.
struct Recorder {
    url: String,
    seen: Arc<Seen>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Seen(Mutex<Vec<(HeaderMap, Bytes)>>);

async fn record(State(seen): State<Arc<Seen>>, headers: HeaderMap, body: Bytes) {
    seen.0.lock().unwrap().push((headers, body));
}

impl Recorder {
    async fn start() -> Self {
        let listener = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let minute = Duration::from_secs(60);
        let limits = Limits { connections: 8, head: minute, answer: minute, idle: minute };
        let (seen, (stop, stopped)) = (Arc::<Seen>::default(), watch::channel(false));
        let router = Router::new().fallback(record).with_state(seen.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(server::serve(listener, router, limits, stopped, Duration::from_millis(100)));
        Self { url, seen, stop, tasks }
    }

    /// The one request that arrived since the last look.
    fn one(&self) -> (HeaderMap, Bytes) {
        let mut seen = std::mem::take(&mut *self.seen.0.lock().unwrap());
        assert_eq!(seen.len(), 1);
        seen.remove(0)
    }

    async fn stop(mut self) {
        self.stop.send(true).unwrap();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// A time so many seconds from now, as it is written.
pub(super) fn from_now(seconds: u64) -> String {
    SystemClock.now().later(Duration::from_secs(seconds)).to_string()
}

async fn a_notification_with_every_field_is_delivered_and_shown_with_every_field(on: StoreKind) {
    let (running, receiver) = (Running::start(on).await, Recorder::start().await);
    let expires = from_now(3_600);
    let sent = json!({
        "channel": "webhook", "to": receiver.url, "userId": "u-1", "subject": "Grüße", "body": {"order": 7},
        "html": "<p>7</p>", "template": "welcome", "priority": "high", "module": "shop", "eventKey": "order.paid",
        "correlationId": "c-1", "metadata": {"b": 1, "a": [true, null]}, "headers": {"X-Shop": "north"},
        "expiresAt": expires, "policy": {"maxAttempts": 4},
    });
    let told = running.admin.post("/v1/notifications", &sent).await;
    let answer = told.is(202);
    assert_eq!(
        (&answer["status"], &answer["state"], &answer["channel"]),
        (&json!("queued"), &json!("pending"), &json!("webhook"))
    );
    let id = answer["notificationId"].as_str().unwrap();
    let shown = running.admin.wait(id, "succeeded").await;
    for (name, value) in sent.as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}");
    }
    assert_eq!(shown["createdAt"], answer["createdAt"]);
    assert_eq!(
        (&shown["tenant"], &shown["maxAttempts"], &shown["attempt"]),
        (&json!("default"), &json!(4), &json!(1))
    );
    assert_eq!(
        (&shown["stateCode"], &shown["status"], &shown["words"]),
        (&json!(2), &json!("delivered"), &json!("Delivered"))
    );
    assert_eq!(shown["attempts"][0]["statusCode"], 200);
    let (headers, body) = receiver.one();
    assert_eq!(body, r#"{"order":7}"#);
    assert_eq!(headers["webhook-id"], id);
    assert_eq!(headers["posthaste-attempt"], "1");
    assert_eq!(headers["x-shop"], "north");
    assert_eq!(headers["content-type"], "application/json");
    let at: i64 = headers["webhook-timestamp"].to_str().unwrap().parse().unwrap();
    let created: Timestamp = shown["createdAt"].as_str().unwrap().parse().unwrap();
    assert!((created.as_millis() / 1_000 - 1..=created.as_millis() / 1_000 + 60).contains(&at), "{at}");
    running.stop().await;
    receiver.stop().await;
}

async fn a_body_arrives_byte_for_byte(on: StoreKind) {
    let (running, receiver) = (Running::start(on).await, Recorder::start().await);
    let as_they_are = [
        r#"{ "b" : 1,  "a":[ ] ,"b2":{"z":1,"y":2,"z":3} , "n":1.50e+3 }"#,
        "[1,\n\t2 , {\"x\":\"\\u00e9\\/\"}]",
        "12345678901234567890123456789.000",
        "-0.0",
        "true",
        "null",
        "{}",
    ];
    for body in as_they_are {
        let request = format!(r#"{{"channel":"webhook","body": {body} ,"to":"{}"}}"#, receiver.url);
        let told = running.admin.ask(Method::POST, "/v1/notifications", &[], request).await.is(202);
        running.admin.wait(told["notificationId"].as_str().unwrap(), "succeeded").await;
        let (headers, arrived) = receiver.one();
        assert_eq!(arrived, body);
        assert_eq!(headers["content-type"], "application/json", "{body}");
        let path = format!("/v1/notifications/{}", told["notificationId"].as_str().unwrap());
        let shown = running.admin.ask(Method::GET, &path, &[], "").await;
        let shown = String::from_utf8(shown.bytes.to_vec()).unwrap();
        assert!(shown.contains(&format!(r#""body":{body},"#)), "{body}: {shown}");
    }
    for text in ["", "plain", "zwei\nZeilen\t\u{1f680} \"quoted\" \\ \u{0}"] {
        let sent = json!({"channel": "webhook", "to": receiver.url, "body": text});
        let shown = running.admin.send_until(&sent, "succeeded").await;
        assert_eq!(shown["body"], text);
        let (headers, arrived) = receiver.one();
        assert_eq!(arrived, text);
        assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    }
    let named = json!({"channel": "webhook", "to": receiver.url, "body": [], "headers": {"Content-Type": "application/x-own"}});
    running.admin.send_until(&named, "succeeded").await;
    assert_eq!(receiver.one().0["content-type"], "application/x-own");
    running.stop().await;
    receiver.stop().await;
}

async fn every_attempt_carries_the_same_id_and_its_own_number(on: StoreKind) {
    let running = Running::start(on).await;
    let shown = running.admin.send_until(&running.webhook("/sequence/503,reset,200"), "succeeded").await;
    let arrivals = running.sink.arrivals();
    let numbers: Vec<_> = arrivals.iter().map(|one| one.attempt).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
    assert!(arrivals.iter().all(|one| one.id.as_deref() == shown["notificationId"].as_str()));
    let outcomes: Vec<_> =
        shown["attempts"].as_array().unwrap().iter().map(|one| one["failureType"].clone()).collect();
    assert_eq!(outcomes, [json!("temporary"), json!("networkFailure"), Value::Null]);
    running.stop().await;
}

async fn a_notification_waits_for_its_time_and_ends_at_its_time(on: StoreKind) {
    let running = Running::start(on).await;
    let later = from_now(3_600);
    let mut waits = running.webhook("/ok");
    waits["notBefore"] = json!(later);
    let id = running.admin.send(&waits).await;
    let shown = running.admin.get(&format!("/v1/notifications/{id}")).await;
    assert_eq!((&shown["state"], &shown["nextAttemptAt"]), (&json!("pending"), &json!(later)));
    assert_eq!(
        (&shown["notBefore"], &shown["attempt"], &shown["words"]),
        (&json!(later), &json!(1), &json!("Queued"))
    );

    let mut short = running.webhook("/status/503");
    short["policy"] = slow();
    short["ttlSeconds"] = json!(1);
    let shown = running.admin.send_until(&short, "expired").await;
    let time = |name: &str| shown[name].as_str().unwrap().parse::<Timestamp>().unwrap();
    let lived = time("expiresAt").since(time("createdAt"));
    assert!((900..=1_000).contains(&lived.as_millis()), "{lived:?}");
    assert!(time("endedAt") >= time("expiresAt"));
    assert_eq!((&shown["status"], &shown["attempt"]), (&json!("expired"), &json!(1)));
    assert_eq!(running.sink.received(), 1);
    // A time in another zone is the same time, shown in UTC.
    let mut zoned = running.webhook("/ok");
    zoned["notBefore"] = json!("2999-01-01T02:00:00+02:00");
    let id = running.admin.send(&zoned).await;
    assert_eq!(
        running.admin.get(&format!("/v1/notifications/{id}")).await["notBefore"],
        "2999-01-01T00:00:00.000Z"
    );
    // The longest time to live that can be written ends with the calendar, not with an error.
    let mut for_ever = running.webhook("/ok");
    for_ever["ttlSeconds"] = json!(u64::MAX);
    running.admin.send_until(&for_ever, "succeeded").await;
    running.stop().await;
}

async fn every_priority_is_taken_and_shown(on: StoreKind) {
    let running = Running::start(on).await;
    for priority in ["critical", "high", "normal", "low"] {
        let mut sent = running.webhook("/ok");
        sent["priority"] = json!(priority);
        assert_eq!(running.admin.send_until(&sent, "succeeded").await["priority"], priority);
    }
    assert_eq!(running.admin.send_until(&running.webhook("/ok"), "succeeded").await["priority"], "normal");
    running.stop().await;
}

async fn the_same_key_and_body_get_the_same_answer_and_another_body_is_a_conflict(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, other) = (&running.admin, running.tenant("other").await);
    let sent = running.webhook("/ok");
    let key = [("Idempotency-Key", "order-7")];
    let path = "/v1/notifications";
    // What is refused does not use the key up.
    admin.ask(Method::POST, path, &key, "{}").await.problem(422, "VALIDATION_FAILED");
    let two = [("Idempotency-Key", "order-7"), ("Idempotency-Key", "order-8")];
    admin.ask(Method::POST, path, &two, sent.to_string()).await.problem(422, "VALIDATION_FAILED");
    let first = admin.ask(Method::POST, path, &key, sent.to_string()).await;
    first.is(202);
    assert!(!first.headers.contains_key("idempotency-replayed"));
    let second = admin.ask(Method::POST, path, &key, sent.to_string()).await;
    second.is(202);
    assert_eq!(
        (&second.bytes, &second.headers["idempotency-replayed"]),
        (&first.bytes, &http::HeaderValue::from_static("true"))
    );
    let changed = running.webhook("/ok?other");
    admin.ask(Method::POST, path, &key, changed.to_string()).await.problem(409, "IDEMPOTENCY_CONFLICT");
    // The bytes count, not what they mean.
    admin.ask(Method::POST, path, &key, format!("{sent} ")).await.problem(409, "IDEMPOTENCY_CONFLICT");
    // Another tenant has keys of its own.
    let theirs = other.ask(Method::POST, path, &key, sent.to_string()).await;
    assert_ne!(theirs.is(202)["notificationId"], first.json["notificationId"]);
    // A batch is one request as a whole, and the address belongs to it.
    let batch = json!({"notifications": [sent, {"channel": "webhook"}, sent]}).to_string();
    admin
        .ask(Method::POST, "/v1/notifications/batch", &key, batch.clone())
        .await
        .problem(409, "IDEMPOTENCY_CONFLICT");
    let key = [("Idempotency-Key", "batch-7")];
    let first = admin.ask(Method::POST, "/v1/notifications/batch", &key, batch.clone()).await;
    assert_eq!(first.is(202)["accepted"].as_array().unwrap().len(), 2);
    let second = admin.ask(Method::POST, "/v1/notifications/batch", &key, batch).await;
    assert_eq!(second.bytes, first.bytes);
    assert!(second.headers.contains_key("idempotency-replayed"));
    tokio::time::timeout(Duration::from_secs(60), running.sink.wait_for(4)).await.unwrap();
    assert_eq!(admin.all("/v1/notifications").await.len(), 4);
    running.stop().await;
}

async fn a_time_may_be_a_duration_from_acceptance(on: StoreKind) {
    let running = Running::start(on).await;
    let mut sent = running.webhook("/ok");
    (sent["notBefore"], sent["expiresAt"]) = (json!("90m"), json!("1.02:00"));
    let key = [("idempotency-key", "d-1")];
    let ask = async || running.admin.ask(Method::POST, "/v1/notifications", &key, sent.to_string()).await;
    let first = ask().await.is(202);
    let again = ask().await;
    assert_eq!(again.is(202), first);
    assert!(again.headers.contains_key("idempotency-replayed"));
    let id = first["notificationId"].as_str().unwrap();
    let shown = running.admin.get(&format!("/v1/notifications/{id}")).await;
    let time = |name: &str| shown[name].as_str().unwrap().parse::<Timestamp>().unwrap();
    for (name, seconds) in [("notBefore", 5_400), ("expiresAt", 93_600), ("nextAttemptAt", 5_400)] {
        let after = time(name).since(time("createdAt")).as_secs();
        assert!((seconds - 10..=seconds).contains(&after), "{name}: {shown}");
    }
    sent["notBefore"] = json!("0s");
    sent["expiresAt"] = json!("1h");
    running.admin.send_until(&sent, "succeeded").await;
    // A number is seconds, as in every duration.
    (sent["notBefore"], sent["expiresAt"]) = (json!(90), json!(120.5));
    let id = running.admin.send(&sent).await;
    let shown = running.admin.get(&format!("/v1/notifications/{id}")).await;
    let time = |name: &str| shown[name].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert_eq!(time("expiresAt").since(time("notBefore")).as_millis(), 30_500, "{shown}");
    for (start, end, pointer) in [
        (json!("2h"), json!("1h"), "/notBefore"),
        (Value::Null, json!("0s"), "/expiresAt"),
        (json!("-1h"), Value::Null, "/notBefore"),
        (json!("3600"), Value::Null, "/notBefore"),
        (Value::Null, json!("40000d"), "/expiresAt"),
    ] {
        (sent["notBefore"], sent["expiresAt"]) = (start, end);
        let told = running.admin.post("/v1/notifications", &sent).await;
        assert_eq!(told.problem(422, "VALIDATION_FAILED")["pointer"], pointer, "{sent}");
    }
    running.stop().await;
}

async fn the_same_key_and_body_at_another_address_are_no_repeat(on: StoreKind) {
    let running = Running::start(on).await;
    let sent = running.webhook("/ok");
    let bodies = [json!({"notifications": [sent]}).to_string(), sent.to_string()];
    let addresses = ["/v1/notifications/batch", "/v1/notifications"];
    // What is no batch by its form is refused before its key is looked at.
    let (conflict, form) = ((409, "IDEMPOTENCY_CONFLICT"), (422, "VALIDATION_FAILED"));
    for (name, body, [address, other], (status, code)) in
        [("one", &bodies[0], addresses, conflict), ("two", &bodies[1], [addresses[1], addresses[0]], form)]
    {
        let key = [("idempotency-key", name)];
        running.admin.ask(Method::POST, address, &key, body.clone()).await.is(202);
        // No body is in order at both addresses. Were it a repeat, it would get the first answer all the same.
        let refused = running.admin.ask(Method::POST, other, &key, body.clone()).await;
        refused.problem(status, code);
        assert!(!refused.headers.contains_key("idempotency-replayed"));
        let again = running.admin.ask(Method::POST, address, &key, body.clone()).await;
        again.is(202);
        assert!(again.headers.contains_key("idempotency-replayed"));
    }
    assert_eq!(running.admin.all("/v1/notifications").await.len(), 2);
    running.stop().await;
}

async fn twenty_twins_at_once_are_one_notification(on: StoreKind) {
    let running = Running::start(on).await;
    let sent = running.webhook("/ok").to_string();
    for round in 0..5 {
        let key = format!("twin-{round}");
        let mut twins = JoinSet::new();
        for _ in 0..20 {
            let (caller, sent, key) =
                (running.caller(Some(super::running::ADMIN)), sent.clone(), key.clone());
            twins.spawn(async move {
                let told =
                    caller.ask(Method::POST, "/v1/notifications", &[("idempotency-key", &key)], sent).await;
                (told.is(202)["notificationId"].clone(), told.headers.contains_key("idempotency-replayed"))
            });
        }
        let answers = twins.join_all().await;
        assert!(answers.iter().all(|(id, _)| *id == answers[0].0), "{answers:?}");
        assert_eq!(answers.iter().filter(|(_, replayed)| !replayed).count(), 1);
        running.admin.wait(answers[0].0.as_str().unwrap(), "succeeded").await;
    }
    assert_eq!(running.admin.all("/v1/notifications").await.len(), 5);
    assert_eq!(running.sink.received(), 5);
    running.stop().await;
}

async fn what_is_called_off_is_not_sent_and_what_waits_can_be_sent_at_once(on: StoreKind) {
    let running = Running::start(on).await;
    let mut waits = running.webhook("/sequence/503,200");
    waits["policy"] = slow();
    let id = running.admin.send(&waits).await;
    running.admin.wait(&id, "retryScheduled").await;
    let told = running.admin.act(&format!("/v1/notifications/{id}/retry-now")).await.is(202);
    assert_eq!(told, json!({"notificationId": id, "status": "retrying", "attempt": 2}));
    let shown = running.admin.wait(&id, "succeeded").await;
    assert_eq!((&shown["attempt"], &shown["events"][0]["event"]), (&json!(2), &json!("retry-now")));

    let id = running.admin.send_until(&running.webhook("/sequence/503,200"), "succeeded").await;
    assert_eq!(id["maxAttempts"], 3);
    let mut waits = running.webhook("/status/503");
    waits["policy"] = slow();
    let id = running.admin.send(&waits).await;
    running.admin.wait(&id, "retryScheduled").await;
    let told = running.admin.act(&format!("/v1/notifications/{id}/cancel")).await.is(202);
    assert_eq!(told, json!({"notificationId": id, "status": "cancelled", "cancelRequested": true}));
    let shown = running.admin.wait(&id, "cancelled").await;
    assert_eq!((&shown["attempt"], &shown["words"]), (&json!(1), &json!("Cancelled")));
    let arrived = running.sink.received();

    // In flight: the failure ends in cancelled, and no further attempt is made.
    let mut hangs = running.webhook("/status/503?delay=1500ms");
    hangs["policy"] = quick(5);
    let id = running.admin.send(&hangs).await;
    tokio::time::timeout(Duration::from_secs(60), running.sink.wait_for(arrived + 1)).await.unwrap();
    let told = running.admin.act(&format!("/v1/notifications/{id}/cancel")).await.is(202);
    assert_eq!(told["status"], "sending");
    running.admin.wait(&id, "cancelled").await;
    assert_eq!(running.sink.received(), arrived + 1);
    running.stop().await;
}

async fn a_repeat_gets_the_first_answer_even_where_it_would_be_refused_today(on: StoreKind) {
    let running = Running::start(on).await;
    let expires = SystemClock.now().later(Duration::from_secs(2));
    let sent = json!({"channel": "webhook", "to": running.sink.url("/ok"), "body": 1, "expiresAt": expires.to_string()});
    let key = [("idempotency-key", "late")];
    let send = async |headers: &[(&str, &str)], body: &Value| {
        running.admin.ask(Method::POST, "/v1/notifications", headers, body.to_string()).await
    };
    let first = send(&key, &sent).await;
    first.is(202);
    // The clock of the cluster may be a little behind that of this machine.
    while SystemClock.now() <= expires.later(Duration::from_millis(500)) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    send(&[], &sent).await.problem(422, "VALIDATION_FAILED");
    let again = send(&key, &sent).await;
    again.is(202);
    assert_eq!(again.bytes, first.bytes);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    // Neither another key nor another body is let in by that, and a refusal leaves no key behind.
    send(&[("idempotency-key", "other")], &sent).await.problem(422, "VALIDATION_FAILED");
    let mut other = sent.clone();
    other["body"] = json!(2);
    send(&key, &other).await.problem(409, "IDEMPOTENCY_CONFLICT");
    let theirs = running.tenant("theirs").await;
    theirs
        .ask(Method::POST, "/v1/notifications", &key, sent.to_string())
        .await
        .problem(422, "VALIDATION_FAILED");
    other["expiresAt"] = Value::Null;
    send(&[("idempotency-key", "other")], &other).await.is(202);
    running.stop().await;
}

async fn what_was_sent_is_shown_in_the_text_that_it_was_sent_in(on: StoreKind) {
    let running = Running::start(on).await;
    let (body, metadata) = (
        r#"{"price": 1.10, "big": 123456789012345678901234567890, "z": 1, "a": [1e2 , -0.0]}"#,
        r#"{ "ratio":0.10,"id":98765432109876543210 }"#,
    );
    let to = running.sink.url("/status/400");
    let request = format!(r#"{{"channel":"webhook","to":"{to}","body":{body},"metadata":{metadata}}}"#);
    let told = running.admin.ask(Method::POST, "/v1/notifications", &[], request).await.is(202);
    let id = told["notificationId"].as_str().unwrap();
    let dead = running.admin.wait(id, "deadLetter").await["deadLetterId"].as_str().unwrap().to_owned();
    for path in [format!("/v1/notifications/{id}"), format!("/v1/dead-letters/{dead}")] {
        let shown = running.admin.ask(Method::GET, &path, &[], "").await;
        let text = String::from_utf8(shown.bytes.to_vec()).unwrap();
        assert!(text.contains(&format!(r#""body":{body}"#)), "{text}");
        assert!(text.contains(&format!(r#""metadata":{metadata}"#)), "{text}");
    }
    running.stop().await;
}

on_each_store! {
    a_notification_with_every_field_is_delivered_and_shown_with_every_field;
    a_body_arrives_byte_for_byte;
    every_attempt_carries_the_same_id_and_its_own_number;
    a_notification_waits_for_its_time_and_ends_at_its_time;
    every_priority_is_taken_and_shown;
    a_time_may_be_a_duration_from_acceptance;
    the_same_key_and_body_get_the_same_answer_and_another_body_is_a_conflict;
    the_same_key_and_body_at_another_address_are_no_repeat;
    twenty_twins_at_once_are_one_notification;
    what_is_called_off_is_not_sent_and_what_waits_can_be_sent_at_once;
    a_repeat_gets_the_first_answer_even_where_it_would_be_refused_today;
    what_was_sent_is_shown_in_the_text_that_it_was_sent_in;
}
