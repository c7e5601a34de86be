//! The examples of S3's page on retries and failed notifications, answered as they are written (but for our id form).

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use super::running::{Running, StoreKind, slow};
use super::tenants::populate;

/// The preset `notify` with its delays made short: five attempts, exponential, +-10 %.
fn notify(attempts: u32) -> Value {
    json!({"preset": "notify", "initialDelay": "20ms", "maximumDelay": "320ms", "maxAttempts": attempts})
}

fn failing(running: &Running, path: &str) -> Value {
    let mut sent = running.webhook(path);
    sent["policy"] = notify(5);
    sent["userId"] = json!("01j9pa5mz700000000000000");
    sent
}

async fn what_failed_is_listed_in_the_shape_of_the_page(on: StoreKind) {
    let running = Running::start(on).await;
    let dead = running.admin.send_until(&failing(&running, "/status/503"), "deadLetter").await;
    assert_eq!(running.sink.received(), 5);
    let listed = running.admin.get("/v1/notifications/failed").await;
    let row = &listed["data"][0];
    let reason = row["reason"].as_str().unwrap();
    assert!(reason.contains("503"), "{reason}");
    let mut wanted = json!({
        "notificationId": dead["notificationId"],
        "channel": "webhook",
        "userId": "01j9pa5mz700000000000000",
        "status": "failed",
        "reason": reason,
        "attempts": 5,
        "failedAt": dead["endedAt"],
    });
    // The page does not have it; it is ours, for programs.
    wanted["reasonCode"] = json!("MAX_ATTEMPTS_EXCEEDED");
    assert_eq!(*row, wanted);
    assert_eq!(
        (&dead["status"], &dead["words"]),
        (&json!("failed"), &json!("Failed (moved to dead letter queue)"))
    );
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    assert_eq!(listed["nextCursor"], Value::Null);
    running.stop().await;
}

async fn what_failed_is_failed_and_dead_letters_and_nothing_else(on: StoreKind) {
    let running = Running::start(on).await;
    let (notifications, _) = populate(&running, &running.admin).await;
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for row in running.admin.all("/v1/notifications?limit=500").await {
        if row["state"] == "failed" || row["state"] == "deadLetter" {
            wanted.insert(row["notificationId"].as_str().unwrap().to_owned());
        }
    }
    assert!(wanted.contains(&notifications["failed"]) && wanted.contains(&notifications["deadLetter"]));
    let rows = running.admin.all("/v1/notifications/failed?limit=2").await;
    let listed = rows.iter().map(|row| row["notificationId"].as_str().unwrap().to_owned());
    assert_eq!(listed.collect::<BTreeSet<_>>(), wanted);
    assert_eq!(rows.len(), wanted.len(), "each is listed once");
    running.stop().await;
}

