//! The bench runs: a few rows of each scenario, so that it never rots.

#[allow(dead_code, unreachable_pub, reason = "it is a program of its own")]
#[path = "../../examples/bench.rs"]
mod program;

use self::program::{Settings, Watch};

#[test]
fn the_bench_measures_every_scenario() {
    let directory = tempfile::tempdir().unwrap();
    for json in [false, true] {
        let settings = Settings {
            rows: vec![0, 2_000],
            rounds: 1,
            batches: 1,
            parked: 1_000,
            flows: 20,
            watch: Watch::Wall,
            json,
        };
        let report = program::run(&settings, &directory.path().join(format!("{json}"))).unwrap();
        for word in ["0 rows", "2000 rows", "1000 parked", "20 flows", "plain", "accept", "claim", "settle"] {
            assert!(report.contains(word), "{word} is missing in\n{report}");
        }
    }
}

#[test]
fn the_bench_takes_only_what_it_knows() {
    let asked = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        program::settings(&words)
    };
    let settings = asked("--rows 0,20 --rounds 2 --flows 0 --watch cpu --output json").unwrap();
    assert_eq!((settings.rows, settings.rounds, settings.flows), (vec![0, 20], 2, 0));
    assert!(settings.json && matches!(settings.watch, Watch::Cpu));
    for bad in [
        "--colour red",
        "--rows",
        "--rows 0,x",
        "--rounds 0",
        "--batches -1",
        "--watch sundial",
        "--output xml",
        "7",
    ] {
        let refused = asked(bad).err().unwrap();
        assert!(refused.starts_with(bad.split(' ').next().unwrap()), "{refused}");
    }
}
