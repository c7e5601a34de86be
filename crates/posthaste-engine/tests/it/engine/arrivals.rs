//! Taking in: what an answer means, repeats, and when the first attempt is made.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::state::State;
use posthaste_engine::accept::AcceptError;
use posthaste_engine::engine::Engine;
use posthaste_engine::store::{Accepted, Idempotency};
use tokio::task::JoinSet;

use super::PLAIN;
use crate::rig::{
    BEGIN, FaultyStore, Rig, Trouble, ada, assert_arrived, assert_at, ms, notification, pass, secs, send,
};

fn key(name: &str, hash: u8, answer: &str) -> Option<Idempotency> {
    let tenant = "default".parse().unwrap();
    Some(Idempotency { tenant, key: name.to_owned(), hash: [hash; 32], answer: answer.into() })
}

#[tokio::test(start_paused = true)]
async fn nothing_is_answered_or_sent_before_it_is_stored() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("accept", [Trouble::DoneLate(secs(3))]);
    let new = notification(&engine, "a", PLAIN);
    let id = new.id;
    let watch = async {
        pass(ms(2_990)).await;
        assert!(rig.model.inspect(|tables| tables.queue.is_empty()));
        assert!(rig.channel.arrivals().is_empty());
    };
    let (accepted, ()) = tokio::join!(
        async {
            let accepted = engine.accept(None, vec![new]).await;
            assert_at(rig.elapsed(), secs(3));
            assert!(rig.model.inspect(|tables| tables.notifications.contains_key(&id)));
            accepted
        },
        watch
    );
    assert_eq!(accepted.unwrap(), Accepted::New);
    pass(ms(1)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(3))]);
}

#[tokio::test(start_paused = true)]
async fn what_was_decided_at_the_admission_is_what_is_stored() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut later = notification(&engine, "a", PLAIN);
    later.not_before = Some(BEGIN.later(secs(60)));
    let admitted = engine.admit(vec![notification(&engine, "a", PLAIN), later]).await.unwrap();
    let dues: Vec<_> = admitted.iter().map(|one| one.due).collect();
    assert_eq!(dues, [BEGIN, BEGIN.later(secs(60))]);
    assert!(rig.model.inspect(|tables| tables.notifications.is_empty()), "nothing is stored yet");
    let ids: Vec<_> = admitted.iter().map(|one| one.notification.id).collect();
    pass(secs(5)).await;
    assert_eq!(engine.accept_admitted(None, admitted).await.unwrap(), Accepted::New);
    pass(secs(60)).await;
    assert_arrived(&rig.arrivals(ids[0]), &[(1, secs(5))]);
    assert_arrived(&rig.arrivals(ids[1]), &[(1, secs(60))]);
}

#[tokio::test(start_paused = true)]
async fn a_twin_gets_the_first_answer_and_another_body_is_a_conflict() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let new = || vec![notification(&engine, "a", PLAIN)];
    assert_eq!(engine.accept(key("k", 1, "first"), new()).await.unwrap(), Accepted::New);
    let twin = engine.accept(key("k", 1, "second"), new()).await.unwrap();
    assert_eq!(twin, Accepted::Twin(b"first".to_vec()));
    assert_eq!(engine.accept(key("k", 2, "third"), new()).await.unwrap(), Accepted::Conflict);
    pass(secs(1)).await;
    assert_eq!(rig.channel.arrivals().len(), 1);
    assert_eq!(rig.model.inspect(|tables| tables.notifications.len()), 1);
    assert_eq!(engine.busy(), 0);
}

