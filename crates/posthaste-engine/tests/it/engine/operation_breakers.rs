//! Retry operations whose destinations are open or blocked: what goes there waits, the rest goes on.

use posthaste_core::breaker::BreakerSettings;
use posthaste_core::channel::Channel;
use posthaste_core::destination::{DestinationKey, DestinationName, SendLimits};
use posthaste_core::id::{NotificationId, OperationId};
use posthaste_core::notification::Notification;
use posthaste_core::operation::{Action, Canary, CanaryState, OperationState, Skip};
use posthaste_core::state::State;
use posthaste_engine::destinations::DestinationTarget;
use posthaste_engine::engine::Engine;
use posthaste_engine::operations::NewOperation;

use super::operations::{all, ended, stands, start};
use crate::rig::{Rig, Script, ada, http, ms, notification, pass, secs, send};

/// One attempt.
const ONCE: &str = r#"{"strategy": "none", "maxAttempts": 1, "timeout": "10s", "quick": {"tries": 0}}"#;

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.settings.breaker = BreakerSettings { failure_threshold: 3, ..BreakerSettings::default() };
    rig
}

/// The receiver `a` is at its own origin, and so on.
fn to(engine: &Engine, name: &str) -> Notification {
    let destination = format!("http://{name}:80").into();
    Notification { destination, ..notification(engine, name, ONCE) }
}

fn key(name: &str) -> DestinationKey {
    let name = DestinationName::parse(&format!("http://{name}")).unwrap();
    name.key(Some("default".parse().unwrap())).unwrap()
}

fn target(key: &DestinationKey) -> DestinationTarget {
    DestinationTarget { id: key.id(), named: Some(key.clone()) }
}

/// So many dead letters of a receiver that is well: it does not want these.
async fn dead(rig: &Rig, engine: &Engine, name: &str, count: usize) -> Vec<NotificationId> {
    rig.always(name, Script::Answer(http(400)));
    let mut ids = vec![];
    for _ in 0..count {
        ids.push(send(engine, to(engine, name)).await);
    }
    pass(secs(3)).await;
    for id in &ids {
        assert_eq!(rig.state(*id).await, State::DeadLetter);
    }
    rig.always(name, Script::Answer(http(200)));
    ids
}

/// The receiver goes down. Three notifications find it so.
async fn down(rig: &Rig, engine: &Engine, name: &str) {
    rig.always(name, Script::Answer(http(503)));
    for _ in 0..3 {
        send(engine, to(engine, name)).await;
    }
    pass(ms(200)).await;
}

/// How many of these arrived again.
fn again(rig: &Rig, ids: &[NotificationId]) -> usize {
    ids.iter().filter(|id| rig.arrivals(**id).len() > 1).count()
}

/// The state, who paused it, and how many items were forwarded.
async fn how(rig: &Rig, id: OperationId) -> (OperationState, Option<String>, u64) {
    let standing = stands(rig, id).await.standing;
    (standing.state, standing.paused_by, standing.forwarded)
}

fn by(who: &str, forwarded: u64) -> (OperationState, Option<String>, u64) {
    (OperationState::Paused, Some(who.to_owned()), forwarded)
}

async fn events(rig: &Rig, id: OperationId) -> Vec<(String, Option<String>)> {
    let events = stands(rig, id).await.standing.events;
    events.into_iter().map(|event| (event.event, event.by)).collect()
}

