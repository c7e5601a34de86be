//! Breakers: when they open, what is parked meanwhile, the one probe, and the ramp after it.

use std::time::Duration;

use posthaste_core::attempt::Outcome;
use posthaste_core::breaker::{Breaker, BreakerSettings};
use posthaste_core::destination::{DestinationKey, DestinationName, EventKind};
use posthaste_core::failure::FailureType;
use posthaste_core::id::NotificationId;
use posthaste_core::reason::Reason;
use posthaste_core::reply::{Fault, Reply};
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::engine::Engine;
use posthaste_engine::store::Destinations as _;

use crate::rig::{BEGIN, Rig, Script, assert_at, http, http_asking, ms, notification, pass, secs, send};

/// One attempt, without quick tries.
const ONCE: &str = r#"{"strategy": "none", "maxAttempts": 1, "quick": {"tries": 0}}"#;
/// Retried soon, for long.
const OFTEN: &str = r#"{"strategy": "fixed", "initialDelay": "1s", "maxAttempts": 50, "jitter": "none", "quick": {"tries": 0}}"#;

/// As S2 has it: 10 failures, 5 minutes each time, forgotten after 10.
fn zgw() -> BreakerSettings {
    let flat = secs(300);
    BreakerSettings {
        failure_threshold: 10,
        first_break: flat,
        break_duration: flat,
        forget_after: secs(600),
    }
}

fn rig(breaker: BreakerSettings) -> Rig {
    let mut rig = Rig::new();
    rig.settings.breaker = breaker;
    rig
}

fn key() -> DestinationKey {
    let name = DestinationName::parse("http://127.0.0.1:9").unwrap();
    name.key(Some("default".parse().unwrap())).unwrap()
}

/// Sends so many, one after the other.
async fn send_each(engine: &Engine, count: usize, policy: &str) -> Vec<NotificationId> {
    let mut ids = vec![];
    for _ in 0..count {
        ids.push(send(engine, notification(engine, "a", policy)).await);
        pass(ms(100)).await;
    }
    ids
}

async fn send_all(engine: &Engine, count: usize, policy: &str) -> Vec<NotificationId> {
    let all: Vec<_> = (0..count).map(|_| notification(engine, "a", policy)).collect();
    let ids = all.iter().map(|one| one.id).collect();
    for batch in all.chunks(500) {
        engine.accept(None, batch.to_vec()).await.unwrap();
    }
    ids
}

/// When everything arrived, counted from the start.
fn arrived(rig: &Rig) -> Vec<Duration> {
    rig.channel.arrivals().into_iter().map(|(_, _, at)| at.since(BEGIN)).collect()
}

fn since(rig: &Rig, at: Duration) -> Vec<Duration> {
    arrived(rig).into_iter().filter(|arrival| *arrival > at).collect()
}

async fn breaker(rig: &Rig) -> Option<Breaker> {
    let rows = rig.model.destinations(vec![key()]).await.unwrap();
    rows.into_iter().next().and_then(|row| row.value).map(|value| value.breaker)
}

async fn history(engine: &Engine) -> Vec<EventKind> {
    let mut events = engine.reads(None).destination_history(&key()).await.unwrap();
    events.reverse();
    events.into_iter().map(|event| event.event).collect()
}

#[tokio::test(start_paused = true)]
async fn ten_failures_open_it_for_five_minutes_and_one_probe_for_as_long_again() {
    let rig = rig(zgw());
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    pass(secs(2)).await;
    let ids = send_each(&engine, 14, ONCE).await;
    assert_eq!(arrived(&rig).len(), 10, "the eleventh is parked");
    let opened = rig.elapsed() - ms(400) - ms(100);
    pass(secs(299)).await;
    assert_eq!(arrived(&rig).len(), 10);
    pass(secs(3)).await;
    let probe = since(&rig, opened);
    assert_eq!(probe.len(), 1, "one probe");
    assert!(probe[0] - opened >= secs(300) && probe[0] - opened < secs(302), "{probe:?} after {opened:?}");
    pass(secs(296)).await;
    assert_eq!(arrived(&rig).len(), 11);
    rig.always("a", Script::Answer(http(200)));
    pass(secs(65)).await;
    assert_eq!(arrived(&rig).len(), 14, "the second probe, and then the rest");
    for id in &ids[10..] {
        let wanted = if *id == ids[10] { State::DeadLetter } else { State::Succeeded };
        assert_eq!(rig.state(*id).await, wanted);
        assert_eq!(rig.outcomes(*id).await.len(), 1, "parking spent no attempt");
        assert_eq!(rig.events(*id).await.iter().filter(|event| event.0 == "interrupted").count(), 0);
    }
    use EventKind::{Closed, Opened, Probed};
    assert_eq!(history(&engine).await, [Opened, Probed, Opened, Probed, Closed]);
    pass(secs(120)).await;
    assert_eq!(breaker(&rig).await, None, "nothing is left of it");
}

