//! Inbound limits and the queue limit, as a sender sees them.

use http::Method;
use posthaste::config::{Config, RateAnswer};
use posthaste_core::time::Timestamp;
use serde_json::{Value, json};

use super::running::{Caller, Running, StoreKind, Told};

fn limited(per_tenant: u32, per_module: u32) -> impl FnOnce(&mut Config) {
    move |config| {
        config.rate_limit.per_tenant_per_minute = per_tenant;
        config.rate_limit.per_module_per_minute = per_module;
    }
}

async fn send(caller: &Caller, notification: &Value) -> Told {
    caller.post("/v1/notifications", notification).await
}

async fn keyed(caller: &Caller, path: &str, key: &str, body: &Value) -> Told {
    caller.ask(Method::POST, path, &[("idempotency-key", key)], body.to_string()).await
}

/// The headers about limits, in their order: tenant, module, reset.
fn told_limits(told: &Told) -> Vec<Option<u64>> {
    let names = ["limit-tenant", "remaining-tenant", "limit-module", "remaining-module", "reset"];
    let read = |name| {
        told.headers.get(format!("x-ratelimit-{name}")).map(|value| value.to_str().unwrap().parse().unwrap())
    };
    names.map(read).to_vec()
}

/// How many seconds after its acceptance it is sent.
fn seconds(answer: &Value, since: &Value) -> f64 {
    let read = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
    read(&answer["deferredUntil"]).since(read(since)).as_secs_f64()
}

/// A webhook of a module.
fn of(running: &Running, module: &str) -> Value {
    let mut webhook = running.webhook("/ok");
    webhook["module"] = json!(module);
    webhook
}

async fn over_the_limit_it_is_accepted_and_sent_later(on: StoreKind) {
    let running = Running::with(on, limited(3, 2)).await;
    let first = send(&running.admin, &of(&running, "a")).await;
    let created = first.is(202)["createdAt"].clone();
    assert!(first.json.get("deferredUntil").is_none());
    let reset = told_limits(&first)[4].unwrap();
    assert!((50..=60).contains(&reset), "{reset}");
    assert_eq!(told_limits(&first)[..4], [Some(3), Some(2), Some(2), Some(1)]);
    let plain = send(&running.admin, &running.webhook("/ok")).await;
    assert_eq!(told_limits(&plain)[..4], [Some(3), Some(1), None, None]);
    send(&running.admin, &of(&running, "a")).await.is(202);
    let over = send(&running.admin, &of(&running, "a")).await;
    let answer = over.is(202);
    let after = seconds(&answer, &created);
    assert!((59.9..=61.0).contains(&after), "{after}");
    assert_eq!(told_limits(&over)[..4], [Some(3), Some(0), Some(2), Some(0)]);
    let shown =
        running.admin.get(&format!("/v1/notifications/{}", answer["notificationId"].as_str().unwrap())).await;
    assert_eq!((&shown["state"], &shown["nextAttemptAt"]), (&json!("pending"), &answer["deferredUntil"]));
    let metrics = running.admin.ask(Method::GET, "/metrics", &[], "").await;
    let metrics = String::from_utf8(metrics.bytes.to_vec()).unwrap();
    assert!(metrics.contains("\nposthaste_deferred_total 1\n"), "{metrics}");
    // Another tenant has a limit of its own.
    let other = send(&running.tenant("acme").await, &of(&running, "a")).await;
    assert_eq!(told_limits(&other)[..4], [Some(3), Some(2), Some(2), Some(1)]);
    running.stop().await;
}

