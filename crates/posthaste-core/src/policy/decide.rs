//! Decisions before and after an attempt.
//!
//! Invariant: every decision is an end or a retry with a due time.

use std::time::Duration;

use super::Policy;
use crate::classify::{Failure, Verdict};
use crate::failure::FailureType;
use crate::reason::Reason;
use crate::strategy::Strategy;
use crate::time::Timestamp;

/// Number of reclaimed leases in a row after which a notification is given up.
pub const MAX_INTERRUPTIONS: u32 = 20;

/// The facts after an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Situation {
    /// Within its generation, from 1.
    pub attempt: u32,
    pub now: Timestamp,
    /// The first due time of the generation.
    pub first_due: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Whether it was cancelled during the attempt.
    pub cancel_requested: bool,
    /// Zero for the first attempt.
    pub previous_delay: Duration,
    /// Random number in `0.0..1.0` that picks the next delay.
    pub draw: f64,
}

/// The facts before an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeforeSend {
    pub now: Timestamp,
    /// The first due time of the generation.
    pub first_due: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub cancel_requested: bool,
    /// Number of reclaimed leases in a row.
    pub interruptions: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Complete,
    Cancel,
    Expire,
    RetryAt {
        due: Timestamp,
        /// The time from now to `due`.
        delay: Duration,
    },
    Bury(Reason),
    /// Ends as Failed, because the policy keeps no dead letters.
    Fail(Reason),
}

/// Decides after an attempt.
///
/// A success always counts. Otherwise, in this order: cancellation, expiry, a type of failure that is not
/// retried, no attempts left, maximum age. Everything else is retried.
pub fn decide(policy: &Policy, situation: &Situation, verdict: &Verdict) -> Decision {
    let failure = match verdict {
        Verdict::Delivered => return Decision::Complete,
        Verdict::Failed(failure) => failure,
    };
    if situation.cancel_requested {
        return Decision::Cancel;
    }
    if is_past(situation.expires_at, situation.now) {
        return Decision::Expire;
    }
    if !policy.retry_on.allows(failure.failure_type) {
        return give_up(policy, Reason::PermanentFailure);
    }
    if situation.attempt >= policy.max_attempts || policy.backoff.strategy == Strategy::None {
        return give_up(policy, Reason::MaxAttemptsExceeded);
    }
    if is_too_old(policy, situation.first_due, situation.now) {
        return give_up(policy, Reason::MaxAgeExceeded);
    }
    match retry_delay(policy, situation, failure) {
        Some(delay) => Decision::RetryAt { due: situation.now.later(delay), delay },
        None => give_up(policy, Reason::MaxAttemptsExceeded),
    }
}

/// Decides before an attempt: an end, or `None` if it may be sent.
pub fn decide_before_send(policy: &Policy, facts: &BeforeSend) -> Option<Decision> {
    if facts.cancel_requested {
        return Some(Decision::Cancel);
    }
    if is_past(facts.expires_at, facts.now) {
        return Some(Decision::Expire);
    }
    if facts.interruptions >= MAX_INTERRUPTIONS {
        return Some(give_up(policy, Reason::Interrupted));
    }
    is_too_old(policy, facts.first_due, facts.now).then(|| give_up(policy, Reason::MaxAgeExceeded))
}

/// Until when a 429 asked that nothing is sent to its destination, if the policy honours it.
pub fn silence_until(policy: &Policy, verdict: &Verdict, now: Timestamp) -> Option<Timestamp> {
    let Verdict::Failed(failure) = verdict else { return None };
    let asked = failure.retry_after.filter(|_| failure.failure_type == FailureType::RateLimit)?;
    let wait = asked.wait(now).min(policy.maximum_retry_after);
    (policy.honour_retry_after && !wait.is_zero()).then(|| now.later(wait))
}

/// The policy's delay, or `Retry-After` if that is longer and the policy honours it.
fn retry_delay(policy: &Policy, situation: &Situation, failure: &Failure) -> Option<Duration> {
    let drawn = policy.delay_after(situation.attempt, situation.previous_delay, situation.draw)?;
    let asked = failure
        .retry_after
        .filter(|_| policy.honour_retry_after)
        .map_or(Duration::ZERO, |asked| asked.wait(situation.now).min(policy.maximum_retry_after));
    Some(drawn.max(asked))
}

