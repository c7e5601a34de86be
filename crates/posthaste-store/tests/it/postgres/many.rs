//! Many at once on one database: no lease is granted twice, none to the dead, no request is stored twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::record::{Expected, RecordChange, RecordKey, RecordKind};
use posthaste_core::state::Lane;
use posthaste_engine::store::{
    Accepted, Idempotency, Joined, Nodes, Pulse, Queue, Reads, Records, Request, Settled,
};
use posthaste_store::postgres::{PostgresOptions, PostgresStore};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::server::{Server, callers_time};
use crate::scene::{at, buried, delivered, fill, id, key, lease, quota, request, retried};

const LONG: Duration = Duration::from_secs(3_600);

/// Two stores on one database, as two processes have them.
async fn two() -> (String, [Arc<PostgresStore>; 2]) {
    let server = Server::shared();
    let database = server.database();
    let url = server.url(&database);
    let mut stores = vec![];
    for _ in 0..2 {
        stores.push(Arc::new(PostgresStore::connect(&url, callers_time()).await.unwrap()));
    }
    (database, stores.try_into().ok().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_never_share_a_lease() {
    const ROWS: u128 = 4_000;
    let (_, stores) = two().await;
    let mut flows = vec![];
    for number in 0..8u128 {
        let key = key("acme", &format!("d{number}"));
        flows.push(fill(&*stores[0], &key, number * ROWS / 8, ROWS / 8).await);
    }
    let mut claiming = JoinSet::new();
    for worker in 0..6 {
        let (store, flows) = (stores[worker % 2].clone(), flows.clone());
        claiming.spawn(async move {
            let node = store.join("worker".to_owned(), LONG, at(0)).await.unwrap().node;
            let mut mine: Vec<NotificationId> = vec![];
            for fence in 1.. {
                let quotas = flows.iter().map(|flow| quota(*flow, Lane::Main, 9)).collect();
                let batch = store.claim(quotas, lease(node, fence), at(1)).await.unwrap().claimed;
                if batch.is_empty() {
                    break;
                }
                mine.extend(batch.iter().map(|claimed| claimed.notification.id));
                let outcomes = batch.iter().map(delivered).collect();
                let settled = store.settle(outcomes, at(2)).await.unwrap();
                assert!(settled.iter().all(|how| *how == Settled::Applied), "{settled:?}");
            }
            mine
        });
    }
    let given: Vec<NotificationId> = claiming.join_all().await.concat();
    let distinct: BTreeSet<&NotificationId> = given.iter().collect();
    assert_eq!((given.len() as u128, distinct.len() as u128), (ROWS, ROWS));
    for store in &stores {
        assert_eq!(store.recount().await.unwrap(), None);
    }
    let (_, webhooks) = stores[0].stats(None, at(3)).await.unwrap().channels[0];
    assert_eq!(u128::from(webhooks.delivered_24h), ROWS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twins_at_the_same_time_one_is_new() {
    let (database, stores) = two().await;
    let key = key("acme", "d");
    let flow = stores[0].intern(vec![key.clone()]).await.unwrap()[0];
    // Midnight, when one table takes over from the other, is 14 h from the start of a day of the tests'
    // clock.
    let day = 86_400_000_000;
    let midnight = posthaste_core::time::Timestamp::from_micros((at(0).as_micros() / day + 1) * day);
    let before = midnight.earlier(Duration::from_millis(1));
    for round in 0..30u128 {
        let together = Arc::new(Barrier::new(4));
        let mut sending = JoinSet::new();
        for number in 0..4u128 {
            let (store, together) = (stores[number as usize % 2].clone(), together.clone());
            let mut new = request(id(round * 10 + number), &key, flow, None);
            new.idempotency = Some(Idempotency {
                tenant: key.tenant.clone(),
                key: format!("k{round}"),
                hash: [1; 32],
                answer: vec![number as u8],
            });
            // Half of the rounds happen while the day turns.
            let now = if round % 2 == 0 && number % 2 == 0 { before } else { midnight };
            sending.spawn(async move {
                together.wait().await;
                store.accept(vec![new], now).await.unwrap().answers.remove(0)
            });
        }
        let answers = sending.join_all().await;
        let new = answers.iter().filter(|answer| **answer == Accepted::New).count();
        assert_eq!(new, 1, "round {round}: {answers:?}");
        let twins: Vec<&Accepted> = answers.iter().filter(|answer| **answer != Accepted::New).collect();
        assert!(matches!(twins[0], Accepted::Twin(_)) && twins.iter().all(|twin| *twin == twins[0]));
    }
    assert_eq!(Server::shared().sql(&database, "select count(*) from notification"), "30");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_in_any_order_are_taken_once() {
    let (database, stores) = two().await;
    let keyed = |number: u32| Request {
        idempotency: Some(Idempotency {
            tenant: "acme".parse().unwrap(),
            key: format!("k{number}"),
            hash: [1; 32],
            answer: vec![],
        }),
        arrivals: vec![],
    };
    let mut sending = JoinSet::new();
    for worker in 0..6usize {
        let store = stores[worker % 2].clone();
        sending.spawn(async move {
            let mut random = fastrand::Rng::with_seed(worker as u64);
            let mut new = 0;
            for _ in 0..10 {
                let mut numbers: Vec<u32> = (0..60).collect();
                random.shuffle(&mut numbers);
                let call = numbers.into_iter().map(keyed).collect();
                let answers = store.accept(call, at(0)).await.unwrap().answers;
                new += answers.iter().filter(|answer| **answer == Accepted::New).count();
            }
            new
        });
    }
    assert_eq!(sending.join_all().await.iter().sum::<usize>(), 60);
    let kept = "select (select count(*) from idempotency_even) + (select count(*) from idempotency_odd)";
    assert_eq!(Server::shared().sql(&database, kept), "60");
}

/// Claims and accepts go on while their node is declared dead: nothing may stay with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_with_a_node_that_is_declared_dead() {
    let (database, stores) = two().await;
    let key = key("acme", "d");
    let flow = fill(&*stores[0], &key, 0, 2_000).await;
    for round in 0..8i64 {
        let node = stores[0].join("doomed".to_owned(), Duration::from_secs(1), at(round)).await.unwrap().node;
        let mut working = JoinSet::new();
        for worker in 0..3u32 {
            let (store, key) = (stores[0].clone(), key.clone());
            working.spawn(async move {
                for number in 0..40u32 {
                    let grant = lease(node, i64::from(worker * 1_000 + number));
                    store.claim(vec![quota(flow, Lane::Main, 3)], grant, at(round)).await.unwrap();
                    let name = 1_000_000 * (round as u128 + 1) + u128::from(worker * 1_000 + number);
                    store.accept(vec![request(id(name), &key, flow, Some(grant))], at(round)).await.unwrap();
                }
            });
        }
        // The clock says that its time is up, while it is in the middle of its work.
        tokio::time::sleep(Duration::from_millis(20)).await;
        while stores[1].reclaim(node, 50, at(round + 5)).await.unwrap() == 50 {}
        assert_eq!(stores[0].heartbeat(node, LONG, at(round)).await.unwrap(), Pulse::Lost);
        working.join_all().await;
        let held = format!("select count(*) from queue where node = {}", node.0);
        assert_eq!(Server::shared().sql(&database, &held), "0", "round {round}");
    }
    assert_eq!(stores[1].recount().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_equal_a_recount_after_work_of_many() {
    let (database, stores) = two().await;
    let keys = [key("acme", "a"), key("acme", "b"), key("bolt", "a")];
    let mut working = JoinSet::new();
    for worker in 0..4usize {
        let (store, keys) = (stores[worker % 2].clone(), keys.clone());
        working.spawn(async move {
            let mut random = fastrand::Rng::with_seed(worker as u64);
            let node = store.join("worker".to_owned(), LONG, at(0)).await.unwrap().node;
            for step in 1..30i64 {
                let key = random.choice(&keys).unwrap().clone();
                let first = 1_000_000 * (worker as u128 + 1) + 100 * step as u128;
                let flow = fill(&*store, &key, first, random.u128(1..20)).await;
                let quotas = Lane::ALL.map(|lane| quota(flow, lane, random.u32(0..20))).to_vec();
                let now = at(step * 600);
                let batch = store.claim(quotas, lease(node, step), now).await.unwrap().claimed;
                let outcome = |claimed| match random.u8(0..4) {
                    0 => buried(claimed, DeadLetterId::new(now, fastrand::u128(..))),
                    1 | 2 => delivered(claimed),
                    _ => retried(claimed, now),
                };
                let outcomes = batch.iter().map(outcome).collect();
                let settled = store.settle(outcomes, now).await.unwrap();
                assert!(settled.iter().all(|how| *how == Settled::Applied));
            }
        });
    }
    working.join_all().await;
    for store in &stores {
        assert_eq!(store.recount().await.unwrap(), None);
    }
    let writers: u32 =
        Server::shared().sql(&database, "select count(distinct writer) from counter").parse().unwrap();
    assert!(writers > 1, "every process has rows of its own");
}

#[tokio::test]
async fn the_clock_of_the_server_decides_who_is_alive() {
    let server = Server::shared();
    let options = PostgresOptions { migrate: false, ..PostgresOptions::default() };
    let store = server.store(options).await;
    // These callers are years away from the server's clock, in both directions.
    let Joined { node, now } = store.join("one".to_owned(), LONG, at(0)).await.unwrap();
    let other = store.join("two".to_owned(), Duration::ZERO, at(0)).await.unwrap().node;
    let epoch = server.sql("postgres", "select (extract(epoch from clock_timestamp()) * 1000000)::bigint");
    let apart = epoch.parse::<i64>().unwrap() - now.as_micros();
    assert!((0..10_000_000).contains(&apart), "{apart}");
    let far = at(1_000_000_000);
    assert_eq!(store.reclaim(node, 5, far).await.unwrap(), 0);
    let Pulse::Alive { now: beat, dead, .. } = store.heartbeat(node, LONG, far).await.unwrap() else {
        panic!("a node that lives by the server's clock is lost")
    };
    assert!(beat > now && dead == [other], "{beat} {dead:?}");
    assert_eq!(store.reclaim(other, 5, at(-1_000_000_000)).await.unwrap(), 0);
    assert_eq!(store.heartbeat(other, LONG, at(0)).await.unwrap(), Pulse::Lost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_put_a_record_at_the_same_time_one_does_and_versions_are_seen_in_their_order() {
    let (_, stores) = two().await;
    let barrier = Arc::new(Barrier::new(16));
    let mut putting = JoinSet::new();
    for worker in 0..16 {
        let (store, barrier) = (stores[worker % 2].clone(), barrier.clone());
        putting.spawn(async move {
            let change = |name: String| RecordChange {
                key: RecordKey::new(RecordKind::View, None, name).unwrap(),
                number: 0,
                value: Some(worker.to_string()),
                expected: Expected::Absent,
            };
            let changes = vec![change("shared".to_owned()), change(format!("own {worker}"))];
            barrier.wait().await;
            let made = store.put_records(changes, None, at(1)).await.unwrap();
            let seen = store.records_since(RecordKind::View, 0, 100).await.unwrap();
            let versions: Vec<i64> = seen.iter().map(|record| record.version).collect();
            assert!(versions.iter().copied().eq(1..=versions.len() as i64), "a gap: {versions:?}");
            (made[0].is_some(), made[1].is_some())
        });
    }
    let made = putting.join_all().await;
    assert_eq!(made.iter().filter(|(shared, _)| *shared).count(), 1);
    assert!(made.iter().all(|(_, own)| *own), "{made:?}");
}
