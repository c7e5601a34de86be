//! The longest timeout that a message, template or tenant may ask for (`engine.longest_timeout`).

use std::path::Path;
use std::time::Duration;

use http::Method;
use posthaste::config::{Config, StoreUrl};
use serde_json::{Value, json};

use super::running::{Running, StoreKind, slow};
use super::wrong_input::{INVALID, but, is_refused};

on_each_store! {
    a_longer_timeout_is_refused_with_field_and_reason_but_for_all_tenants;
    a_message_with_a_longer_timeout_is_refused_alone_and_in_a_batch;
    under_a_shorter_limit_a_preset_with_a_longer_timeout_needs_one_of_its_own;
}

const LONG: &str = r#"{"timeout": "61s", "maxAttempts": 4}"#;

/// A policy of a minute, which is the limit, or of more.
fn with_timeout(timeout: &str) -> Value {
    but(&slow(), &json!({"timeout": timeout, "maxAttempts": 4}))
}

async fn a_longer_timeout_is_refused_with_field_and_reason_but_for_all_tenants(on: StoreKind) {
    let running = Running::start(on).await;
    let tenant = running.tenant("acme").await;
    let put = async |caller: &super::running::Caller, scope: &str, policy: &str| {
        caller.ask(Method::PUT, &format!("/v1/policies/{scope}"), &[], policy.to_owned()).await
    };
    for (caller, scope) in
        [(&tenant, "tenant:acme"), (&running.admin, "tenant:acme"), (&running.admin, "template:welcome")]
    {
        let told = put(caller, scope, LONG).await;
        is_refused(&told, (422, INVALID, "/timeout"), scope);
        let detail = told.json["detail"].as_str().unwrap();
        assert!(detail.starts_with("timeout: must be at most 1m, not 61s; "), "{detail}");
        put(caller, scope, r#"{"timeout": "60s"}"#).await.is(200);
    }
    for scope in ["global", "channel:webhook"] {
        put(&running.admin, scope, r#"{"timeout": "10m"}"#).await.is(200);
        let told = put(&running.admin, scope, r#"{"timeout": "601s"}"#).await;
        is_refused(&told, (422, INVALID, "/timeout"), scope);
    }
    running.stop().await;
}

async fn a_message_with_a_longer_timeout_is_refused_alone_and_in_a_batch(on: StoreKind) {
    let running = Running::start(on).await;
    let tenant = running.tenant("acme").await;
    let [good, long] =
        ["60s", "61s"].map(|timeout| but(&running.webhook("/ok"), &json!({"policy": with_timeout(timeout)})));
    for caller in [&tenant, &running.admin] {
        is_refused(&caller.post("/v1/notifications", &long).await, (422, INVALID, "/policy/timeout"), "one");
        let batch = json!({"notifications": [good, long, good]});
        let told = caller.post("/v1/notifications/batch", &batch).await.is(202);
        let accepted: Vec<&Value> =
            told["accepted"].as_array().unwrap().iter().map(|one| &one["index"]).collect();
        assert_eq!(accepted, [0, 2]);
        let rejected = &told["rejected"][0];
        assert_eq!((&rejected["index"], &rejected["problem"]["code"]), (&json!(1), &json!(INVALID)));
        assert_eq!(rejected["problem"]["pointer"], "/notifications/1/policy/timeout");
    }
    // What a policy would do can be asked for every scope that the caller could put it at.
    for path in ["/v1/policies/preview", "/v1/policies/preview?channel=webhook"] {
        running.admin.post(path, &with_timeout("10m")).await.is(200);
        tenant.post(path, &with_timeout("60s")).await.is(200);
        is_refused(&tenant.post(path, &with_timeout("61s")).await, (422, INVALID, "/timeout"), path);
    }
    running.stop().await;
}

async fn under_a_shorter_limit_a_preset_with_a_longer_timeout_needs_one_of_its_own(on: StoreKind) {
    let running = Running::with(on, |config| limit(config, 20)).await;
    let tenant = running.tenant("acme").await;
    let put = async |policy: Value| {
        tenant.ask(Method::PUT, "/v1/policies/tenant:acme", &[], policy.to_string()).await
    };
    is_refused(&put(json!({"preset": "zgw"})).await, (422, INVALID, "/preset"), "zgw");
    put(json!({"preset": "zgw", "timeout": "20s"})).await.is(200);
    put(json!({"preset": "notify"})).await.is(200);
    running.stop().await;
}

fn limit(config: &mut Config, seconds: u64) {
    config.engine.longest_timeout = Duration::from_secs(seconds);
    config.policies = config.policies.clone().with_longest_timeout(config.engine.longest_timeout);
}

/// One on the store of this directory.
async fn on(directory: &Path, seconds: u64) -> Running {
    let store = directory.join("kept.db");
    Running::with(StoreKind::Sqlite, |config| {
        limit(config, seconds);
        config.store.url = StoreUrl::Sqlite(store);
    })
    .await
}

#[tokio::test]
async fn what_was_kept_under_a_longer_limit_counts_as_the_limit_and_keeps_its_other_fields() {
    let directory = tempfile::tempdir().unwrap();
    let before = on(directory.path(), 600).await;
    let long = with_timeout("10m");
    before.admin.ask(Method::PUT, "/v1/policies/tenant:default", &[], long.to_string()).await.is(200);
    let message = but(&before.webhook("/status/503"), &json!({"policy": long})).to_string();
    let key = [("idempotency-key", "kept")];
    let sent = before.admin.ask(Method::POST, "/v1/notifications", &key, message.clone()).await.is(202);
    let id = sent["notificationId"].as_str().unwrap().to_owned();
    before.admin.wait(&id, "retryScheduled").await;
    before.stop().await;

    let after = on(directory.path(), 60).await;
    let shown = after.admin.get("/v1/policies/tenant:default").await;
    assert_eq!((&shown["policy"]["timeout"], &shown["effective"]["timeout"]), (&json!("1m"), &json!("1m")));
    assert_eq!(
        (&shown["policy"]["maxAttempts"], &shown["effective"]["initialDelay"]),
        (&json!(4), &json!("1h"))
    );
    let kept = after.admin.get(&format!("/v1/notifications/{id}")).await;
    assert_eq!((&kept["maxAttempts"], &kept["state"]), (&json!(4), &json!("retryScheduled")));
    // What was taken once stays taken, and what is shown can be put back.
    let again = after.admin.ask(Method::POST, "/v1/notifications", &key, message).await.is(202);
    assert_eq!(again["notificationId"], id.as_str());
    let back = shown["policy"].to_string();
    after.admin.ask(Method::PUT, "/v1/policies/tenant:default", &[], back).await.is(200);
    after.stop().await;
}