async fn the_answer_may_be_a_429_with_the_accepted_id(on: StoreKind) {
    let change = |config: &mut Config| {
        limited(1, 0)(config);
        config.rate_limit.answer = RateAnswer::TooMany;
    };
    let running = Running::with(on, change).await;
    let sent = running.webhook("/ok");
    let created = send(&running.admin, &sent).await.is(202)["createdAt"].clone();
    let over = keyed(&running.admin, "/v1/notifications", "k-1", &sent).await;
    let problem = over.problem(429, "RATE_LIMITED");
    assert!((59.9..=61.0).contains(&seconds(&problem, &created)));
    let wait: u64 = over.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((50..=61).contains(&wait), "{wait}");
    assert_eq!(told_limits(&over)[..2], [Some(1), Some(0)]);
    assert_eq!(problem["requestId"], over.headers["x-request-id"].to_str().unwrap());
    let id = problem["notificationId"].as_str().unwrap();
    assert_eq!(running.admin.get(&format!("/v1/notifications/{id}")).await["state"], "pending");
    // A repeat gets the same, and takes no time.
    let again = keyed(&running.admin, "/v1/notifications", "k-1", &sent).await;
    let repeated = again.problem(429, "RATE_LIMITED");
    assert_eq!(
        (&repeated["notificationId"], &repeated["deferredUntil"]),
        (&problem["notificationId"], &problem["deferredUntil"])
    );
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(told_limits(&again)[..2], [Some(1), Some(0)]);
    let next = send(&running.admin, &sent).await.problem(429, "RATE_LIMITED");
    assert!((119.9..=121.0).contains(&seconds(&next, &created)), "the repeat took no time");
    // Of a batch each says it for itself.
    let batch = json!({"notifications": [sent, {"channel": "webhook"}, sent]});
    let told = running.admin.post("/v1/notifications/batch", &batch).await.is(202);
    let untils: Vec<bool> =
        told["accepted"].as_array().unwrap().iter().map(|one| one["deferredUntil"].is_string()).collect();
    assert_eq!((untils, told["rejected"].as_array().unwrap().len()), (vec![true, true], 1));
    running.stop().await;
}

async fn a_repeat_gets_the_first_answer_and_takes_no_time(on: StoreKind) {
    let running = Running::with(on, limited(2, 0)).await;
    let batch = json!({"notifications": vec![running.webhook("/ok"); 3]});
    let first = keyed(&running.admin, "/v1/notifications/batch", "b-1", &batch).await;
    let until: Vec<Value> = first.is(202)["accepted"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["deferredUntil"].clone())
        .collect();
    assert!(until[0].is_null() && until[1].is_null() && until[2].is_string(), "{until:?}");
    for _ in 0..3 {
        let again = keyed(&running.admin, "/v1/notifications/batch", "b-1", &batch).await;
        assert_eq!(
            (&again.bytes, &again.headers["idempotency-replayed"]),
            (&first.bytes, &"true".parse().unwrap())
        );
    }
    keyed(
        &running.admin,
        "/v1/notifications/batch",
        "b-1",
        &json!({"notifications": [running.webhook("/ok")]}),
    )
    .await
    .problem(409, "IDEMPOTENCY_CONFLICT");
    // After the three of the batch, the next one is the second of the next minute.
    let next = send(&running.admin, &running.webhook("/ok")).await.is(202);
    let since = |until: &Value| seconds(&json!({"deferredUntil": until}), &next["createdAt"]);
    assert!((since(&next["deferredUntil"]) - since(&until[2])).abs() < 5.0, "{next}");
    running.stop().await;
}

async fn critical_needs_no_time_and_takes_none(on: StoreKind) {
    let running = Running::with(on, limited(1, 1)).await;
    let mut critical = of(&running, "a");
    critical["priority"] = json!("critical");
    for _ in 0..3 {
        let told = send(&running.admin, &critical).await;
        let id = told.is(202)["notificationId"].clone();
        assert!(told.json.get("deferredUntil").is_none());
        assert_eq!(told_limits(&told), [Some(1), Some(1), Some(1), Some(1), Some(0)]);
        running.admin.wait(id.as_str().unwrap(), "succeeded").await;
    }
    let told = send(&running.admin, &of(&running, "a")).await;
    assert!(told.is(202).get("deferredUntil").is_none());
    running.stop().await;
}