#[tokio::test(start_paused = true)]
async fn twins_that_come_together_are_stored_once() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let accept = |answer| engine.accept(key("k", 1, answer), vec![notification(&engine, "a", PLAIN)]);
    let (first, second, third) = tokio::join!(accept("1"), accept("2"), accept("3"));
    let twin = || Accepted::Twin(b"1".to_vec());
    assert_eq!([first.unwrap(), second.unwrap(), third.unwrap()], [Accepted::New, twin(), twin()]);
    pass(secs(1)).await;
    assert_eq!((rig.channel.arrivals().len(), engine.busy()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_due_yet_is_sent_within_milliseconds_of_its_time() {
    let rig = Rig::new();
    let engine = rig.start().await;
    pass(ms(700)).await;
    let mut ids = vec![];
    for wait in [ms(12_345), ms(12_346), secs(3_600), ms(701), secs(86_400)] {
        let mut new = notification(&engine, "a", PLAIN);
        new.not_before = Some(BEGIN.later(wait));
        ids.push((send(&engine, new).await, wait));
    }
    assert_eq!(rig.state(ids[2].0).await, State::Pending);
    pass(secs(90_000)).await;
    for (id, wait) in ids {
        assert_arrived(&rig.arrivals(id), &[(1, wait)]);
        assert_eq!(rig.state(id).await, State::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_node_left_for_later_is_sent_at_its_time() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut new = notification(&engine, "a", PLAIN);
    new.not_before = Some(BEGIN.later(secs(60)));
    let id = send(&engine, new).await;
    drop(engine);
    pass(secs(1)).await;
    let _other = rig.start().await;
    pass(secs(100)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(60))]);
}

#[tokio::test(start_paused = true)]
async fn what_waited_while_no_node_ran_is_sent_at_the_start() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut new = notification(&engine, "a", PLAIN);
    new.not_before = Some(BEGIN.later(secs(60)));
    let id = send(&engine, new).await;
    drop(engine);
    pass(secs(100)).await;
    let _other = rig.start().await;
    pass(secs(1)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(100))]);
}

