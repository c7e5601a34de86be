//! What is kept beside the rows: keys that take turns, and counters that equal a recount.

use std::time::Duration;

use posthaste_core::id::DeadLetterId;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    Accepted, Act, Acts, Change, Claimed, Facts, Idempotency, Nodes, Queue, Reads, Request,
};
use posthaste_store::sqlite::SqliteStore;

use crate::scene::{HOLD, Scene, at, beside, buried, delivered, fill, id, key, lease, quota, retried};

fn keyed(name: &str, hash: u8) -> Request {
    let idempotency = Idempotency {
        tenant: "acme".parse().unwrap(),
        key: name.to_owned(),
        hash: [hash; 32],
        answer: name.as_bytes().to_vec(),
    };
    Request { idempotency: Some(idempotency), arrivals: vec![] }
}

async fn ask(store: &SqliteStore, name: &str, hash: u8, now: Timestamp) -> Accepted {
    store.accept(vec![keyed(name, hash)], now).await.unwrap().answers.remove(0)
}

#[tokio::test]
async fn idempotency_tables_take_turns_and_are_emptied() {
    let scene = Scene::new();
    let (store, path) = (&scene.store, scene.path());
    let count = |table: &str| -> i64 {
        let sql = format!("select count(*) from {table}");
        beside(&path, |conn| conn.query_row(&sql, [], |row| row.get(0)).unwrap())
    };
    let day = Duration::from_secs(24 * 3600);
    // Noon of an even day.
    let noon = Timestamp::from_micros(20_000 * 86_400_000_000 + 43_200_000_000);
    for number in 0..50 {
        assert_eq!(ask(store, &format!("k{number}"), 1, noon).await, Accepted::New);
    }
    assert_eq!((count("idempotency_even"), count("idempotency_odd")), (50, 0));
    let just_before = noon.later(day).earlier(Duration::from_micros(1));
    assert_eq!(ask(store, "k1", 1, just_before).await, Accepted::Twin(b"k1".to_vec()));
    assert_eq!(ask(store, "k1", 2, just_before).await, Accepted::Conflict);
    assert_eq!(ask(store, "k1", 2, noon.later(day)).await, Accepted::New);
    assert_eq!((count("idempotency_even"), count("idempotency_odd")), (50, 1));
    // The next even day empties its table before it is used.
    assert_eq!(ask(store, "k2", 1, noon.later(day * 2)).await, Accepted::New);
    assert_eq!((count("idempotency_even"), count("idempotency_odd")), (1, 1));
    assert_eq!(ask(store, "k2", 1, noon.later(day * 2)).await, Accepted::Twin(b"k2".to_vec()));
}

#[tokio::test]
async fn counters_equal_a_recount_after_random_work() {
    let mut random = fastrand::Rng::with_seed(7);
    let scene = Scene::new();
    let store = &scene.store;
    let keys = [key("acme", "a"), key("acme", "b"), key("bolt", "a")];
    let node = store.join("one".to_owned(), HOLD, at(0)).await.unwrap().node;
    let mut flows = vec![];
    for (number, key) in keys.iter().enumerate() {
        flows.push(fill(store, key, 1_000 * number as u128, 60).await);
    }
    for step in 1..120 {
        let now = at(step * 400);
        let lane = *random.choice(&Lane::ALL[..]).unwrap();
        let flow = *random.choice(&flows).unwrap();
        let quotas = vec![quota(flow, lane, random.u32(0..20))];
        let batch = store.claim(quotas, lease(node, step), now).await.unwrap().claimed;
        let outcomes = batch.iter().filter(|_| random.bool()).collect::<Vec<_>>();
        let outcomes = outcomes.into_iter().map(|claimed| outcome(claimed, now, &mut random)).collect();
        store.settle(outcomes, now).await.unwrap();
        store.release(lease(node, step), None).await.unwrap();
        let ids = (0..20).map(|_| id(1_000 * random.u128(0..3) + random.u128(0..60))).collect();
        let facts = store.facts(ids).await.unwrap();
        let changes = facts.iter().map(|facts| change(facts, now, &mut random)).collect();
        store.transition(changes, None, None, now).await.unwrap();
        assert_eq!(store.recount().await.unwrap(), None, "step {step}");
    }
    let stats = store.stats(None, at(48_000)).await.unwrap();
    assert!(stats.channels[0].1.delivered_24h > 0 && stats.channels[0].1.ended_24h > 0);
}

fn outcome(
    claimed: &Claimed,
    now: Timestamp,
    random: &mut fastrand::Rng,
) -> posthaste_engine::store::Settlement {
    match random.u8(0..4) {
        0 => delivered(claimed),
        1 => buried(claimed, DeadLetterId::new(now, random.u128(..))),
        _ => retried(claimed, now.later(Duration::from_secs(random.u64(0..900)))),
    }
}

fn change(facts: &Facts, now: Timestamp, random: &mut fastrand::Rng) -> Change {
    let act = match (facts.standing.state, random.u8(0..4)) {
        (State::DeadLetter, 0) => Act::Requeue,
        (State::DeadLetter, 1) | (State::Failed, 2) => Act::Retry,
        (State::DeadLetter, _) => Act::Discard,
        (State::Failed, _) => Act::Restore,
        (State::RetryScheduled, 0) => Act::RetryNow,
        (_, 0) => Act::Expire,
        (_, 1) => Act::Bury {
            dead_letter: DeadLetterId::new(now, random.u128(..)),
            reason: posthaste_core::reason::Reason::MaxAgeExceeded,
            text: "old".to_owned(),
        },
        _ => Act::RequestCancel,
    };
    Change { id: facts.id, seen: facts.standing.seen(), act }
}
