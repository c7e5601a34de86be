//! Policies with nonsense, and scopes that cannot be.

use http::Method;
use serde_json::{Value, json};

use super::running::StoreKind;
use super::wrong_input::{INVALID, Trial, but};

/// Policies that are refused, with the field.
const BAD_POLICIES: &[(&str, &str)] = &[
    (r#"{"maxAttempt": 5}"#, "/maxAttempt"),
    (r#"{"maxAttempts": 0}"#, "/maxAttempts"),
    (r#"{"maxAttempts": -1}"#, "/maxAttempts"),
    (r#"{"maxAttempts": 1001}"#, "/maxAttempts"),
    (r#"{"maxAttempts": 1.5}"#, "/maxAttempts"),
    (r#"{"maxAttempts": "5"}"#, "/maxAttempts"),
    (r#"{"maxAttempts": 5, "maxRetries": 4}"#, "/maxRetries"),
    (r#"{"maxRetries": 4294967295}"#, "/maxAttempts"),
    (r#"{"preset": "zwg"}"#, "/preset"),
    (r#"{"strategy": "random"}"#, "/strategy"),
    (r#"{"strategy": 2}"#, "/strategy"),
    (r#"{"strategy": "schedule"}"#, "/schedule"),
    (r#"{"initialDelay": "-1s"}"#, "/initialDelay"),
    (r#"{"initialDelay": -1}"#, "/initialDelay"),
    (r#"{"initialDelay": 1e300}"#, "/initialDelay"),
    (r#"{"initialDelay": "soon"}"#, "/initialDelay"),
    (r#"{"initialDelay": "99999999999999999999d"}"#, "/initialDelay"),
    (r#"{"maximumDelay": []}"#, "/maximumDelay"),
    (r#"{"multiplier": 0.5}"#, "/multiplier"),
    (r#"{"multiplier": -2}"#, "/multiplier"),
    (r#"{"multiplier": "2"}"#, "/multiplier"),
    (r#"{"schedule": []}"#, "/schedule"),
    (r#"{"schedule": "1m"}"#, "/schedule"),
    (r#"{"schedule": ["1m", "x"]}"#, "/schedule/1"),
    (r#"{"schedule": ["1m", "-5m"]}"#, "/schedule/1"),
    (r#"{"jitter": "some"}"#, "/jitter"),
    (r#"{"jitter": {"percent": 101}}"#, "/jitter/percent"),
    (r#"{"jitter": {"percent": -1}}"#, "/jitter/percent"),
    (r#"{"jitter": {"plus": "-1s"}}"#, "/jitter/plus"),
    (r#"{"timeout": "0s"}"#, "/timeout"),
    (r#"{"timeout": "11m"}"#, "/timeout"),
    (r#"{"maxAge": 0}"#, "/maxAge"),
    (r#"{"deadLetter": "yes"}"#, "/deadLetter"),
    (r#"{"quick": 4}"#, "/quick"),
    (r#"{"quick": {"tires": 1}}"#, "/quick/tires"),
    (r#"{"quick": {"tries": -1}}"#, "/quick/tries"),
    (r#"{"quick": {"tries": 21}}"#, "/quick/tries"),
    (r#"{"quick": {"tries": 10, "delay": "5s"}}"#, "/quick"),
    (r#"{"quick": {"backoff": "slow"}}"#, "/quick/backoff"),
    (r#"{"quick": {"when": "never"}}"#, "/quick/when"),
    (r#"{"quick": {"limit": "2m"}}"#, "/quick/limit"),
    (r#"{"quick": {"statusCodes": [404, "x"]}}"#, "/quick/statusCodes/1"),
    (r#"{"quick": {"statusCodes": [70000]}}"#, "/quick/statusCodes/0"),
    (r#"{"retryOn": {"boredom": true}}"#, "/retryOn/boredom"),
    (r#"{"retryOn": {"timeout": "yes"}}"#, "/retryOn/timeout"),
    (r#"{"retryOn": []}"#, "/retryOn"),
    (r#"{"a/b": 1}"#, "/a~1b"),
    (r#"[]"#, ""),
    (r#""notify""#, ""),
];

async fn a_policy_with_nonsense_is_refused_wherever_it_is_given(on: StoreKind) {
    let trial = Trial::start(on).await;
    let good = trial.running.webhook("/ok");
    let (post, put) = (Method::POST, Method::PUT);
    for (policy, field) in BAD_POLICIES {
        trial.refused(post.clone(), "/v1/policies/preview", &[], *policy, (422, INVALID, field)).await;
        for scope in ["global", "channel:webhook", "tenant:acme", "template:welcome"] {
            trial
                .refused(put.clone(), &format!("/v1/policies/{scope}"), &[], *policy, (422, INVALID, field))
                .await;
        }
        let sent = but(&good, &json!({"policy": serde_json::from_str::<Value>(policy).unwrap()}));
        trial.send_refused(&sent, (422, INVALID, &format!("/policy{field}"))).await;
    }
    for (policy, field) in
        [(r#"{"maxAttempts": 6}"#, "/maxAttempts"), (r#"{"preset": "webhook"}"#, "/preset")]
    {
        trial.refused(put.clone(), "/v1/policies/template:x", &[], policy, (422, INVALID, field)).await;
    }
    for (body, code) in [("", 400), ("{", 400), ("{\"maxAttempts\":1,\"maxAttempts\":2}", 422), ("null", 422)]
    {
        let kind = if code == 400 { ("BAD_JSON", "-") } else { (INVALID, "") };
        trial.refused(put.clone(), "/v1/policies/global", &[], body, (code, kind.0, kind.1)).await;
    }
    let scopes = [
        "x",
        "Global",
        "channel:",
        "channel:fax",
        "tenant:",
        "tenant:a%20b",
        "tenant:M%C3%BCnchen",
        "tenant:%FF",
        "user:x",
        "template:",
        "template:a%0Ab",
        "template:acme%2F",
        "template:*%2F",
        "template:a%20b%2Fx",
    ];
    for scope in scopes.iter().map(|scope| (*scope).to_owned()).chain([format!("tenant:{}", "x".repeat(65))])
    {
        let path = format!("/v1/policies/{scope}");
        trial.refused(put.clone(), &path, &[], "{}", (404, "not-found", "-")).await;
        trial.refused(Method::GET, &path, &[], "", (404, "not-found", "-")).await;
        trial.refused(Method::DELETE, &path, &[], "", (404, "not-found", "-")).await;
    }
    trial.stop().await;
}

on_each_store! {
    a_policy_with_nonsense_is_refused_wherever_it_is_given;
}
