//! The tries of one attempt: quick repeats, the deadline, and channels that break.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::{Attempt, Outcome};
use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::reason::Reason;
use posthaste_core::reply::{Fault, Reply};
use posthaste_core::state::State;
use posthaste_engine::planted::Planted;

use super::PLAIN;
use crate::rig::{
    BEGIN, FaultyStore, Rig, Script, assert_arrived, assert_at, http, http_asking, ms, notification, pass,
    secs, send,
};

/// Two quick tries after half a second and one second.
const QUICK: &str = r#"{"strategy": "fixed", "initialDelay": "60s", "maxAttempts": 2, "jitter": "none",
    "timeout": "10s", "quick": {"tries": 2, "delay": "500ms", "backoff": "exponential", "jitter": false}}"#;

#[tokio::test(start_paused = true)]
async fn quick_tries_are_kept_in_one_attempt() {
    let rig = Rig::new();
    rig.script("a", [Script::Slowly(ms(40), http(503)), Script::Answer(http(502))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", QUICK)).await;
    pass(secs(5)).await;
    assert_arrived(&rig.arrivals(id), &[(1, ms(0)), (1, ms(540)), (1, ms(1_540))]);
    let attempts = rig.attempts(id).await;
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Delivered)]);
    assert_eq!(attempts[0].status_code, Some(200));
    assert_at(attempts[0].duration, ms(1_540));
    let tries: Vec<_> =
        attempts[0].quick_tries.iter().map(|quick| (quick.status_code, quick.failure_type)).collect();
    assert_eq!(tries, [(Some(503), FailureType::Temporary), (Some(502), FailureType::Temporary)]);
    let began: Vec<_> = rig.channel.arrivals().into_iter().map(|(_, _, at)| at).collect();
    assert_eq!(attempts[0].started_at, began[0]);
    assert_eq!(attempts[0].quick_tries[0].started_at, began[0]);
    assert_eq!(attempts[0].quick_tries[1].started_at, began[1]);
    assert!((40..=42).contains(&attempts[0].quick_tries[0].duration_ms));
    assert_eq!(attempts[0].quick_tries[1].error, "answered 502");
    assert_eq!(attempts[0].last_try_at, Some(began[2]));
}

#[tokio::test(start_paused = true)]
async fn spent_quick_tries_spend_one_attempt() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(Reply::fault(Fault::Refused, "refused")));
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", QUICK)).await;
    pass(secs(120)).await;
    let first = [(1, ms(0)), (1, ms(500)), (1, ms(1_500))];
    let second = [(2, ms(61_500)), (2, ms(62_000)), (2, ms(63_000))];
    assert_arrived(&rig.arrivals(id), &[first, second].concat());
    let failed = Outcome::Failed(FailureType::NetworkFailure);
    assert_eq!(rig.outcomes(id).await, [(1, 1, failed), (1, 2, failed)]);
    let tries: Vec<usize> = rig.attempts(id).await.iter().map(|attempt| attempt.quick_tries.len()).collect();
    assert_eq!(tries, [2, 2]);
    assert_eq!(rig.dead_letter(id).await.reason, Reason::MaxAttemptsExceeded);
}

#[tokio::test(start_paused = true)]
async fn our_own_timeout_ends_the_attempt_at_exactly_its_time() {
    let rig = Rig::new();
    rig.script("a", [Script::Hang]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", QUICK)).await;
    pass(ms(9_990)).await;
    assert_eq!(rig.state(id).await, State::Processing);
    assert!(rig.attempts(id).await.is_empty());
    pass(ms(20)).await;
    assert_eq!(rig.state(id).await, State::RetryScheduled);
    let attempts = rig.attempts(id).await;
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Failed(FailureType::Timeout))]);
    assert_at(attempts[0].duration, secs(10));
    assert_eq!(attempts[0].error.as_deref(), Some("no answer within 10s"));
    assert!(attempts[0].quick_tries.is_empty());
    pass(secs(100)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(70))]);
    assert_eq!(rig.state(id).await, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn an_answer_at_the_last_moment_counts() {
    let rig = Rig::new();
    rig.script("a", [Script::Slowly(ms(9_990), http(200))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(11)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_beyond_the_quick_waits_bounds_the_scheduled_retry() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http_asking(503, secs(90)))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", QUICK)).await;
    pass(secs(120)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(90))]);
    assert!(rig.attempts(id).await[0].quick_tries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn quick_waits_add_up_to_no_more_than_their_limit() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http_asking(503, secs(3))));
    let engine = rig.start().await;
    let policy = QUICK.replace(r#""tries": 2"#, r#""tries": 4"#).replace("500ms", "100ms");
    let id = send(&engine, notification(&engine, "a", &policy)).await;
    pass(secs(30)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (1, secs(3)), (1, secs(6))]);
    assert_eq!(rig.state(id).await, State::RetryScheduled);
}