#[tokio::test(start_paused = true)]
async fn breaks_double_up_to_the_longest() {
    let rig = rig(BreakerSettings { failure_threshold: 3, ..BreakerSettings::default() });
    rig.always("a", Script::Answer(Reply::fault(Fault::Refused, "refused")));
    let engine = rig.start().await;
    pass(secs(2)).await;
    send_each(&engine, 40, ONCE).await;
    pass(secs(1_200)).await;
    let probes = arrived(&rig).split_off(3);
    let breaks: Vec<u64> = probes.windows(2).map(|two| (two[1] - two[0]).as_secs()).collect();
    assert_eq!(breaks, [20, 40, 80, 160, 300, 300], "{probes:?}");
}

#[tokio::test(start_paused = true)]
async fn answers_that_do_not_blame_the_destination_leave_it_alone_and_a_success_begins_anew() {
    let rig = rig(BreakerSettings { failure_threshold: 3, ..BreakerSettings::default() });
    let engine = rig.start().await;
    pass(secs(2)).await;
    for status in [410, 404, 400, 401, 301] {
        rig.always("a", Script::Answer(http(status)));
        send_each(&engine, 3, ONCE).await;
    }
    pass(secs(2)).await;
    assert_eq!((arrived(&rig).len(), breaker(&rig).await), (15, None));
    for status in [503, 503, 200, 503, 503] {
        rig.always("a", Script::Answer(http(status)));
        send_each(&engine, 1, ONCE).await;
        pass(secs(2)).await;
    }
    let failures = breaker(&rig).await.and_then(|breaker| breaker.failures()).map(|failures| failures.count);
    assert_eq!(failures, Some(2));
    pass(secs(620)).await;
    assert_eq!(breaker(&rig).await, None, "forgotten after a quiet time");
}

