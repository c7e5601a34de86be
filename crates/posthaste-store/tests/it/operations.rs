//! Operations: each definition is read once, and one that cannot be read stops nobody but itself.

use posthaste_core::id::{DeadLetterId, OperationId};
use posthaste_core::operation::{Action, Operation, OperationChange, Selection, Standing};
use posthaste_core::retention::Kind;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Audit, Nodes, Operations, Prune, Pruned, Retention, Store, Walk};
use rusqlite::params;

use crate::scene::{HOLD, Scene, at, beside};

/// An operation over so many ids of dead letters that do not exist.
pub(crate) fn operation(number: u128, ids: u128) -> Operation {
    let letter = |number| DeadLetterId::new(Timestamp::from_millis(1), number).to_string();
    Operation {
        id: OperationId::new(Timestamp::from_millis(at(3).as_millis()), number),
        tenant: None,
        action: Action::Requeue,
        selection: Selection::Ids((0..ids).map(letter).collect()),
        cut_off: at(3),
        rate: None,
        canary: None,
        started_by: "ada".to_owned(),
        key_id: None,
        address: None,
        started_at: at(3),
        standing: Standing::default(),
        runner: None,
    }
}

pub(crate) fn audit() -> Audit {
    Audit {
        tenant: None,
        actor: "ada".to_owned(),
        action: "start-operation".to_owned(),
        target: "op".to_owned(),
        at: at(3),
        key_id: None,
        address: None,
    }
}

/// Steps that would need the definition: it is not there to be read any more.
pub(crate) async fn goes_on_without_its_definition(store: &dyn Store, id: OperationId) {
    let looked = store.unfinished_operations(9, at(4)).await.unwrap();
    assert_eq!(looked.len(), 1);
    assert_eq!(looked[0].operation.selection, operation(1, 10_000).selection);
    let node = store.join("one".to_owned(), HOLD, at(4)).await.unwrap().node;
    let adopted = store.adopt_operation(id, node, at(4)).await.unwrap().unwrap();
    assert_eq!(adopted.runner, Some(node));
    let walk = Walk { from: None, found: vec![], next: None };
    assert!(store.mark(id, node, walk, at(5)).await.unwrap().is_some());
    assert!(store.forward(id, node, vec![], at(6)).await.unwrap().is_some());
    let ended = store.change_operation(id, OperationChange::Finish { node }, None, at(7)).await.unwrap();
    assert!(ended.unwrap().unwrap().is_finished());
}

#[tokio::test]
async fn the_definition_of_an_operation_is_read_once() {
    let scene = Scene::new();
    let asked = operation(1, 10_000);
    let id = asked.id;
    scene.store.start_operation(asked, None, audit(), at(3)).await.unwrap();
    // The first look after a restart reads it.
    let scene = scene.reopen();
    assert_eq!(scene.store.unfinished_operations(9, at(4)).await.unwrap().len(), 1);
    beside(&scene.path(), |conn| {
        conn.execute("update operation set definition = 'gone' where id = ?1", params![id.to_bytes()])
            .unwrap();
    });
    goes_on_without_its_definition(&scene.store, id).await;
    // Once it is finished it is not kept in memory.
    assert!(scene.store.operation(id).await.is_err());
}

#[tokio::test]
async fn an_operation_that_cannot_be_read_does_not_hold_up_the_others() {
    for (column, text) in [("standing", "{"), ("definition", "{\"id\": 1}"), ("standing", "7")] {
        let scene = Scene::new();
        for number in 1..=3 {
            scene.store.start_operation(operation(number, 1), None, audit(), at(3)).await.unwrap();
        }
        let scene = scene.reopen_after(|conn| {
            let sql = format!("update operation set {column} = ?2 where id = ?1");
            conn.execute(&sql, params![operation(2, 1).id.to_bytes(), text]).unwrap();
        });
        let found = scene.store.unfinished_operations(9, at(4)).await.unwrap();
        let ids: Vec<OperationId> = found.iter().map(|one| one.operation.id).collect();
        assert_eq!(ids, [1, 3].map(|number| operation(number, 1).id), "{column} {text}");
        assert!(scene.store.operation(operation(2, 1).id).await.is_err(), "whoever asks for it is told");
    }
}

/// Retention passes over what it cannot read: it is neither removed nor in the way.
#[tokio::test]
async fn an_ended_operation_that_cannot_be_read_stays_and_the_others_are_removed() {
    let scene = Scene::new();
    let node = scene.store.join("one".to_owned(), HOLD, at(3)).await.unwrap().node;
    for number in 1..=2 {
        let id = operation(number, 1).id;
        scene.store.start_operation(operation(number, 1), None, audit(), at(3)).await.unwrap();
        scene.store.adopt_operation(id, node, at(4)).await.unwrap().unwrap();
        let walk = Walk { from: None, found: vec![], next: None };
        scene.store.mark(id, node, walk, at(5)).await.unwrap().unwrap();
        let finish = OperationChange::Finish { node };
        scene.store.change_operation(id, finish, None, at(6)).await.unwrap().unwrap().unwrap();
    }
    let scene = scene.reopen_after(|conn| {
        let sql = "update operation set standing = '{' where id = ?1";
        conn.execute(sql, params![operation(1, 1).id.to_bytes()]).unwrap();
    });
    for (kind, removed) in [(Kind::OperationItems, 0), (Kind::Operations, 1)] {
        let prune = Prune { kind, cut_off: at(99), limit: 9, now: at(99) };
        let done = scene.store.prune(prune, audit()).await.unwrap();
        assert_eq!(done, Pruned { removed, done: true });
    }
    assert!(scene.store.operation(operation(1, 1).id).await.is_err());
    assert!(scene.store.operation(operation(2, 1).id).await.unwrap().is_none());
}
