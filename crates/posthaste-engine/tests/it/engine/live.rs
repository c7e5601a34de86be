//! Those who listen are told of each change once and in order, or that they missed something.

use std::sync::Arc;

use posthaste_core::failure::FailureType;
use posthaste_core::filter::{Filter, List};
use posthaste_core::id::NotificationId;
use posthaste_core::job::Job;
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::engine::Engine;
use posthaste_engine::jobs::JobSettings;
use posthaste_engine::live::{Change, Event, EventId, Heard, Listener, Start, Topic};
use posthaste_engine::reads::ReadError;

use super::PLAIN;
use crate::rig::{BEGIN, FaultyStore, Rig, Script, ada, http, ms, notification, pass, secs, send};

const BOTH: &[Topic] = &[Topic::Notifications, Topic::Operations];

fn listen(engine: &Engine, query: &[(&str, &str)], start: Start) -> Listener {
    let filter = Filter::parse(List::Notifications, query.iter().copied(), engine.now()).unwrap();
    engine.reads(None).listen(BOTH, filter, start).unwrap()
}

/// What was told so far. A `missed` is none.
fn told(listener: &mut Listener) -> Vec<Option<Change>> {
    let changed = |heard: Heard| match heard {
        Heard::Event(_, event) => {
            let Event::Notification(change) = &*event else { panic!("{event:?}") };
            Some(change.clone())
        }
        Heard::Missed { .. } => None,
    };
    listener.take().into_iter().map(changed).collect()
}

/// The states that were told, of whatever; a `missed` is none.
fn states(listener: &mut Listener) -> Vec<Option<State>> {
    told(listener).into_iter().map(|change| change.map(|change| change.state)).collect()
}

/// The time of the only thing that was told, a `missed`.
fn missed(listener: &mut Listener) -> Option<Timestamp> {
    match listener.take().as_slice() {
        [Heard::Missed { since, .. }] => *since,
        other => panic!("{other:?}"),
    }
}

fn last_id(listener: &mut Listener) -> EventId {
    match listener.take().last() {
        Some(Heard::Event(id, _) | Heard::Missed { last: id, .. }) => *id,
        None => panic!("nothing was told"),
    }
}

async fn waiting(engine: &Engine, to: &str) -> NotificationId {
    let mut new = notification(engine, to, PLAIN);
    new.not_before = Some(engine.now().later(secs(3_600)));
    send(engine, new).await
}

#[tokio::test(start_paused = true)]
async fn each_change_is_told_once_with_what_led_to_it() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(503)), Script::Answer(http(400))]);
    let engine = rig.start().await;
    let mut listener = listen(&engine, &[], Start::Now);
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(70)).await;
    let letter = rig.dead_letter(id).await.id;
    engine.requeue(letter, &ada()).await.unwrap();
    pass(secs(1)).await;
    let told: Vec<Change> = told(&mut listener).into_iter().map(Option::unwrap).collect();
    let failed = |failure, code| Some((failure, Some(code)));
    let wanted = [
        (State::Pending, 1, None, None, None),
        (State::Processing, 1, None, None, None),
        (State::RetryScheduled, 2, failed(FailureType::Temporary, 503), None, None),
        (State::Retrying, 2, None, None, None),
        (
            State::DeadLetter,
            2,
            failed(FailureType::Permanent, 400),
            Some(Reason::PermanentFailure),
            Some(letter),
        ),
        (State::Pending, 1, None, None, None),
        (State::Processing, 1, None, None, None),
        (State::Succeeded, 1, None, None, None),
    ];
    let seen = told.iter().map(|one| (one.state, one.attempt, one.failure, one.reason, one.dead_letter));
    assert_eq!(seen.collect::<Vec<_>>(), wanted);
    assert!(told.iter().all(|one| one.notification.id == id));
    assert!(told.is_sorted_by_key(|one| one.at) && told[0].at.since(BEGIN) < secs(1));
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert!(listener.take().is_empty(), "each is told once");
}