#[tokio::test(start_paused = true)]
async fn many_at_once_are_all_delivered_though_not_all_were_leased() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let many: Vec<_> = (0..600).map(|_| notification(&engine, "a", PLAIN)).collect();
    let ids: Vec<_> = many.iter().map(|new| new.id).collect();
    assert_eq!(engine.accept(None, many).await.unwrap(), Accepted::New);
    let unleased =
        rig.model.inspect(|tables| tables.queue.values().filter(|row| row.lease.is_none()).count());
    assert!((1..600).contains(&unleased), "{unleased}");
    pass(ms(10)).await;
    for id in ids {
        assert_arrived(&rig.arrivals(id), &[(1, secs(0))]);
        assert_eq!(rig.state(id).await, State::Succeeded);
    }
    assert_eq!(engine.busy(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_refuses_is_an_error_and_is_not_sent() {
    for method in ["accept", "intern"] {
        let rig = Rig::new();
        let store = Arc::new(FaultyStore::on(&rig.model));
        let engine = rig.start_on(store.clone()).await;
        store.next(method, [Trouble::Refuse]);
        let refused = engine.accept(None, vec![notification(&engine, "a", PLAIN)]).await;
        assert!(matches!(refused, Err(AcceptError::Store(_))), "{refused:?}");
        pass(secs(60)).await;
        assert!(rig.channel.arrivals().is_empty());
        assert_eq!(engine.busy(), 0);
        let id = send(&engine, notification(&engine, "a", PLAIN)).await;
        pass(ms(1)).await;
        assert_eq!(rig.state(id).await, State::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_stored_though_the_answer_was_an_error_is_delivered_later() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("accept", [Trouble::Lie]);
    store.next("release", [Trouble::Refuse, Trouble::Lie, Trouble::Refuse]);
    let new = notification(&engine, "a", PLAIN);
    let id = new.id;
    assert!(matches!(engine.accept(None, vec![new]).await, Err(AcceptError::Store(_))));
    assert_eq!(rig.state(id).await, State::Processing);
    pass(secs(6)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert_eq!(rig.arrivals(id).len(), 1);
    assert!(rig.events(id).await.is_empty());
    assert_eq!(engine.busy(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_stored_under_an_error_is_delivered_as_soon_as_it_is_given_back() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    pass(secs(6)).await;
    store.next("accept", [Trouble::Lie]);
    let new = notification(&engine, "a", PLAIN);
    let id = new.id;
    assert!(engine.accept(None, vec![new]).await.is_err());
    pass(ms(100)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(6))]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_changes_nothing() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("accept", [Trouble::DoneLate(secs(3))]);
    let new = notification(&engine, "a", PLAIN);
    let id = new.id;
    assert!(tokio::time::timeout(secs(1), engine.accept(None, vec![new])).await.is_err());
    pass(secs(3)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn what_is_cancelled_before_its_time_is_never_sent() {
    let rig = Rig::new();
    let engine: Engine = rig.start().await;
    let mut new = notification(&engine, "a", PLAIN);
    new.not_before = Some(BEGIN.later(secs(60)));
    let id = send(&engine, new).await;
    engine.cancel(id, &ada()).await.unwrap();
    pass(secs(100)).await;
    assert!(rig.arrivals(id).is_empty());
    assert_eq!(rig.state(id).await, State::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_policy_with_nonsense_is_refused_and_nothing_is_stored() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut new = notification(&engine, "a", PLAIN);
    new.content.policy.as_mut().unwrap().max_attempts = Some(0);
    let error = engine.accept(None, vec![new]).await.unwrap_err();
    let AcceptError::Policy(bad) = error else { panic!("{error}") };
    assert_eq!(bad.field, "maxAttempts");
    assert!(rig.model.inspect(|tables| tables.notifications.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn what_is_due_later_than_the_next_look_does_not_wake_the_loop() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let later = |hours: u64| {
        let mut new = notification(&engine, "a", PLAIN);
        new.not_before = Some(BEGIN.later(secs(3_600 * hours)));
        new
    };
    send(&engine, later(1)).await;
    pass(ms(100)).await;
    let before = store.calls("wakes");
    for _ in 0..100 {
        send(&engine, later(2)).await;
        pass(ms(1)).await;
    }
    assert_eq!(store.calls("wakes"), before);
}

#[tokio::test(start_paused = true)]
async fn whoever_uses_an_id_twice_is_refused_alone() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let taken = notification(&engine, "a", PLAIN);
    send(&engine, taken.clone()).await;
    let good: Vec<_> = (0..3).map(|_| notification(&engine, "b", PLAIN)).collect();
    let ids: Vec<_> = good.iter().map(|one| one.id).collect();
    let accept = |one| engine.accept(None, vec![one]);
    let [a, b, c] = <[_; 3]>::try_from(good).unwrap();
    let (a, bad, b, c) = tokio::join!(accept(a), accept(taken), accept(b), accept(c));
    assert!(matches!(bad, Err(AcceptError::Store(_))));
    assert_eq!([a.unwrap(), b.unwrap(), c.unwrap()], [Accepted::New, Accepted::New, Accepted::New]);
    pass(ms(100)).await;
    for id in ids {
        assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Succeeded, 1));
    }
}

/// So many callers send ten each, one after the other, and come back a millisecond after each answer; half of them begin while
/// the others are stored, for which the store takes three milliseconds. Answers with the number of its calls and the time that everything took.
async fn callers(shared: bool, callers: usize) -> (usize, Duration) {
    let rig = Rig::new();
    let store = FaultyStore::on(&rig.model);
    let store = Arc::new(if shared { store.shared() } else { store });
    let engine = Arc::new(rig.start_on(store.clone()).await);
    store.next("accept", vec![Trouble::DoneLate(ms(3)); 1_000]);
    let begun = rig.elapsed();
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let engine = engine.clone();
        tasks.spawn(async move {
            tokio::time::sleep(if caller < callers / 2 { ms(0) } else { ms(2) }).await;
            for _ in 0..10 {
                engine.accept(None, vec![notification(&engine, "a", PLAIN)]).await.unwrap();
                tokio::time::sleep(ms(1)).await;
            }
        });
    }
    tasks.join_all().await;
    (store.calls("accept"), rig.elapsed() - begun)
}

#[tokio::test(start_paused = true)]
async fn where_the_store_is_shared_those_who_come_together_are_stored_together() {
    // Each half comes while the other is stored, and so it goes on.
    let (calls, alone) = callers(false, 16).await;
    assert_eq!(calls, 20);
    // They are waited for, and nobody waits once all are there: four milliseconds for each of ten.
    let (calls, took) = callers(true, 16).await;
    assert!(calls <= 12, "{calls}");
    assert!(took < ms(50) && took < alone, "{took:?}, {alone:?}");
}

#[tokio::test(start_paused = true)]
async fn few_callers_wait_for_nobody() {
    for count in [1, 4] {
        assert_eq!(callers(true, count).await, callers(false, count).await, "{count}");
    }
}
