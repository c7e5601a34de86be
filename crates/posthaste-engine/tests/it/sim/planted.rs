//! Bugs with names: each must be seen by the simulation within so many seeds, or the simulation is blind.

use posthaste_engine::model_store::Planted;

use super::driver::{Plan, simulate};

/// How many seeds it may take to see each bug.
const WITHIN: [(Planted, u64); 15] = [
    (Planted::SettleWithoutFence, 20),
    (Planted::LostDeadLetter, 20),
    (Planted::ReclaimAlive, 2_000),
    (Planted::ClaimIgnoresLease, 20),
    (Planted::ClaimIgnoresDue, 20),
    (Planted::AttemptRowLost, 20),
    (Planted::RetryKeepsAttemptNumber, 20),
    (Planted::CancelFlagIgnored, 20),
    (Planted::TwinStoredTwice, 20),
    (Planted::ReclaimWithoutEvent, 20),
    (Planted::CounterDrift, 20),
    (Planted::RequeueKeepsDeadLetterPending, 20),
    (Planted::HeartbeatRevivesDead, 2_000),
    (Planted::GrantsToTheDead, 2_000),
    (Planted::RetryNumbersFromOne, 2_000),
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
