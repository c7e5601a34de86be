//! SQLite keeps every promise of a store and answers as `ModelStore` does; both see the bugs that can be
//! planted in it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthaste_engine::conformance::{broken_promises, promises, random};
use posthaste_engine::model_store::ModelStore;
use posthaste_engine::store::Store;
use posthaste_store::sqlite::{Options, Planted, SqliteStore, Synchronous};

/// Makes empty stores in one directory.
struct Maker<'d> {
    directory: &'d Path,
    made: AtomicUsize,
    planted: Option<Planted>,
}

impl<'d> Maker<'d> {
    fn new(directory: &'d Path, planted: Option<Planted>) -> Self {
        Self { directory, made: AtomicUsize::new(0), planted }
    }

    /// Power cuts are not what these tests are about, so they do not wait for the disk.
    fn make(&self) -> Arc<SqliteStore> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("{:?}-{number}.db", self.planted));
        let (synchronous, unsafe_durability) = (Synchronous::Off, true);
        let planted = self.planted;
        let options = Options { synchronous, unsafe_durability, planted, ..Options::default() };
        Arc::new(SqliteStore::open(path, options).unwrap())
    }
}

#[tokio::test]
async fn sqlite_keeps_every_promise() {
    let directory = tempfile::tempdir().unwrap();
    let maker = Maker::new(directory.path(), None);
    let broken = broken_promises(|| maker.make()).await;
    let lines: Vec<String> = broken.iter().map(|(name, how)| format!("{name}\n    {how}")).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}

#[tokio::test]
async fn sqlite_answers_as_the_model_does_on_random_operations() {
    let directory = tempfile::tempdir().unwrap();
    let maker = Maker::new(directory.path(), None);
    for seed in 0..10 {
        let sqlite = maker.make();
        let model: Arc<dyn Store> = Arc::new(ModelStore::new());
        random::compare(seed, 1_000, model, sqlite.clone()).await.unwrap();
        assert_eq!(sqlite.recount().await.unwrap(), None, "seed {seed}");
    }
}

/// Each bug with a promise that is about it.
const SEEN_BY: [(Planted, &str); 15] = [
    (Planted::SettleWithoutFence, "a_lost_lease_cannot_settle"),
    (Planted::LostDeadLetter, "a_dead_letter_has_its_own_payload_and_attempts"),
    (Planted::ClaimIgnoresDue, "only_what_is_due_is_handed_out"),
    (Planted::ReclaimForgetsInterruption, "the_leases_of_a_dead_node_come_back"),
    (Planted::CancelFlagIgnored, "a_request_to_cancel_stops_a_decision_that_did_not_know_it"),
    (Planted::CounterDrift, "every_state_is_counted_where_it_stands"),
    (Planted::TwinStoredTwice, "a_twin_gets_the_first_answer_and_is_not_stored"),
    (Planted::ReleaseTakesAll, "a_release_gives_back_what_the_grant_holds"),
    (Planted::ReclaimFromTheLiving, "a_living_node_loses_nothing"),
    (Planted::GrantsToTheDead, "whoever_is_gone_is_given_nothing"),
    (Planted::ActWithoutLooking, "an_act_is_made_only_on_what_was_seen"),
    (Planted::GroupKeepsResolved, "a_group_counts_its_pending_dead_letters"),
    (Planted::ForwardWithoutFence, "only_the_runner_does_the_steps_of_an_operation"),
    (Planted::DestinationSwappedUnseen, "a_destination_is_put_only_where_it_is_as_expected"),
    (Planted::ReservationForgotten, "a_reservation_counts_for_all_that_follow"),
];

#[tokio::test]
async fn every_planted_bug_breaks_the_promise_about_it() {
    let directory = tempfile::tempdir().unwrap();
    for bug in Planted::ALL {
        let about = SEEN_BY.iter().find(|(seen, _)| *seen == bug);
        let (_, name) = about.unwrap_or_else(|| panic!("no promise is about {bug:?}"));
        let promise = promises().find(|promise| promise.name == *name);
        let promise = promise.unwrap_or_else(|| panic!("{name} is not promised"));
        let maker = Maker::new(directory.path(), Some(bug));
        assert!((promise.run)(maker.make()).await.is_err(), "{bug:?} is not seen by {name}");
    }
}

#[tokio::test]
async fn random_operations_tell_every_planted_bug_from_the_model() {
    let directory = tempfile::tempdir().unwrap();
    for bug in Planted::ALL {
        let maker = Maker::new(directory.path(), Some(bug));
        let mut difference = None;
        for seed in 0..20 {
            let model = Arc::new(ModelStore::new());
            difference = random::compare(seed, 1_000, model, maker.make()).await.err();
            if difference.is_some() {
                break;
            }
        }
        assert!(difference.is_some(), "no seed of 20 shows {bug:?}");
    }
}
