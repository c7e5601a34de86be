//! Batches: each notification is accepted or rejected by itself.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::running::{Running, StoreKind};
use super::sends::from_now;

async fn a_batch_takes_what_is_good_and_says_what_is_bad_with_what(on: StoreKind) {
    let running = Running::start(on).await;
    let good = running.webhook("/ok");
    let mut misspelt = good.clone();
    misspelt["chanel"] = json!("webhook");
    let mut inside = good.clone();
    inside["to"] = json!("http://10.0.0.1/");
    let mut large = good.clone();
    large["body"] = json!("x".repeat(257 * 1024));
    let items = json!([good, misspelt, good, 7, inside, large, null]);
    let answer =
        running.admin.post("/v1/notifications/batch", &json!({"notifications": items})).await.is(202);
    let accepted = answer["accepted"].as_array().unwrap();
    assert_eq!(accepted.iter().map(|one| one["index"].clone()).collect::<Vec<_>>(), [json!(0), json!(2)]);
    let rejected: Vec<_> = answer["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let problem = &one["problem"];
            let text = |name: &str| problem[name].as_str().unwrap_or("").to_owned();
            (
                one["index"].as_u64().unwrap(),
                problem["status"].as_u64().unwrap(),
                text("code"),
                text("pointer"),
            )
        })
        .collect();
    let wanted = [
        (1, 422, "VALIDATION_FAILED", "/notifications/1/chanel"),
        (3, 422, "VALIDATION_FAILED", "/notifications/3"),
        (4, 422, "DESTINATION_FORBIDDEN", "/notifications/4/to"),
        (5, 413, "PAYLOAD_TOO_LARGE", "/notifications/5"),
        (6, 422, "VALIDATION_FAILED", "/notifications/6"),
    ];
    assert_eq!(
        rejected,
        wanted.map(|(at, status, code, place)| (at, status, code.to_owned(), place.to_owned()))
    );
    for one in accepted {
        running.admin.wait(one["notificationId"].as_str().unwrap(), "succeeded").await;
    }
    assert_eq!(running.sink.received(), 2);
    let full = json!({"notifications": vec![good; 500]});
    let answer = running.admin.post("/v1/notifications/batch", &full).await.is(202);
    assert_eq!(answer["accepted"].as_array().unwrap().len(), 500);
    tokio::time::timeout(Duration::from_secs(60), running.sink.wait_for(502)).await.unwrap();
    assert_eq!(running.admin.all("/v1/notifications?limit=500").await.len(), 502);
    running.stop().await;
}

async fn a_batch_of_which_nothing_is_accepted_is_refused_with_why_and_uses_up_no_key(on: StoreKind) {
    let running = Running::start(on).await;
    let good = running.webhook("/ok");
    let mut misspelt = good.clone();
    misspelt["chanel"] = json!("webhook");
    let mut inside = good.clone();
    inside["to"] = json!("http://10.0.0.1/");
    let ask = async |key: &str, items: Value| {
        let body = json!({"notifications": items}).to_string();
        running.admin.ask(Method::POST, "/v1/notifications/batch", &[("idempotency-key", key)], body).await
    };
    for _ in 0..2 {
        let none = ask("b-1", json!([misspelt, inside])).await.problem(422, "VALIDATION_FAILED");
        assert_eq!(none["detail"], "none of the 2 notifications was accepted; `rejected` says why");
        let why = |index: usize| {
            let one = &none["rejected"][index];
            (one["index"].clone(), one["problem"]["code"].clone(), one["problem"]["pointer"].clone())
        };
        assert_eq!(why(0), (json!(0), json!("VALIDATION_FAILED"), json!("/notifications/0/chanel")));
        assert_eq!(why(1), (json!(1), json!("DESTINATION_FORBIDDEN"), json!("/notifications/1/to")));
        assert_eq!(none["rejected"].as_array().unwrap().len(), 2);
    }
    // The key serves for the batch without mistakes, and from then on for no other.
    ask("b-1", json!([good])).await.is(202);
    ask("b-1", json!([good, good])).await.problem(409, "IDEMPOTENCY_CONFLICT");
    // What was accepted once stays accepted, although nothing of it would be today.
    let mut short = good.clone();
    short["expiresAt"] = json!(from_now(2));
    let first = ask("b-2", json!([short])).await;
    let id = first.is(202)["accepted"][0]["notificationId"].as_str().unwrap().to_owned();
    running.admin.wait(&id, "succeeded").await;
    let expired = async {
        while running.admin.post("/v1/notifications", &short).await.status == 202 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), expired).await.unwrap();
    let again = ask("b-2", json!([short])).await;
    assert_eq!(again.is(202), first.json);
    assert!(again.headers.contains_key("idempotency-replayed"));
    running.stop().await;
}

on_each_store! {
    a_batch_takes_what_is_good_and_says_what_is_bad_with_what;
    a_batch_of_which_nothing_is_accepted_is_refused_with_why_and_uses_up_no_key;
}
