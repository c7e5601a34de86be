//! What nodes tell each other through the database.

use std::time::Duration;

use posthaste_core::destination::{Destination, DestinationChange, DestinationKey};
use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Priority;
use posthaste_core::state::Lane;
use posthaste_engine::store::{Audit, Destinations, Listener, Nodes, Notice, Store, StoredSettings};
use posthaste_store::postgres::{PostgresOptions, PostgresStore};

use super::server::{Server, callers_time};
use crate::scene::at;

const SOON: Duration = Duration::from_secs(20);

async fn heard(ear: &mut Box<dyn Listener>) -> Notice {
    tokio::time::timeout(SOON, ear.next()).await.expect("something is heard").unwrap()
}

fn due(from: i64, buckets: Vec<Bucket>) -> Notice {
    Notice::Due { from: NodeId(from), buckets }
}

async fn put(store: &PostgresStore) {
    let audit = Audit {
        key_id: None,
        address: None,
        tenant: None,
        actor: "ada".to_owned(),
        action: "paint".to_owned(),
        target: "x".to_owned(),
        at: at(0),
    };
    store.put_setting("x".to_owned(), Some("red".to_owned()), audit).await.unwrap();
}

async fn block(store: &PostgresStore) {
    let (key, value) = (DestinationKey::provider("mail"), Some(Destination::default()));
    let change = DestinationChange { key, expected: 0, value, events: vec![] };
    assert!(store.put_destinations(vec![change], None, at(0)).await.unwrap()[0].is_made());
}

#[tokio::test]
async fn every_node_hears_what_one_of_them_tells_and_none_of_another_schema() {
    let server = Server::shared();
    let (url, elsewhere) = (server.schema(), server.schema());
    let one = PostgresStore::connect(&url, callers_time()).await.unwrap();
    let other = PostgresStore::connect(&url, callers_time()).await.unwrap();
    let stranger = PostgresStore::connect(&elsewhere, callers_time()).await.unwrap();
    let mut ears = [one.listen(), other.listen()];
    for ear in &mut ears {
        assert_eq!(heard(ear).await, Notice::Missed, "what was told before is not known");
    }
    let bucket = Bucket { flow: FlowId(1 << 40), lane: Lane::Retry, priority: Priority::Low };
    stranger.tell(NodeId(9), vec![]).await.unwrap();
    put(&stranger).await;
    one.tell(NodeId(1), vec![bucket]).await.unwrap();
    other.tell(NodeId(2), vec![]).await.unwrap();
    block(&stranger).await;
    put(&one).await;
    for ear in &mut ears {
        assert_eq!(heard(ear).await, due(1, vec![bucket]));
        assert_eq!(heard(ear).await, due(2, vec![]));
        assert_eq!(heard(ear).await, Notice::Setting);
    }
    block(&other).await;
    for ear in &mut ears {
        assert_eq!(heard(ear).await, Notice::Destination);
    }
}

/// A node of the version before takes a notice that it does not know for anything.
#[tokio::test]
async fn a_changed_destination_is_not_told_where_nodes_of_the_version_before_listen() {
    let server = Server::shared();
    let url = server.schema();
    let store = PostgresStore::connect(&url, callers_time()).await.unwrap();
    let (client, mut connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let tokio_postgres::AsyncMessage::Notification(notice) = message {
                told.send(notice.payload().to_owned()).unwrap();
            }
        }
    });
    let sql = "select 'posthaste_' || current_schema()::regnamespace::oid";
    let channel: String = client.query_one(sql, &[]).await.unwrap().get(0);
    client.batch_execute(&format!("listen {channel}")).await.unwrap();
    block(&store).await;
    put(&store).await;
    let notice = tokio::time::timeout(SOON, heard.recv()).await.unwrap();
    assert_eq!(notice.as_deref(), Some("setting"), "what was told first");
}

#[tokio::test]
async fn an_ear_that_lost_its_connection_says_so_and_hears_again() {
    let mut server = Server::start();
    let database = server.database();
    let options = PostgresOptions { connect_timeout: SOON, ..callers_time() };
    let store = PostgresStore::connect(&server.url(&database), options).await.unwrap();
    let mut ear = store.listen();
    assert_eq!(heard(&mut ear).await, Notice::Missed);
    server.order("restart");
    let lost = tokio::time::timeout(SOON, ear.next()).await.unwrap();
    assert!(lost.is_err(), "{lost:?}");
    assert_eq!(heard(&mut ear).await, Notice::Missed, "connected again");
    // A connection of the pool may be one that the restart ended.
    while store.tell(NodeId(1), vec![]).await.is_err() {}
    assert_eq!(heard(&mut ear).await, due(1, vec![]));
}

#[tokio::test]
async fn whoever_has_no_session_of_its_own_hears_nothing_and_can_still_tell() {
    let url = Server::shared().schema();
    let pooled = PostgresOptions { prepared: false, ..callers_time() };
    let (direct, pooled) = (
        PostgresStore::connect(&url, callers_time()).await.unwrap(),
        PostgresStore::connect(&url, pooled).await.unwrap(),
    );
    let (mut ear, mut deaf) = (direct.listen(), pooled.listen());
    assert_eq!(heard(&mut ear).await, Notice::Missed);
    pooled.tell(NodeId(3), vec![]).await.unwrap();
    assert_eq!(heard(&mut ear).await, due(3, vec![]));
    assert!(tokio::time::timeout(Duration::from_millis(100), deaf.next()).await.is_err());
}