async fn a_restart_forgets_no_limit(on: StoreKind) {
    let running = Running::with(on, limited(1, 0)).await;
    let created = send(&running.admin, &running.webhook("/ok")).await.is(202)["createdAt"].clone();
    let running = running.restart().await;
    let over = send(&running.admin, &running.webhook("/ok")).await.is(202);
    assert!((59.9..=61.0).contains(&seconds(&over, &created)));
    running.stop().await;
}

async fn a_damaged_row_keeps_nobody_from_sending(on: StoreKind) {
    let running = Running::with(on, limited(1, 0)).await;
    send(&running.admin, &running.webhook("/ok")).await.is(202);
    running.change_store("update inbound set taken = '[1,2'").await;
    assert!(send(&running.admin, &running.webhook("/ok")).await.is(202).get("deferredUntil").is_none());
    assert!(send(&running.admin, &running.webhook("/ok")).await.is(202)["deferredUntil"].is_string());
    running.stop().await;
}

async fn without_limits_no_answer_speaks_of_them(on: StoreKind) {
    let running = Running::start(on).await;
    let told = send(&running.admin, &of(&running, "a")).await;
    told.is(202);
    assert_eq!(told_limits(&told), [None; 5]);
    running.stop().await;
}

async fn a_full_queue_takes_nothing_until_it_has_room(on: StoreKind) {
    let running = Running::with(on, |config| config.queue.limit = 3).await;
    let later = |running: &Running| {
        let mut webhook = running.webhook("/ok");
        webhook["notBefore"] = json!("1h");
        webhook
    };
    let first = keyed(&running.admin, "/v1/notifications", "k-1", &later(&running)).await;
    let id = first.is(202)["notificationId"].as_str().unwrap().to_owned();
    let batch = json!({"notifications": vec![later(&running); 3]});
    let full = running.admin.post("/v1/notifications/batch", &batch).await;
    full.problem(503, "QUEUE_FULL");
    assert_eq!(full.headers["retry-after"], "1");
    assert_eq!(running.admin.all("/v1/notifications").await.len(), 1, "nothing is half accepted");
    for _ in 0..2 {
        send(&running.admin, &later(&running)).await.is(202);
    }
    send(&running.admin, &later(&running)).await.problem(503, "QUEUE_FULL");
    // What was accepted stays accepted.
    let again = keyed(&running.admin, "/v1/notifications", "k-1", &later(&running)).await;
    assert_eq!(
        (again.is(202), &again.headers["idempotency-replayed"]),
        (first.json, &"true".parse().unwrap())
    );
    running.admin.act(&format!("/v1/notifications/{id}/cancel")).await.is(202);
    // What this node refuses it has counted a moment ago at most.
    let room = async {
        while send(&running.admin, &later(&running)).await.status != 202 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), room).await.unwrap();
    let metrics = running.admin.ask(Method::GET, "/metrics", &[], "").await;
    let metrics = String::from_utf8(metrics.bytes.to_vec()).unwrap();
    assert!(metrics.contains("\nposthaste_refused_total{reason=\"queue_full\"} "), "{metrics}");
    running.stop().await;
}

#[tokio::test]
async fn two_nodes_share_a_limit() {
    let running = Running::with(StoreKind::Postgres, limited(20, 0)).await;
    let (server, other) = running.another_node().await;
    let sends = async |caller: &Caller| {
        let mut deferred = 0;
        for _ in 0..15 {
            let told = send(caller, &running.webhook("/ok")).await.is(202);
            deferred += u32::from(told["deferredUntil"].is_string());
        }
        deferred
    };
    let (one, two, three) = tokio::join!(sends(&running.admin), sends(&other), sends(&other));
    assert_eq!(one + two + three, 25);
    server.stop().await.unwrap();
    running.stop().await;
}

on_each_store! {
    over_the_limit_it_is_accepted_and_sent_later;
    the_answer_may_be_a_429_with_the_accepted_id;
    a_repeat_gets_the_first_answer_and_takes_no_time;
    critical_needs_no_time_and_takes_none;
    a_restart_forgets_no_limit;
    a_damaged_row_keeps_nobody_from_sending;
    without_limits_no_answer_speaks_of_them;
    a_full_queue_takes_nothing_until_it_has_room;
}
