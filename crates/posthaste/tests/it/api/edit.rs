//! Edit and retry: a copy with other fields is sent in place of a dead letter.

use http::Method;
use serde_json::{Value, json};

use super::running::{Running, StoreKind, slow};
use super::wrong_input::is_refused;

/// A dead letter with everything that an edit can leave as it is.
async fn full(running: &Running) -> (String, String) {
    let mut sent = running.webhook("/status/400");
    sent["subject"] = json!("the first");
    sent["eventKey"] = json!("order.paid");
    sent["correlationId"] = json!("order-17");
    sent["priority"] = json!("high");
    sent["metadata"] = json!({"n": 1});
    sent["headers"] = json!({"X-Shop": "4", "Authorization": "Bearer secret"});
    let dead = running.admin.send_until(&sent, "deadLetter").await;
    let text = |name: &str| dead[name].as_str().unwrap().to_owned();
    (text("notificationId"), text("deadLetterId"))
}

fn path(letter: &str) -> String {
    format!("/v1/dead-letters/{letter}/edit-and-retry")
}

async fn what_is_left_out_stays_null_removes_and_both_name_each_other(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let (original, letter) = full(&running).await;
    let edit = json!({
        "to": running.sink.url("/ok"), "body": {"order": 18}, "eventKey": null, "metadata": null,
        "headers": {"x-shop": null, "X-New": "1"},
    });
    let told = admin.post(&path(&letter), &edit).await.is(202);
    assert_eq!((&told["editOf"], &told["status"]), (&json!(original), &json!("queued")));
    let copy = told["notificationId"].as_str().unwrap();
    let sent = admin.wait(copy, "succeeded").await;
    assert_eq!((&sent["editOf"], &sent["replacedBy"]), (&json!(original), &Value::Null));
    assert_eq!(sent["body"], json!({"order": 18}));
    assert_eq!(sent["headers"], json!({"Authorization": "Bearer ***", "X-New": "1"}));
    assert_eq!((&sent["eventKey"], &sent["metadata"]), (&Value::Null, &Value::Null));
    assert_eq!((&sent["correlationId"], &sent["priority"]), (&json!("order-17"), &json!("high")));
    assert_eq!((&sent["subject"], &sent["tenant"]), (&json!("the first"), &json!("default")));
    assert_eq!(sent["events"][0]["event"], "edit-and-retry");
    let failed = admin.get(&format!("/v1/notifications/{original}")).await;
    assert_eq!((&failed["state"], &failed["reasonCode"]), (&json!("failed"), &json!("REPLACED")));
    assert_eq!((&failed["replacedBy"], &failed["editOf"]), (&json!(copy), &Value::Null));
    assert_eq!(failed["reason"], format!("replaced by {copy}"));
    assert_eq!(failed["events"][0]["event"], "edit-and-retry");
    let dead = admin.get(&format!("/v1/dead-letters/{letter}")).await;
    assert_eq!((&dead["status"], &dead["replacedBy"]), (&json!("cancelled"), &json!(copy)));
    assert_eq!(dead["resolvedBy"], "admin");
    let row = &admin.get("/v1/audit?action=edit-and-retry").await["data"][0];
    assert_eq!((&row["target"], &row["count"]), (&json!(original), &json!(1)));
    // It can be done once, and not be taken back.
    for act in ["restore", "requeue", "discard", "edit-and-retry"] {
        let path = format!("/v1/dead-letters/{letter}/{act}");
        let problem = admin.post(&path, &json!({})).await.problem(409, "DEAD_LETTER_RESOLVED");
        let wanted = format!("{letter} was edited and retried: {copy} was sent in its place");
        assert_eq!(problem["detail"], wanted, "{act}");
    }
    // Without a change it is a copy.
    let (_, letter) = full(&running).await;
    admin.post(&path(&letter), &json!({})).await.is(202);
    running.stop().await;
}

