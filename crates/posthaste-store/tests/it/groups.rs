//! Failure groups in a file: rows from before, and more groups than there may be.

use posthaste_core::filter::Filter;
use posthaste_core::group::{GroupBy, GroupId, MAX_GROUPS};
use posthaste_core::id::DeadLetterId;
use posthaste_core::lease::NodeId;
use posthaste_core::state::Lane;
use posthaste_engine::store::{Act, Change, DeadLetterView, FailureGroup, Groups, Store};

use crate::scene::{HOLD, Scene, at, beside, buried, fill, key, lease, quota};

/// Buries that many notifications to a destination, numbered from `first`.
pub(crate) async fn bury(store: &dyn Store, node: NodeId, destination: &str, first: u128, count: u32) {
    let flow = fill(store, &key("acme", destination), first, count.into()).await;
    let fence = i64::try_from(first).unwrap() + 1;
    let quotas = vec![quota(flow, Lane::Main, count)];
    let claimed = store.claim(quotas, lease(node, fence), at(1)).await.unwrap().claimed;
    let name = |number: usize| DeadLetterId::new(at(2), first + number as u128);
    let batch = claimed.iter().enumerate().map(|(number, one)| buried(one, name(number))).collect();
    store.settle(batch, at(2)).await.unwrap();
}

pub(crate) async fn join(store: &dyn Store) -> NodeId {
    store.join("one".to_owned(), HOLD, at(0)).await.unwrap().node
}

/// Titles and counts of the groups of a kind, over all tenants.
pub(crate) async fn listed(store: &dyn Store, by: GroupBy) -> Vec<(String, u64)> {
    let page = store.failure_groups(by, None, None, 10, at(3)).await.unwrap();
    page.rows.into_iter().map(|group| (group.title, group.count)).collect()
}

/// The dead letters to a destination.
pub(crate) async fn letters(store: &dyn Store, destination: &str) -> Vec<DeadLetterView> {
    let filter = Filter { destinations: vec![destination.to_owned()], ..Filter::default() };
    store.dead_letters(filter, None, 100).await.unwrap().rows
}

pub(crate) async fn discard(store: &dyn Store, letter: &DeadLetterView) {
    let facts = store.facts(vec![letter.notification.id]).await.unwrap();
    let change = Change { id: facts[0].id, seen: facts[0].standing.seen(), act: Act::Discard };
    assert_eq!(store.transition(vec![change], None, None, at(4)).await.unwrap(), [true]);
}

/// The count of the group of all others, by destination.
pub(crate) async fn others(store: &dyn Store) -> Option<u64> {
    let other = store.failure_group(GroupId::other(GroupBy::Destination), None, at(3)).await.unwrap();
    other.map(|FailureGroup { title, count, .. }| {
        assert_eq!(title, "other");
        count
    })
}

/// Dead letters to new destinations, where there are as many groups of destinations as there may be.
pub(crate) async fn are_counted_with_others(store: &dyn Store, node: NodeId) {
    bury(store, node, "https://new.example", 100, 3).await;
    assert_eq!(others(store).await, Some(3));
    let new = letters(store, "https://new.example").await;
    discard(store, &new[0]).await;
    discard(store, &new[1]).await;
    assert_eq!(others(store).await, Some(1));
    // While others count, no group makes room: the last one would be looked for in a group of its own.
    assert_eq!(store.prune_groups(at(3), 20_000).await.unwrap(), 0);
    bury(store, node, "https://new.example", 200, 1).await;
    assert_eq!(others(store).await, Some(2));
    for letter in letters(store, "https://new.example").await {
        if letter.resolved_at.is_none() {
            discard(store, &letter).await;
        }
    }
    assert_eq!(others(store).await, Some(0));
    assert!(store.prune_groups(at(3), 30_000).await.unwrap() >= 2 * MAX_GROUPS);
    bury(store, node, "https://new.example", 300, 1).await;
    assert_eq!(listed(store, GroupBy::Destination).await, [("https://new.example".to_owned(), 1)]);
}

#[tokio::test]
async fn beyond_the_limit_dead_letters_count_with_others() {
    let scene = Scene::new().reopen_after(|conn| {
        let full = format!(
            "insert into failure_group (kind, tenant, id, n, label)
             with recursive number (n) as (select 1 union all select n + 1 from number where n < {MAX_GROUPS})
             select 1, t.value, unhex(printf('%032x', n)), 0, 'https://' || n
             from number, json_each('[\"\", \"acme\"]') t"
        );
        conn.execute_batch(&full).unwrap();
    });
    let node = join(&scene.store).await;
    are_counted_with_others(&scene.store, node).await;
    assert_eq!(scene.store.recount().await.unwrap(), None);
}

#[tokio::test]
async fn rows_from_before_count_once_they_are_filled() {
    let scene = Scene::new();
    let node = join(&scene.store).await;
    bury(&scene.store, node, "https://a.example", 0, 25).await;
    let before = letters(&scene.store, "https://a.example").await;
    discard(&scene.store, &before[0]).await;
    let wanted = listed(&scene.store, GroupBy::Fingerprint).await;
    assert_eq!(wanted, [("200: gone".to_owned(), 24)]);
    beside(&scene.path(), |conn| {
        let back = "delete from failure_group; delete from failure_group_hour; update dead_letter set fingerprint = null";
        conn.execute_batch(back).unwrap();
    });
    assert_eq!(listed(&scene.store, GroupBy::Destination).await, []);
    let mut filled = vec![];
    while filled.last() != Some(&0) {
        filled.push(scene.store.fill_groups(10).await.unwrap());
        assert_eq!(scene.store.recount().await.unwrap(), None);
    }
    assert_eq!(filled, [10, 10, 5, 0]);
    assert_eq!(listed(&scene.store, GroupBy::Fingerprint).await, wanted);
    assert_eq!(listed(&scene.store, GroupBy::Destination).await, [("https://a.example".to_owned(), 24)]);
}
