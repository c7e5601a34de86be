//! The simulation: several engines on one model store, paused time, everything that can go wrong, and the promises
//! checked after each step.
//!
//! `POSTHASTE_SEED=n` replays one run exactly; `POSTHASTE_SEEDS=n` runs the first n.

mod checks;
mod clients;
mod driver;
mod inbound;
mod late;
mod ledger;
mod life;
mod operations;
mod outages;
mod planted;
mod retention;
mod sink;
mod store;
mod world;

use std::time::Instant;

use self::driver::{Plan, simulate};

/// How many seeds the tests run unless `POSTHASTE_SEEDS` says otherwise: enough of them in the release profile, which
/// `scripts/test` runs, to see bugs that 200 do not; a taste of it in the slow debug profile.
const SEEDS: u64 = if cfg!(debug_assertions) { 30 } else { 1_500 };

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// The seed that is asked for, or the first ones.
fn seeds(most: u64) -> std::ops::Range<u64> {
    match number("POSTHASTE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("POSTHASTE_SEEDS").unwrap_or(most),
    }
}

#[test]
fn no_promise_is_broken_whatever_goes_wrong() {
    let seeds = seeds(SEEDS);
    let (began, mut steps, mut runs) = (Instant::now(), 0, 0);
    let mut sum = [0; 5];
    for seed in seeds {
        match simulate(seed, Plan::default()) {
            Ok(run) => {
                steps += run.steps;
                let counts = [run.accepted, run.delivered, run.duplicates, run.interruptions, run.late];
                sum = std::array::from_fn(|index| sum[index] + counts[index]);
            }
            Err(broken) => panic!("POSTHASTE_SEED={seed}: {broken}"),
        }
        runs += 1;
    }
    assert!(runs > 0, "no seed was run");
    let seconds = began.elapsed().as_secs_f64();
    let speed = steps as f64 / seconds;
    let [accepted, delivered, duplicates, interruptions, late] = sum;
    eprintln!(
        "simulation: {runs} seeds, {steps} steps, {speed:.0} steps/s; {accepted} accepted, {delivered} delivered, \
         {duplicates} duplicates, {interruptions} interruptions, {late} calls that happened after their answer"
    );
    // 20,000 on a core to itself; half of it where the tests beside it and the neighbours share that core.
    assert!(cfg!(debug_assertions) || runs < SEEDS || speed > 10_000.0, "{speed:.0} steps/s");
}

/// A share of the seeds is enough for what the jobs of retention add.
#[test]
fn no_promise_is_broken_while_what_is_old_is_removed() {
    let (mut accepted, mut removed, mut runs) = (0, 0, 0);
    for seed in seeds(SEEDS / 5) {
        let run = simulate(seed, Plan { retention: true, ..Plan::default() })
            .unwrap_or_else(|broken| panic!("POSTHASTE_SEED={seed}: {broken}"));
        accepted += run.accepted;
        removed += run.removed;
        runs += 1;
    }
    eprintln!("simulation: {runs} seeds, {accepted} accepted, {removed} removed while they ran");
    assert!(removed * 4 > accepted, "{removed} of {accepted} were removed");
}

/// A share of the seeds is enough for what breakers, blocks and limits add.
#[test]
fn no_promise_is_broken_while_destinations_are_down() {
    let (mut accepted, mut opened, mut runs) = (0, 0, 0);
    for seed in seeds(SEEDS / 5) {
        let run = simulate(seed, Plan { outages: true, ..Plan::default() })
            .unwrap_or_else(|broken| panic!("POSTHASTE_SEED={seed}: {broken}"));
        accepted += run.accepted;
        opened += run.opened;
        runs += 1;
    }
    eprintln!("simulation: {runs} seeds, {accepted} accepted, breakers opened {opened} times");
    assert!(opened > runs, "{opened} in {runs} runs");
}

/// A share of the seeds is enough for what inbound limits add.
#[test]
fn no_promise_is_broken_under_inbound_limits() {
    let (mut accepted, mut deferred, mut runs) = (0, 0, 0);
    for seed in seeds(SEEDS / 5) {
        let run = simulate(seed, Plan { inbound: true, ..Plan::default() })
            .unwrap_or_else(|broken| panic!("POSTHASTE_SEED={seed}: {broken}"));
        accepted += run.accepted;
        deferred += run.deferred;
        runs += 1;
    }
    eprintln!("simulation: {runs} seeds, {accepted} accepted, {deferred} deferred");
    assert!(deferred * 10 > accepted, "{deferred} of {accepted} were deferred");
}

#[test]
fn a_seed_replays_its_run_exactly() {
    let plain = Plan::default();
    let plans = [
        plain,
        Plan { retention: true, ..plain },
        Plan { outages: true, ..plain },
        Plan { inbound: true, ..plain },
    ];
    for (seed, plan) in (0..20).flat_map(|seed| plans.map(|plan| (seed, plan))) {
        let run = |seed| simulate(seed, plan).unwrap_or_else(|broken| panic!("{seed}, {plan:?}: {broken}"));
        let first = run(seed);
        assert_eq!(first, run(seed), "seed {seed}");
        assert_ne!(first.trace, run(seed + 1).trace);
    }
}

#[test]
fn without_faults_nothing_arrives_twice_and_nothing_is_interrupted() {
    for seed in 0..20 {
        let run = simulate(seed, Plan { calm: true, ..Plan::default() })
            .unwrap_or_else(|broken| panic!("{seed}: {broken}"));
        assert_eq!((run.duplicates, run.interruptions, run.late), (0, 0, 0), "seed {seed}");
        assert!(run.delivered > 0, "seed {seed}");
    }
}