#[tokio::test(start_paused = true)]
async fn items_for_an_open_destination_wait_while_the_others_go_on_and_it_goes_on_by_itself() {
    let rig = rig();
    let engine = rig.start().await;
    pass(secs(2)).await;
    let (a, b) = (dead(&rig, &engine, "a", 1_100).await, dead(&rig, &engine, "b", 30).await);
    down(&rig, &engine, "a").await;
    let id = start(&engine, all(Action::Requeue)).await;
    pass(secs(3)).await;
    assert_eq!(how(&rig, id).await, by("breaker", 30), "the others, also those of the second batch");
    assert_eq!((again(&rig, &a), again(&rig, &b)), (0, 30));
    // The time of the first break is over. Nothing else could be the probe.
    pass(secs(8)).await;
    assert_eq!(how(&rig, id).await, by("breaker", 31));
    assert_eq!(again(&rig, &a), 1, "the probe, which failed");
    pass(secs(17)).await;
    assert_eq!(
        (how(&rig, id).await, again(&rig, &a)),
        (by("breaker", 31), 1),
        "the second break is twice as long"
    );
    rig.always("a", Script::Answer(http(200)));
    pass(secs(120)).await;
    let standing = ended(&rig, id).await.standing;
    // With the three that found it down.
    assert_eq!((standing.state, standing.forwarded), (OperationState::Completed, 1_133));
    assert_eq!(again(&rig, &a), 1_100);
    let breaker = || Some("breaker".to_owned());
    let wanted = [("paused", breaker()), ("resumed", breaker()), ("completed", None)];
    assert_eq!(events(&rig, id).await, wanted.map(|(event, by)| (event.to_owned(), by)));
}

#[tokio::test(start_paused = true)]
async fn what_one_operation_of_many_destinations_waits_for_is_seen_in_each_of_its_rounds() {
    let rig = rig();
    let engine = rig.start().await;
    pass(secs(2)).await;
    let names: Vec<String> = (0..100).map(|number| format!("r{number}")).collect();
    let mut ids = vec![];
    for name in &names {
        rig.always(name, Script::Answer(http(400)));
        ids.push(send(&engine, to(&engine, name)).await);
    }
    pass(secs(3)).await;
    for name in &names {
        rig.always(name, Script::Answer(http(200)));
        engine.block_destination(target(&key(name)), None, &ada()).await.unwrap();
    }
    let id = start(&engine, all(Action::Requeue)).await;
    pass(secs(3)).await;
    assert_eq!(how(&rig, id).await, by("breaker", 0));
    engine.unblock_destination(target(&key("r99")), &ada()).await.unwrap();
    pass(secs(4)).await;
    assert_eq!(how(&rig, id).await, by("breaker", 1));
    for name in &names[..99] {
        engine.unblock_destination(target(&key(name)), &ada()).await.unwrap();
    }
    pass(secs(4)).await;
    assert_eq!(ended(&rig, id).await.standing.forwarded, 100);
    assert_eq!(again(&rig, &ids), 100);
}

