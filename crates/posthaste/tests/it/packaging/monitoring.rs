//! Alert rules and dashboard: promtool accepts them, and every metric in them exists.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{read, repository, run, tool};

const RULES: &str = "packaging/prometheus-rules.yml";
const TESTS: &str = "packaging/prometheus-rules.test.yml";
const DASHBOARD: &str = "packaging/grafana-dashboard.json";

/// The metrics of docs/metrics.md with their types. Another test holds that page to `/metrics`.
fn metrics() -> BTreeMap<String, String> {
    let page = read("docs/metrics.md");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let name = cells.next()?.trim().trim_end_matches('`');
        let kind = cells.next()?.trim();
        ["counter", "gauge", "histogram"].contains(&kind).then(|| (name.to_owned(), kind.to_owned()))
    });
    rows.collect()
}

/// The names in a text that begin as our metrics do, such as `posthaste_queued`; labels and jobs called `posthaste` are none.
fn named(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c| !is_part(c));
    words.filter(|word| word.starts_with("posthaste_") || word.starts_with("process_")).collect()
}

/// The names that no metric has. A histogram is asked for by its buckets, sum or count.
fn unknown<'t>(text: &'t str, metrics: &BTreeMap<String, String>) -> Vec<&'t str> {
    let exists = |name: &str| {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let kind = |name: &str| metrics.get(name).map(String::as_str);
        match of_histogram.and_then(kind) {
            Some("histogram") => true,
            _ => kind(name).is_some_and(|kind| kind != "histogram"),
        }
    };
    named(text).into_iter().filter(|name| !exists(name)).collect()
}

/// The expressions of all panels.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn promtool_accepts_the_rules_and_their_tests_pass() {
    let Some(promtool) = tool("promtool", "prometheus") else { return };
    run(Command::new(&promtool).args(["check", "rules"]).arg(repository(RULES)));
    let place = tempfile::tempdir().unwrap();
    let rules = read(RULES);
    let three = rules.replace("expr: vector(1)", "expr: vector(3)");
    assert_ne!(rules, three, "the tests expect three nodes");
    let tests = place.path().join("tests.yml");
    fs::write(&tests, read(TESTS)).unwrap();
    let in_place = place.path().join("prometheus-rules.yml");
    fs::write(&in_place, &three).unwrap();
    run(Command::new(&promtool).args(["test", "rules"]).arg(&tests));
    // Where no node lives only `absent` says so: without it a test has to fail.
    fs::write(&in_place, three.replace(" or absent(posthaste_node_alive == 1)", "")).unwrap();
    let ran = Command::new(&promtool).args(["test", "rules"]).arg(&tests).output().unwrap();
    assert!(!ran.status.success(), "the tests of the rules notice nothing");
}

#[test]
fn promtool_reads_every_expression_of_the_dashboard() {
    let Some(promtool) = tool("promtool", "prometheus") else { return };
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, expression) in expressions(&dashboard).iter().enumerate() {
        let expression = expression.replace("$__rate_interval", "1m").replace("$job", ".*");
        rules += &format!(
            "  - record: panel:{number}\n    expr: {}\n",
            serde_json::to_string(&expression).unwrap()
        );
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("dashboard.yml");
    fs::write(&path, rules).unwrap();
    run(Command::new(&promtool).args(["check", "rules"]).arg(&path));
}

#[test]
fn every_metric_of_the_rules_and_the_dashboard_exists() {
    let metrics = metrics();
    assert!(metrics.len() > 25, "{metrics:?}");
    let dashboard = read(DASHBOARD);
    for (path, text) in [(RULES, &read(RULES)), (TESTS, &read(TESTS)), (DASHBOARD, &dashboard)] {
        assert!(named(text).len() > 10, "{path}");
        assert_eq!(unknown(text, &metrics), [""; 0], "{path}");
    }
    // The other way round: a metric that nobody looks at is easily forgotten.
    let shown = named(&dashboard).join(" ");
    let unseen: Vec<&String> = metrics.keys().filter(|name| !shown.contains(name.as_str())).collect();
    assert!(unseen.is_empty(), "the dashboard does not show {unseen:?}");
}

#[test]
fn a_metric_that_does_not_exist_is_found() {
    let metrics = BTreeMap::from([("counter", "posthaste_a_total"), ("histogram", "posthaste_b_seconds")]);
    let metrics = metrics.into_iter().map(|(kind, name)| (name.to_owned(), kind.to_owned())).collect();
    let fine = r#"rate(posthaste_a_total{job="posthaste"}[5m]) / posthaste_b_seconds_count"#;
    assert_eq!(unknown(fine, &metrics), [""; 0]);
    for bad in ["posthaste_a", "posthaste_b_seconds", "posthaste_a_total_bucket", "process_x"] {
        assert_eq!(unknown(&format!("sum({bad}) > 0"), &metrics), [bad]);
    }
}
