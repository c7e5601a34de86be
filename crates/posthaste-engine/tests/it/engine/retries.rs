//! When a failed attempt is repeated, and how a notification ends that is not.

use std::time::Duration;

use posthaste_core::attempt::Outcome;
use posthaste_core::channel::Channel;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::id::NotificationId;
use posthaste_core::reason::Reason;
use posthaste_core::reply::{Fault, Reply};
use posthaste_core::state::State;

use super::PLAIN;
use crate::rig::{
    Rig, Script, assert_arrived, assert_at, http, http_asking, ms, notification, pass, secs, send,
};

/// The times between one attempt and the next.
fn gaps(rig: &Rig, id: NotificationId) -> Vec<Duration> {
    let arrivals = rig.arrivals(id);
    arrivals.windows(2).map(|pair| pair[1].1 - pair[0].1).collect()
}

#[tokio::test(start_paused = true)]
async fn a_passing_failure_is_retried_at_its_time_and_delivered() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(503))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(59)).await;
    let waiting = rig.view(id).await;
    assert_eq!((waiting.state, waiting.progress.attempt), (State::RetryScheduled, 2));
    pass(ms(1_100)).await;
    let done = rig.view(id).await;
    assert_eq!((done.state, done.progress.attempt), (State::Succeeded, 2));
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(60))]);
    let attempts = rig.attempts(id).await;
    let failed = Outcome::Failed(FailureType::Temporary);
    assert_eq!(rig.outcomes(id).await, [(1, 1, failed), (1, 2, Outcome::Delivered)]);
    assert_eq!(attempts[0].status_code, Some(503));
    assert_eq!(attempts[0].error.as_deref(), Some("answered 503"));
    assert_eq!((attempts[1].status_code, &attempts[1].error), (Some(200), &None));
    let began = rig.channel.arrivals();
    assert_eq!(
        attempts.iter().map(|attempt| attempt.started_at).collect::<Vec<_>>(),
        [began[0].2, began[1].2]
    );
    assert!(rig.events(id).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_story_makes_three_attempts_one_and_five_minutes_apart() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", r#"{"preset": "story"}"#)).await;
    pass(secs(3_600)).await;
    let gaps = gaps(&rig, id);
    assert_eq!(gaps.len(), 2);
    assert!((secs(60)..=secs(90) + ms(5)).contains(&gaps[0]), "{gaps:?}");
    assert!((secs(300)..=secs(330) + ms(5)).contains(&gaps[1]), "{gaps:?}");
    let end = rig.view(id).await;
    assert_eq!((end.state, end.progress.attempt), (State::DeadLetter, 3));
    let dead = rig.dead_letter(id).await;
    assert_eq!((dead.reason, dead.status), (Reason::MaxAttemptsExceeded, DeadLetterStatus::Pending));
    assert_eq!(dead.text, "answered 503");
    assert_eq!(dead.attempts, rig.attempts(id).await);
    assert_eq!(dead.attempts.len(), 3);
    let last = &dead.attempts[2];
    assert_eq!(dead.created_at, last.started_at.later(last.duration));
}

#[tokio::test(start_paused = true)]
async fn the_story_waits_its_third_delay_when_a_fourth_attempt_is_set() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", r#"{"preset": "story", "maxAttempts": 4}"#)).await;
    pass(secs(3_600)).await;
    let gaps = gaps(&rig, id);
    for (gap, minutes) in gaps.iter().zip([1, 5, 15]) {
        let least = secs(minutes * 60);
        assert!((least..=least + secs(30) + ms(5)).contains(gap), "{gaps:?}");
    }
    assert_eq!((gaps.len(), rig.state(id).await), (3, State::DeadLetter));
}