fn give_up(policy: &Policy, reason: Reason) -> Decision {
    if policy.dead_letter { Decision::Bury(reason) } else { Decision::Fail(reason) }
}

/// Whether the expiry has passed.
pub fn is_past(expires_at: Option<Timestamp>, now: Timestamp) -> bool {
    expires_at.is_some_and(|expiry| now >= expiry)
}

fn is_too_old(policy: &Policy, first_due: Timestamp, now: Timestamp) -> bool {
    policy.is_exceeded_by(now.since(first_due))
}

#[cfg(test)]
mod tests {
    use super::Strategy;
    use super::*;
    use crate::jitter::Jitter;
    use crate::policy::{MIN_WAIT, PolicyLayer, Preset, resolve};
    use crate::reply::RetryAfter;
    use proptest::prelude::*;
    use serde_json::json;

    const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn after(attempt: u32) -> Situation {
        Situation {
            attempt,
            now: START,
            first_due: START,
            expires_at: None,
            cancel_requested: false,
            previous_delay: Duration::ZERO,
            draw: 0.5,
        }
    }

    fn failed(failure_type: FailureType) -> Verdict {
        Verdict::Failed(Failure { failure_type, retry_after: None })
    }

    fn asking(retry_after: RetryAfter) -> Verdict {
        Verdict::Failed(Failure { failure_type: FailureType::RateLimit, retry_after: Some(retry_after) })
    }

    fn retry_in(delay: Duration) -> Decision {
        Decision::RetryAt { due: START.later(delay), delay }
    }

    const TEMPORARY: Verdict =
        Verdict::Failed(Failure { failure_type: FailureType::Temporary, retry_after: None });

    #[test]
    fn notify_waits_as_its_table_says_and_fails_right_after_the_fifth_attempt() {
        let policy = Preset::Notify.policy();
        for (attempt, delay) in [(1, 30), (2, 60), (3, 120), (4, 240)] {
            assert_eq!(decide(&policy, &after(attempt), &TEMPORARY), retry_in(secs(delay)));
        }
        let buried = Decision::Bury(Reason::MaxAttemptsExceeded);
        assert_eq!(decide(&policy, &after(5), &TEMPORARY), buried);
        assert_eq!(decide(&policy, &after(6), &TEMPORARY), buried);
    }

    #[test]
    fn the_story_adds_up_to_thirty_seconds() {
        let policy = Preset::Story.policy();
        let with = |attempt, draw| decide(&policy, &Situation { draw, ..after(attempt) }, &TEMPORARY);
        assert_eq!(with(1, 0.0), retry_in(secs(60)));
        assert_eq!(with(1, 0.5), retry_in(secs(75)));
        assert_eq!(with(2, 0.0), retry_in(secs(300)));
        assert_eq!(with(3, 0.0), Decision::Bury(Reason::MaxAttemptsExceeded));
    }

    #[test]
    fn a_success_always_counts() {
        let late = Situation { cancel_requested: true, expires_at: Some(Timestamp::EPOCH), ..after(99) };
        assert_eq!(decide(&Preset::Notify.policy(), &late, &Verdict::Delivered), Decision::Complete);
    }

    #[test]
    fn a_failure_ends_by_cancellation_then_expiry_then_type_then_budget_then_age() {
        let policy = Preset::Notify.policy();
        let mut worst = Situation {
            cancel_requested: true,
            expires_at: Some(START),
            first_due: START.earlier(secs(86_401)),
            ..after(5)
        };
        assert_eq!(decide(&policy, &worst, &failed(FailureType::Permanent)), Decision::Cancel);
        worst.cancel_requested = false;
        assert_eq!(decide(&policy, &worst, &failed(FailureType::Permanent)), Decision::Expire);
        worst.expires_at = Some(START.later(Duration::from_micros(1)));
        let permanent = Decision::Bury(Reason::PermanentFailure);
        assert_eq!(decide(&policy, &worst, &failed(FailureType::Permanent)), permanent);
        assert_eq!(decide(&policy, &worst, &TEMPORARY), Decision::Bury(Reason::MaxAttemptsExceeded));
        worst.attempt = 4;
        assert_eq!(decide(&policy, &worst, &TEMPORARY), Decision::Bury(Reason::MaxAgeExceeded));
        worst.first_due = START.earlier(secs(86_400));
        assert_eq!(decide(&policy, &worst, &TEMPORARY), retry_in(secs(240)));
    }

