//! A dead letter is requeued and retried from its own snapshot, whatever was removed of its notification.

use posthaste_core::act::Act;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::filter::Filter;
use posthaste_core::id::DeadLetterId;
use posthaste_core::state::{Lane, State};
use posthaste_engine::store::{Change, Store};

use crate::older::{LETTER, dies};
use crate::scene::{HOLD, Scene, at, beside, buried, id, key, lease, notification, quota};

/// What is removed before each act.
pub(crate) const REMOVED: [&str; 2] = [
    "delete from attempt; delete from event",
    "delete from attempt; delete from event; delete from notification",
];

/// The acts in their order, and the attempt that comes next. All of them are made without the wide row.
pub(crate) const ACTS: [(&[Act], u32); 3] =
    [(&[Act::Requeue], 1), (&[Act::Retry], 2), (&[Act::Discard, Act::Restore, Act::Discard, Act::Retry], 2)];

/// A notification dies, something is removed, and after the acts it is sent again and dies again.
pub(crate) async fn comes_back(store: &dyn Store, acts: &[Act], attempt: u32, remove: impl FnOnce()) {
    let died = dies(store).await;
    remove();
    for act in acts {
        let facts = store.facts(vec![id(0)]).await.unwrap().pop().unwrap();
        assert_eq!(facts.standing.letter().map(|(letter, _)| letter), Some(LETTER));
        let change = Change { id: id(0), seen: facts.standing.seen(), act: act.clone() };
        let made = store.transition(vec![change], Some("me".to_owned()), None, at(3)).await.unwrap();
        assert_eq!(made, [true], "{act:?}");
    }
    let (sent, key) = (notification(id(0), &key("acme", "d")), key("acme", "d"));
    let mine = Filter { tenant: Some(key.tenant.clone()), ..Filter::default() };
    let page = store.page(mine, None, 9).await.unwrap();
    assert_eq!(page.rows.iter().map(|view| &*view.notification).collect::<Vec<_>>(), [&sent]);
    let node = store.join("two".to_owned(), HOLD, at(4)).await.unwrap().node;
    let flow = store.intern(vec![key]).await.unwrap()[0];
    let claimed = store.claim(vec![quota(flow, Lane::Main, 9)], lease(node, 2), at(4)).await.unwrap().claimed;
    assert_eq!(claimed.len(), 1);
    assert_eq!(*claimed[0].notification, sent);
    assert_eq!((claimed[0].progress.generation, claimed[0].progress.attempt), (2, attempt));
    let second = DeadLetterId::new(at(5), 5);
    store.settle(vec![buried(&claimed[0], second)], at(5)).await.unwrap();
    let letter = store.dead_letter(second).await.unwrap().unwrap();
    assert_eq!((letter.notification, letter.attempts.len()), (died.notification, 1));
    assert_eq!(store.get(id(0)).await.unwrap().unwrap().state, State::DeadLetter);
    let first = store.dead_letter(LETTER).await.unwrap().unwrap();
    assert_eq!(first.attempts, died.attempts);
    assert_ne!(first.status, DeadLetterStatus::Pending);
}

#[tokio::test]
async fn a_dead_letter_comes_back_although_its_notification_and_its_past_were_removed() {
    for removed in REMOVED {
        for (acts, attempt) in ACTS {
            let scene = Scene::new();
            let remove = || beside(&scene.path(), |conn| conn.execute_batch(removed).unwrap());
            comes_back(&scene.store, acts, attempt, remove).await;
        }
    }
}
