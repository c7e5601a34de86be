//! Bugs with names: each must be seen by the simulation within so many seeds, or the simulation is blind.

use posthaste_engine::model_store::Planted;

use super::driver::{Plan, simulate};

/// How many seeds it may take to see each bug. What needs an unlikely chain of events is left to the conformance suite.
const WITHIN: [(Planted, u64); 11] = [
    (Planted::SettleWithoutFence, 60),
    (Planted::LostDeadLetter, 5),
    (Planted::ClaimIgnoresLease, 5),
    (Planted::ClaimIgnoresDue, 5),
    (Planted::AttemptRowLost, 5),
    (Planted::RetryKeepsAttemptNumber, 5),
    (Planted::CancelFlagIgnored, 60),
    (Planted::TwinStoredTwice, 5),
    (Planted::ReclaimWithoutEvent, 20),
    (Planted::CounterDrift, 5),
    (Planted::RequeueKeepsDeadLetterPending, 5),
];

#[test]
fn every_planted_bug_is_seen_within_its_seeds() {
    for (bug, within) in WITHIN {
        let plan = Plan { planted: Some(bug), ..Plan::default() };
        let seen = (0..within).find_map(|seed| simulate(seed, plan).err().map(|broken| (seed, broken)));
        let (seed, broken) = seen.unwrap_or_else(|| panic!("{bug:?} was not seen within {within} seeds"));
        eprintln!("{bug:?}: seed {seed}: {broken}");
    }
}