    #[test]
    fn each_failure_type_is_retried_as_the_policy_says() {
        for failure_type in FailureType::ALL {
            let decision = decide(&Preset::Notify.policy(), &after(1), &failed(failure_type));
            let retried = matches!(decision, Decision::RetryAt { .. });
            assert_eq!(retried, failure_type.is_retried_by_default(), "{failure_type:?}");
            let decision = decide(&Preset::Zgw.policy(), &after(1), &failed(failure_type));
            assert_eq!(decision, retry_in(secs(900)));
        }
    }

    #[test]
    fn the_strategy_none_gives_up_at_once() {
        let mut policy = Preset::Notify.policy();
        policy.backoff.strategy = Strategy::None;
        assert_eq!(decide(&policy, &after(1), &TEMPORARY), Decision::Bury(Reason::MaxAttemptsExceeded));
        let decision = decide(&policy, &after(1), &failed(FailureType::InvalidRecipient));
        assert_eq!(decision, Decision::Bury(Reason::PermanentFailure));
    }

    #[test]
    fn without_dead_letters_it_ends_as_failed() {
        let policy = Policy { dead_letter: false, ..Preset::Notify.policy() };
        assert_eq!(decide(&policy, &after(5), &TEMPORARY), Decision::Fail(Reason::MaxAttemptsExceeded));
        let decision = decide(&policy, &after(1), &failed(FailureType::InvalidRecipient));
        assert_eq!(decision, Decision::Fail(Reason::PermanentFailure));
    }

    #[test]
    fn retry_after_is_a_lower_bound_up_to_its_maximum() {
        let policy = Preset::Notify.policy();
        let retried = |policy: &Policy, asked| decide(policy, &after(1), &asking(asked));
        assert_eq!(retried(&policy, RetryAfter::In(secs(5))), retry_in(secs(30)));
        assert_eq!(retried(&policy, RetryAfter::In(secs(100))), retry_in(secs(100)));
        assert_eq!(retried(&policy, RetryAfter::In(secs(7_200))), retry_in(secs(3_600)));
        assert_eq!(retried(&policy, RetryAfter::In(Duration::MAX)), retry_in(secs(3_600)));
        assert_eq!(retried(&policy, RetryAfter::At(START.later(secs(90)))), retry_in(secs(90)));
        assert_eq!(retried(&policy, RetryAfter::At(Timestamp::MAX)), retry_in(secs(3_600)));
        assert_eq!(retried(&policy, RetryAfter::At(Timestamp::MIN)), retry_in(secs(30)));
        let deaf = Policy { honour_retry_after: false, ..policy };
        assert_eq!(retried(&deaf, RetryAfter::In(secs(100))), retry_in(secs(30)));
    }

    #[test]
    fn two_tries_are_at_least_ten_milliseconds_apart() {
        for layer in [
            json!({"strategy": "immediate"}),
            json!({"strategy": "immediate", "jitter": "full"}),
            json!({"strategy": "fixed", "initialDelay": 0}),
            json!({"strategy": "fixed", "initialDelay": "9ms"}),
            json!({"strategy": "linear", "initialDelay": 0}),
            json!({"strategy": "exponential", "initialDelay": 0}),
            json!({"strategy": "exponential", "maximumDelay": 0}),
            json!({"schedule": ["0s", "1h"]}),
            json!({"strategy": "fixed", "initialDelay": "1h", "jitter": "full"}),
            json!({"strategy": "fixed", "initialDelay": "1h", "jitter": {"percent": 100}}),
            json!({"strategy": "fixed", "initialDelay": "19ms", "jitter": "equal"}),
            json!({"strategy": "fixed", "initialDelay": 0, "jitter": "decorrelated"}),
        ] {
            let own = PolicyLayer::from_json(&layer).unwrap();
            let policy = resolve(Preset::Notify, [&own]);
            let shortest = Situation { draw: 0.0, ..after(1) };
            assert_eq!(decide(&policy, &shortest, &TEMPORARY), retry_in(MIN_WAIT), "{layer}");
            let asked = asking(RetryAfter::In(Duration::ZERO));
            assert_eq!(decide(&policy, &shortest, &asked), retry_in(MIN_WAIT), "{layer}");
        }
    }

