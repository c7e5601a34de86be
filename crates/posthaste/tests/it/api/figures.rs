//! Figures: the counters of `/v1/stats`, and `/metrics` as Prometheus reads it.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Value, json};

use super::running::{ADMIN, Running, StoreKind, slow};
use super::wrong_input::counters;

const PAGE: &str = include_str!("../../../../../docs/metrics.md");

/// Three delivered, one dead, one failed for good, two to be retried, one that waits.
async fn mix(running: &Running) {
    let admin = &running.admin;
    for _ in 0..3 {
        admin.send_until(&running.webhook("/ok"), "succeeded").await;
    }
    admin.send_until(&running.webhook("/status/503"), "deadLetter").await;
    let mut fails = running.webhook("/status/400");
    fails["policy"]["deadLetter"] = json!(false);
    admin.send_until(&fails, "failed").await;
    let mut retries = running.webhook("/status/503");
    retries["policy"] = slow();
    for _ in 0..2 {
        admin.send_until(&retries, "retryScheduled").await;
    }
    let mut waits = running.webhook("/ok");
    waits["notBefore"] = json!("2999-01-01T00:00:00Z");
    admin.send(&waits).await;
}

async fn the_stats_count_what_there_is(on: StoreKind) {
    let running = Running::start(on).await;
    let nothing = json!({
        "queued": 0, "sending": 0, "inRetry": 0, "inDeadLetter": 0, "successRate24h": null, "oldestDueSeconds": null, "channels": {},
    });
    let get = async |path: &str| counters(running.admin.get(path).await);
    assert_eq!(get("/v1/stats").await, nothing);
    mix(&running).await;
    let counted = json!({"queued": 1, "sending": 0, "inRetry": 2, "inDeadLetter": 1, "successRate24h": 0.6});
    let mut wanted = counted.clone();
    wanted["oldestDueSeconds"] = Value::Null;
    wanted["channels"] = json!({"webhook": counted});
    assert_eq!(get("/v1/stats").await, wanted);
    assert_eq!(get("/v1/stats?tenant=default").await, wanted);
    assert_eq!(get("/v1/stats?tenant=other").await, nothing);
    // Giving a dead letter up takes it out of the count; it has failed as before.
    let dead = running.admin.get("/v1/dead-letters").await["data"][0].clone();
    running.admin.act(&format!("/v1/dead-letters/{}/discard", dead["id"].as_str().unwrap())).await.is(202);
    let shown = running.admin.get("/v1/stats").await;
    assert_eq!((&shown["inDeadLetter"], &shown["successRate24h"]), (&json!(0), &json!(0.6)));
    running.stop().await;
}

/// A page of figures: the families with their type, and every sample.
struct Figures {
    families: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

/// Reads the text format of Prometheus, strictly.
fn read(page: &str) -> Figures {
    let (mut families, mut samples) = (BTreeMap::new(), BTreeMap::new());
    let mut helped = BTreeSet::new();
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(words.ends_with('.') && helped.insert(name.to_owned()), "{line}");
        } else if let Some(said) = line.strip_prefix("# TYPE ") {
            let (name, kind) = said.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind) && helped.contains(name), "{line}");
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "{line} again");
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            let name = sample.split('{').next().unwrap();
            let is_name = |name: &str| {
                !name.is_empty()
                    && name
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            };
            assert!(is_name(name), "{line}");
            for label in
                sample[name.len()..].trim_matches(['{', '}']).split("\",").filter(|label| !label.is_empty())
            {
                let (label, text) = label.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
                assert!(is_name(label) && !text.trim_end_matches('"').contains(['"', '\\', '\n']), "{line}");
            }
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end).filter(|name| families.contains_key(*name)));
            assert!(families.contains_key(family.unwrap_or(name)), "{line} has no type");
            assert!(samples.insert(sample.to_owned(), value.parse().unwrap()).is_none(), "{line} again");
        }
    }
    Figures { families, samples }
}

