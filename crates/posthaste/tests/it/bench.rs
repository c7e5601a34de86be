//! `posthaste bench` from end to end, as a program.

use std::process::Command;

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
/// Those that may well be nothing.
const MAY_BE_NOTHING: [&str; 3] = ["backlogSingle", "backlogBatch", "latenessP50"];

#[test]
fn the_bench_tells_every_figure_and_no_request_fails() {
    let report = bench(&["--rows", "200"]);
    let told: Vec<&str> = report["figures"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut wanted = [&FIGURES[..], &FILLED].concat();
    wanted.sort_unstable();
    assert_eq!(told, wanted);
    for name in wanted {
        let figure = &report["figures"][name];
        let [median, min, max] = ["median", "min", "max"].map(|field| figure[field].as_f64().unwrap());
        assert!(min <= median && median <= max, "{name}: {figure}");
        assert!(median > 0.0 || MAY_BE_NOTHING.contains(&name), "{name}: {figure}");
    }
    for name in ["single", "batch", "singleWithKey", "batchWithKey", "filledSingle", "filledBatch"] {
        let share = report["figures"][name]["ratioToBare"]["median"].as_f64().unwrap();
        assert!(share > 0.0 && share < 1.5, "{name}: {share}");
    }
    assert_eq!(report["failedRequests"]["notAccepted"], 0, "{report}");
    assert_eq!(report["failedRequests"]["brokenOff"], 0, "{report}");
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
    assert!(said.contains("/proc/nowhere cannot be written to"), "{said}");
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
    assert!(said.contains("was not made by the bench"), "{said}");
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
