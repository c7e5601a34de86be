//! A row that cannot be read stops nobody but itself.

use posthaste_core::filter::Filter;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::Fence;
use posthaste_core::state::Lane;
use posthaste_engine::store::{Held, Nodes, Queue, Reads, StoreError, Waking};
use posthaste_store::sqlite::SqliteStore;
use rusqlite::params;

use crate::scene::{
    HOLD, Scene, at, buried, expired, fill, fill_expiring, id, key, lease, only_what_makes_sense_wakes,
    quota, retried,
};

/// Texts that are no content: damaged, of an unknown kind, and not even text.
const DAMAGE: [&[u8]; 3] = [b"{\"body\":{\"te", b"{\"body\":{\"scent\":\"rose\"}}", b"\xff\xfe"];

fn damage(scene: Scene, table: &str, id: &[u8; 16], content: &[u8]) -> Scene {
    let sql = format!("update {table} set content = cast(?2 as text) where id = ?1");
    scene.reopen_after(|conn| {
        assert_eq!(conn.execute(&sql, params![id, content]).unwrap(), 1);
    })
}

async fn claimed(store: &SqliteStore, quotas: &[(i64, u32)]) -> Vec<NotificationId> {
    let node = store.join("one".to_owned(), HOLD, at(1)).await.unwrap().node;
    let quota = |(flow, limit): &(i64, u32)| quota(posthaste_core::flow::FlowId(*flow), Lane::Main, *limit);
    let mut ids = vec![];
    for fence in 1..4 {
        let quotas = quotas.iter().map(quota).collect();
        let batch = store.claim(quotas, lease(node, fence), at(1)).await.unwrap().claimed;
        ids.extend(batch.iter().map(|claimed| claimed.notification.id));
    }
    ids
}

#[tokio::test]
async fn a_damaged_row_is_set_aside_and_the_others_are_claimed() {
    for content in DAMAGE {
        let scene = Scene::new();
        let one = fill(&scene.store, &key("acme", "a"), 0, 4).await;
        let two = fill(&scene.store, &key("acme", "b"), 10, 2).await;
        let scene = damage(scene, "notification", &id(0).to_bytes(), content);
        let good = [1, 2, 3, 10, 11].map(id);
        assert_eq!(claimed(&scene.store, &[(one.0, 9), (two.0, 9)]).await, good);
        // After a restart nobody holds it, until it is met and set aside again.
        let scene = scene.reopen();
        let store = &scene.store;
        let next = store.join("two".to_owned(), HOLD, at(2)).await.unwrap().node;
        let dead = store.heartbeat(next, HOLD, at(2)).await.unwrap();
        let posthaste_engine::store::Pulse::Alive { dead, .. } = dead else { panic!("{dead:?}") };
        assert_eq!(store.reclaim(dead[0], 99, at(2)).await.unwrap(), 6);
        assert_eq!(claimed(store, &[(one.0, 9), (two.0, 9)]).await, good);
    }
}

#[tokio::test]
async fn a_place_that_went_to_a_damaged_row_is_filled_again() {
    let scene = Scene::new();
    let flow = fill(&scene.store, &key("acme", "a"), 0, 5).await;
    let mut scene = scene;
    for number in [0, 1, 3] {
        scene = damage(scene, "notification", &id(number).to_bytes(), DAMAGE[0]);
    }
    let node = scene.store.join("one".to_owned(), HOLD, at(1)).await.unwrap().node;
    let claimed = scene.store.claim(vec![quota(flow, Lane::Main, 2)], lease(node, 1), at(1)).await.unwrap();
    assert_eq!(
        claimed.claimed.iter().map(|claimed| claimed.notification.id).collect::<Vec<_>>(),
        [2, 4].map(id)
    );
    assert_eq!(claimed.set_aside, [0, 1, 3].map(id));
    let held = scene.store.held(node, None, 9).await.unwrap();
    assert_eq!(held, [0, 1, 2, 3, 4].map(|number| Held { id: id(number), fence: Fence(1) }));
}

#[tokio::test]
async fn a_row_whose_content_is_gone_is_set_aside() {
    let scene = Scene::new();
    let flow = fill(&scene.store, &key("acme", "a"), 0, 3).await;
    let scene = scene.reopen_after(|conn| {
        conn.execute("delete from notification where id = ?1", [id(1).to_bytes()]).unwrap();
    });
    let node = scene.store.join("one".to_owned(), HOLD, at(1)).await.unwrap().node;
    let claimed = scene.store.claim(vec![quota(flow, Lane::Main, 9)], lease(node, 1), at(1)).await.unwrap();
    assert_eq!(
        claimed.claimed.iter().map(|claimed| claimed.notification.id).collect::<Vec<_>>(),
        [0, 2].map(id)
    );
    assert_eq!(claimed.set_aside, [id(1)]);
}

