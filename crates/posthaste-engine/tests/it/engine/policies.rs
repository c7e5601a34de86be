//! Which policy is in force when something is decided.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::Outcome;
use posthaste_core::failure::FailureType;
use posthaste_core::fields::BadField;
use posthaste_core::notification::Notification;
use posthaste_core::policy::{PolicyLayer, Scope, Source};
use posthaste_core::state::State;
use posthaste_engine::accept::AcceptError;
use posthaste_engine::acts::ActError;
use posthaste_engine::engine::Engine;

use super::PLAIN;
use crate::rig::{
    FaultyStore, Rig, Script, Trouble, ada, assert_arrived, assert_at, http, ms, notification, pass, secs,
    send, someone_of,
};

fn layer(json: &str) -> PolicyLayer {
    serde_json::from_str(json).unwrap()
}

/// The plain policy with another delay and number of attempts.
fn plain(seconds: u32, attempts: u32) -> PolicyLayer {
    let policy = PLAIN.replace("60s", &format!("{seconds}s"));
    layer(&policy.replace("\"maxAttempts\": 3", &format!("\"maxAttempts\": {attempts}")))
}

fn without_policy(engine: &Engine, to: &str) -> Notification {
    let mut notification = notification(engine, to, "{}");
    notification.content.policy = None;
    notification
}

async fn put(engine: &Engine, scope: &str, layer: PolicyLayer) {
    engine.put_policy(&scope.parse().unwrap(), Some(layer), &ada()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_change_acts_on_the_next_decision_and_leaves_a_due_time_that_is_set() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    put(&engine, "global", plain(60, 3)).await;
    let id = send(&engine, without_policy(&engine, "a")).await;
    pass(secs(10)).await;
    put(&engine, "tenant:default", plain(10, 4)).await;
    pass(secs(200)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(60)), (3, secs(70)), (4, secs(80))]);
    assert_eq!(rig.state(id).await, State::DeadLetter);
}

#[tokio::test(start_paused = true)]
async fn a_smaller_budget_ends_with_the_next_attempt() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    put(&engine, "channel:webhook", plain(60, 5)).await;
    let id = send(&engine, without_policy(&engine, "a")).await;
    pass(secs(70)).await;
    put(&engine, "channel:webhook", plain(60, 2)).await;
    pass(secs(600)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(60)), (3, secs(120))]);
    assert_eq!(rig.state(id).await, State::DeadLetter);
}

#[tokio::test(start_paused = true)]
async fn a_change_while_an_attempt_runs_acts_on_the_decision_after_it() {
    let rig = Rig::new();
    rig.always("a", Script::Slowly(secs(8), http(503)));
    let engine = rig.start().await;
    put(&engine, "global", plain(60, 3)).await;
    let id = send(&engine, without_policy(&engine, "a")).await;
    pass(secs(4)).await;
    put(&engine, "global", plain(20, 2)).await;
    pass(secs(200)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(28))]);
    assert_eq!(rig.state(id).await, State::DeadLetter);
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_the_message_wins() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(503))]);
    let engine = rig.start().await;
    for scope in ["global", "channel:webhook", "tenant:default"] {
        put(&engine, scope, plain(10, 1)).await;
    }
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(100)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(60))]);
}

#[tokio::test(start_paused = true)]
async fn another_node_knows_a_change_with_its_next_heartbeat() {
    let rig = Rig::new();
    rig.always("a", Script::Slowly(secs(3), http(503)));
    let engine = rig.start().await;
    let other = rig.start().await;
    put(&engine, "global", plain(60, 1)).await;
    pass(secs(2) + ms(10)).await;
    let id = send(&other, without_policy(&other, "a")).await;
    pass(secs(3) + ms(10)).await;
    assert_eq!(rig.state(id).await, State::DeadLetter);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_taken_away_leaves_the_one_below() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    put(&engine, "global", plain(60, 2)).await;
    put(&engine, "tenant:default", plain(10, 2)).await;
    engine.put_policy(&"tenant:default".parse().unwrap(), None, &ada()).await.unwrap();
    let id = send(&engine, without_policy(&engine, "a")).await;
    pass(secs(100)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(60))]);
    let audit: Vec<_> = rig.audit().into_iter().map(|row| (row.audit.action, row.audit.target)).collect();
    let row = |action: &str, target: &str| (action.to_owned(), target.to_owned());
    let wanted =
        [("put-policy", "global"), ("put-policy", "tenant:default"), ("remove-policy", "tenant:default")];
    assert_eq!(audit, wanted.map(|(action, target)| row(action, target)));
}

