//! Inbound limits and the queue limit.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::inbound::InboundLimits;
use posthaste_core::notification::{Notification, Priority};
use posthaste_core::state::State;
use posthaste_engine::accept::{AcceptError, Admitted};
use posthaste_engine::engine::Engine;
use posthaste_engine::store::Accepted;
use tokio::task::JoinSet;

use super::PLAIN;
use crate::rig::{BEGIN, FaultyStore, Rig, Script, Trouble, http, ms, notification, pass, secs};

fn rig(per_tenant: u32, per_module: u32) -> Rig {
    let mut rig = Rig::new();
    rig.settings.inbound = InboundLimits { per_tenant, per_module };
    rig
}

fn of(engine: &Engine, module: &str) -> Notification {
    let mut new = notification(engine, "a", PLAIN);
    new.content.module = (!module.is_empty()).then(|| module.to_owned());
    new
}

/// Sends together, and answers until which second each is deferred.
async fn send_all(engine: &Engine, all: Vec<Notification>) -> Vec<Option<u64>> {
    let admitted = engine.admit(all).await.unwrap();
    let deferred = admitted.iter().map(|one| one.deferred_until.map(|until| until.since(BEGIN).as_secs()));
    let deferred = deferred.collect();
    assert_eq!(engine.accept_admitted(None, admitted).await.unwrap(), Accepted::New);
    deferred
}