#[tokio::test(start_paused = true)]
async fn the_story_spreads_retries_over_half_a_minute() {
    let rig = Rig::new();
    let engine = rig.start().await;
    let mut ids = vec![];
    for number in 0..200 {
        let to = format!("{number}");
        rig.script(&to, [Script::Answer(http(503))]);
        ids.push(send(&engine, notification(&engine, &to, r#"{"preset": "story"}"#)).await);
    }
    pass(secs(120)).await;
    let waits: Vec<Duration> = ids.iter().map(|id| gaps(&rig, *id)[0]).collect();
    for third in [secs(60)..secs(70), secs(70)..secs(80), secs(80)..secs(91)] {
        let count = waits.iter().filter(|wait| third.contains(wait)).count();
        assert!((40..=95).contains(&count), "{count} of 200 in {third:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn notify_doubles_its_delays_and_fails_right_after_the_fifth_attempt() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(500)));
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", r#"{"preset": "notify"}"#)).await;
    pass(secs(3_600)).await;
    let gaps = gaps(&rig, id);
    assert_eq!(gaps.len(), 4);
    for (gap, nominal) in gaps.iter().zip([30, 60, 120, 240]) {
        let (least, most) = (secs(nominal) * 9 / 10, secs(nominal) * 11 / 10 + ms(5));
        assert!((least..=most).contains(gap), "{gap:?} is not {nominal} s +-10 %");
    }
    let dead = rig.dead_letter(id).await;
    assert_eq!(dead.created_at, rig.channel.arrivals()[4].2);
    assert_eq!(dead.reason, Reason::MaxAttemptsExceeded);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_a_lower_bound_up_to_its_maximum() {
    for (asked, waited) in [(secs(30), secs(60)), (secs(90), secs(90)), (secs(7_200), secs(120))] {
        let rig = Rig::new();
        rig.script("a", [Script::Answer(http_asking(429, asked))]);
        let engine = rig.start().await;
        let policy = PLAIN.replacen('{', r#"{"maximumRetryAfter": "120s", "#, 1);
        let id = send(&engine, notification(&engine, "a", &policy)).await;
        pass(secs(200)).await;
        assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, waited)]);
        let limited = Outcome::Failed(FailureType::RateLimit);
        assert_eq!(rig.outcomes(id).await, [(1, 1, limited), (1, 2, Outcome::Delivered)]);
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_not_heard_where_the_policy_does_not_listen() {
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http_asking(503, secs(600)))]);
    let engine = rig.start().await;
    let policy = PLAIN.replacen('{', r#"{"honourRetryAfter": false, "#, 1);
    let id = send(&engine, notification(&engine, "a", &policy)).await;
    pass(secs(100)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(60))]);
}

#[tokio::test(start_paused = true)]
async fn immediate_retries_follow_after_the_shortest_wait() {
    let rig = Rig::new();
    rig.always("a", Script::Slowly(secs(2), http(503)));
    let engine = rig.start().await;
    let policy = r#"{"strategy": "immediate", "maxAttempts": 4, "jitter": "none", "quick": {"tries": 0}}"#;
    let id = send(&engine, notification(&engine, "a", policy)).await;
    pass(secs(60)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, ms(2_010)), (3, ms(4_020)), (4, ms(6_030))]);
    assert_eq!(rig.state(id).await, State::DeadLetter);
}