/// One quick try after five seconds.
const SLOW_QUICK: &str = r#"{"strategy": "fixed", "initialDelay": "60s", "maxAttempts": 3, "jitter": "none",
    "timeout": "60s", "quick": {"tries": 1, "delay": "5s", "backoff": "constant", "jitter": false}}"#;

/// When the second of two notifications arrives on a node with one slot, while the first waits for its quick try; and when
/// the tries of the first arrive.
async fn between_tries(planted: Option<Planted>) -> (Vec<Duration>, Vec<Duration>) {
    let mut rig = Rig::new();
    (rig.settings.concurrency, rig.settings.planted) = (1, planted);
    rig.script("a", [Script::Answer(http(503))]);
    // The second one is still being sent when the wait of the first is over.
    rig.always("b", Script::Slowly(secs(5), http(200)));
    let engine = rig.start().await;
    let first = send(&engine, notification(&engine, "a", SLOW_QUICK)).await;
    pass(secs(1)).await;
    let second = send(&engine, notification(&engine, "b", SLOW_QUICK)).await;
    pass(secs(30)).await;
    assert_eq!((rig.state(first).await, rig.state(second).await), (State::Succeeded, State::Succeeded));
    assert_eq!((rig.outcomes(first).await.len(), engine.busy()), (1, 0));
    let times = |id| rig.arrivals(id).into_iter().map(|(_, at)| at).collect();
    (times(second), times(first))
}

