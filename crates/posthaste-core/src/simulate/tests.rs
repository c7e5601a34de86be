//! Promises of the simulation.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::policy::{PolicyLayer, Preset, resolve};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn scenario(policy: Policy, asked: &serde_json::Value) -> Scenario {
    let asked = Asked::from_json(asked).unwrap();
    let place = (Channel::Webhook, Overrides::default());
    asked.scenario(policy, place, BreakerSettings::default(), 256).unwrap()
}

fn run(policy: Policy, asked: &serde_json::Value) -> Simulation {
    simulate(&scenario(policy, asked), Effort::SMALL)
}

fn sum(told: &Simulation) -> u64 {
    told.delivered + told.dead + told.failed + told.expired + told.waiting
}

#[test]
fn without_a_failure_each_notification_is_attempted_once() {
    for rate in [0.5, 3.0, 100.0] {
        let told = run(Preset::Webhook.policy(), &json!({"rate": rate, "script": "ok for 10m"}));
        assert_eq!(told.arrived, (rate * 600.0) as u64);
        assert_eq!((told.attempts, told.retries, told.quick_tries), (told.arrived, 0, 0));
        assert_eq!((told.dead, told.breaker.opened, told.outage_ended_at), (0, 0, None));
        assert_eq!(sum(&told), told.arrived);
        assert!(told.waiting <= told.arrived.min(20), "only what is under way at the end");
    }
}

/// S2: 10 failed attempts in a row, then nothing for 5 minutes, one probe, and so on.
#[test]
fn the_second_source_has_its_ten_failures_and_then_five_minutes_of_silence() {
    let asked = json!({"rate": 0.05, "script": "503 for 20m, ok for 1h", "breaker": {"firstBreak": "5m"}});
    let told = run(Preset::Zgw.policy(), &asked);
    let first = told.breaker.events[0];
    assert_eq!((first.event, first.until), ("opened", Some(first.at + secs(300))));
    let before: u64 =
        told.load.iter().filter(|step| step.at + told.step <= first.at).map(|step| step.sends).sum();
    // An attempt is five tries: the first and four quick ones.
    assert!((45..=50).contains(&before), "{before}");
    for pair in told.breaker.events.windows(2) {
        if pair[0].event == "opened" {
            assert!(pair[1].at >= pair[0].at + secs(300), "{pair:?}");
        }
    }
    let silent =
        told.load.iter().filter(|step| step.at > first.at && step.at + told.step < first.at + secs(300));
    assert!(silent.clone().count() >= 5);
    assert_eq!(silent.map(|step| step.sends).sum::<u64>(), 0);
    let closed = told.breaker.events.iter().find(|event| event.event == "closed").unwrap();
    assert!(closed.at >= secs(1_200) && closed.at < secs(1_510), "{closed:?}");
    assert_eq!((sum(&told), told.dead), (told.arrived, 0));
}

#[test]
fn after_an_outage_there_is_a_ramp_and_never_more_than_rate_and_concurrency() {
    let asked = json!({"rate": 20, "script": "503 for 1h, ok for 3h", "limits": {"rate": 50}});
    let told = run(Preset::Webhook.policy(), &asked);
    assert!(told.most_parked.count > 60_000, "{:?}", told.most_parked);
    assert!(told.busiest_second.count <= 55, "{:?}", told.busiest_second);
    // 72,000 wait and 20 come each second: at 50 a second that takes 40 minutes.
    let drained = told.drained_after.unwrap();
    assert!(drained > secs(35 * 60) && drained < secs(50 * 60), "{drained:?}");
    assert_eq!((told.dead, sum(&told)), (0, told.arrived));
    // 10 failed attempts of 3 tries open it, while as many again are under way; each probe is one more.
    let failures: u64 = told.load.iter().map(|step| step.failures).sum();
    assert!(failures < 150, "{failures}");
    assert!(told.breaker.probes > 10 && told.breaker.open_for > secs(3_500));
    let free = run(Preset::Webhook.policy(), &json!({"rate": 20, "script": "503 for 1h, ok for 1h"}));
    assert!(free.busiest_second.count > 100 && free.drained_after.unwrap() < secs(400), "{free:?}");
}