async fn a_wrong_edit_is_refused_with_its_place_and_changes_nothing(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let (_, letter) = full(&running).await;
    let before = admin.get("/v1/notifications").await["data"].take();
    let wide = json!("x".repeat(200 << 10));
    for (edit, status, code, place) in [
        (json!({"channel": "webhook"}), 422, "VALIDATION_FAILED", "/channel"),
        (json!({"tenant": "default"}), 422, "VALIDATION_FAILED", "/tenant"),
        (json!({"tooo": "x"}), 422, "VALIDATION_FAILED", "/tooo"),
        (json!({"to": null}), 422, "VALIDATION_FAILED", "/to"),
        (json!({"to": 7}), 422, "VALIDATION_FAILED", "/to"),
        (json!({"to": "ftp://example.com"}), 422, "VALIDATION_FAILED", "/to"),
        (json!({"to": "http://10.0.0.1/"}), 422, "DESTINATION_FORBIDDEN", "/to"),
        (json!({"userId": "u1"}), 422, "RECIPIENT_UNKNOWN", "/userId"),
        (json!({"subject": ""}), 422, "VALIDATION_FAILED", "/subject"),
        (json!({"priority": "urgent"}), 422, "VALIDATION_FAILED", "/priority"),
        (json!({"metadata": [1]}), 422, "VALIDATION_FAILED", "/metadata"),
        (json!({"headers": {"host": "x"}}), 422, "VALIDATION_FAILED", "/headers/host"),
        (json!({"headers": {"x": 1}}), 422, "VALIDATION_FAILED", "/headers/x"),
        (json!({"expiresAt": "2020-01-01T00:00:00Z"}), 422, "VALIDATION_FAILED", "/expiresAt"),
        (json!({"expiresAt": "1h", "ttlSeconds": 5}), 422, "VALIDATION_FAILED", "/ttlSeconds"),
        (json!({"notBefore": "2h", "expiresAt": "1h"}), 422, "VALIDATION_FAILED", "/notBefore"),
        (json!({"policy": {"maxAttempts": 0}}), 422, "VALIDATION_FAILED", "/policy/maxAttempts"),
        (json!({"data": {}}), 422, "VALIDATION_FAILED", "/data"),
    ] {
        let told = admin.post(&path(&letter), &edit).await;
        is_refused(&told, (status, code, place), &edit.to_string());
    }
    // What stays and what is given may together be too much.
    let many = |prefix: &str, count: usize| {
        json!((0..count).map(|n| (format!("{prefix}{n:02}"), json!("v"))).collect::<serde_json::Map<_, _>>())
    };
    let mut with_headers = running.webhook("/status/400");
    with_headers["headers"] = many("a", 60);
    let dead = admin.send_until(&with_headers, "deadLetter").await;
    let told =
        admin.post(&path(dead["deadLetterId"].as_str().unwrap()), &json!({"headers": many("b", 5)})).await;
    is_refused(&told, (422, "VALIDATION_FAILED", "/headers/b04"), "65 headers");
    let mut large = running.webhook("/status/400");
    large["html"] = wide.clone();
    let dead = admin.send_until(&large, "deadLetter").await;
    let told = admin.post(&path(dead["deadLetterId"].as_str().unwrap()), &json!({"body": wide})).await;
    is_refused(&told, (413, "PAYLOAD_TOO_LARGE", "-"), "too much");
    admin.post(&path("dl_01m7expr1zfr19010cf0bg13yr"), &json!({})).await.problem(404, "not-found");
    assert_eq!(admin.get(&format!("/v1/dead-letters/{letter}")).await["status"], "pending");
    let after = admin.get("/v1/notifications").await["data"].take();
    assert_eq!(after.as_array().unwrap()[2..], before.as_array().unwrap()[..]);
    running.stop().await;
}