async fn a_manual_retry_after_five_failures_is_attempt_six_of_ten(on: StoreKind) {
    let running = Running::start(on).await;
    let path = "/sequence/503,503,503,503,503,503,200";
    let dead = running.admin.send_until(&failing(&running, path), "deadLetter").await;
    let id = dead["notificationId"].as_str().unwrap();
    let letter = dead["deadLetterId"].as_str().unwrap();
    assert_eq!((&dead["attempt"], &dead["maxAttempts"]), (&json!(5), &json!(5)));
    let told = running.admin.act(&format!("/v1/notifications/{id}/retry")).await;
    assert_eq!(told.is(202), json!({"notificationId": id, "status": "queued", "attempt": 6}));
    let shown = running.admin.wait(id, "succeeded").await;
    // The sixth failed as well: the budget is a fresh one, and the numbers go on.
    assert_eq!(
        (&shown["attempt"], &shown["maxAttempts"], &shown["generation"]),
        (&json!(7), &json!(10), &json!(2))
    );
    let numbers: Vec<_> =
        shown["attempts"].as_array().unwrap().iter().map(|one| one["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
    let sent: Vec<_> = running.sink.arrivals().iter().map(|one| one.attempt.unwrap()).collect();
    assert_eq!(sent, [1, 2, 3, 4, 5, 6, 7]);
    // Its dead letter was resolved by it.
    let letter = running.admin.get(&format!("/v1/dead-letters/{letter}")).await;
    assert_eq!(
        (&letter["status"], &letter["statusNumber"], &letter["resolvedBy"]),
        (&json!("requeued"), &json!(1), &json!("admin"))
    );
    assert_eq!(running.admin.get("/v1/stats").await["inDeadLetter"], 0);
    assert_eq!(running.admin.get("/v1/notifications/failed").await["data"], json!([]));
    running.stop().await;
}

async fn a_retry_shows_attempt_six_of_ten_while_it_waits(on: StoreKind) {
    let running = Running::start(on).await;
    let dead = running
        .admin
        .send_until(&failing(&running, "/sequence/503,503,503,503,503,hang"), "deadLetter")
        .await;
    let id = dead["notificationId"].as_str().unwrap();
    running.admin.act(&format!("/v1/notifications/{id}/retry")).await.is(202);
    let shown = running.admin.wait(id, "processing").await;
    assert_eq!(
        (&shown["attempt"], &shown["maxAttempts"], &shown["status"]),
        (&json!(6), &json!(10), &json!("sending"))
    );
    // What hangs is called off, so that nobody has to wait for its time to run out.
    running.admin.act(&format!("/v1/notifications/{id}/cancel")).await.is(202);
    drop(running);
}

async fn the_errors_are_those_of_the_page(on: StoreKind) {
    let running = Running::start(on).await;
    let retry = async |id: &str| running.admin.act(&format!("/v1/notifications/{id}/retry")).await;
    let delivered = running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    let told = retry(delivered["notificationId"].as_str().unwrap()).await;
    assert_eq!(told.problem(409, "NOTIFICATION_ALREADY_DELIVERED")["state"], "succeeded");
    let mut waits = running.webhook("/ok");
    waits["notBefore"] = json!("2999-01-01T00:00:00Z");
    let told = retry(&running.admin.send(&waits).await).await;
    assert_eq!(told.problem(409, "NOTIFICATION_NOT_FAILED")["state"], "pending");
    let mut retries = running.webhook("/status/503");
    retries["policy"] = slow();
    let waiting = running.admin.send_until(&retries, "retryScheduled").await;
    retry(waiting["notificationId"].as_str().unwrap()).await.problem(409, "NOTIFICATION_NOT_FAILED");
    // S3's own id is not of our form, and names nothing here.
    retry("01j9panot700000000000000").await.problem(404, "not-found");
    retry("ntf_01j9panot70000000000000000").await.problem(404, "not-found");
    running.stop().await;
}

async fn the_table_of_delays_is_the_preview_of_notify(on: StoreKind) {
    let running = Running::start(on).await;
    let body = json!({"preset": "notify"}).to_string();
    let told = running.admin.ask(Method::POST, "/v1/policies/preview", &[], body).await.is(200);
    let wanted = json!({
        "attempts": [
            {"number": 1, "earliest": "0s", "latest": "0s"},
            {"number": 2, "earliest": "27s", "latest": "33s"},
            {"number": 3, "earliest": "81s", "latest": "99s"},
            {"number": 4, "earliest": "189s", "latest": "231s"},
            {"number": 5, "earliest": "405s", "latest": "495s"},
        ],
        "window": "495s",
    });
    assert_eq!(told, wanted);
    running.stop().await;
}

async fn no_other_channel_is_tried_and_each_send_retries_by_itself(on: StoreKind) {
    let running = Running::start(on).await;
    let (one, other) = (failing(&running, "/status/503"), failing(&running, "/sequence/503,200"));
    let sent = json!({"notifications": [one, other]});
    let told = running.admin.post("/v1/notifications/batch", &sent).await.is(202);
    let id = |at: usize| told["accepted"][at]["notificationId"].as_str().unwrap().to_owned();
    let failed = running.admin.wait(&id(0), "deadLetter").await;
    let arrived = running.admin.wait(&id(1), "succeeded").await;
    assert_eq!((&failed["attempt"], &arrived["attempt"]), (&json!(5), &json!(2)));
    assert_eq!((&failed["channel"], &arrived["channel"]), (&json!("webhook"), &json!("webhook")));
    assert_eq!(running.sink.received(), 7);
    running.stop().await;
}

on_each_store! {
    what_failed_is_listed_in_the_shape_of_the_page;
    what_failed_is_failed_and_dead_letters_and_nothing_else;
    a_manual_retry_after_five_failures_is_attempt_six_of_ten;
    a_retry_shows_attempt_six_of_ten_while_it_waits;
    the_errors_are_those_of_the_page;
    the_table_of_delays_is_the_preview_of_notify;
    no_other_channel_is_tried_and_each_send_retries_by_itself;
}
