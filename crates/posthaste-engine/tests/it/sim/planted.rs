//! Bugs with names: each must be seen by the simulation within so many seeds, or the simulation is blind.

use posthaste_engine::model_store::Planted;
use posthaste_engine::planted::Planted as InEngine;

use super::driver::{Plan, simulate};

/// How many seeds it may take to see each bug. What needs an unlikely chain of events is left to the conformance suite.
const WITHIN: [(Planted, u64); 15] = [
    (Planted::SettleWithoutFence, 60),
    (Planted::LostDeadLetter, 20),
    (Planted::ClaimIgnoresLease, 20),
    (Planted::ClaimIgnoresDue, 20),
    (Planted::AttemptRowLost, 20),
    (Planted::RetryKeepsAttemptNumber, 20),
    (Planted::CancelFlagIgnored, 60),
    (Planted::TwinStoredTwice, 20),
    (Planted::ReclaimWithoutEvent, 20),
    (Planted::CounterDrift, 20),
    (Planted::RequeueKeepsDeadLetterPending, 60),
    (Planted::ActWithoutLooking, 1_000),
    (Planted::MarkingForgetsCursor, 20),
    (Planted::ForwardWithoutFence, 60),
    (Planted::ItemLostAtCancel, 100),
];

/// The same for bugs of what the jobs of retention ask of the store.
const WITHIN_RETENTION: [(Planted, u64); 5] = [
    (Planted::PrunePassesOnce, 20),
    (Planted::PruneForgetsDeadLetter, 20),
    (Planted::PruneForgetsOperation, 200),
    (Planted::PruneTakesPending, 20),
    (Planted::PruneKeepsCounting, 20),
];

/// The same for bugs in the engine.
const WITHIN_ENGINE: [(InEngine, u64); 5] = [
    (InEngine::SendWithoutLease, 1_000),
    (InEngine::DropOutcome, 20),
    (InEngine::NeverCompares, 600),
    (InEngine::LeaveWhileSending, 300),
    (InEngine::TryWithoutSlot, 300),
];

/// The same for bugs that show while destinations are down.
const WITHIN_OUTAGES: [(InEngine, u64); 7] = [
    (InEngine::ParkingSpends, 20),
    (InEngine::ProbesUnasked, 20),
    (InEngine::NoRamp, 60),
    (InEngine::NeverProbes, 20),
    (InEngine::SendsWhileOpen, 20),
    (InEngine::LimitOfEachFlow, 60),
    (InEngine::OperationsIgnoreBreakers, 60),
];

/// The same for bugs that show under inbound limits.
const WITHIN_INBOUND: u64 = 20;

fn seen(plan: Plan, within: u64) -> Option<(u64, String)> {
    (0..within).find_map(|seed| simulate(seed, plan).err().map(|broken| (seed, broken)))
}

#[test]
fn every_bug_planted_in_the_store_is_seen_within_its_seeds() {
    for (bug, within) in WITHIN {
        let (seed, broken) = seen(Plan { planted: Some(bug), ..Plan::default() }, within)
            .unwrap_or_else(|| panic!("{bug:?} was not seen within {within} seeds"));
        eprintln!("{bug:?}: seed {seed}: {broken:.200}");
    }
}

#[test]
fn every_bug_planted_in_retention_is_seen_within_its_seeds() {
    for (bug, within) in WITHIN_RETENTION {
        let (seed, broken) = seen(Plan { planted: Some(bug), retention: true, ..Plan::default() }, within)
            .unwrap_or_else(|| panic!("{bug:?} was not seen within {within} seeds"));
        eprintln!("{bug:?}: seed {seed}: {broken:.200}");
    }
}

#[test]
fn every_bug_planted_in_the_engine_is_seen_within_its_seeds() {
    for (bug, within) in WITHIN_ENGINE {
        let (seed, broken) = seen(Plan { in_engine: Some(bug), ..Plan::default() }, within)
            .unwrap_or_else(|| panic!("{bug:?} was not seen within {within} seeds"));
        eprintln!("{bug:?}: seed {seed}: {broken:.200}");
    }
}

#[test]
fn every_bug_planted_in_breakers_and_limits_is_seen_within_its_seeds() {
    for (bug, within) in WITHIN_OUTAGES {
        let (seed, broken) = seen(Plan { in_engine: Some(bug), outages: true, ..Plan::default() }, within)
            .unwrap_or_else(|| panic!("{bug:?} was not seen within {within} seeds"));
        eprintln!("{bug:?}: seed {seed}: {broken:.200}");
    }
    let bug = Planted::DestinationSwappedUnseen;
    let (seed, broken) = seen(Plan { planted: Some(bug), outages: true, ..Plan::default() }, 60)
        .unwrap_or_else(|| panic!("{bug:?} was not seen"));
    eprintln!("{bug:?}: seed {seed}: {broken:.200}");
}

#[test]
fn every_bug_planted_in_inbound_limits_is_seen_within_its_seeds() {
    let limited = Plan { inbound: true, ..Plan::default() };
    let plans = [
        Plan { in_engine: Some(InEngine::LostDeferral), ..limited },
        Plan { planted: Some(Planted::ReservationForgotten), ..limited },
    ];
    for plan in plans {
        let (seed, broken) = seen(plan, WITHIN_INBOUND).unwrap_or_else(|| panic!("{plan:?} was not seen"));
        eprintln!("{plan:?}: seed {seed}: {broken:.200}");
    }
}
