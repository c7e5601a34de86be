//! The same as for a file: a dead letter needs nothing but its own snapshot.

use posthaste_store::postgres::PostgresStore;

use super::server::{Server, callers_time};
use crate::removed::{ACTS, REMOVED, comes_back};

#[tokio::test]
async fn a_dead_letter_comes_back_although_its_notification_and_its_past_were_removed() {
    let server = Server::shared();
    for removed in REMOVED {
        for (acts, attempt) in ACTS {
            let database = server.database();
            let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
            comes_back(&store, acts, attempt, || drop(server.sql(&database, removed))).await;
        }
    }
}
