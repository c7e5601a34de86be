//! PostgreSQL keeps every promise of a store and answers as `ModelStore` and SQLite do; bugs planted in its
//! SQL are seen.

use std::sync::Arc;

use posthaste_engine::conformance::{Promise, promises, random};
use posthaste_engine::model_store::ModelStore;
use posthaste_engine::store::Store;
use posthaste_store::postgres::{Planted, PostgresOptions, PostgresStore};
use posthaste_store::sqlite::{Options, SqliteStore, Synchronous};
use tokio::task::JoinSet;

use super::server::{Server, callers_time};

/// How many promises are shown at once.
const AT_ONCE: usize = 4;

async fn make(options: PostgresOptions) -> Arc<PostgresStore> {
    Arc::new(Server::shared().store(options).await)
}

/// Shows every promise on a store of its own, a few at once, and fails with those that were broken.
async fn keeps_every_promise(options: PostgresOptions) {
    let (mut running, mut broken) = (JoinSet::new(), vec![]);
    for Promise { name, run } in promises() {
        if running.len() == AT_ONCE {
            broken.extend(running.join_next().await.unwrap().unwrap());
        }
        let store = make(options.clone()).await;
        running.spawn(async move { run(store).await.err().map(|how| format!("{name}\n    {how}")) });
    }
    broken.extend(running.join_all().await.into_iter().flatten());
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[tokio::test]
async fn postgres_keeps_every_promise() {
    keeps_every_promise(callers_time()).await;
}

#[tokio::test]
async fn postgres_keeps_every_promise_behind_a_pooler() {
    keeps_every_promise(PostgresOptions { prepared: false, ..callers_time() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_answers_as_the_model_does_on_random_operations() {
    let mut running = JoinSet::new();
    for seed in 0..5 {
        let postgres = make(callers_time()).await;
        let model: Arc<dyn Store> = Arc::new(ModelStore::new());
        running.spawn(async move {
            random::compare(seed, 1_000, model, postgres.clone()).await.unwrap();
            assert_eq!(postgres.recount().await.unwrap(), None, "seed {seed}");
        });
    }
    running.join_all().await;
}

#[tokio::test]
async fn postgres_answers_as_sqlite_does_on_random_operations() {
    let directory = tempfile::tempdir().unwrap();
    let (synchronous, unsafe_durability) = (Synchronous::Off, true);
    let options = Options { synchronous, unsafe_durability, ..Options::default() };
    let sqlite = Arc::new(SqliteStore::open(directory.path().join("posthaste.db"), options).unwrap());
    let postgres = make(PostgresOptions { prepared: false, ..callers_time() }).await;
    random::compare(77, 1_000, sqlite, postgres.clone()).await.unwrap();
    assert_eq!(postgres.recount().await.unwrap(), None);
}

/// Each bug with a promise that is about it.
const SEEN_BY: [(Planted, &str); 9] = [
    (Planted::SettleWithoutFence, "a_lost_lease_cannot_settle"),
    (Planted::ClaimIgnoresLease, "a_leased_arrival_is_held_from_the_start"),
    (Planted::LostDeadLetter, "a_dead_letter_has_its_own_payload_and_attempts"),
    (Planted::CounterDrift, "every_state_is_counted_where_it_stands"),
    (Planted::TwinStoredTwice, "a_twin_gets_the_first_answer_and_is_not_stored"),
    (Planted::GrantsToTheDead, "whoever_is_gone_is_given_nothing"),
    (Planted::ForwardWithoutFence, "only_the_runner_does_the_steps_of_an_operation"),
    (Planted::DestinationSwappedUnseen, "a_destination_is_put_only_where_it_is_as_expected"),
    (Planted::ReservationForgotten, "a_reservation_counts_for_all_that_follow"),
];

#[tokio::test]
async fn every_bug_planted_in_postgres_breaks_the_promise_about_it() {
    for bug in Planted::ALL {
        let about = SEEN_BY.iter().find(|(seen, _)| *seen == bug);
        let (_, name) = about.unwrap_or_else(|| panic!("no promise is about {bug:?}"));
        let promise = promises().find(|promise| promise.name == *name);
        let promise = promise.unwrap_or_else(|| panic!("{name} is not promised"));
        let store = make(PostgresOptions { planted: Some(bug), ..callers_time() }).await;
        let how = (promise.run)(store).await.err();
        let how = how.unwrap_or_else(|| panic!("{bug:?} is not seen by {name}")).to_string();
        // A statement that does not run at all would break every promise and show nothing.
        assert!(!how.contains("the store refused"), "{bug:?}: {how}");
    }
}
