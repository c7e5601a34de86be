//! `posthaste bench` from end to end, as a program.

use std::collections::BTreeSet;
use std::process::Command;

use posthaste_store::postgres::own::OwnServer;
use serde_json::Value;

/// The figures of an empty store.
const EMPTY: [&str; 11] = [
    "single",
    "batch",
    "acceptP50",
    "acceptP99",
    "acceptMax",
    "halfLoad",
    "acceptHalfP50",
    "acceptHalfP99",
    "acceptHalfMax",
    "start",
    "peakMemory",
];

/// A filled store has the same figures as an empty one.
#[test]
fn the_bench_shows_every_figure_and_no_request_fails() {
    let report = bench(&["--rows", "200"]);
    assert_shown(&report, &["", "filled"]);
    for name in ["single", "batch", "filledSingle", "filledBatch"] {
        assert_ratio(&report, name, "ratioToBare");
    }
    for name in ["filledSingle", "filledBatch"] {
        assert_ratio(&report, name, "ratioToEmpty");
    }
}

/// The filled store is that of PostgreSQL.
#[test]
fn the_bench_shows_the_figures_of_postgres_beside_those_of_sqlite() {
    let report = bench(&["--store", "postgres", "--rows", "200"]);
    assert_shown(&report, &["", "postgres", "filled"]);
    for name in ["single", "postgresSingle", "postgresBatch", "filledBatch"] {
        assert_ratio(&report, name, "ratioToBare");
    }
    let rate = |name: &str| report["figures"][name]["median"].as_f64().unwrap();
    let ratio = report["figures"]["filledSingle"]["ratioToEmpty"]["median"].as_f64().unwrap();
    assert!((ratio - rate("filledSingle") / rate("postgresSingle")).abs() < 1e-9, "{report}");
    let described = report["postgres"].as_str().unwrap();
    assert!(described.contains("synchronous_commit = on") && described.contains("fsync = on"), "{described}");
    assert_eq!(report["targets"].as_array().unwrap().len(), 4 + 4 + 4, "{report}");
}

/// A server on that database would deliver what waits in it.
#[test]
fn the_bench_leaves_a_database_of_postgres_alone_that_is_not_empty() {
    let server = OwnServer::start(&std::env::temp_dir(), "fsync = off").unwrap();
    server.sql("postgres", "create table letters (id integer)").unwrap();
    for (database, reason) in
        [("postgres", "is not empty: it has 1 tables, letters"), ("nope", "has no database")]
    {
        let out = Command::new(env!("CARGO_BIN_EXE_posthaste"))
            .args(["bench", "--seconds", "1", "--rounds", "1", "--store", &server.url(database)])
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(1));
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains(reason), "{said}");
    }
    assert_eq!(
        server.sql("postgres", "select count(*) from pg_tables where schemaname = 'public'").unwrap(),
        "1"
    );
}

fn assert_shown(report: &Value, subjects: &[&str]) {
    let name = |subject: &str, name: &str| match subject {
        "" => name.to_owned(),
        _ => format!("{subject}{}{}", name[..1].to_uppercase(), &name[1..]),
    };
    let figures = subjects.iter().flat_map(|subject| EMPTY.iter().map(|figure| name(subject, figure)));
    let wanted: BTreeSet<String> = figures.chain(["bare".to_owned()]).collect();
    let shown = report["figures"].as_object().unwrap();
    assert_eq!(shown.keys().cloned().collect::<BTreeSet<_>>(), wanted);
    for (name, figure) in shown {
        let [median, min, max] = ["median", "min", "max"].map(|field| figure[field].as_f64().unwrap());
        assert!(0.0 < min && min <= median && median <= max, "{name}: {figure}");
    }
    assert_eq!(report["failedRequests"]["notAccepted"], 0, "{report}");
    assert_eq!(report["failedRequests"]["brokenOff"], 0, "{report}");
}

fn assert_ratio(report: &Value, name: &str, ratio: &str) {
    let figure = &report["figures"][name];
    assert!(figure[ratio]["median"].as_f64().is_some_and(|ratio| ratio > 0.0), "{name}: {figure}");
}

#[test]
fn the_bench_says_of_each_goal_whether_it_is_met() {
    let report = bench(&[]);
    let targets = report["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 4, "{report}");
    for target in targets {
        let value = target["value"].as_f64().unwrap();
        let met = match (target["goal"]["atLeast"].as_f64(), target["goal"]["below"].as_f64()) {
            (Some(least), None) => value >= least,
            (None, Some(most)) => value < most,
            _ => panic!("{target}"),
        };
        assert_eq!(target["met"], met, "{target}");
    }
    for field in ["cores", "processor", "kernel", "inMemory"] {
        assert!(!report["machine"][field].is_null(), "{field}");
    }
}

#[test]
fn a_bench_that_cannot_measure_fails_and_says_why() {
    for (flag, value, code, reason) in [
        ("--directory", "/proc/nowhere", 1, "no store can be made in /proc/nowhere"),
        ("--store", "bench.db", 2, "--store is `postgres` or `postgres://..`"),
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_posthaste"))
            .args(["bench", "--seconds", "1", "--rounds", "1", flag, value])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{said}");
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn the_bench_leaves_nothing_in_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    bench(&["--directory", directory.path().to_str().unwrap()]);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

fn bench(more: &[&str]) -> Value {
    let out = Command::new(env!("CARGO_BIN_EXE_posthaste"))
        .args(["bench", "--seconds", "1", "--rounds", "1", "--connections", "16", "--output", "json"])
        .args(more)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{said}");
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}
