//! S2 from end to end: its configuration as its page prints it, and what it promises, on paused time.

use std::time::Duration;

use posthaste_core::attempt::Outcome;
use posthaste_core::breaker::BreakerSettings;
use posthaste_core::failure::FailureType;
use posthaste_core::id::NotificationId;
use posthaste_core::import::{Imported, import};
use posthaste_core::notification::Notification;
use posthaste_core::state::State;
use posthaste_engine::engine::Engine;

use crate::rig::{BEGIN, Rig, Script, http, ms, notification, pass, secs, send};

/// The three blocks of S2, one after the other.
const PRINTED: [&str; 3] = [
    r#"
{
    "PollyConfig": {
        "NotificatiesSender": {
            "Retry": {
                "ShouldRetryAfterHeader": true,
                "MaxRetryAttempts": 4,
                "BackoffType": "Exponential",
                "UseJitter": false,
                "Delay": "00:00:00.500"
            },
            "Timeout": {
                "Timeout": "00:00:30"
            }
        }
    }
}"#,
    r#"
{
    "Hangfire": {
        "RetrySchedule": "0.00:15;0.00:30;0.01:00;0.04:00;1.00:00",
        "ExpireFailedJobsScanAt": "05:00",
        "ExpireFailedJobAfter": "7.00:00"
    }
}"#,
    r#"
{
    "CircuitBreaker": {
        "FailureThreshold": 10,
        "BreakDuration": "00:05:00",
        "CacheExpirationMinutes": 10
    }
}"#,
];

/// The blocks stand side by side in one file.
fn imported() -> Imported {
    let mut file = serde_json::Map::new();
    for block in PRINTED {
        file.extend(serde_json::from_str::<serde_json::Map<_, _>>(block).unwrap());
    }
    import(&serde_json::Value::Object(file).to_string()).unwrap()
}

fn rig(imported: &Imported) -> Rig {
    let breaker = imported.breaker.as_ref().unwrap();
    let mut rig = Rig::new();
    rig.settings.breaker = BreakerSettings {
        failure_threshold: breaker.failure_threshold,
        first_break: breaker.first_break,
        break_duration: breaker.break_duration,
        forget_after: breaker.forget_after,
    };
    rig
}

fn one(engine: &Engine, imported: &Imported) -> Notification {
    let mut one = notification(engine, "a", "{}");
    one.content.policy = Some(imported.policy.clone());
    one
}

fn arrived(rig: &Rig) -> Vec<Duration> {
    rig.channel.arrivals().into_iter().map(|(_, _, at)| at.since(BEGIN)).collect()
}

#[tokio::test(start_paused = true)]
async fn ten_failures_five_minutes_blocked_one_probe_flat_again_and_then_a_ramp() {
    let imported = imported();
    let rig = rig(&imported);
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    pass(secs(2)).await;

    // Ten notifications fail, each after its four quick tries at 500 ms, 1 s, 2 s and 4 s.
    let mut failed = vec![];
    for _ in 0..10 {
        failed.push(send(&engine, one(&engine, &imported)).await);
        pass(secs(8)).await;
    }
    let tries: Vec<Duration> = rig.arrivals(failed[0]).into_iter().map(|(_, at)| at).collect();
    let waits: Vec<u128> = tries.windows(2).map(|two| (two[1] - two[0]).as_millis() / 10).collect();
    assert_eq!(waits, [50, 100, 200, 400]);
    assert_eq!(arrived(&rig).len(), 50);
    for id in &failed {
        assert_eq!(rig.outcomes(*id).await, [(1, 1, Outcome::Failed(FailureType::Temporary))]);
    }
    let blocked = *arrived(&rig).last().unwrap();

    // The eleventh and many more are parked, and five minutes pass without a request.
    let mut parked: Vec<NotificationId> = vec![];
    for _ in 0..200 {
        parked.push(send(&engine, one(&engine, &imported)).await);
    }
    pass(blocked + secs(300) - rig.elapsed()).await;
    assert_eq!(arrived(&rig).len(), 50);

    // Then exactly one, without quick tries, and as long again.
    pass(secs(5)).await;
    let probe = arrived(&rig)[50..].to_vec();
    assert_eq!(probe.len(), 1);
    pass(probe[0] + secs(300) - rig.elapsed()).await;
    assert_eq!(arrived(&rig).len(), 51);

    // The second probe is answered. What waited comes by a ramp.
    rig.always("a", Script::Slowly(ms(200), http(200)));
    pass(secs(62)).await;
    let after = arrived(&rig).split_off(51);
    let second = after[0];
    assert!(second - probe[0] < secs(303), "{:?}", second - probe[0]);
    assert_eq!(after.iter().filter(|at| **at - second < ms(200)).count(), 1, "while it is under way");
    let first_step = after.iter().filter(|at| **at - second < secs(6)).count();
    assert!((10..=31).contains(&first_step), "{first_step}: one at once");
    let at_once = |at: &Duration| after.iter().filter(|one| *one <= at && *at < **one + ms(200)).count();
    for at in &after {
        let step = u32::try_from((*at - second).as_secs() / 6).unwrap();
        assert!(at_once(at) <= 1 << step, "{} at once after {:?}", at_once(at), *at - second);
    }
    let mut waiting = 0;
    for id in &parked {
        assert_eq!(rig.outcomes(*id).await.len(), 1, "parking spent nothing");
        waiting += u32::from(rig.state(*id).await == State::RetryScheduled);
    }
    assert_eq!(waiting, 1, "the first probe waits for its scheduled retry, everything else arrived");

    // The failed ones come back by the schedule: 15 minutes after their first attempt.
    pass(secs(900)).await;
    for id in &failed {
        assert_eq!((rig.state(*id).await, rig.outcomes(*id).await.len()), (State::Succeeded, 2));
        let (first, again) = (rig.arrivals(*id)[4].1, rig.arrivals(*id)[5].1);
        assert!(again - first >= secs(900), "{:?}", again - first);
    }
    assert_eq!(engine.reads(None).destinations(None, 10).await.unwrap().rows, [], "nothing is left of it");
}