#[tokio::test(start_paused = true)]
async fn a_pause_by_a_person_meanwhile_is_not_lifted_by_the_breaker() {
    let rig = rig();
    let engine = rig.start().await;
    pass(secs(2)).await;
    let ids = dead(&rig, &engine, "a", 20).await;
    engine.block_destination(target(&key("a")), None, &ada()).await.unwrap();
    let id = start(&engine, all(Action::Requeue)).await;
    pass(secs(1)).await;
    assert_eq!(how(&rig, id).await, by("breaker", 0));
    // Whoever resumes it finds it waiting again.
    engine.resume_operation(id, &ada()).await.unwrap();
    pass(secs(1)).await;
    assert_eq!(how(&rig, id).await, by("breaker", 0));
    engine.pause_operation(id, &ada()).await.unwrap();
    engine.unblock_destination(target(&key("a")), &ada()).await.unwrap();
    pass(secs(60)).await;
    assert_eq!((how(&rig, id).await, again(&rig, &ids)), (by("ada", 0), 0));
    engine.resume_operation(id, &ada()).await.unwrap();
    pass(secs(5)).await;
    assert_eq!((ended(&rig, id).await.standing.forwarded, again(&rig, &ids)), (20, 20));
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_destination_can_be_cancelled_and_single_acts_win() {
    let rig = rig();
    let engine = rig.start().await;
    pass(secs(2)).await;
    let ids = dead(&rig, &engine, "a", 20).await;
    down(&rig, &engine, "a").await;
    let id = start(&engine, all(Action::Requeue)).await;
    // What is not sent does not wait for anybody.
    let discard = NewOperation { action: Action::Discard, ..all(Action::Discard) };
    pass(secs(1)).await;
    engine.discard(rig.dead_letter(ids[0]).await.id, &ada()).await.unwrap();
    engine.cancel_operation(id, &ada()).await.unwrap();
    pass(secs(1)).await;
    let standing = ended(&rig, id).await.standing;
    assert_eq!((standing.state, standing.forwarded), (OperationState::Cancelled, 0));
    assert_eq!(standing.skipped.get(&Skip::Cancelled), Some(&23));
    let id = start(&engine, discard).await;
    pass(secs(1)).await;
    assert_eq!(ended(&rig, id).await.standing.forwarded, 22);
    assert_eq!(again(&rig, &ids), 0);
}

#[tokio::test(start_paused = true)]
async fn another_node_goes_on_with_what_waits_for_a_provider_that_it_has_never_met() {
    let mut rig = rig();
    rig.ways.push(Channel::Email);
    let first = rig.start().await;
    pass(secs(2)).await;
    let mail = |engine: &Engine| Notification {
        channel: Channel::Email,
        destination: "pool:email".into(),
        ..notification(engine, "ada@example.com", ONCE)
    };
    rig.always("ada@example.com", Script::Answer(http(400)));
    let mut ids = vec![];
    for _ in 0..20 {
        ids.push(send(&first, mail(&first)).await);
    }
    pass(secs(3)).await;
    rig.always("ada@example.com", Script::Answer(http(200)));
    let relay = DestinationKey::provider("email-relay");
    first.block_destination(target(&relay), None, &ada()).await.unwrap();
    let id = start(&first, all(Action::Requeue)).await;
    pass(secs(1)).await;
    assert_eq!(how(&rig, id).await, by("breaker", 0));
    drop(first);
    rig.seed = 8;
    let second = rig.start().await;
    second.resume_operation(id, &ada()).await.unwrap();
    pass(secs(30)).await;
    assert_eq!(stands(&rig, id).await.runner, Some(second.node_id()));
    assert_eq!((how(&rig, id).await, again(&rig, &ids)), (by("breaker", 0), 0));
    second.unblock_destination(target(&relay), &ada()).await.unwrap();
    pass(secs(5)).await;
    assert_eq!((ended(&rig, id).await.standing.forwarded, again(&rig, &ids)), (20, 20));
}

#[tokio::test(start_paused = true)]
async fn a_canary_whose_first_items_are_parked_waits_for_the_breaker_too() {
    let rig = rig();
    let engine = rig.start().await;
    pass(secs(2)).await;
    let ids = dead(&rig, &engine, "a", 20).await;
    rig.always("a", Script::Slowly(secs(1), http(200)));
    let one = SendLimits { rate: None, concurrency: Some(1) };
    engine.limit_destination(target(&key("a")), one, &ada()).await.unwrap();
    let canary = Some(Canary { size: 5, max_failure_percent: 20 });
    let id = start(&engine, NewOperation { canary, ..all(Action::Requeue) }).await;
    pass(ms(1_500)).await;
    engine.block_destination(target(&key("a")), None, &ada()).await.unwrap();
    pass(secs(30)).await;
    assert_eq!((how(&rig, id).await, again(&rig, &ids)), (by("breaker", 5), 2));
    engine.unblock_destination(target(&key("a")), &ada()).await.unwrap();
    engine.limit_destination(target(&key("a")), SendLimits::default(), &ada()).await.unwrap();
    pass(secs(10)).await;
    let standing = ended(&rig, id).await.standing;
    assert_eq!((standing.canary_state, standing.forwarded), (CanaryState::Passed, 20));
    assert_eq!(again(&rig, &ids), 20);
}