async fn an_expired_one_needs_a_new_expiry(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let mut sent = running.webhook("/status/400");
    sent["ttlSeconds"] = json!(1);
    let dead = admin.send_until(&sent, "deadLetter").await;
    let letter = dead["deadLetterId"].as_str().unwrap();
    let until: posthaste_core::time::Timestamp = dead["expiresAt"].as_str().unwrap().parse().unwrap();
    let edit = json!({"to": running.sink.url("/ok")});
    // The time of a node is that of its store, which may be a little behind.
    while admin.get(&format!("/v1/dead-letters/{letter}")).await["status"] == "pending" {
        let now = posthaste_engine::clock::Clock::now(&posthaste::clock::SystemClock);
        if now > until.later(std::time::Duration::from_millis(200)) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let problem = admin.post(&path(letter), &edit).await.problem(409, "NOTIFICATION_EXPIRED");
    assert!(problem["detail"].as_str().unwrap().contains("expiresAt"), "{problem}");
    let told =
        admin.post(&path(letter), &json!({"to": running.sink.url("/ok"), "expiresAt": "1h"})).await.is(202);
    admin.wait(told["notificationId"].as_str().unwrap(), "succeeded").await;
    running.stop().await;
}

async fn a_repeat_under_a_key_gets_the_first_answer_and_sends_nothing(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let (_, letter) = full(&running).await;
    let edit = json!({"to": running.sink.url("/ok")}).to_string();
    let ask = async |letter: &str, body: &str| {
        admin.ask(Method::POST, &path(letter), &[("idempotency-key", "one")], body.to_owned()).await
    };
    let first = ask(&letter, &edit).await.is(202);
    assert_eq!(ask(&letter, &edit).await.is(202), first);
    admin.wait(first["notificationId"].as_str().unwrap(), "succeeded").await;
    let arrived = running.sink.received();
    assert_eq!(ask(&letter, &edit).await.is(202), first, "also after it was delivered");
    ask(&letter, r#"{"subject": "other"}"#).await.problem(409, "IDEMPOTENCY_CONFLICT");
    let (_, other) = full(&running).await;
    ask(&other, &edit).await.problem(409, "IDEMPOTENCY_CONFLICT");
    assert_eq!(admin.get(&format!("/v1/dead-letters/{other}")).await["status"], "pending");
    assert_eq!(running.sink.received(), arrived + 1, "only the other original was tried");
    running.stop().await;
}

/// Many edits and requeues of one dead letter at once: one of them is done.
async fn of_many_acts_at_once_one_is_done(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let mut sent = running.webhook("/status/400");
    sent["policy"] = slow();
    let dead = admin.send_until(&sent, "deadLetter").await;
    let letter = dead["deadLetterId"].as_str().unwrap();
    let edit = json!({"to": running.sink.url("/ok"), "correlationId": "copy"});
    let ask = async |act: &str| {
        let body = if act == "discard" { json!({}) } else { edit.clone() };
        admin.post(&format!("/v1/dead-letters/{letter}/{act}"), &body).await.status.as_u16()
    };
    let (one, two, three, four, five, six) = tokio::join!(
        ask("edit-and-retry"),
        ask("discard"),
        ask("edit-and-retry"),
        ask("edit-and-retry"),
        ask("discard"),
        ask("edit-and-retry"),
    );
    let told = [one, two, three, four, five, six];
    assert_eq!(told.iter().filter(|status| **status == 202).count(), 1, "{told:?}");
    assert!(told.iter().all(|status| [202, 409].contains(status)), "{told:?}");
    let copies = admin.all("/v1/notifications?q=copy").await.len();
    let replaced = admin.get(&format!("/v1/dead-letters/{letter}")).await["replacedBy"].is_string();
    assert_eq!(copies, usize::from(replaced));
    running.stop().await;
}

on_each_store! {
    what_is_left_out_stays_null_removes_and_both_name_each_other;
    a_wrong_edit_is_refused_with_its_place_and_changes_nothing;
    an_expired_one_needs_a_new_expiry;
    a_repeat_under_a_key_gets_the_first_answer_and_sends_nothing;
    of_many_acts_at_once_one_is_done;
}
