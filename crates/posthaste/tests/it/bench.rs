//! `posthaste bench` from end to end, as a program.

use std::process::Command;

use posthaste_store::postgres::own::OwnServer;
use serde_json::Value;

/// Every figure that a run without a filled store tells.
const FIGURES: [&str; 29] = [
    "bare",
    "single",
    "batch",
    "singleWithKey",
    "batchWithKey",
    "backlogSingle",
    "backlogBatch",
    "acceptP50",
    "acceptP99",
    "acceptMax",
    "halfLoad",
    "acceptHalfP50",
    "acceptHalfP99",
    "acceptHalfMax",
    "latenessP50",
    "latenessP99",
    "latenessMax",
    "cpuBare",
    "cpuServerSingle",
    "cpuOthersSingle",
    "cpuServerBatch",
    "cpuOthersBatch",
    "cpuShareSingle",
    "cpuShareBatch",
    "start",
    "peakMemory",
    "writtenSingle",
    "writtenBatch",
    "fileSize",
];
/// What a filled store adds.
const FILLED: [&str; 7] = [
    "filledSingle",
    "filledBatch",
    "filledToEmptySingle",
    "filledToEmptyBatch",
    "filledStart",
    "filledPeakMemory",
    "filledFile",
];
/// What PostgreSQL adds to its own share of these.
const POSTGRES: [&str; 10] = [
    "cpuStoreSingle",
    "cpuStoreBatch",
    "walSingle",
    "walBatch",
    "twoNodesSingle",
    "twoNodesBatch",
    "twoNodesToOneSingle",
    "twoNodesToOneBatch",
    "cpuTwoNodesSingle",
    "cpuTwoNodesBatch",
];
/// What only a file, or nobody's store, has.
const NOT_OF_POSTGRES: [&str; 4] = ["bare", "cpuBare", "writtenSingle", "writtenBatch"];
/// Those that may well be nothing.
const MAY_BE_NOTHING: [&str; 3] = ["backlogSingle", "backlogBatch", "latenessP50"];

#[test]
fn the_bench_tells_every_figure_and_no_request_fails() {
    let report = bench(&["--rows", "200"]);
    let wanted = [&FIGURES[..], &FILLED].concat();
    assert_told(&report, wanted.into_iter().map(str::to_owned).collect());
    for name in ["single", "batch", "singleWithKey", "batchWithKey", "filledSingle", "filledBatch"] {
        assert_share(&report, name);
    }
}

/// The filled store is that of PostgreSQL.
#[test]
fn the_bench_tells_the_figures_of_postgres_beside_those_of_sqlite() {
    let report = bench(&["--store", "postgres", "--rows", "200"]);
    let of_postgres = [&FIGURES[..], &FILLED, &POSTGRES].concat();
    let of_postgres = of_postgres.iter().filter(|name| !NOT_OF_POSTGRES.contains(name)).map(|name| {
        let (first, rest) = name.split_at(1);
        format!("postgres{}{rest}", first.to_uppercase())
    });
    let of_both = FIGURES.iter().map(|name| (*name).to_owned()).chain(of_postgres).collect();
    assert_told(&report, of_both);
    for name in ["single", "postgresSingle", "postgresBatch", "postgresTwoNodesSingle", "postgresFilledBatch"]
    {
        assert_share(&report, name);
    }
    let described = report["postgres"].as_str().unwrap();
    assert!(described.contains("synchronous_commit = on, fsync = on"), "{described}");
    assert_eq!(report["targets"].as_array().unwrap().len(), 5 + 11, "{report}");
}

/// Longer by a variable: then vacuum has to have done its work.
#[test]
fn the_tables_of_postgres_level_off_in_a_longer_run() {
    let seconds = std::env::var("POSTHASTE_ENDURE_SECONDS").unwrap_or_else(|_| "4".to_owned());
    let report = bench(&["--store", "postgres", "--endure", &seconds]);
    for table in ["queue", "counter", "node", "setting_version"] {
        let shown = &report["tables"][table];
        assert_eq!(shown["level"], true, "{table}: {shown}");
        assert_eq!(shown["bytes"].as_array().unwrap().len(), report["seconds"].as_array().unwrap().len());
    }
    let sizes = report["tables"]["notification"]["bytes"].as_array().unwrap();
    assert!(sizes.last().unwrap().as_f64() > sizes[0].as_f64(), "the history grows: {sizes:?}");
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

#[test]
fn a_longer_run_without_postgres_is_wrong_use() {
    let out =
        Command::new(env!("CARGO_BIN_EXE_posthaste")).args(["bench", "--endure", "4"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("add --store postgres"), "{said}");
}

fn assert_told(report: &Value, mut wanted: Vec<String>) {
    let told: Vec<&str> = report["figures"].as_object().unwrap().keys().map(String::as_str).collect();
    wanted.sort_unstable();
    assert_eq!(told, wanted);
    for name in &wanted {
        let figure = &report["figures"][name];
        let [median, min, max] = ["median", "min", "max"].map(|field| figure[field].as_f64().unwrap());
        assert!(min <= median && median <= max, "{name}: {figure}");
        let may_be_nothing =
            MAY_BE_NOTHING.iter().any(|few| name.to_lowercase().ends_with(&few.to_lowercase()));
        assert!(median > 0.0 || may_be_nothing, "{name}: {figure}");
    }
    assert_eq!(report["failedRequests"]["notAccepted"], 0, "{report}");
    assert_eq!(report["failedRequests"]["brokenOff"], 0, "{report}");
}

fn assert_share(report: &Value, name: &str) {
    let share = report["figures"][name]["ratioToBare"]["median"].as_f64().unwrap();
    assert!(share > 0.0 && share < 1.5, "{name}: {share}");
}

#[test]
fn the_bench_says_of_each_goal_whether_it_is_met() {
    let report = bench(&[]);
    let targets = report["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 5, "{report}");
    for target in targets {
        let value = target["value"].as_f64().unwrap();
        let met = match (target["goal"]["atLeast"].as_f64(), target["goal"]["below"].as_f64()) {
            (Some(least), None) => value >= least,
            (None, Some(most)) => value < most,
            _ => panic!("{target}"),
        };
        assert_eq!(target["met"], met, "{target}");
    }
    for field in ["cores", "processor", "kernel", "filesystem"] {
        assert!(!report["machine"][field].is_null(), "{field}");
    }
}

#[test]
fn a_bench_that_cannot_measure_fails_and_says_why() {
    let out = Command::new(env!("CARGO_BIN_EXE_posthaste"))
        .args(["bench", "--seconds", "1", "--rounds", "1", "--store", "/proc/nowhere/bench.db"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("/proc/nowhere does not exist"), "{said}");
}

/// A server on that file would deliver what waits in it.
#[tokio::test]
async fn the_bench_leaves_a_store_alone_that_it_did_not_make() {
    let home = super::program::Home::new(&[]);
    home.start().await.stop().await;
    let file = home.file().to_str().unwrap();
    let run = |file: &str| {
        Command::new(env!("CARGO_BIN_EXE_posthaste"))
            .args(["bench", "--seconds", "1", "--rounds", "1", "--connections", "4", "--store", file])
            .output()
            .unwrap()
    };
    let refused = run(file);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("was not created by the bench"), "{said}");
    home.start().await.stop().await;
    // Its own it makes, and takes again.
    let own = home.path().join("own.db");
    for _ in 0..2 {
        let done = run(own.to_str().unwrap());
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    }
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
