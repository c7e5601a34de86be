//! Operations on PostgreSQL: each definition is read once, and one that cannot be read stops nobody but itself.

use posthaste_core::id::OperationId;
use posthaste_engine::store::Operations;
use posthaste_store::postgres::PostgresStore;

use super::server::{Server, callers_time};
use crate::operations::{audit, goes_on_without_its_definition, operation};
use crate::scene::at;

fn name(id: OperationId) -> uuid::Uuid {
    uuid::Uuid::from_bytes(id.to_bytes())
}

#[tokio::test]
async fn the_definition_of_an_operation_is_read_once() {
    let server = Server::shared();
    let database = server.database();
    let connect = || async { PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap() };
    let asked = operation(1, 10_000);
    let id = asked.id;
    connect().await.start_operation(asked, None, audit(), at(3)).await.unwrap();
    // The first look of another process reads it.
    let store = connect().await;
    assert_eq!(store.unfinished_operations(9, at(4)).await.unwrap().len(), 1);
    server.sql(&database, &format!("update operation set definition = 'gone' where id = '{}'", name(id)));
    goes_on_without_its_definition(&store, id).await;
    assert!(store.operation(id).await.is_err());
}

#[tokio::test]
async fn an_operation_that_cannot_be_read_does_not_hold_up_the_others() {
    let server = Server::shared();
    for (column, text) in [("standing", "{"), ("definition", "{\"id\": 1}"), ("standing", "7")] {
        let database = server.database();
        let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
        for number in 1..=3 {
            store.start_operation(operation(number, 1), None, audit(), at(3)).await.unwrap();
        }
        let id = operation(2, 1).id;
        server.sql(&database, &format!("update operation set {column} = '{text}' where id = '{}'", name(id)));
        let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
        let found = store.unfinished_operations(9, at(4)).await.unwrap();
        let ids: Vec<OperationId> = found.iter().map(|one| one.operation.id).collect();
        assert_eq!(ids, [1, 3].map(|number| operation(number, 1).id), "{column} {text}");
        assert!(store.operation(id).await.is_err(), "whoever asks for it is told");
    }
}