#[tokio::test(start_paused = true)]
async fn a_waiting_quick_try_has_no_slot_and_takes_one_again_before_it_is_made() {
    let (second, first) = between_tries(None).await;
    assert_at(second[0], secs(1));
    assert_at(first[1], secs(6));
    let (second, _) = between_tries(Some(Planted::KeepSlotBetweenTries)).await;
    assert!(second[0] >= secs(5), "the bug is seen: {second:?}");
    let (_, first) = between_tries(Some(Planted::TryWithoutSlot)).await;
    assert!(first[1] < secs(6), "the bug is seen: two are sent at once in one slot: {first:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quick_try_that_finds_no_slot_for_two_seconds_becomes_a_scheduled_retry() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 1;
    rig.script("a", [Script::Answer(http(503))]);
    rig.script("b", [Script::Slowly(secs(40), http(200))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", SLOW_QUICK)).await;
    pass(secs(1)).await;
    send(&engine, notification(&engine, "b", SLOW_QUICK)).await;
    pass(ms(5_900)).await;
    assert_eq!((rig.state(id).await, engine.busy()), (State::Processing, 2));
    pass(ms(200)).await;
    assert_eq!((rig.state(id).await, engine.busy()), (State::RetryScheduled, 1));
    let attempts = rig.attempts(id).await;
    assert_eq!((attempts.len(), attempts[0].quick_tries.len(), attempts[0].status_code), (1, 0, Some(503)));
    assert_at(attempts[0].duration, secs(0));
    pass(secs(70)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(67))]);
}

#[tokio::test(start_paused = true)]
async fn a_quick_try_has_its_turn_although_new_ones_keep_coming() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 2;
    rig.script("a", [Script::Answer(http(503))]);
    rig.always("b", Script::Slowly(ms(100), http(200)));
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", SLOW_QUICK)).await;
    for _ in 0..400 {
        send(&engine, notification(&engine, "b", SLOW_QUICK)).await;
        pass(ms(20)).await;
    }
    let arrivals = rig.arrivals(id);
    assert_eq!(arrivals.len(), 2);
    assert!(arrivals[1].1 < ms(5_300), "{arrivals:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quick_try_that_waits_for_a_slot_does_not_outlive_its_expiry() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 1;
    rig.script("a", [Script::Answer(http(503))]);
    rig.script("b", [Script::Slowly(secs(6), http(200))]);
    let engine = rig.start().await;
    let mut new = notification(&engine, "a", SLOW_QUICK);
    new.expires_at = Some(BEGIN.later(ms(5_500)));
    let id = send(&engine, new).await;
    pass(secs(1)).await;
    send(&engine, notification(&engine, "b", SLOW_QUICK)).await;
    pass(secs(9)).await;
    assert_eq!((rig.state(id).await, rig.arrivals(id).len()), (State::Expired, 1));
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_quick_try_that_finds_no_slot() {
    let mut rig = Rig::new();
    rig.settings.concurrency = 1;
    rig.script("a", [Script::Answer(http(503))]);
    rig.script("b", [Script::Slowly(secs(8), http(200))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", SLOW_QUICK)).await;
    pass(secs(1)).await;
    send(&engine, notification(&engine, "b", SLOW_QUICK)).await;
    pass(ms(4_500)).await;
    assert_eq!(engine.busy(), 2);
    let (left, ()) = tokio::join!(engine.drain(secs(30)), async {
        pass(ms(10)).await;
        assert_eq!((rig.state(id).await, engine.busy()), (State::RetryScheduled, 1));
    });
    assert_eq!(left.unwrap(), 0);
    assert_at(rig.elapsed(), secs(9));
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_panics_fails_the_attempt_and_the_node_goes_on() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut ids = vec![];
    for number in 0..20 {
        let to = format!("{number}");
        rig.script(&to, [Script::Panic]);
        ids.push(send(&engine, notification(&engine, &to, PLAIN)).await);
    }
    pass(secs(1)).await;
    assert_eq!(engine.busy(), 0);
    pass(secs(60)).await;
    for id in ids {
        let unknown = Outcome::Failed(FailureType::Unknown);
        assert_eq!(rig.outcomes(id).await, [(1, 1, unknown), (1, 2, Outcome::Delivered)]);
        assert_eq!(rig.attempts(id).await[0].error.as_deref(), Some("the delivery broke down"));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_provider_an_attempt_fails_and_says_so_and_is_retried() {
    let mut rig = Rig::new();
    let engine = rig.start().await;
    let mut letter = notification(&engine, "a@example.org", PLAIN);
    letter.channel = Channel::Email;
    let id = send(&engine, letter).await;
    pass(ms(1)).await;
    let attempts = rig.attempts(id).await;
    assert_eq!(attempts[0].error.as_deref(), Some("no provider is configured for email"));
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Failed(FailureType::Temporary))]);
    assert_eq!((&attempts[0].provider, rig.channel.arrivals().len()), (&None, 0));
    // It is configured, and the node starts again.
    drop(engine);
    rig.ways.push(Channel::Email);
    let _engine = rig.start().await;
    pass(secs(300)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert_eq!(rig.attempts(id).await[1].provider.as_deref(), Some("email-relay"));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_records_its_provider_the_id_of_the_message_and_what_a_failure_said() {
    let mut rig = Rig::new();
    rig.ways.push(Channel::Sms);
    let html = Reply { text: "<p>".to_owned(), content_type: Some("text/html".to_owned()), ..http(503) };
    let long = Reply::refused("busy", "x".repeat(5_000));
    let taken = Reply { text: "queued".to_owned(), ..Reply::taken("m-1") };
    rig.script("+1", [html, long, taken].map(Script::Answer));
    let engine = rig.start().await;
    let mut message = notification(&engine, "+1", PLAIN);
    (message.channel, message.destination) = (Channel::Sms, "pool:sms".into());
    let id = send(&engine, message).await;
    pass(secs(300)).await;
    let attempts = rig.attempts(id).await;
    assert!(attempts.iter().all(|made| made.provider.as_deref() == Some("sms-relay")));
    let ids: Vec<_> = attempts.iter().map(|made| made.message_id.as_deref()).collect();
    assert_eq!(ids, [None, None, Some("m-1")]);
    let said = |made: &Attempt| made.response.as_ref().map(|response| response.excerpt.len());
    assert_eq!(attempts.iter().map(said).collect::<Vec<_>>(), [Some(3), Some(2_048), None]);
    assert_eq!(attempts[0].response.as_ref().unwrap().content_type.as_deref(), Some("text/html"));
    let outcomes: Vec<_> = attempts.iter().map(|made| made.outcome).collect();
    let temporary = Outcome::Failed(FailureType::Temporary);
    assert_eq!(outcomes, [temporary, temporary, Outcome::Delivered]);
}

/// A try may take longer than a heartbeat holds.
const LONG: &str = r#"{"strategy": "fixed", "initialDelay": "60s", "maxAttempts": 3, "jitter": "none",
    "timeout": "60s", "quick": {"tries": 0}}"#;

#[tokio::test(start_paused = true)]
async fn a_long_try_starts_under_a_fresh_lease_and_asks_for_no_longer_one() {
    let rig = Rig::new();
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    pass(ms(500)).await;
    store.refuse(&["heartbeat"]);
    pass(secs(2)).await;
    let id = send(&engine, notification(&engine, "a", LONG)).await;
    pass(secs(3)).await;
    assert!(rig.arrivals(id).is_empty());
    assert_eq!(rig.state(id).await, State::Processing);
    store.refuse(&[]);
    pass(ms(500)).await;
    assert_eq!(rig.arrivals(id).len(), 1);
    let holds: Vec<_> = rig.model.inspect(|tables| tables.nodes.values().map(|node| node.expires).collect());
    let hold = holds[0].since(rig.channel.arrivals()[0].2);
    assert!((secs(10)..=secs(13)).contains(&hold), "{hold:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_try_goes_on_for_as_long_as_the_heart_beats() {
    let rig = Rig::new();
    rig.script("a", [Script::Slowly(secs(58), http(200))]);
    let (engine, other) = (rig.start().await, rig.start().await);
    let id = send(&engine, notification(&engine, "a", LONG)).await;
    pass(secs(59)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert_eq!(rig.arrivals(id).len(), 1);
    assert!(rig.events(id).await.is_empty());
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_long_try_ends_with_its_lease_and_another_node_sends_it_within_15_seconds() {
    let rig = Rig::new();
    rig.script("a", [Script::Slowly(secs(58), http(200))]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let other = rig.start().await;
    pass(secs(4)).await;
    let id = send(&engine, notification(&engine, "a", LONG)).await;
    pass(ms(10)).await;
    assert_eq!(rig.arrivals(id).len(), 1);
    store.refuse(&["heartbeat", "settle"]);
    pass(secs(15)).await;
    let arrivals = rig.arrivals(id);
    assert_eq!(arrivals.len(), 2);
    assert_eq!(rig.state(id).await, State::Succeeded);
    store.refuse(&[]);
    pass(secs(60)).await;
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Delivered)]);
    assert_eq!(rig.events(id).await.len(), 1);
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_long_try_is_cut_off_when_its_lease_runs_out() {
    let rig = Rig::new();
    rig.script("a", [Script::Hang]);
    let store = Arc::new(FaultyStore::on(&rig.model));
    let engine = rig.start_on(store.clone()).await;
    let id = send(&engine, notification(&engine, "a", LONG)).await;
    pass(ms(10)).await;
    store.refuse(&["heartbeat"]);
    pass(secs(20)).await;
    let attempts = rig.attempts(id).await;
    let [attempt] = &attempts[..] else { panic!("{attempts:?}") };
    assert_eq!(attempt.outcome, Outcome::Failed(FailureType::Timeout));
    assert!(attempt.error.as_ref().is_some_and(|text| text.starts_with("cut off")), "{attempt:?}");
    assert!((secs(10)..=secs(12)).contains(&attempt.duration), "{attempt:?}");
}