#[test]
fn silence_that_was_asked_for_parks_and_blames_nobody() {
    let asked = json!({"rate": 5, "script": "429 with Retry-After 60 for 5m, ok for 30m", "limits": {"concurrency": 4}});
    let told = run(Preset::Webhook.policy(), &asked);
    assert_eq!((told.breaker.opened, told.dead), (0, 0));
    let paused = told.breaker.events.iter().filter(|event| event.event == "paused").count();
    assert!((5..=6).contains(&paused), "{:?}", told.breaker.events);
    let failures: u64 = told.load.iter().map(|step| step.failures).sum();
    assert!(failures <= 24, "those that were under way each time: {failures}");
}

#[test]
fn what_a_policy_does_not_retry_is_dead_at_once_and_opens_nothing() {
    let told = run(Preset::Notify.policy(), &json!({"rate": 2, "script": "400 for 10m, ok for 10m"}));
    let dead = told.dead_by_reason[&crate::reason::Reason::PermanentFailure];
    assert_eq!((dead, told.attempts, told.breaker.opened), (1_200, told.arrived, 0));
    let layer = PolicyLayer::from_json(&json!({"deadLetter": false})).unwrap();
    let failed = run(resolve(Preset::Notify, [&layer]), &json!({"rate": 2, "script": "400 for 10m"}));
    assert_eq!((failed.failed, failed.dead), (1_200, 0));
}

#[test]
fn what_expires_while_it_is_parked_is_not_sent() {
    let told = run(
        Preset::Webhook.policy(),
        &json!({"rate": 2, "script": "timeout for 2h, ok for 30m", "expiresAfter": "10m"}),
    );
    assert!(told.expired > 13_000 && told.dead == 0, "{told:?}");
    assert_eq!(sum(&told), told.arrived);
    let layer = PolicyLayer::from_json(&json!({"maxAge": "10m"})).unwrap();
    let old =
        run(resolve(Preset::Webhook, [&layer]), &json!({"rate": 2, "script": "timeout for 2h, ok for 30m"}));
    assert!(old.dead_by_reason[&crate::reason::Reason::MaxAgeExceeded] > 13_000, "{old:?}");
}

#[test]
fn a_share_of_timeouts_does_not_open_the_breaker() {
    let told = run(Preset::Notify.policy(), &json!({"rate": 5, "script": "10% timeouts for 1h, ok for 30m"}));
    assert_eq!((told.breaker.opened, sum(&told)), (0, told.arrived));
    let share = told.retries as f64 / told.arrived as f64;
    assert!((0.05..0.1).contains(&share), "{share}");
    assert_eq!(told.settled_after.map(|after| after < secs(600)), Some(true));
}

/// One simulated notification for several gives about the same.
#[test]
fn a_thinned_run_says_so_and_is_about_the_same() {
    let asked = json!({"rate": 50, "script": "ok for 30m, 503 for 1h, ok for 90m", "limits": {"rate": 120, "concurrency": 40}});
    let scenario = scenario(Preset::Webhook.policy(), &asked);
    let whole = simulate(&scenario, Effort { notifications: 1_000_000, sends: 2_000_000 });
    let thin = simulate(&scenario, Effort { notifications: 20_000, sends: 60_000 });
    assert_eq!((whole.stands_for, thin.stands_for), (1, 27));
    assert_eq!((sum(&whole), sum(&thin)), (whole.arrived, thin.arrived));
    let near = |one: u64, other: u64| (one as f64 - other as f64).abs() <= 0.05 * one as f64;
    assert!(near(whole.arrived, thin.arrived) && near(whole.delivered, thin.delivered));
    assert!(
        near(whole.most_parked.count, thin.most_parked.count),
        "{:?} {:?}",
        whole.most_parked,
        thin.most_parked
    );
    let drained = [&whole, &thin].map(|told| told.drained_after.unwrap().as_secs());
    assert!(drained[0].abs_diff(drained[1]) < 400, "{drained:?}");
    assert!(thin.busiest_second.count <= 5 * 27, "{:?}", thin.busiest_second);
}