fn arrived(rig: &Rig) -> Vec<u64> {
    rig.channel.arrivals().iter().map(|(_, _, at)| at.since(BEGIN).as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_over_the_limit_is_sent_at_its_time() {
    let rig = rig(3, 2);
    let engine = rig.start().await;
    let all = ["m", "m", "m", "n", "n"].map(|module| of(&engine, module));
    let deferred = send_all(&engine, all.to_vec()).await;
    assert_eq!(deferred, [None, None, Some(60), None, Some(60)]);
    pass(secs(30)).await;
    assert_eq!(send_all(&engine, vec![of(&engine, "")]).await, [Some(60)]);
    assert_eq!(arrived(&rig), [0, 0, 0]);
    pass(secs(60)).await;
    assert_eq!(arrived(&rig), [0, 0, 0, 60, 60, 60]);
    assert_eq!((engine.metrics().accepted, engine.metrics().deferred), (6, 3));
}

#[tokio::test(start_paused = true)]
async fn what_is_critical_needs_no_time_and_takes_none() {
    let rig = rig(1, 0);
    let engine = rig.start().await;
    let critical = |engine: &Engine| Notification { priority: Priority::Critical, ..of(engine, "") };
    let all = vec![critical(&engine), of(&engine, ""), critical(&engine), of(&engine, "")];
    let admitted = engine.admit(all).await.unwrap();
    let told = |one: &Admitted| (one.deferred_until.is_some(), one.allowances.is_some());
    let told: Vec<_> = admitted.iter().map(told).collect();
    assert_eq!(told, [(false, false), (false, true), (false, false), (true, true)]);
    let left = engine.allowances(&[critical(&engine)]).await.unwrap();
    assert_eq!(left.tenant.map(|tenant| (tenant.limit, tenant.left)), Some((1, 0)));
}

#[tokio::test(start_paused = true)]
async fn the_later_of_a_start_and_a_reserved_time_counts() {
    let rig = rig(1, 0);
    let engine = rig.start().await;
    let starting = |second| Notification { not_before: Some(BEGIN.later(secs(second))), ..of(&engine, "") };
    // The second one is past its time when it starts, so no limit defers it.
    let deferred = send_all(&engine, vec![of(&engine, ""), starting(90), starting(10)]).await;
    assert_eq!(deferred, [None, None, Some(120)]);
    pass(secs(200)).await;
    assert_eq!(arrived(&rig), [0, 90, 120]);
}

#[tokio::test(start_paused = true)]
async fn what_expires_before_its_time_is_accepted_expires_and_takes_no_time() {
    let rig = rig(1, 0);
    let engine = rig.start().await;
    let short = Notification { expires_at: Some(BEGIN.later(secs(30))), ..of(&engine, "") };
    let id = short.id;
    let deferred = send_all(&engine, vec![of(&engine, ""), short, of(&engine, "")]).await;
    assert_eq!(deferred, [None, Some(60), Some(60)]);
    pass(secs(100)).await;
    assert_eq!((rig.state(id).await, arrived(&rig)), (State::Expired, vec![0, 60]));
}

#[tokio::test(start_paused = true)]
async fn a_limit_survives_a_restart_and_counts_for_all_nodes() {
    let mut rig = rig(2, 0);
    {
        let engine = rig.start().await;
        assert_eq!(send_all(&engine, vec![of(&engine, ""); 1]).await, [None]);
    }
    pass(secs(20)).await;
    rig.seed = 8;
    let one = rig.start().await;
    rig.seed = 9;
    let other = rig.start().await;
    assert_eq!(send_all(&other, vec![of(&other, "")]).await, [None]);
    assert_eq!(send_all(&one, vec![of(&one, ""), of(&one, "")]).await, [Some(60), Some(80)]);
    assert_eq!(send_all(&other, vec![of(&other, "")]).await, [Some(120)]);
}

#[tokio::test(start_paused = true)]
async fn what_asks_together_is_reserved_in_few_calls_and_each_gets_its_own() {
    let rig = rig(50, 0);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = Arc::new(rig.start_on(store.clone()).await);
    store.next("reserve", [Trouble::DoneLate(ms(5))]);
    let mut callers = JoinSet::new();
    for _ in 0..60 {
        let engine = engine.clone();
        callers.spawn(async move { send_all(&engine, vec![of(&engine, "")]).await });
    }
    let deferred = callers.join_all().await;
    assert_eq!(deferred.iter().filter(|one| one[0].is_some()).count(), 10);
    assert!(store.calls("reserve") <= 3, "{}", store.calls("reserve"));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_reserve_accepts_nothing() {
    let rig = rig(5, 0);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    store.next("reserve", [Trouble::Lie]);
    let refused = engine.admit(vec![of(&engine, "")]).await;
    assert!(matches!(refused, Err(AcceptError::Store(_))), "{refused:?}");
    // The reservation that nobody learned of makes the limit stricter.
    assert_eq!(send_all(&engine, vec![of(&engine, ""); 1]).await, [None]);
    let all = (0..4).map(|_| of(&engine, "")).collect();
    assert_eq!(send_all(&engine, all).await, [None, None, None, Some(60)]);
}

#[tokio::test(start_paused = true)]
async fn without_limits_the_store_is_not_asked_for_them() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    assert_eq!(send_all(&engine, vec![of(&engine, "m"), of(&engine, "m")]).await, [None, None]);
    pass(secs(100)).await;
    let asked = ["reserve", "inbound_taken", "main_lane"].map(|method| store.calls(method));
    assert_eq!(asked, [0, 0, 0]);
}

async fn accept(engine: &Engine, count: usize) -> bool {
    let all = (0..count).map(|_| of(engine, "")).collect();
    match engine.accept(None, all).await {
        Ok(accepted) => accepted == Accepted::New,
        Err(AcceptError::QueueFull) => false,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_whole_requests_and_takes_more_once_it_has_room() {
    let mut rig = Rig::new();
    rig.settings.queue_limit = 5;
    rig.always("a", Script::Slowly(secs(10), http(200)));
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    assert!(accept(&engine, 4).await);
    assert!(!accept(&engine, 2).await, "nothing is half accepted");
    assert!(accept(&engine, 1).await);
    for _ in 0..100 {
        assert!(!accept(&engine, 1).await);
    }
    assert!(store.calls("main_lane") <= 3, "{}", store.calls("main_lane"));
    assert_eq!((engine.metrics().accepted, engine.metrics().refused_queue_full), (5, 102));
    pass(secs(11)).await;
    assert!(accept(&engine, 5).await);
    assert!(!accept(&engine, 1).await);
}

#[tokio::test(start_paused = true)]
async fn what_flows_through_is_not_taken_for_a_full_queue() {
    let mut rig = Rig::new();
    rig.settings.queue_limit = 20;
    let engine = rig.start().await;
    for _ in 0..100 {
        assert!(accept(&engine, 5).await);
        pass(ms(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_together_do_not_exceed_the_queue_limit() {
    let mut rig = Rig::new();
    rig.settings.queue_limit = 30;
    rig.always("a", Script::Slowly(secs(10), http(200)));
    let engine = Arc::new(rig.start().await);
    let mut callers = JoinSet::new();
    for _ in 0..50 {
        let engine = engine.clone();
        callers.spawn(async move { accept(&engine, 1).await });
    }
    let taken = callers.join_all().await.into_iter().filter(|taken| *taken).count();
    assert_eq!((taken, rig.model.inspect(|tables| tables.queue.len())), (30, 30));
}

#[tokio::test(start_paused = true)]
async fn another_node_sees_a_full_queue_within_a_second() {
    let mut rig = Rig::new();
    rig.settings.queue_limit = 10;
    rig.always("a", Script::Slowly(Duration::from_secs(10), http(200)));
    let one = rig.start().await;
    rig.seed = 9;
    let other = rig.start().await;
    assert!(accept(&other, 1).await);
    assert!(accept(&one, 8).await);
    pass(ms(1_001)).await;
    assert!(!accept(&other, 2).await);
    assert!(accept(&other, 1).await);
}