    #[test]
    fn before_a_send_everything_that_ends_it_is_seen() {
        let policy = Preset::Notify.policy();
        let fine = BeforeSend {
            now: START,
            first_due: START.earlier(secs(86_400)),
            expires_at: Some(START.later(secs(1))),
            cancel_requested: false,
            interruptions: 19,
        };
        let end = |facts| decide_before_send(&policy, &facts);
        assert_eq!(end(fine), None);
        let old = BeforeSend { first_due: START.earlier(secs(86_401)), ..fine };
        assert_eq!(end(old), Some(Decision::Bury(Reason::MaxAgeExceeded)));
        let interrupted = BeforeSend { interruptions: 20, ..old };
        assert_eq!(end(interrupted), Some(Decision::Bury(Reason::Interrupted)));
        let expired = BeforeSend { expires_at: Some(START), ..interrupted };
        assert_eq!(end(expired), Some(Decision::Expire));
        let cancelled = BeforeSend { cancel_requested: true, ..expired };
        assert_eq!(end(cancelled), Some(Decision::Cancel));
        let policy = Policy { dead_letter: false, ..policy };
        assert_eq!(decide_before_send(&policy, &interrupted), Some(Decision::Fail(Reason::Interrupted)));
    }

    proptest! {
        #[test]
        fn every_decision_is_within_the_promises(
            which in 0usize..6, attempt in any::<u32>(), now in any::<i64>(), due in any::<i64>(),
            previous in any::<u64>(), draw in any::<f64>(), asked in proptest::option::of(any::<u64>()),
        ) {
            let policy = Preset::ALL[which].policy();
            let now = Timestamp::from_micros(now);
            let situation = Situation {
                attempt, now, first_due: Timestamp::from_micros(due), previous_delay: secs(previous), draw, ..after(1)
            };
            let retry_after = asked.map(|asked| RetryAfter::In(secs(asked)));
            let verdict = Verdict::Failed(Failure { failure_type: FailureType::Temporary, retry_after });
            if let Decision::RetryAt { due, delay } = decide(&policy, &situation, &verdict) {
                prop_assert!(attempt < policy.max_attempts);
                prop_assert!(due >= now);
                let asked = secs(asked.unwrap_or(0)).min(policy.maximum_retry_after);
                let (shortest, longest) = policy.delay_range(attempt, secs(previous)).unwrap();
                prop_assert!(delay >= asked && delay >= shortest && delay <= longest.max(asked));
            }
        }

        #[test]
        fn no_policy_has_two_tries_less_than_the_least_wait_apart(
            which in 1usize..6, initial in 0u64..30_000, cap in proptest::option::of(0u64..30_000), attempt in 1u32..999,
            jitter in 0usize..6, previous in 0u64..30_000, draw in prop_oneof![Just(0.0), 0.0..1.0],
        ) {
            let micros = Duration::from_micros;
            let mut policy = Policy { max_attempts: 1_000, ..Preset::Notify.policy() };
            policy.backoff.strategy = Strategy::ALL[which];
            policy.backoff.initial_delay = micros(initial);
            policy.backoff.maximum_delay = cap.map(micros);
            policy.jitter = [
                Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated, Jitter::Percent(100.0),
                Jitter::Plus(micros(initial)),
            ][jitter];
            let situation = Situation { previous_delay: micros(previous), draw, ..after(attempt) };
            let Decision::RetryAt { due, delay } = decide(&policy, &situation, &TEMPORARY) else { panic!() };
            prop_assert!(delay >= MIN_WAIT && due >= START.later(MIN_WAIT));
            let (shortest, longest) = policy.delay_range(attempt, micros(previous)).unwrap();
            prop_assert!(shortest >= MIN_WAIT && (shortest..=longest).contains(&delay));
        }
    }
}
