//! `POST /v1/policies/simulate`: what an outage would do, by the policies of the caller.

use http::Method;
use serde_json::{Value, json};

use super::running::{Caller, Running, StoreKind};
use super::wrong_input::{INVALID, is_refused};

async fn simulate(caller: &Caller, query: &str, asked: &Value) -> Value {
    caller.post(&format!("/v1/policies/simulate{query}"), asked).await.is(200)
}

fn number(told: &Value, name: &str) -> u64 {
    told[name].as_u64().unwrap_or_else(|| panic!("{name} of {told}"))
}

fn outage() -> Value {
    // The breaker of servers in tests stays shut.
    json!({"rate": 20, "script": "ok for 10m, 503 for 20m, ok for 30m", "breaker": {"failureThreshold": 10}})
}

async fn an_outage_is_told_from_its_beginning_to_the_last_delivery(on: StoreKind) {
    let running = Running::start(on).await;
    let told = simulate(&running.admin, "", &outage()).await;
    assert_eq!((number(&told, "arrived"), number(&told, "standsFor")), (72_000, 1));
    let ends = ["delivered", "dead", "failed", "expired", "waiting"];
    assert_eq!(ends.iter().map(|name| number(&told, name)).sum::<u64>(), 72_000, "{told}");
    assert_eq!((number(&told, "dead"), &told["outageEndedAt"]), (0, &json!("30m")));
    assert!(number(&told["breaker"], "opened") >= 5, "{told}");
    assert!(number(&told["mostParked"], "count") > 20_000, "{told}");
    assert!(told["drainedAfter"].is_string() && told["settledAfter"].is_string(), "{told}");
    let load = told["load"].as_array().unwrap();
    assert!((100..=240).contains(&load.len()));
    assert_eq!(load.iter().map(|step| number(step, "arrivals")).sum::<u64>(), 72_000);
    assert_eq!(simulate(&running.admin, "", &outage()).await, told, "the same seed");
    let mut other = outage();
    other["seed"] = json!(2);
    assert_ne!(simulate(&running.admin, "", &other).await, told);
    // A day at 100 a second is more than a server simulates one by one.
    let long = simulate(&running.admin, "", &json!({"rate": 100, "script": "ok for 24h"})).await;
    assert_eq!(number(&long, "standsFor"), 44, "{}", long["arrived"]);
    running.stop().await;
}

async fn the_policy_is_that_of_the_scope_or_the_one_that_is_given(on: StoreKind) {
    let running = Running::start(on).await;
    let acme = running.tenant("acme").await;
    let put =
        json!({"maxAttempts": 2, "strategy": "fixed", "initialDelay": "1s", "jitter": "none"}).to_string();
    running.admin.ask(Method::PUT, "/v1/policies/tenant:acme", &[], put).await.is(200);
    // 600 fail, and 3,600 follow in the hour after.
    let mut asked = json!({"rate": 1, "script": "404 for 10m"});
    let attempts = async |caller: &Caller, query: &str, asked: &Value| {
        let told = simulate(caller, query, asked).await;
        number(&told, "attempts")
    };
    assert_eq!(attempts(&running.admin, "?scope=tenant:acme", &asked).await, 4_800);
    assert_eq!(attempts(&acme, "?channel=webhook", &asked).await, 4_800);
    asked["policy"] = json!({"maxAttempts": 3});
    let three = attempts(&running.admin, "?scope=tenant:acme", &asked).await;
    assert!((4_900..=5_400).contains(&three), "{three}");
    // Without a place only the policy itself counts.
    asked["policy"] = json!({"maxAttempts": 1});
    assert_eq!(attempts(&acme, "", &asked).await, 4_200);
    running.stop().await;
}

async fn nonsense_is_refused_with_its_place(on: StoreKind) {
    let running = Running::start(on).await;
    for (change, pointer) in [
        (json!({"rate": 0}), "/rate"),
        (json!({"rate": "x"}), "/rate"),
        (json!({"rate": null}), "/rate"),
        (json!({"script": "503 for ever"}), "/script"),
        (json!({"script": ""}), "/script"),
        (json!({"script": "<script>alert(1)</script>"}), "/script"),
        (json!({"script": "ok, ".repeat(5_000)}), "/script"),
        (json!({"duration": "367d"}), "/duration"),
        (json!({"policy": {"maxAttempts": 0}}), "/policy/maxAttempts"),
        (json!({"breaker": {"failureThreshold": 0}}), "/breaker/failureThreshold"),
        (json!({"breaker": {"forgetAfter": "1s"}}), "/breaker/forgetAfter"),
        (json!({"limits": {"concurrency": 0}}), "/limits/concurrency"),
        (json!({"speed": 1}), "/speed"),
    ] {
        let mut asked = outage();
        asked.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let answer = running.admin.post("/v1/policies/simulate", &asked).await;
        is_refused(&answer, (422, INVALID, pointer), &change.to_string());
    }
    let acme = running.tenant("acme").await;
    let mut slow = outage();
    slow["policy"] = json!({"timeout": "5m"});
    is_refused(
        &acme.post("/v1/policies/simulate", &slow).await,
        (422, INVALID, "/policy/timeout"),
        "a long timeout",
    );
    let wrong = acme.post("/v1/policies/simulate?scope=tenant:other", &outage()).await;
    is_refused(&wrong, (422, INVALID, "?scope"), "another tenant");
    let mistake = running
        .admin
        .post("/v1/policies/simulate", &json!({"rate": 1, "script": "ok for 1m, 50x for 1m"}))
        .await;
    let detail = mistake.is(422)["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with("script: column 12: `50x` is no answer"), "{detail}");
    running.stop().await;
}

/// The heaviest that can be asked for, several at once: the server still answers others meanwhile.
async fn heavy_simulations_keep_nobody_waiting(on: StoreKind) {
    let running = Running::start(on).await;
    let heavy = json!({
        "rate": 1_000_000, "script": "404 for 366d", "duration": "366d",
        "policy": {"strategy": "immediate", "maxAttempts": 1000, "jitter": "none"},
    });
    let began = tokio::time::Instant::now();
    let all = futures_of(&running.admin, &heavy);
    let (told, ()) = tokio::join!(all, async {
        let began = tokio::time::Instant::now();
        running.admin.get("/v1/stats").await;
        assert!(began.elapsed().as_secs() < 5);
    });
    for one in told {
        assert!(number(&one, "standsFor") > 100_000_000, "{}", one["standsFor"]);
    }
    assert!(began.elapsed().as_secs() < 100, "{:?}", began.elapsed());
    running.stop().await;
}

async fn futures_of(caller: &Caller, asked: &Value) -> [Value; 2] {
    let (one, two) = tokio::join!(simulate(caller, "", asked), simulate(caller, "", asked));
    [one, two]
}

on_each_store! {
    an_outage_is_told_from_its_beginning_to_the_last_delivery;
    the_policy_is_that_of_the_scope_or_the_one_that_is_given;
    nonsense_is_refused_with_its_place;
    heavy_simulations_keep_nobody_waiting;
}
