//! Figures over time: `/v1/stats/series`, `/v1/retry-queue/load` and the last 24 hours of `/v1/stats`.

use http::Method;
use serde_json::{Value, json};

use super::running::{Caller, Running, StoreKind, slow};
use super::wrong_input::{INVALID, is_refused};

/// Asks until the answer fits: figures are counted a moment after what they tell of.
async fn until(caller: &Caller, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let asked = async {
        loop {
            let shown = caller.get(path).await;
            if fits(&shown) {
                return shown;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), asked)
        .await
        .unwrap_or_else(|_| panic!("{path} does not come to fit"))
}

const COUNTS: [&str; 8] =
    ["accepted", "delivered", "firstTry", "retried", "deadLettered", "failed", "expired", "cancelled"];

/// The sum of each count over all points.
fn sums(series: &Value) -> [u64; 8] {
    let points = series["data"].as_array().unwrap();
    COUNTS.map(|name| points.iter().map(|point| point[name].as_u64().unwrap()).sum())
}

/// Two delivered at once, one by its second attempt, one dead, one failed, one cancelled, one expired.
async fn mix(running: &Running, caller: &Caller) {
    for _ in 0..2 {
        caller.send_until(&running.webhook("/ok"), "succeeded").await;
    }
    caller.send_until(&running.webhook("/sequence/503,200"), "succeeded").await;
    caller.send_until(&running.webhook("/status/400"), "deadLetter").await;
    let mut fails = running.webhook("/status/400");
    fails["policy"]["deadLetter"] = json!(false);
    caller.send_until(&fails, "failed").await;
    let mut waits = running.webhook("/ok");
    waits["notBefore"] = json!("2999-01-01T00:00:00Z");
    let id = caller.send(&waits).await;
    caller.act(&format!("/v1/notifications/{id}/cancel")).await.is(202);
    let mut expires = running.webhook("/status/503");
    expires["policy"] = slow();
    expires["ttlSeconds"] = json!(1);
    caller.send_until(&expires, "expired").await;
}

/// What the mix adds up to: the retry of the expired one was scheduled too.
const MIX: [u64; 8] = [7, 3, 2, 2, 1, 1, 1, 1];

async fn a_series_counts_what_happened_for_each_tenant_and_channel(on: StoreKind) {
    let running = Running::start(on).await;
    let (a, b) = (running.tenant("a").await, running.tenant("b").await);
    mix(&running, &a).await;
    b.send_until(&running.webhook("/ok"), "succeeded").await;
    for path in ["/v1/stats/series?since=1h&step=1m", "/v1/stats/series?step=1h", "/v1/stats/series"] {
        let own = until(&a, path, |shown| sums(shown) == MIX).await;
        let step = if path.contains("1m") {
            "1m"
        } else if path.contains("1h") {
            "1h"
        } else {
            "5m"
        };
        assert_eq!(own["step"], step, "{path}");
        let busy = own["data"].as_array().unwrap().iter().find(|point| point["delivered"] != 0).unwrap();
        let times = ["p50Ms", "p95Ms", "p99Ms"].map(|name| busy[name].as_u64().unwrap());
        assert!(times.is_sorted() && times[2] < 60_000, "{path}: {times:?}");
    }
    let of = async |caller: &Caller, query: &str| {
        sums(&caller.get(&format!("/v1/stats/series?step=1h{query}")).await)
    };
    let admin = &running.admin;
    until(&b, "/v1/stats/series", |shown| sums(shown)[1] == 1).await;
    assert_eq!(of(&b, "").await, [1, 1, 1, 0, 0, 0, 0, 0]);
    assert_eq!(of(admin, "").await, [8, 4, 3, 2, 1, 1, 1, 1]);
    assert_eq!(of(admin, "&tenant=a").await, MIX);
    assert_eq!(of(admin, "&tenant=nobody").await, [0; 8]);
    assert_eq!(of(admin, "&channel=webhook").await, of(admin, "").await);
    assert_eq!(of(admin, "&channel=email").await, [0; 8]);
    a.ask(Method::GET, "/v1/stats/series?tenant=b", &[], "").await.problem(403, "FORBIDDEN");
    // They outlive the process.
    let running = running.restart().await;
    let kept = running.admin.get("/v1/stats/series?step=1h").await;
    assert_eq!(sums(&kept), [8, 4, 3, 2, 1, 1, 1, 1]);
    running.stop().await;
}

async fn a_destination_has_figures_by_the_hour(on: StoreKind) {
    let running = Running::start(on).await;
    let (a, b) = (running.tenant("a").await, running.tenant("b").await);
    mix(&running, &a).await;
    b.send_until(&running.webhook("/ok"), "succeeded").await;
    let other = json!({"channel": "webhook", "to": "http://127.0.0.1:9/x", "body": {}, "notBefore": "2999-01-01T00:00:00Z"});
    a.send(&other).await;
    let url = running.webhook("/a,b?c=d")["to"].as_str().unwrap().to_owned();
    let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let path = format!("/v1/stats/series?destination={}", encode(&url));
    let of = async |caller: &Caller, query: &str| sums(&caller.get(&format!("{path}{query}")).await);
    let shown = until(&a, &path, |shown| sums(shown) == MIX).await;
    assert_eq!(shown["step"], "1h");
    assert!((24..=25).contains(&shown["data"].as_array().unwrap().len()));
    let busy = shown["data"].as_array().unwrap().iter().find(|point| point["delivered"] != 0).unwrap();
    assert!(busy["p99Ms"].as_u64().is_some_and(|took| took < 60_000));
    until(&b, &path, |shown| sums(shown)[1] == 1).await;
    let admin = &running.admin;
    assert_eq!(of(admin, "&step=1h").await, [8, 4, 3, 2, 1, 1, 1, 1]);
    assert_eq!(of(admin, "&tenant=a").await, MIX);
    assert_eq!(of(&a, "&channel=webhook").await, MIX);
    assert_eq!(of(&a, "&channel=email").await, [0; 8]);
    assert_eq!(of(&a, "&until=1d&since=2d").await, [0; 8]);
    let unknown = a.get("/v1/stats/series?destination=nowhere").await;
    assert_eq!(sums(&unknown), [0; 8]);
    let other = a.get("/v1/stats/series?destination=http://127.0.0.1:9").await;
    assert_eq!(sums(&other), [1, 0, 0, 0, 0, 0, 0, 0]);
    a.ask(Method::GET, &format!("{path}&tenant=b"), &[], "").await.problem(403, "FORBIDDEN");
    // They outlive the process, which counts its own beside them.
    let running = running.restart().await;
    let a = running.tenant("a").await;
    assert_eq!(sums(&running.admin.get(&path).await), [8, 4, 3, 2, 1, 1, 1, 1]);
    let again = json!({"channel": "webhook", "to": url, "body": {}, "notBefore": "2999-01-01T00:00:00Z"});
    a.send(&again).await;
    until(&running.admin, &path, |shown| sums(shown)[0] == 9).await;
    running.stop().await;
}

async fn the_stats_have_the_figures_of_a_day(on: StoreKind) {
    let running = Running::start(on).await;
    let a = running.tenant("a").await;
    mix(&running, &a).await;
    let shown = until(&a, "/v1/stats", |shown| shown["firstTryRate24h"] == json!(2.0 / 7.0)).await;
    let reasons = json!([{"reasonCode": "PERMANENT_FAILURE", "count": 2}]);
    assert_eq!(shown["topReasons"], reasons);
    assert_eq!(shown["channels"]["webhook"]["topReasons"], reasons);
    assert_eq!(shown["channels"]["webhook"]["firstTryRate24h"], shown["firstTryRate24h"]);
    let times = ["p50", "p95", "p99"].map(|name| shown["timeToDeliverMs"][name].as_u64().unwrap());
    assert!(times.is_sorted(), "{times:?}");
    let other = running.admin.get("/v1/stats?tenant=nobody").await;
    assert_eq!(
        (&other["firstTryRate24h"], &other["timeToDeliverMs"], &other["topReasons"]),
        (&Value::Null, &Value::Null, &json!([]))
    );
    running.stop().await;
}

async fn every_step_of_the_time_is_there_and_only_whole_steps(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let path = "/v1/stats/series?since=2026-01-01T00:00:30Z&until=2026-01-01T01:00:00Z&step=5m";
    let shown = admin.get(path).await;
    let points = shown["data"].as_array().unwrap();
    assert_eq!(points.len(), 12);
    assert_eq!(points[0]["at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(points[11]["at"], "2026-01-01T00:55:00.000Z");
    assert_eq!((&points[0]["accepted"], &points[0]["p50Ms"]), (&json!(0), &Value::Null));
    let day = admin.get("/v1/stats/series?since=2026-01-01&until=2026-01-02&step=1m").await;
    assert_eq!(day["data"].as_array().unwrap().len(), 1_440);
    running.stop().await;
}

async fn wrong_parameters_of_figures_are_named(on: StoreKind) {
    let running = Running::start(on).await;
    for (query, place) in [
        ("stats/series?step=2m", "?step"),
        ("stats/series?step=60", "?step"),
        ("stats/series?since=2026-01-02&until=2026-01-01", "?since"),
        ("stats/series?since=2026-01-01&until=2026-01-01", "?since"),
        ("stats/series?since=soon", "?since"),
        ("stats/series?until=soon", "?until"),
        ("stats/series?since=2d&step=1m", "?step"),
        ("stats/series?since=1000d&step=1h", "?step"),
        ("stats/series?channel=post", "?channel"),
        ("stats/series?tenant=a%20b", "?tenant"),
        ("stats/series?destination=https://a.example,https://b.example", "?destination"),
        ("stats/series?destination=x&step=1m", "?step"),
        ("stats/series?destination=x&step=5m", "?step"),
        ("stats/series?destination=", "?destination"),
        ("retry-queue/load?destination=x", "?destination"),
        ("retry-queue/load?until=2020-01-01T00:00:00Z", "?until"),
        ("retry-queue/load?until=0s", "?until"),
        ("retry-queue/load?until=soon", "?until"),
        ("retry-queue/load?until=30d&step=1m", "?step"),
        ("retry-queue/load?step=1s", "?step"),
        ("retry-queue/load?channel=webhook", "?channel"),
    ] {
        let told = running.admin.ask(Method::GET, &format!("/v1/{query}"), &[], "").await;
        is_refused(&told, (422, INVALID, place), query);
    }
    running.stop().await;
}

async fn the_load_says_when_retries_are_due(on: StoreKind) {
    let running = Running::start(on).await;
    let a = running.tenant("a").await;
    let mut retries = running.webhook("/status/503");
    for delay in ["30m", "30m", "3h"] {
        retries["policy"] = json!({"strategy": "fixed", "initialDelay": delay, "maxAttempts": 3, "jitter": "none", "quick": {"tries": 0}});
        a.send_until(&retries, "retryScheduled").await;
    }
    let load = async |caller: &Caller, query: &str| {
        let shown = caller.get(&format!("/v1/retry-queue/load{query}")).await;
        let points = shown["data"].as_array().unwrap();
        let counts: Vec<u64> = points.iter().map(|point| point["count"].as_u64().unwrap()).collect();
        (points.len(), counts.iter().sum::<u64>(), shown["complete"].as_bool().unwrap())
    };
    assert_eq!(load(&a, "?until=6h&step=1h").await, (7, 3, true));
    let (points, soon, complete) = load(&a, "").await;
    assert!((60..=61).contains(&points) && soon == 2 && complete);
    assert_eq!(load(&running.admin, "?until=6h&step=5m&tenant=a").await.1, 3);
    assert_eq!(load(&running.admin, "?until=6h&step=5m").await.1, 3);
    assert_eq!(load(&running.tenant("b").await, "?until=6h&step=1h").await.1, 0);
    running.stop().await;
}

on_each_store! {
    a_series_counts_what_happened_for_each_tenant_and_channel;
    a_destination_has_figures_by_the_hour;
    the_stats_have_the_figures_of_a_day;
    every_step_of_the_time_is_there_and_only_whole_steps;
    wrong_parameters_of_figures_are_named;
    the_load_says_when_retries_are_due;
}