async fn the_metrics_are_prometheus_text_and_each_is_on_the_page(on: StoreKind) {
    let running = Running::with(on, |config| config.engine.name = Some("first".to_owned())).await;
    mix(&running).await;
    running.admin.ask(Method::GET, "/nowhere", &[], "").await.problem(404, "not-found");
    let told = running.caller(None).ask(Method::GET, "/metrics", &[], "").await;
    assert_eq!(told.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let figures = read(std::str::from_utf8(&told.bytes).unwrap());
    let described: BTreeMap<&str, &str> = PAGE
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split('|');
            let name = cells.next()?.trim().trim_end_matches('`');
            ["posthaste_", "process_"]
                .iter()
                .any(|start| name.starts_with(start))
                .then_some((name, cells.next()?.trim()))
        })
        .collect();
    let real: BTreeMap<&str, &str> =
        figures.families.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect();
    assert_eq!(described, real, "docs/metrics.md against /metrics");
    for (sample, wanted) in [
        (r#"posthaste_accepted_total"#, 8.0),
        (r#"posthaste_attempts_total{outcome="delivered"}"#, 3.0),
        (r#"posthaste_attempts_total{outcome="temporary"}"#, 5.0),
        (r#"posthaste_attempts_total{outcome="permanent"}"#, 1.0),
        (r#"posthaste_ended_total{state="succeeded"}"#, 3.0),
        (r#"posthaste_ended_total{state="deadLetter"}"#, 1.0),
        (r#"posthaste_retries_scheduled_total"#, 4.0),
        (r#"posthaste_in_retry{channel="webhook"}"#, 2.0),
        (r#"posthaste_in_dead_letter{channel="webhook"}"#, 1.0),
        (r#"posthaste_queued{channel="webhook"}"#, 1.0),
        (r#"posthaste_node_alive{node="1",name="first"}"#, 1.0),
        (r#"posthaste_node_held{node="1",name="first"}"#, 0.0),
        (r#"posthaste_recording"#, 1.0),
        (r#"posthaste_oldest_due_seconds"#, 0.0),
        (r#"posthaste_accept_seconds_count"#, 8.0),
        (r#"posthaste_lateness_seconds_count{lane="main"}"#, 7.0),
        (r#"posthaste_lateness_seconds_count{lane="retry"}"#, 2.0),
        (r#"posthaste_send_seconds_count{channel="webhook",outcome="delivered"}"#, 3.0),
        (r#"posthaste_send_seconds_count{channel="webhook",outcome="temporary"}"#, 5.0),
        (r#"posthaste_send_seconds_count{channel="webhook",outcome="permanent"}"#, 1.0),
        (r#"posthaste_http_requests_total{method="POST",route="/v1/notifications",status="2xx"}"#, 8.0),
        (r#"posthaste_http_requests_total{method="any",route="none",status="4xx"}"#, 1.0),
    ] {
        assert_eq!(figures.samples.get(sample), Some(&wanted), "{sample}");
    }
    histograms_are_whole(&figures);
    running.stop().await;
}

/// Buckets grow, and the last of them holds everything.
fn histograms_are_whole(figures: &Figures) {
    for (name, lane) in [
        ("accept", ""),
        ("lateness", "lane=\"main\","),
        ("lateness", "lane=\"retry\","),
        ("send", "channel=\"webhook\",outcome=\"delivered\","),
    ] {
        let start = format!("posthaste_{name}_seconds_bucket{{{lane}le=\"");
        let mut buckets: Vec<(f64, f64)> = figures
            .samples
            .iter()
            .filter_map(|(sample, count)| {
                let bound = sample.strip_prefix(&start)?.strip_suffix("\"}")?;
                Some((if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() }, *count))
            })
            .collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(
            buckets.len() > 3 && buckets.is_sorted_by(|less, more| less.1 <= more.1),
            "{name} {lane}: {buckets:?}"
        );
        let labels =
            if lane.is_empty() { String::new() } else { format!("{{{}}}", lane.trim_end_matches(',')) };
        let count = figures.samples[&format!("posthaste_{name}_seconds_count{labels}")];
        assert_eq!(buckets.last().unwrap().1, count, "{name} {lane}");
        assert!(figures.samples[&format!("posthaste_{name}_seconds_sum{labels}")] >= 0.0);
    }
}

async fn the_metrics_can_be_put_behind_a_key(on: StoreKind) {
    let running = Running::with(on, |config| config.metrics.require_key = true).await;
    running.caller(None).ask(Method::GET, "/metrics", &[], "").await.problem(401, "UNAUTHORIZED");
    running.caller(Some(ADMIN)).ask(Method::GET, "/metrics", &[], "").await.is(200);
    // The figures are those of all tenants, so that of one may not read them.
    let tenant = running.tenant("acme").await;
    tenant.ask(Method::GET, "/metrics", &[], "").await.problem(403, "FORBIDDEN");
    running.stop().await;
}

async fn the_nodes_are_told_to_admins_with_what_each_holds(on: StoreKind) {
    let running = Running::with(on, |config| config.engine.name = Some("first".to_owned())).await;
    let id = running.admin.send(&running.webhook("/hang")).await;
    running.admin.wait(&id, "processing").await;
    let told = running.admin.get("/v1/nodes").await;
    let [node] = &told["data"].as_array().unwrap()[..] else { panic!("{told}") };
    for (name, wanted) in [
        ("id", json!(1)),
        ("name", json!("first")),
        ("held", json!(1)),
        ("thisNode", json!(true)),
        ("alive", json!(true)),
    ] {
        assert_eq!(node[name], wanted, "{name}");
    }
    let [joined, beat, expires] =
        ["joinedAt", "lastHeartbeatAt", "expiresAt"].map(|name| node[name].as_str().unwrap().to_owned());
    assert!(joined <= beat && beat < expires, "{told}");
    running.admin.ask(Method::GET, "/v1/nodes?alive=true", &[], "").await.problem(422, "VALIDATION_FAILED");
    running.stop().await;
}

on_each_store! {
    the_stats_count_what_there_is;
    the_metrics_are_prometheus_text_and_each_is_on_the_page;
    the_metrics_can_be_put_behind_a_key;
    the_nodes_are_told_to_admins_with_what_each_holds;
}
