//! The retry budget: from the opening of a breaker until its ramp is over, retries and probes are a small part of the traffic.

use std::time::Duration;

use posthaste_core::breaker::BreakerSettings;
use posthaste_core::destination::{DestinationKey, DestinationName, EventKind, SendLimits};
use posthaste_core::notification::Notification;
use posthaste_core::rate::Rate;
use posthaste_engine::engine::Engine;

use crate::rig::{BEGIN, Rig, Script, http, ms, notification, pass, secs};

/// How many wait when the receiver is back: half are new, half are retries. In the release profile, which `scripts/test` runs, as
/// many as the promise is about.
const WAITING: usize = if cfg!(debug_assertions) { 6_000 } else { 100_000 };
/// The receiver takes no more.
const CONCURRENCY: u32 = 40;
const RATE: f64 = 400.0;

const URL: &str = "http://127.0.0.1:9";
/// Retried half an hour later, for long.
const LATER: &str = r#"{"strategy": "fixed", "initialDelay": "30m", "maxAttempts": 50, "jitter": "none", "quick": {"tries": 0}}"#;
/// Ten minutes of traffic, so many a second.
const BEFORE: usize = 20;

async fn accept(engine: &Engine, count: usize, to: &str) {
    let all: Vec<Notification> = (0..count).map(|_| notification(engine, to, LATER)).collect();
    for batch in all.chunks(500) {
        engine.accept(None, batch.to_vec()).await.unwrap();
    }
}

/// One that arrived: when, and whether it was a retry.
#[derive(Clone, Copy)]
struct Arrival {
    at: Duration,
    is_retry: bool,
}

fn arrived(rig: &Rig) -> Vec<Arrival> {
    let of = |(_, attempt, at): (_, u32, posthaste_core::time::Timestamp)| Arrival {
        at: at.since(BEGIN),
        is_retry: attempt > 1,
    };
    rig.channel.arrivals().into_iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn after_an_hour_of_outage_retries_and_probes_are_a_tenth_of_the_traffic_until_the_ramp_is_over() {
    let mut rig = Rig::new();
    rig.settings.breaker = BreakerSettings::default();
    let limits = SendLimits { concurrency: Some(CONCURRENCY), rate: Some(Rate::per_second(RATE).unwrap()) };
    rig.settings.destination_limits = [(DestinationName::parse(URL).unwrap(), limits)].into();
    let engine = rig.start().await;
    pass(secs(2)).await;

    // Half of what will wait has failed before, by an answer that does not blame the receiver.
    rig.always("retried", Script::Answer(http(404)));
    accept(&engine, WAITING / 2, "retried").await;
    while arrived(&rig).len() < WAITING / 2 {
        pass(secs(1)).await;
    }
    for _ in 0..600 {
        accept(&engine, BEFORE, "new").await;
        pass(secs(1)).await;
    }

    // An hour without an answer. Everybody goes on sending.
    for to in ["retried", "new"] {
        rig.always(to, Script::Answer(http(503)));
    }
    for _ in 0..60 {
        accept(&engine, WAITING / 120, "new").await;
        pass(secs(60)).await;
    }
    let waiting = rig.model.inspect(|tables| tables.queue.len());
    assert!(waiting >= WAITING / 60 * 59, "{waiting}");

    // It is back.
    let served = ms(50);
    for to in ["retried", "new"] {
        rig.always(to, Script::Slowly(served, http(200)));
    }
    pass(secs(600)).await;
    let key = DestinationName::parse(URL).unwrap().key(Some("default".parse().unwrap())).unwrap();
    let opening = events_of(&engine, &key, EventKind::Opened).await.into_iter().min().unwrap();
    let closed = events_of(&engine, &key, EventKind::Closed).await;
    assert_eq!(closed.len(), 1, "it stays closed");
    let over = closed[0] + secs(60);
    let arrivals = arrived(&rig);
    stays_within_its_budget(&arrivals, opening, closed[0], over);
    meets_a_ramp(&arrivals, closed[0], over, served);
}

async fn events_of(engine: &Engine, key: &DestinationKey, kind: EventKind) -> Vec<Duration> {
    let events = engine.reads(None).destination_history(key).await.unwrap();
    events.into_iter().filter(|event| event.event == kind).map(|event| event.at.since(BEGIN)).collect()
}

/// What counts is a retry, or whatever goes while it is open: a probe.
fn stays_within_its_budget(arrivals: &[Arrival], opening: Duration, closed: Duration, over: Duration) {
    let is_budgeted = |one: &Arrival| one.at > opening && one.at < over && (one.is_retry || one.at < closed);
    let budgeted: Vec<Duration> = arrivals.iter().filter(|one| is_budgeted(one)).map(|one| one.at).collect();
    assert!(budgeted.len() > 15, "there were probes and retries: {}", budgeted.len());
    let within = |at: Duration, times: &[Duration]| {
        let from = at.saturating_sub(secs(600));
        times.partition_point(|one| *one <= at) - times.partition_point(|one| *one <= from)
    };
    let all: Vec<Duration> = arrivals.iter().map(|one| one.at).collect();
    for (place, at) in budgeted.iter().enumerate() {
        let (part, whole) = (within(*at, &budgeted), within(*at, &all));
        let rested = place == 0 || *at - budgeted[place - 1] >= secs(10);
        assert!(
            part * 10 <= whole || rested,
            "{part} of {whole} at {at:?}, {:?} after it was back",
            *at - closed
        );
    }
}

fn meets_a_ramp(arrivals: &[Arrival], closed: Duration, over: Duration, served: Duration) {
    let after: Vec<Duration> = arrivals.iter().map(|one| one.at).filter(|at| *at > closed - served).collect();
    let at_once = |at: Duration| {
        after.partition_point(|one| *one <= at) - after.partition_point(|one| *one + served <= at)
    };
    let mut most = 0;
    for at in &after {
        let step = (at.saturating_sub(closed)).as_secs() / 6;
        let allowed =
            if *at < over { (1usize << step).min(CONCURRENCY as usize) } else { CONCURRENCY as usize };
        assert!(at_once(*at) <= allowed, "{} at once {:?} after it was back", at_once(*at), *at - closed);
        most = most.max(at_once(*at));
        let second =
            after.partition_point(|one| *one <= *at) - after.partition_point(|one| *one + secs(1) <= *at);
        assert!(second as f64 <= RATE * 1.1, "{second} in a second");
    }
    assert!(most * 2 > RATE as usize / 20, "it got to its speed: {most}");
}