#[tokio::test(start_paused = true)]
async fn the_most_tries_without_a_delay_are_ten_milliseconds_apart() {
    let rig = Rig::new();
    rig.always("a", Script::Answer(http(503)));
    let engine = rig.start().await;
    let policy = r#"{"strategy": "immediate", "maxAttempts": 1000, "jitter": "full",
        "quick": {"tries": 20, "delay": "0s", "jitter": true}}"#;
    let id = send(&engine, notification(&engine, "a", policy)).await;
    pass(secs(1)).await;
    let arrivals = rig.arrivals(id);
    assert!((80..=101).contains(&arrivals.len()), "{} tries in a second", arrivals.len());
    assert!(arrivals.windows(2).all(|two| two[1].1 - two[0].1 >= ms(10)), "{arrivals:?}");
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_goes_straight_to_the_dead_letters() {
    let cases = [
        (http(400), FailureType::Permanent),
        (http(401), FailureType::AuthenticationFailure),
        (http(403), FailureType::AuthenticationFailure),
        (http(410), FailureType::Permanent),
        (Reply::smtp(550, Some((5, 1, 1)), "no such user"), FailureType::InvalidRecipient),
        (Reply::fault(Fault::Forbidden, "not there"), FailureType::Permanent),
    ];
    for (reply, failure) in cases {
        let rig = Rig::new();
        rig.always("a", Script::Answer(reply.clone()));
        let engine = rig.start().await;
        let id = send(&engine, notification(&engine, "a", r#"{"preset": "story"}"#)).await;
        pass(ms(1)).await;
        assert_eq!(rig.state(id).await, State::DeadLetter, "{reply:?}");
        let dead = rig.dead_letter(id).await;
        assert_eq!((dead.reason, dead.text), (Reason::PermanentFailure, reply.words()));
        assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Failed(failure))]);
        pass(secs(3_600)).await;
        assert_eq!(rig.arrivals(id).len(), 1);
    }
}

/// A receiver that is being deployed answers so for a while.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_may_heal_is_retried_until_it_does() {
    for status in [302, 307, 404, 409, 421, 423] {
        let rig = Rig::new();
        rig.script("a", [Script::Answer(http(status)), Script::Answer(http(status))]);
        let engine = rig.start().await;
        let id = send(&engine, notification(&engine, "a", PLAIN)).await;
        pass(secs(300)).await;
        assert_eq!(rig.state(id).await, State::Succeeded, "{status}");
        let failed = Outcome::Failed(FailureType::Unknown);
        assert_eq!(rig.outcomes(id).await, [(1, 1, failed), (1, 2, failed), (1, 3, Outcome::Delivered)]);
    }
}

/// An e-mail provider says with 404 that it does not know the recipient, which no retry changes.
#[tokio::test(start_paused = true)]
async fn an_unknown_recipient_of_a_provider_is_not_retried() {
    let mut rig = Rig::new();
    rig.ways.push(Channel::Email);
    rig.always("a@example.org", Script::Answer(http(404)));
    let engine = rig.start().await;
    let mut mail = notification(&engine, "a@example.org", PLAIN);
    mail.channel = Channel::Email;
    let id = send(&engine, mail).await;
    pass(secs(300)).await;
    assert_eq!(rig.state(id).await, State::DeadLetter);
    assert_eq!(rig.outcomes(id).await, [(1, 1, Outcome::Failed(FailureType::InvalidRecipient))]);
}

#[tokio::test(start_paused = true)]
async fn without_dead_letters_a_failure_ends_as_failed() {
    for (status, reason, attempts) in
        [(400, Reason::PermanentFailure, 1), (503, Reason::MaxAttemptsExceeded, 3)]
    {
        let rig = Rig::new();
        rig.always("a", Script::Answer(http(status)));
        let engine = rig.start().await;
        let policy = PLAIN.replacen('{', r#"{"deadLetter": false, "#, 1);
        let id = send(&engine, notification(&engine, "a", &policy)).await;
        pass(secs(300)).await;
        let view = rig.view(id).await;
        let end = view.end.unwrap();
        assert_eq!((view.state, view.progress.attempt), (State::Failed, attempts));
        assert_eq!((end.reason, end.dead_letter), (Some(reason), None));
        assert_eq!(end.text, Some(format!("answered {status}")));
        assert_eq!(rig.attempts(id).await.len(), attempts as usize);
        assert!(rig.model.inspect(|tables| tables.dead_letters.is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_delay_counts_from_the_end_of_the_attempt() {
    let rig = Rig::new();
    rig.script("a", [Script::Slowly(secs(7), http(503))]);
    let engine = rig.start().await;
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(100)).await;
    assert_arrived(&rig.arrivals(id), &[(1, secs(0)), (2, secs(67))]);
    assert_at(rig.attempts(id).await[0].duration, secs(7));
}
