//! A node of the version before knows no soft delete: what it restores is shown again, and not purged.

use posthaste_core::act::Act;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::filter::{Filter, LetterStatus};
use posthaste_core::retention::Kind;
use posthaste_engine::store::{Audit, Change, Prune, Pruned, Store};

use crate::older::{LETTER, dies};
use crate::scene::{Scene, at, beside, id};

/// When the dead letter was soft-deleted, and a time at which it could be purged.
const DELETED: i64 = 1_000;
const LATER: i64 = 9_000;

/// What the version before does when it restores a discarded dead letter: nothing about its deletion.
pub(crate) const RESTORE: &str = "
    update ended set state = 6, reason = 'PERMANENT_FAILURE', text = 'gone';
    update dead_letter set status = 0, resolved_at = null, resolved_by = null";

async fn prune(store: &dyn Store, kind: Kind, second: i64) -> Pruned {
    let audit = Audit {
        tenant: None,
        actor: "me".to_owned(),
        action: "prune".to_owned(),
        target: kind.name().to_owned(),
        at: at(second),
        key_id: None,
        address: None,
    };
    let prune = Prune { kind, cut_off: at(second), limit: 9, now: at(second) };
    store.prune(prune, audit).await.unwrap()
}

/// A dead letter that was discarded, and soft-deleted later by these statements.
pub(crate) async fn is_deleted(store: &dyn Store, run: impl FnOnce(&str)) {
    dies(store).await;
    let facts = store.facts(vec![id(0)]).await.unwrap().pop().unwrap();
    let change = Change { id: id(0), seen: facts.standing.seen(), act: Act::Discard };
    assert_eq!(store.transition(vec![change], None, None, at(3)).await.unwrap(), [true]);
    run(&format!("update dead_letter set deleted_at = {}", at(DELETED).as_micros()));
    assert!(
        listed(store, LetterStatus::Discarded).await == 0 && listed(store, LetterStatus::Deleted).await == 1
    );
}

async fn listed(store: &dyn Store, status: LetterStatus) -> usize {
    let filter = Filter { statuses: vec![status], ..Filter::default() };
    store.dead_letters(filter, None, 9).await.unwrap().rows.len()
}

/// The version before has restored it.
pub(crate) async fn is_shown_again(store: &dyn Store) {
    let letter = store.dead_letter(LETTER).await.unwrap().unwrap();
    assert_eq!((letter.status, letter.deleted_at), (DeadLetterStatus::Pending, None));
    assert_eq!(letter.restored_at, Some(at(DELETED)), "its period counts from no earlier");
    assert_eq!(
        (listed(store, LetterStatus::Pending).await, listed(store, LetterStatus::Deleted).await),
        (1, 0)
    );
    assert_eq!(prune(store, Kind::DeletedLetters, LATER).await, Pruned { removed: 0, done: true });
    let facts = store.facts(vec![id(0)]).await.unwrap().pop().unwrap();
    let change = Change { id: id(0), seen: facts.standing.seen(), act: Act::Requeue };
    assert_eq!(store.transition(vec![change], None, None, at(LATER)).await.unwrap(), [true]);
}

#[tokio::test]
async fn what_the_version_before_restores_is_shown_and_not_purged() {
    let scene = Scene::new();
    is_deleted(&scene.store, |sql| beside(&scene.path(), |conn| conn.execute_batch(sql).unwrap())).await;
    beside(&scene.path(), |conn| conn.execute_batch(RESTORE).unwrap());
    is_shown_again(&scene.store).await;
}

#[tokio::test]
async fn what_the_version_before_restored_before_the_step_is_shown_by_it() {
    let scene = Scene::new();
    is_deleted(&scene.store, |sql| beside(&scene.path(), |conn| conn.execute_batch(sql).unwrap())).await;
    let scene = scene.reopen_after(|conn| {
        conn.execute_batch("drop trigger dead_letter_shown").unwrap();
        conn.execute_batch(RESTORE).unwrap();
        conn.execute_batch(include_str!("../../migrations/sqlite/0013_shown_again.sql")).unwrap();
    });
    is_shown_again(&scene.store).await;
}
