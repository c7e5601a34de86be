//! Rows that are hard to read: one that cannot be read stops nobody but itself, and large ones come a few at
//! a time.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::filter::Filter;
use posthaste_core::id::DeadLetterId;
use posthaste_core::lease::Fence;
use posthaste_core::notification::{Body, Content};
use posthaste_core::state::Lane;
use posthaste_engine::store::{Arrival, ClaimResult, Held, Nodes, Queue, Reads, Request, StoreError, Waking};
use posthaste_store::postgres::PostgresStore;

use super::server::{Server, callers_time};
use crate::scene::{
    at, buried, expired, fill, fill_expiring, id, key, lease, notification, only_what_makes_sense_wakes,
    quota,
};

/// A store with ten waiting rows, of which two are damaged: one in its content, one by its kind.
async fn damaged() -> (PostgresStore, posthaste_core::flow::FlowId) {
    let server = Server::shared();
    let database = server.database();
    let store = PostgresStore::connect(&server.url(&database), callers_time()).await.unwrap();
    let flow = fill(&store, &key("acme", "d"), 0, 10).await;
    for (number, content) in [(0, "{"), (3, "{\"body\":{\"smoke\":\"signal\"}}")] {
        let name = uuid::Uuid::from_bytes(id(number).to_bytes());
        server.sql(&database, &format!("update notification set content = '{content}' where id = '{name}'"));
    }
    (store, flow)
}

#[tokio::test]
async fn a_damaged_row_is_set_aside_and_its_place_is_filled() {
    let (store, flow) = damaged().await;
    let node = store.join("one".to_owned(), Duration::from_secs(99), at(0)).await.unwrap().node;
    let claim = |fence| store.claim(vec![quota(flow, Lane::Main, 6)], lease(node, fence), at(1));
    let first = claim(1).await.unwrap();
    assert_eq!((first.claimed.len(), first.set_aside), (6, vec![id(0), id(3)]));
    assert_eq!(claim(2).await.unwrap().claimed.len(), 2);
    assert_eq!(claim(3).await.unwrap(), ClaimResult::default());
    // The two are held as well, so that nobody meets them again before the node is gone.
    assert_eq!(store.stats(None, at(1)).await.unwrap().channels[0].1.sending, 10);
    let held = store.held(node, None, 99).await.unwrap();
    let fences = [1, 1, 1, 1, 1, 1, 1, 1, 2, 2].map(Fence);
    assert_eq!(held, (0..10).map(id).zip(fences).map(|(id, fence)| Held { id, fence }).collect::<Vec<_>>());
}

/// A store that sees what `harm` did to the tables beside it.
async fn harmed(database: &str, harm: &str) -> PostgresStore {
    let server = Server::shared();
    server.sql(database, harm);
    PostgresStore::connect(&server.url(database), callers_time()).await.unwrap()
}

#[tokio::test]
async fn a_damaged_row_does_not_keep_the_others_from_expiring() {
    let database = Server::shared().database();
    let store = harmed(&database, "select").await;
    fill_expiring(&store, &key("acme", "a"), 5, at(5)).await;
    let names = [0, 2].map(|number| uuid::Uuid::from_bytes(id(number).to_bytes()));
    let sql = format!("update queue set attempt = -1 where id in ('{}', '{}')", names[0], names[1]);
    let store = harmed(&database, &sql).await;
    assert_eq!(expired(&store, at(9), 2).await, (vec![id(1), id(3)], Some(at(5))));
    assert_eq!(expired(&store, at(9), 9).await, (vec![id(1), id(3), id(4)], None));
    assert_eq!(expired(&store, at(1), 9).await, (vec![], Some(at(5))));
}

#[tokio::test]
async fn a_bucket_that_makes_no_sense_keeps_no_other_from_waking() {
    let database = Server::shared().database();
    let store = harmed(&database, "select").await;
    let mut flows = vec![];
    for number in 0..4 {
        flows.push(fill(&store, &key("acme", &number.to_string()), number * 10, 2).await);
    }
    let flows: [_; 4] = flows.try_into().unwrap();
    let harm = format!(
        "update queue set lane = 9 where flow = {};
         delete from flow where id = {};
         update flow set tenant = 'No Body' where id = {}",
        flows[0].0, flows[1].0, flows[2].0
    );
    only_what_makes_sense_wakes(&harmed(&database, &harm).await, flows).await;
}

#[tokio::test]
async fn lists_leave_a_damaged_row_out_and_whoever_asks_for_it_is_told() {
    let (store, _) = damaged().await;
    let page = store.page(Filter::default(), None, 7).await.unwrap();
    let rest = store.page(Filter::default(), page.next, 7).await.unwrap();
    assert_eq!((page.rows.len() + rest.rows.len(), rest.next), (8, None));
    assert_eq!(store.overdue(at(9), at(9), None, 8).await.unwrap().len(), 8);
    let error = store.get(id(3)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { what } if what.contains("ntf_")), "{error}");
    assert!(!error.to_string().contains("smoke"), "{error}");
}

#[tokio::test]
async fn what_a_broken_server_sends_can_be_kept() {
    let server = Server::shared();
    let store = server.store(callers_time()).await;
    let flow = fill(&store, &key("acme", "d"), 0, 1).await;
    let node = store.join("one".to_owned(), Duration::from_secs(99), at(0)).await.unwrap().node;
    let batch = store.claim(vec![quota(flow, Lane::Main, 6)], lease(node, 1), at(1)).await.unwrap().claimed;
    let mut outcome = buried(&batch[0], DeadLetterId::new(at(1), 7));
    outcome.attempt.as_mut().unwrap().error = Some("so\0what".to_owned());
    store.settle(vec![outcome], at(2)).await.unwrap();
    let letters = store.dead_letters(Filter::default(), None, 5).await.unwrap();
    assert_eq!(letters.rows[0].attempts[0].error.as_deref(), Some("so\u{fffd}what"));
}

#[tokio::test]
async fn a_page_of_large_rows_is_short_and_has_a_next() {
    let store = Server::shared().store(callers_time()).await;
    let key = key("acme", "d");
    let flow = store.intern(vec![key.clone()]).await.unwrap()[0];
    for number in 0..10 {
        let mut large = notification(id(number), &key);
        large.content = Content::of(Body::Text("x".repeat(1 << 20)));
        let arrival = Arrival { notification: Arc::new(large), flow, due: at(0), lease: None };
        let request = Request { idempotency: None, arrivals: vec![arrival] };
        store.accept(vec![request], at(0)).await.unwrap();
    }
    let (mut shown, mut before) = (vec![], None);
    loop {
        let page = store.page(Filter::default(), before, 10).await.unwrap();
        assert!(page.rows.len() <= 4, "{}", page.rows.len());
        shown.extend(page.rows.iter().map(|row| row.notification.id));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(shown, (0..10).rev().map(id).collect::<Vec<_>>());
}
