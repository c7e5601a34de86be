//! `ModelStore` keeps every promise, and the promises see the bugs that can be planted in it.

use std::sync::Arc;

use posthaste_engine::conformance::{broken_promises, promises, random};
use posthaste_engine::model_store::{ModelStore, Planted};
use posthaste_engine::store::Store;

fn with_bug(bug: Planted) -> Arc<dyn Store> {
    let store = ModelStore::new();
    store.plant(bug);
    Arc::new(store)
}

#[tokio::test]
async fn the_model_keeps_every_promise() {
    let broken = broken_promises(|| Arc::new(ModelStore::new())).await;
    let lines: Vec<String> = broken.iter().map(|(name, how)| format!("{name}\n    {how}")).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}

#[test]
fn every_promise_has_a_name_of_its_own() {
    let mut names: Vec<&str> = promises().map(|promise| promise.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

/// Each bug with a promise that is about it.
const SEEN_BY: [(Planted, &str); 31] = [
    (Planted::SettleWithoutFence, "a_lost_lease_cannot_settle"),
    (Planted::LostDeadLetter, "a_dead_letter_has_its_own_payload_and_attempts"),
    (Planted::ReclaimAlive, "a_living_node_loses_nothing"),
    (Planted::ClaimIgnoresLease, "nothing_is_handed_out_twice"),
    (Planted::ClaimIgnoresDue, "only_what_is_due_is_handed_out"),
    (Planted::AttemptRowLost, "each_ending_is_kept_with_its_attempt"),
    (Planted::RetryKeepsAttemptNumber, "a_failed_attempt_waits_in_the_retry_lane_with_the_next_number"),
    (Planted::CancelFlagIgnored, "a_request_to_cancel_stops_a_decision_that_did_not_know_it"),
    (Planted::TwinStoredTwice, "a_twin_gets_the_first_answer_and_is_not_stored"),
    (Planted::ReclaimWithoutEvent, "the_leases_of_a_dead_node_come_back"),
    (Planted::CounterDrift, "every_state_is_counted_where_it_stands"),
    (Planted::RequeueKeepsDeadLetterPending, "a_requeued_one_counts_from_one"),
    (Planted::HeartbeatRevivesDead, "a_dead_node_stays_dead"),
    (Planted::GrantsToTheDead, "whoever_is_gone_is_given_nothing"),
    (Planted::ActWithoutLooking, "an_act_is_made_only_on_what_was_seen"),
    (Planted::RetryNumbersFromOne, "a_retried_one_goes_on_counting"),
    (Planted::PutIgnoresVersion, "a_record_is_put_only_where_it_is_as_expected"),
    (Planted::TwoRunsOfAJob, "a_job_has_one_run_at_a_time_and_a_run_of_a_dead_node_is_interrupted"),
    (Planted::PrunePassesOnce, "what_ended_long_after_its_acceptance_is_found_by_a_later_pass"),
    (Planted::PruneForgetsDeadLetter, "a_notification_stays_while_a_dead_letter_names_it"),
    (Planted::PruneForgetsOperation, "what_an_operation_names_stays_until_it_is_finished"),
    (Planted::PruneTakesPending, "resolved_dead_letters_are_deleted_and_come_back_as_they_were"),
    (
        Planted::PruneKeepsCounting,
        "what_has_outlived_its_period_is_removed_with_everything_that_belongs_to_it",
    ),
    (Planted::GroupKeepsResolved, "a_group_counts_its_pending_dead_letters"),
    (Planted::MarkingForgetsCursor, "marking_keeps_its_cursor_with_its_items"),
    (Planted::StagedTwice, "only_items_of_the_last_staging_are_forwarded"),
    (Planted::StagedUnseen, "a_batch_that_was_staged_since_it_was_read_is_not_staged"),
    (Planted::ForwardWithoutFence, "only_the_runner_does_the_steps_of_an_operation"),
    (Planted::ItemLostAtCancel, "a_stopped_operation_lets_go_of_everything"),
    (Planted::DestinationSwappedUnseen, "a_destination_is_put_only_where_it_is_as_expected"),
    (Planted::ReservationForgotten, "a_reservation_counts_for_all_that_follow"),
];

#[tokio::test]
async fn every_planted_bug_breaks_the_promise_about_it() {
    for bug in Planted::ALL {
        let about = SEEN_BY.iter().find(|(seen, _)| *seen == bug);
        let (_, promise) = about.unwrap_or_else(|| panic!("no promise is about {bug:?}"));
        let broken = broken_promises(|| with_bug(bug)).await;
        assert!(broken.iter().any(|(name, _)| name == promise), "{bug:?} is not seen by {promise}");
    }
}

#[tokio::test]
async fn a_model_agrees_with_itself_on_random_operations() {
    for seed in 0..20 {
        let (left, right) = (ModelStore::new(), ModelStore::new());
        random::compare(seed, 1_000, Arc::new(left.clone()), Arc::new(right)).await.unwrap();
        assert_eq!(left.drift(), None, "seed {seed}");
        assert_eq!(left.group_drift(), None, "seed {seed}");
    }
}

/// Most bugs are seen by the first seed; those of operations need a rare chain of calls.
const SEEDS_OF_A_BUG: u64 = 100;

#[tokio::test]
async fn random_operations_tell_every_planted_bug_from_the_model() {
    for bug in Planted::ALL {
        let mut difference = None;
        for seed in 0..SEEDS_OF_A_BUG {
            let compared = random::compare(seed, 1_000, with_bug(bug), Arc::new(ModelStore::new())).await;
            difference = compared.err();
            if difference.is_some() {
                break;
            }
        }
        assert!(difference.is_some(), "no seed of {SEEDS_OF_A_BUG} shows {bug:?}");
    }
}