#[tokio::test(start_paused = true)]
async fn acts_and_expiry_are_told_too() {
    let rig = Rig::new();
    rig.always("dead", Script::Answer(http(400)));
    let engine = rig.start().await;
    let mut listener =
        listen(&engine, &[("state", "cancelled,failed,deadLetter,expired,pending")], Start::Now);
    let cancelled = waiting(&engine, "a").await;
    engine.cancel(cancelled, &ada()).await.unwrap();
    assert_eq!(states(&mut listener), [Some(State::Pending), Some(State::Cancelled)]);

    let dead = send(&engine, notification(&engine, "dead", PLAIN)).await;
    pass(secs(1)).await;
    let letter = rig.dead_letter(dead).await.id;
    engine.discard(letter, &ada()).await.unwrap();
    engine.restore(letter, &ada()).await.unwrap();
    let told: Vec<Change> = told(&mut listener).into_iter().map(Option::unwrap).collect();
    let seen: Vec<_> = told.iter().map(|one| (one.state, one.reason, one.dead_letter)).collect();
    let buried = (State::DeadLetter, Some(Reason::PermanentFailure), Some(letter));
    let discarded = (State::Failed, Some(Reason::Discarded), Some(letter));
    assert_eq!(seen, [(State::Pending, None, None), buried, discarded, buried]);

    let mut old = notification(&engine, "b", PLAIN);
    old.not_before = Some(engine.now().later(secs(900)));
    old.expires_at = Some(engine.now().later(secs(100)));
    send(&engine, old).await;
    pass(secs(110)).await;
    assert_eq!(states(&mut listener), [Some(State::Pending), Some(State::Expired)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_buried_for_its_age_is_told_to_those_who_listen_to_its_tenant() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 4;
    rig.settings.age_check = secs(60);
    rig.longest_timeout = secs(600);
    rig.always("hangs", Script::Hang);
    let engine = rig.start().await;
    let patient = PLAIN.replace("10s", "600s");
    // Both places of the destination are taken.
    for _ in 0..2 {
        send(&engine, notification(&engine, "hangs", &patient)).await;
    }
    pass(secs(1)).await;
    let mut listener = listen(&engine, &[("tenant", "default"), ("state", "deadLetter")], Start::Now);
    let mut other = listen(&engine, &[("tenant", "acme")], Start::Now);
    let short = PLAIN.replacen('{', r#"{"maxAge": "30s", "#, 1);
    let old = send(&engine, notification(&engine, "a", &short)).await;
    pass(secs(70)).await;
    let told = told(&mut listener);
    let [Some(change)] = told.as_slice() else { panic!("{told:?}") };
    let letter = rig.dead_letter(old).await.id;
    assert_eq!((change.notification.id, change.dead_letter), (old, Some(letter)));
    assert_eq!((change.reason, change.attempt), (Some(Reason::MaxAgeExceeded), 0));
    assert!(other.take().is_empty(), "and nobody else is told that it missed something");
}

#[tokio::test(start_paused = true)]
async fn the_discards_of_a_job_are_told() {
    let mut rig = Rig::new();
    rig.settings.jobs =
        JobSettings { schedules: vec![(Job::ExpireFailed, None)], expire_failed_after: secs(60) };
    rig.always("dead", Script::Answer(http(400)));
    let engine = rig.start().await;
    send(&engine, notification(&engine, "dead", PLAIN)).await;
    pass(secs(70)).await;
    let mut listener = listen(&engine, &[], Start::Now);
    engine.run_job(Job::ExpireFailed, &ada()).await.unwrap();
    pass(secs(1)).await;
    let told = told(&mut listener);
    let [Some(change)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((change.state, change.reason), (State::Failed, Some(Reason::Discarded)));
}

#[tokio::test(start_paused = true)]
async fn an_act_that_leaves_the_state_as_it_is_tells_nothing() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(503)), Script::Hang]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    let mut listener = listen(&engine, &[], Start::Now);
    engine.retry_now(id, &ada()).await.unwrap();
    pass(ms(10)).await;
    engine.cancel(id, &ada()).await.unwrap();
    assert_eq!(states(&mut listener), [Some(State::Retrying)]);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_hears_of_its_own_and_cannot_ask_for_others() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let acme = || Some("acme".parse().unwrap());
    let mut own = engine.reads(acme()).listen(BOTH, Filter::default(), Start::Now).unwrap();
    let of_default = Filter { tenant: Some("default".parse().unwrap()), ..Filter::default() };
    let refused = engine.reads(acme()).listen(BOTH, of_default, Start::Now);
    assert!(matches!(refused, Err(ReadError::OtherTenant)));
    let mut named = listen(&engine, &[("tenant", "acme"), ("state", "succeeded")], Start::Now);
    send(&engine, notification(&engine, "a", PLAIN)).await;
    let mut of_acme = notification(&engine, "a", PLAIN);
    of_acme.tenant = "acme".parse().unwrap();
    let id = send(&engine, of_acme).await;
    pass(secs(1)).await;
    let heard = told(&mut own);
    assert_eq!(heard.len(), 3);
    assert!(heard.iter().flatten().all(|change| change.notification.id == id));
    assert_eq!(states(&mut named), [Some(State::Succeeded)]);
}

#[tokio::test(start_paused = true)]
async fn at_most_200_changes_a_second_are_told_and_the_rest_is_one_missed() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut listener = listen(&engine, &[("state", "succeeded")], Start::Now);
    for _ in 0..300 {
        send(&engine, notification(&engine, "a", PLAIN)).await;
    }
    pass(ms(500)).await;
    let first = told(&mut listener);
    assert_eq!((first.len(), first.iter().flatten().count()), (200, 200));
    send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(ms(100)).await;
    assert!(told(&mut listener).is_empty(), "the second has had its changes");
    assert!(tokio::time::timeout(ms(300), listener.wait()).await.is_err());
    tokio::time::timeout(secs(1), listener.wait()).await.unwrap();
    let since = missed(&mut listener).unwrap();
    assert!(since.since(BEGIN) < ms(400), "the first one that was not told: {since}");
    send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(ms(100)).await;
    assert_eq!(states(&mut listener), [Some(State::Succeeded)], "it goes on");
    assert_eq!(engine.metrics().changes_missed, 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_slower_than_the_ring_is_told_that_it_missed_something() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut listener = listen(&engine, &[("state", "cancelled")], Start::Now);
    pass(secs(5)).await;
    assert!(listener.take().is_empty());
    for _ in 0..1_500 {
        send(&engine, notification(&engine, "a", PLAIN)).await;
    }
    pass(secs(1)).await;
    let since = missed(&mut listener).unwrap();
    assert_eq!(since.since(BEGIN).as_secs(), 5, "everything before the last look was seen");
    let id = waiting(&engine, "b").await;
    engine.cancel(id, &ada()).await.unwrap();
    assert_eq!(states(&mut listener), [Some(State::Cancelled)]);
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_back_within_a_minute_misses_nothing() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut listener = listen(&engine, &[], Start::Now);
    send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    let last = last_id(&mut listener);
    assert_eq!(last, listener.place());
    drop(listener);
    send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(55)).await;
    let mut again = listen(&engine, &[("state", "pending,succeeded")], Start::After(last));
    assert_eq!(states(&mut again), [Some(State::Pending), Some(State::Succeeded)]);
    let after_nothing = Start::After(EventId { number: last.number + 3, ..last });
    assert!(listen(&engine, &[], after_nothing).take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_back_late_or_from_elsewhere_is_told_that_it_missed_something() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut listener = listen(&engine, &[], Start::Now);
    send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    let last = last_id(&mut listener);
    drop(listener);
    pass(secs(61)).await;
    for _ in 0..3 {
        send(&engine, notification(&engine, "a", PLAIN)).await;
    }
    pass(secs(1)).await;
    let other_node = EventId { node: posthaste_core::lease::NodeId(last.node.0 + 1), ..last };
    let (beyond, overflow) =
        (EventId { number: last.number + 100, ..last }, EventId { number: u64::MAX, ..last });
    for start in [last, other_node, beyond, overflow].map(Start::After).into_iter().chain([Start::Unknown]) {
        let mut again = listen(&engine, &[], start);
        tokio::time::timeout(ms(1), again.wait()).await.expect("that is told at once");
        assert_eq!(missed(&mut again), None, "{start:?}");
        send(&engine, notification(&engine, "a", PLAIN)).await;
        pass(ms(100)).await;
        assert_eq!(states(&mut again).len(), 3, "and it goes on");
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_are_taken_back_are_told_as_missed() {
    let rig = Rig::new();
    rig.script("a", [Script::Hang]);
    let engine = rig.start().await;
    let other = rig.start().await;
    let mut listener = listen(&other, &[("state", "cancelled")], Start::Now);
    send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(1)).await;
    drop(engine);
    pass(secs(20)).await;
    assert!(missed(&mut listener).is_some());
}

#[tokio::test(start_paused = true)]
async fn what_expires_is_read_at_once_and_only_for_a_tenant_that_is_heard() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let mut other =
        engine.reads(Some("acme".parse().unwrap())).listen(BOTH, Filter::default(), Start::Now).unwrap();
    let expire = async |count: usize, after: u64| {
        for _ in 0..count {
            let mut old = notification(&engine, "b", PLAIN);
            old.not_before = Some(BEGIN.later(secs(9_000)));
            old.expires_at = Some(BEGIN.later(secs(after)));
            send(&engine, old).await;
        }
        pass(secs(110)).await;
    };
    expire(150, 100).await;
    assert_eq!((store.calls("get"), store.calls("get_many")), (0, 0), "nobody listens to their tenant");
    let mut listener = listen(&engine, &[("state", "expired")], Start::Now);
    expire(150, 200).await;
    assert_eq!((store.calls("get"), store.calls("get_many")), (0, 1));
    assert_eq!(states(&mut listener).len(), 101, "a hundred, and that some were missed");
    assert!(other.take().is_empty(), "which no other tenant is told");
}

#[tokio::test(start_paused = true)]
async fn many_that_expire_at_once_are_told_in_part_and_the_rest_as_missed() {
    let rig = Rig::new();
    let engine = rig.start().await;
    for _ in 0..150 {
        let mut old = notification(&engine, "b", PLAIN);
        old.not_before = Some(engine.now().later(secs(900)));
        old.expires_at = Some(BEGIN.later(secs(100)));
        send(&engine, old).await;
    }
    let mut listener = listen(&engine, &[], Start::Now);
    pass(secs(110)).await;
    let heard = states(&mut listener);
    assert_eq!(heard.iter().flatten().count(), 100);
    assert_eq!(heard.last(), Some(&None));
    assert_eq!(heard.len(), 101);
}
