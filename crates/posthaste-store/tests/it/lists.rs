//! Lists of large notifications: a page stays small, and the pages together show everything once.

use std::sync::Arc;

use posthaste_core::filter::Filter;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::{Body, Content, Notification};
use posthaste_core::state::Lane;
use posthaste_engine::store::{Arrival, Nodes, Page, Queue, Reads, Request};

use crate::scene::{HOLD, Scene, at, buried, id, key, lease, notification, quota, retried};

const COUNT: u128 = 60;
const LARGE: usize = 250 * 1024;
/// The most rows of that size that fit into the bytes of a page.
const MOST: usize = 4 * 1024 * 1024 / LARGE + 1;

/// Checks that a page is small and goes on, and notes what it shows.
fn note<T, C>(
    page: Page<T, C>,
    seen: &mut Vec<NotificationId>,
    id: impl Fn(&T) -> NotificationId,
) -> Option<C> {
    assert!((1..=MOST).contains(&page.rows.len()), "{} rows", page.rows.len());
    seen.extend(page.rows.iter().map(id));
    page.next
}

async fn large() -> Scene {
    let (scene, key) = (Scene::new(), key("acme", "a"));
    let store = &scene.store;
    let flow = store.intern(vec![key.clone()]).await.unwrap()[0];
    for number in 0..COUNT {
        let content = Content::of(Body::Text("x".repeat(LARGE)));
        let one = Arc::new(Notification { content, ..notification(id(number), &key) });
        let arrivals = vec![Arrival { notification: one, flow, due: at(0), lease: None }];
        store.accept(vec![Request { idempotency: None, arrivals }], at(0)).await.unwrap();
    }
    scene
}

#[tokio::test]
async fn a_page_of_large_notifications_is_short_and_the_next_one_goes_on() {
    let scene = large().await;
    let store = &scene.store;
    let (mut seen, mut before) = (vec![], None);
    loop {
        let page = store.page(Filter::default(), before, 500).await.unwrap();
        before = note(page, &mut seen, |row| row.notification.id);
        if before.is_none() {
            break;
        }
    }
    let all: Vec<NotificationId> = (0..COUNT).rev().map(id).collect();
    assert_eq!(seen, all);

    let node = store.join("one".to_owned(), HOLD, at(0)).await.unwrap().node;
    let flow = store.intern(vec![key("acme", "a")]).await.unwrap()[0];
    let batch = store.claim(vec![quota(flow, Lane::Main, 500)], lease(node, 1), at(1)).await.unwrap().claimed;
    let (die, wait) = batch.split_at(batch.len() / 2);
    let letters =
        die.iter().enumerate().map(|(at_, claimed)| buried(claimed, DeadLetterId::new(at(2), at_ as u128)));
    store
        .settle(letters.chain(wait.iter().map(|claimed| retried(claimed, at(9)))).collect(), at(2))
        .await
        .unwrap();
    let (mut seen, mut before) = (vec![], None);
    loop {
        let page = store.dead_letters(Filter::default(), before, 500).await.unwrap();
        before = note(page, &mut seen, |row| row.notification.id);
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, die.iter().rev().map(|claimed| claimed.notification.id).collect::<Vec<_>>());
    let (mut seen, mut after) = (vec![], None);
    loop {
        let page = store.retry_queue(Filter::default(), after, 500).await.unwrap();
        after = note(page, &mut seen, |row| row.notification.id);
        if after.is_none() {
            break;
        }
    }
    seen.sort();
    let mut waiting: Vec<_> = wait.iter().map(|claimed| claimed.notification.id).collect();
    waiting.sort();
    assert_eq!(seen, waiting);
}