#[tokio::test(start_paused = true)]
async fn a_bad_policy_is_refused_with_its_field_and_the_old_one_stays() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let template: Scope = "template:welcome".parse().unwrap();
    engine.put_policy(&template, Some(plain(60, 5)), &ada()).await.unwrap();
    let refused = engine.put_policy(&template, Some(plain(60, 6)), &someone_of("default")).await;
    let Err(ActError::Policy(bad)) = refused else { panic!("{refused:?}") };
    assert_eq!(bad.field, "maxAttempts");
    assert_eq!(engine.policies().set().layer(&template), Some(&plain(60, 5)));
    assert_eq!(rig.audit().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_tells_of_a_refused_policy_finds_its_field_and_reason() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let bad = || PolicyLayer { max_attempts: Some(0), ..PolicyLayer::default() };
    let put = engine.put_policy(&Scope::Global, Some(bad()), &ada()).await.unwrap_err();
    let mut message = notification(&engine, "a", "{}");
    message.content.policy = Some(bad());
    let accepted = engine.accept(None, vec![message]).await.unwrap_err();
    let tenant = Scope::Tenant("no tenant".to_owned());
    let scope = engine.put_policy(&tenant, Some(plain(60, 3)), &ada()).await.unwrap_err();
    let errors: [(&dyn std::error::Error, &str); 3] =
        [(&put, "maxAttempts"), (&accepted, "maxAttempts"), (&scope, "scope")];
    for (error, field) in errors {
        let bad = error.source().and_then(|source| source.downcast_ref::<BadField>()).unwrap();
        assert_eq!(bad.field, field);
        assert!(!bad.reason.is_empty() && !bad.reason.starts_with(field), "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_answer_about_policies_does_not_undo_a_newer_one() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model).deaf());
    let engine = rig.start_on(store.clone()).await;
    let other = rig.start().await;
    pass(secs(2)).await;
    put(&other, "tenant:default", plain(10, 1)).await;
    // The next heartbeat reads this, and the answer is under way while another policy is put.
    store.next("settings", [Trouble::ToldLate(secs(1))]);
    pass(ms(1_100)).await;
    assert_eq!(engine.policies().set().layer(&"tenant:default".parse().unwrap()), None);
    put(&engine, "global", plain(60, 1)).await;
    pass(ms(1_000)).await;
    let set = engine.policies().set();
    assert_eq!(set.layer(&Scope::Global), Some(&plain(60, 1)));
    assert_eq!(set.layer(&"tenant:default".parse().unwrap()), Some(&plain(10, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_could_not_be_read_back_is_refused() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let layer = PolicyLayer { initial_delay: Some(secs(86_400 * 40_000)), ..PolicyLayer::default() };
    let refused = engine.put_policy(&Scope::Global, Some(layer), &ada()).await;
    assert!(matches!(refused, Err(ActError::Policy(bad)) if bad.field == "initialDelay"));
    let layer = PolicyLayer { max_attempts: Some(3), ..PolicyLayer::default() };
    let refused = engine.put_policy(&Scope::Tenant("a\nb".to_owned()), Some(layer), &ada()).await;
    assert!(matches!(refused, Err(ActError::Policy(bad)) if bad.field == "scope"));
    assert!(rig.audit().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_engine_with_impossible_settings_still_works() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 0;
    rig.settings.batch = 0;
    rig.settings.hold = Duration::MAX;
    rig.settings.beat = Duration::MAX;
    rig.settings.sweep = Duration::MAX;
    rig.settings.age_check = Duration::ZERO;
    let engine = rig.start().await;
    let mut later = notification(&engine, "a", PLAIN);
    later.not_before = Some(engine.now().later(ms(400)));
    let id = send(&engine, later).await;
    pass(secs(1)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert_eq!(engine.drain(Duration::MAX).await.unwrap(), 0);
}

/// Two attempts of at most ten minutes.
const TEN_MINUTES: &str = r#"{"strategy": "fixed", "initialDelay": "5m", "maxAttempts": 2, "jitter": "none",
    "timeout": "10m", "quick": {"tries": 0}}"#;

#[tokio::test(start_paused = true)]
async fn a_longer_timeout_that_was_kept_before_is_cut_off_at_the_limit_and_the_rest_stays() {
    let mut rig = Rig::new();
    rig.longest_timeout = secs(600);
    rig.always("a", Script::Hang);
    let before = rig.start().await;
    put(&before, "tenant:default", layer(TEN_MINUTES)).await;
    let by_tenant = send(&before, without_policy(&before, "a")).await;
    let by_itself = send(&before, notification(&before, "a", TEN_MINUTES)).await;
    pass(secs(1)).await;
    drop(before);
    // The next version has the usual limit. It takes the leases back and sends both again.
    rig.longest_timeout = secs(60);
    let engine = rig.start().await;
    pass(secs(900)).await;
    for id in [by_tenant, by_itself] {
        let attempts = rig.attempts(id).await;
        let failed = Outcome::Failed(FailureType::Timeout);
        assert_eq!(rig.outcomes(id).await, [(1, 1, failed), (1, 2, failed)]);
        for attempt in &attempts {
            assert_at(attempt.duration, secs(60));
        }
        assert_at(attempts[1].started_at.since(attempts[0].started_at), secs(360));
        assert_eq!(rig.state(id).await, State::DeadLetter);
    }
    let kept = engine.policies().set();
    assert_eq!(kept.layer_of(Source::Api, &"tenant:default".parse().unwrap()), Some(&layer(TEN_MINUTES)));
}

#[tokio::test(start_paused = true)]
async fn a_new_timeout_beyond_the_limit_is_refused_but_for_all_tenants() {
    let rig = Rig::new();
    rig.always("a", Script::Hang);
    let engine = rig.start().await;
    for scope in ["tenant:default", "template:welcome"] {
        let refused = engine.put_policy(&scope.parse().unwrap(), Some(layer(TEN_MINUTES)), &ada()).await;
        assert!(matches!(refused, Err(ActError::Policy(bad)) if bad.field == "timeout"), "{scope}");
    }
    let refused = engine.accept(None, vec![notification(&engine, "a", TEN_MINUTES)]).await;
    assert!(matches!(refused, Err(AcceptError::Policy(bad)) if bad.field == "timeout"));
    put(&engine, "channel:webhook", layer(TEN_MINUTES)).await;
    let id = send(&engine, without_policy(&engine, "a")).await;
    pass(secs(601)).await;
    assert_at(rig.attempts(id).await[0].duration, secs(600));
}
