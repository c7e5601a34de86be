//! The same as for a file: what a node of the version before restores is shown again, and not purged.

use posthaste_store::postgres::PostgresStore;

use super::server::{Server, callers_time};
use crate::shown::{RESTORE, is_deleted, is_shown_again};

#[tokio::test]
async fn what_the_version_before_restores_is_shown_and_not_purged() {
    let server = Server::shared();
    let database = server.database();
    let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
    is_deleted(&store, |sql| drop(server.sql(&database, sql))).await;
    server.sql(&database, RESTORE);
    is_shown_again(&store).await;
    assert_eq!(store.recount_groups().await.unwrap(), None);
}

#[tokio::test]
async fn what_the_version_before_restored_before_the_step_is_shown_by_it() {
    let server = Server::shared();
    let database = server.database();
    let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
    is_deleted(&store, |sql| drop(server.sql(&database, sql))).await;
    server.sql(&database, "drop trigger dead_letter_shown on dead_letter; drop function dead_letter_shown");
    server.sql(&database, RESTORE);
    server.sql(&database, include_str!("../../../migrations/postgres/0013_shown_again.sql"));
    is_shown_again(&store).await;
    assert_eq!(store.recount_groups().await.unwrap(), None);
}