/// Everything is attempted again and again: the bound on sends counts, not only that on notifications.
#[test]
fn a_run_with_too_many_attempts_is_thinned_too() {
    let layer =
        PolicyLayer::from_json(&json!({"strategy": "immediate", "jitter": "none", "maxAttempts": 1000}))
            .unwrap();
    let asked = json!({"rate": 100, "script": "404 for 1h"});
    let told = run(resolve(Preset::Webhook, [&layer]), &asked);
    assert!(told.stands_for > 10, "{}", told.stands_for);
    assert_eq!(sum(&told), told.arrived);
}

#[test]
fn the_load_adds_up() {
    let told = run(
        Preset::Webhook.policy(),
        &json!({"rate": 30, "script": "ok for 10m, refused for 30m, ok for 3007s"}),
    );
    assert_eq!(told.load.iter().map(|step| step.arrivals).sum::<u64>(), told.arrived);
    assert_eq!(told.load.iter().map(|step| step.sends).sum::<u64>(), told.attempts + told.quick_tries);
    let last = told.load.last().unwrap();
    assert_eq!(last.waiting, told.waiting);
    assert_eq!(told.load.len() as u64, secs(5_407).as_secs().div_ceil(told.step.as_secs()));
    assert!(told.load.iter().all(|step| step.parked <= step.waiting));
    assert_eq!(told.outage_ended_at, Some(secs(2_400)));
}

fn policies() -> impl Strategy<Value = Policy> {
    let preset = prop::sample::select(Preset::ALL.to_vec());
    (preset, 1u32..8, 0u32..4).prop_map(|(preset, attempts, quick)| {
        let layer = json!({"maxAttempts": attempts, "quick": {"tries": quick, "delay": "250ms"}});
        resolve(preset, [&PolicyLayer::from_json(&layer).unwrap()])
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn nothing_is_lost_and_the_same_seed_gives_the_same(
        policy in policies(),
        rate in 0.1f64..60.0,
        phases in prop::collection::vec((prop::sample::select(vec![
            "ok", "503", "20% 503 and 5% timeouts", "429 with Retry-After 20", "timeout", "404", "400", "ok in 3s", "50% reset",
        ]), 10u64..900), 1..5),
        limits in (prop::option::of(0.5f64..50.0), prop::option::of(1u32..20)),
        expires in prop::option::of(5u64..2_000),
        seed in any::<u32>(),
    ) {
        let script: Vec<String> = phases.iter().map(|(what, secs)| format!("{what} for {secs}s")).collect();
        let mut asked = json!({"rate": (rate * 1_000.0).round() / 1_000.0, "script": script.join(", "), "seed": seed});
        asked["limits"] = json!({"rate": limits.0.map(|rate| (rate * 1_000.0).round() / 1_000.0), "concurrency": limits.1});
        asked["expiresAfter"] = json!(expires);
        asked["duration"] = json!("40m");
        let scenario = scenario(policy, &asked);
        let effort = Effort { notifications: 20_000, sends: 50_000 };
        let told = simulate(&scenario, effort);
        prop_assert_eq!(sum(&told), told.arrived, "{:?}", told);
        prop_assert_eq!(&told, &simulate(&scenario, effort));
        prop_assert!(told.attempts + told.waiting + told.expired + told.dead >= told.arrived);
        if let Some(most) = scenario.limits.rate.filter(|_| told.stands_for == 1) {
            let most = most.as_per_second();
            prop_assert!((told.busiest_second.count as f64) <= most + (most / 10.0).max(1.0) + 1.0, "{:?}", told.busiest_second);
        }
    }
}
