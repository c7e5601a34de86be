//! Clients: they hand in notifications, and act on them.

use std::sync::Arc;

use posthaste_core::id::NotificationId;
use posthaste_core::notification::Notification;
use posthaste_engine::accept::AcceptError;
use posthaste_engine::acts::Actor;
use posthaste_engine::engine::Engine;
use posthaste_engine::store::{Accepted, Idempotency};

use super::inbound::hand_in;
use super::life::Life;
use super::world::World;

/// What a request under a key is answered with: the ids of the try that was stored.
pub(super) fn answer(ids: &[NotificationId]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_bytes()).collect()
}

/// A client hands in notifications and learns what became of them.
pub(super) async fn client(
    world: Arc<World>,
    life: Arc<Life>,
    engine: Arc<Engine>,
    key: Option<String>,
    notifications: Vec<Notification>,
) {
    let ids: Vec<NotificationId> = notifications.iter().map(|one| one.id).collect();
    let idempotency = key.clone().map(|key| Idempotency {
        tenant: "t0".parse().unwrap(),
        key,
        hash: [7; 32],
        answer: answer(&ids),
    });
    if let Some(key) = &key {
        world.ledger.lock().unwrap().keys.entry(key.clone()).or_default().offers.push(ids.clone());
    }
    let answered = tokio::select! {
        biased;
        () = life.ends() => return,
        answered = hand_in(&world, &engine, idempotency, notifications) => answered,
    };
    told(&world, key, ids, answered);
}

/// The client learns what became of its request.
fn told(
    world: &World,
    key: Option<String>,
    ids: Vec<NotificationId>,
    answered: Result<Accepted, AcceptError>,
) {
    let mut ledger = world.ledger.lock().unwrap();
    let told = match answered {
        Ok(Accepted::New) => {
            ledger.acknowledged.extend(&ids);
            answer(&ids)
        }
        Ok(Accepted::Twin(told)) => told,
        Ok(Accepted::Conflict) => {
            return world.break_promise(format!("I9: {key:?} is in conflict with itself"));
        }
        Err(_) => return,
    };
    let Some(key) = key else { return };
    let keyed = ledger.keys.entry(key.clone()).or_default();
    if keyed.answer.get_or_insert_with(|| told.clone()) != &told {
        world.break_promise(format!("I9: {key} was answered in two ways"));
    }
}

/// A person or program acts on a notification, or on its last dead letter.
pub(super) async fn act(world: &World, engine: &Engine, id: NotificationId, what: usize) {
    let actor = Actor::local("simulation", None);
    let letter = world.model.inspect(|tables| {
        let mut letters = tables.dead_letters.iter().filter(|(_, view)| view.notification.id == id);
        letters.next_back().map(|(letter, _)| *letter)
    });
    let _ = match (what, letter) {
        (0, _) => engine.cancel(id, &actor).await,
        (1, _) => engine.retry_now(id, &actor).await,
        (3, Some(letter)) => engine.requeue(letter, &actor).await,
        (4, Some(letter)) => engine.discard(letter, &actor).await,
        (5, Some(letter)) => engine.restore(letter, &actor).await,
        _ => engine.retry(id, &actor).await,
    };
}