#[tokio::test]
async fn a_damaged_row_does_not_keep_the_others_from_expiring() {
    let scene = Scene::new();
    fill_expiring(&scene.store, &key("acme", "a"), 5, at(5)).await;
    let scene = scene.reopen_after(|conn| {
        for number in [0, 2] {
            conn.execute("update queue set attempt = -1 where id = ?1", [id(number).to_bytes()]).unwrap();
        }
    });
    let store = &scene.store;
    assert_eq!(expired(store, at(9), 2).await, (vec![id(1), id(3)], Some(at(5))));
    assert_eq!(expired(store, at(9), 9).await, (vec![id(1), id(3), id(4)], None));
    assert_eq!(expired(store, at(1), 9).await, (vec![], Some(at(5))));
}

#[tokio::test]
async fn a_bucket_that_makes_no_sense_keeps_no_other_from_waking() {
    let scene = Scene::new();
    let mut flows = vec![];
    for number in 0..4 {
        flows.push(fill(&scene.store, &key("acme", &number.to_string()), number * 10, 2).await);
    }
    let flows: [_; 4] = flows.try_into().unwrap();
    let scene = scene.reopen_after(|conn| {
        conn.execute("update queue set lane = 9 where flow = ?1", [flows[0].0]).unwrap();
        conn.execute("delete from flow where id = ?1", [flows[1].0]).unwrap();
        conn.execute("update flow set tenant = 'No Body' where id = ?1", [flows[2].0]).unwrap();
    });
    only_what_makes_sense_wakes(&scene.store, flows).await;
}

#[tokio::test]
async fn lists_leave_a_damaged_row_out_and_whoever_asks_for_it_is_told() {
    for content in DAMAGE {
        let scene = Scene::new();
        let flow = fill(&scene.store, &key("acme", "a"), 0, 3).await;
        let node = scene.store.join("one".to_owned(), HOLD, at(0)).await.unwrap().node;
        let quotas = vec![quota(flow, Lane::Main, 3)];
        let batch = scene.store.claim(quotas, lease(node, 1), at(1)).await.unwrap().claimed;
        let retries = batch.iter().map(|claimed| retried(claimed, at(5))).collect();
        scene.store.settle(retries, at(2)).await.unwrap();
        let scene = damage(scene, "notification", &id(1).to_bytes(), content);
        let store = &scene.store;

        let page = store.page(Default::default(), None, 9).await.unwrap();
        assert_eq!(page.rows.iter().map(|view| view.notification.id).collect::<Vec<_>>(), [2, 0].map(id));
        let retries = store.retry_queue(Filter::default(), None, 9).await.unwrap();
        assert_eq!(retries.rows.iter().map(|view| view.notification.id).collect::<Vec<_>>(), [0, 2].map(id));
        // Its policy does not depend on its content, which is not read.
        let overdue = store.overdue(at(9), at(9), None, 3).await.unwrap();
        assert_eq!(overdue.iter().map(|row| row.id).collect::<Vec<_>>(), [0, 1, 2].map(id));
        is_corrupt(store.get(id(1)).await, &id(1).to_string());
        assert!(store.get(id(2)).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_damaged_dead_letter_is_left_out_of_the_list() {
    for content in DAMAGE {
        let scene = Scene::new();
        let flow = fill(&scene.store, &key("acme", "a"), 0, 2).await;
        let node = scene.store.join("one".to_owned(), HOLD, at(0)).await.unwrap().node;
        let quotas = vec![quota(flow, Lane::Main, 2)];
        let batch = scene.store.claim(quotas, lease(node, 1), at(1)).await.unwrap().claimed;
        let names = [1, 2].map(|number| DeadLetterId::new(at(2), number));
        let burials = batch.iter().zip(names).map(|(claimed, name)| buried(claimed, name)).collect();
        scene.store.settle(burials, at(2)).await.unwrap();
        let scene = damage(scene, "dead_letter", &names[1].to_bytes(), content);
        let page = scene.store.dead_letters(Default::default(), None, 9).await.unwrap();
        assert_eq!(page.rows.iter().map(|letter| letter.id).collect::<Vec<_>>(), [names[0]]);
        is_corrupt(scene.store.dead_letter(names[1]).await, &names[1].to_string());
    }
}

#[tokio::test]
async fn a_field_of_a_newer_version_and_an_unsound_policy_are_passed_over() {
    let scene = Scene::new();
    let flow = fill(&scene.store, &key("acme", "a"), 0, 1).await;
    let newer = br#"{"body":{"text":"hello"},"attachments":[1],"policy":{"maxAttempts":0}}"#;
    let scene = damage(scene, "notification", &id(0).to_bytes(), newer);
    assert_eq!(claimed(&scene.store, &[(flow.0, 1)]).await, [id(0)]);
    let view = scene.store.get(id(0)).await.unwrap().unwrap();
    assert_eq!(view.notification.content.policy, None);
}

#[track_caller]
fn is_corrupt<T: std::fmt::Debug>(answer: Result<T, StoreError>, name: &str) {
    let Err(StoreError::Corrupt { what }) = answer else { panic!("{answer:?}") };
    assert!(what.contains(name) && !what.contains("rose"), "{what}");
}