#[tokio::test(start_paused = true)]
async fn its_state_survives_a_restart_and_a_probe_that_died_with_its_node_is_followed_by_another() {
    let rig = rig(BreakerSettings { failure_threshold: 3, ..BreakerSettings::default() });
    rig.always("a", Script::Answer(http(500)));
    let engine = rig.start().await;
    pass(secs(2)).await;
    send_each(&engine, 6, ONCE).await;
    assert_eq!(arrived(&rig).len(), 3);
    drop(engine);
    let engine = rig.start().await;
    rig.always("a", Script::Hang);
    pass(secs(5)).await;
    assert_eq!(arrived(&rig).len(), 3, "still open");
    pass(secs(7)).await;
    assert_eq!(arrived(&rig).len(), 4, "the probe");
    drop(engine);
    rig.always("a", Script::Answer(http(200)));
    let engine = rig.start().await;
    pass(secs(15)).await;
    assert_eq!(arrived(&rig).len(), 4, "the probe may still be under way");
    pass(secs(60)).await;
    assert_eq!(arrived(&rig).len(), 7, "another probe, and then the rest");
    engine.drain(secs(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_one_node_opened_stops_the_others_and_there_is_one_probe_in_the_cluster() {
    let mut rig = rig(BreakerSettings { failure_threshold: 10, ..BreakerSettings::default() });
    rig.always("a", Script::Answer(http(500)));
    let mut nodes = vec![];
    for seed in 1..=3 {
        rig.seed = seed;
        nodes.push(rig.start().await);
    }
    pass(secs(4)).await;
    send_each(&nodes[0], 11, OFTEN).await;
    let opened = rig.elapsed();
    pass(secs(2)).await;
    let before = arrived(&rig).len();
    for node in &nodes {
        send_all(node, 20, OFTEN).await;
    }
    pass(secs(6)).await;
    assert_eq!(arrived(&rig).len(), before, "two seconds later no node sends any more");
    rig.always("a", Script::Slowly(secs(5), http(500)));
    pass(secs(6)).await;
    assert_eq!(since(&rig, opened + secs(2)).len(), 1, "one probe");
    assert!(matches!(breaker(&rig).await, Some(Breaker::HalfOpen { .. })));
    rig.always("a", Script::Answer(http(200)));
    pass(secs(120)).await;
    assert!(nodes.iter().all(|node| node.busy() == 0));
    let waiting = rig.model.inspect(|tables| tables.queue.len());
    assert_eq!(waiting, 0, "everything ended");
}

#[tokio::test(start_paused = true)]
async fn after_an_hour_of_outage_a_destination_meets_a_ramp_and_its_limits() {
    let mut rig = rig(BreakerSettings::default());
    let limits = posthaste_core::destination::SendLimits { concurrency: Some(20), rate: None };
    rig.settings.destination_limits =
        [(DestinationName::parse("http://127.0.0.1:9").unwrap(), limits)].into();
    rig.always("a", Script::Answer(http(500)));
    let engine = rig.start().await;
    pass(secs(2)).await;
    send_each(&engine, 12, OFTEN).await;
    let most = 2_000;
    send_all(&engine, most, OFTEN).await;

    pass(secs(3_600)).await;
    assert!(arrived(&rig).len() < 40, "only probes: {}", arrived(&rig).len());

    let begun = rig.elapsed();
    let served = ms(50);
    rig.always("a", Script::Slowly(served, http(200)));
    pass(secs(700)).await;
    let arrivals = since(&rig, begun);
    let first = arrivals[0];
    let within = |from: Duration, to: Duration| {
        arrivals.iter().filter(|at| **at - first >= from && **at - first < to).count()
    };
    assert!(within(ms(100), secs(5)) <= 50 + 2, "one at once and ten a second: {}", within(ms(100), secs(5)));
    assert!(within(secs(7), secs(11)) <= 80 + 4, "then twice as much: {}", within(secs(7), secs(11)));
    let at_once =
        |at: &Duration| arrivals.iter().filter(|other| **other <= *at && *at < **other + served).count();
    let most_at_once = arrivals.iter().map(at_once).max().unwrap();
    assert!(most_at_once <= 20, "{most_at_once} at once");
    assert!(most_at_once > 10, "it got to its speed: {most_at_once}");
    assert_eq!(rig.model.inspect(|tables| tables.queue.len()), 0, "everything ended");
}

#[tokio::test(start_paused = true)]
async fn a_429_with_retry_after_pauses_the_destination_for_everybody() {
    let mut rig = rig(BreakerSettings::default());
    rig.script("a", [Script::Answer(http_asking(429, secs(30)))]);
    let first = rig.start().await;
    rig.seed += 1;
    let nodes = [first, rig.start().await];
    pass(secs(4)).await;
    let asked = rig.elapsed();
    send(&nodes[0], notification(&nodes[0], "a", OFTEN)).await;
    pass(ms(500)).await;
    for node in &nodes {
        send(node, notification(node, "b", ONCE)).await;
    }
    pass(secs(29)).await;
    assert_eq!(arrived(&rig).len(), 1);
    pass(secs(4)).await;
    assert_eq!(arrived(&rig).len(), 4);
    assert_at(arrived(&rig)[1], asked + secs(30));
    assert_eq!(history(&nodes[0]).await, [EventKind::Paused]);
}

#[tokio::test(start_paused = true)]
async fn what_is_parked_is_buried_when_it_is_too_old_and_expires_when_it_says_so() {
    let rig = rig(zgw());
    let engine = rig.start().await;
    pass(secs(2)).await;
    let target = posthaste_engine::destinations::DestinationTarget { id: key().id(), named: Some(key()) };
    engine.block_destination(target.clone(), None, &crate::rig::ada()).await.unwrap();
    let old = send(&engine, notification(&engine, "a", r#"{"maxAge": "2h"}"#)).await;
    let mut brief = notification(&engine, "a", "{}");
    brief.expires_at = Some(Timestamp::from_millis(engine.now().as_millis() + 60_000));
    let brief = send(&engine, brief).await;
    let patient = send(&engine, notification(&engine, "a", "{}")).await;
    pass(secs(90)).await;
    assert_eq!(rig.state(brief).await, State::Expired);
    pass(secs(2 * 3_600 + 400)).await;
    assert_eq!(rig.state(old).await, State::DeadLetter);
    assert_eq!(rig.dead_letter(old).await.reason, Reason::MaxAgeExceeded);
    assert_eq!((rig.outcomes(old).await, arrived(&rig).len()), (vec![], 0));
    let view = engine.reads(None).destination(key().id()).await.unwrap().unwrap();
    assert_eq!(view.parked, 1);
    engine.unblock_destination(target, &crate::rig::ada()).await.unwrap();
    pass(secs(1)).await;
    assert_eq!(rig.state(patient).await, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn no_quick_try_starts_while_it_is_open() {
    let rig = rig(BreakerSettings { failure_threshold: 1, ..BreakerSettings::default() });
    for recipient in ["a", "b"] {
        rig.always(recipient, Script::Answer(http(503)));
    }
    let engine = rig.start().await;
    pass(secs(2)).await;
    let quick = r#"{"maxAttempts": 2, "quick": {"tries": 4, "delay": "500ms", "jitter": false}}"#;
    let one = send(&engine, notification(&engine, "a", quick)).await;
    pass(ms(100)).await;
    send(&engine, notification(&engine, "b", ONCE)).await;
    pass(secs(8)).await;
    // It ends as it stands, and its retry is parked.
    assert_eq!(rig.outcomes(one).await, [(1, 1, Outcome::Failed(FailureType::Temporary))]);
    assert_eq!(rig.arrivals(one).len(), 1, "{:?}", arrived(&rig));
}
