//! The times of a policy's attempts.

use std::time::Duration;

use serde::Serialize;

use super::Policy;
use crate::time::Timestamp;

/// Times are relative to the first attempt. `Retry-After` and how long an attempt takes are not known and not
/// included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    pub attempts: Vec<PreviewedAttempt>,
    /// The latest time of the last attempt that can be made.
    #[serde(with = "crate::duration")]
    pub window: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PreviewedAttempt {
    /// From 1.
    pub number: u32,
    /// The time if every delay is the shortest.
    #[serde(with = "crate::duration")]
    pub earliest: Duration,
    /// The time if every delay is the longest.
    #[serde(with = "crate::duration")]
    pub latest: Duration,
}

/// The times of all attempts if every attempt fails. An attempt that `maxAge` always forbids is not shown, and no
/// attempt is later than it.
pub fn preview(policy: &Policy) -> Preview {
    let is_possible = |attempt: &PreviewedAttempt| !policy.is_exceeded_by(attempt.earliest);
    // The default maximum age is beyond the window of the policy.
    let end = policy.named_max_age.unwrap_or(Duration::MAX);
    let first = PreviewedAttempt { number: 1, earliest: Duration::ZERO, latest: Duration::ZERO };
    let later = policy.delay_ranges().scan(first, |last, (shortest, longest)| {
        *last = PreviewedAttempt {
            number: last.number.saturating_add(1),
            earliest: last.earliest.saturating_add(shortest),
            latest: last.latest.saturating_add(longest),
        };
        Some(*last)
    });
    let made = std::iter::once(first).chain(later).take_while(is_possible);
    let attempts: Vec<_> =
        made.map(|attempt| PreviewedAttempt { latest: attempt.latest.min(end), ..attempt }).collect();
    let window = attempts.last().map_or(Duration::ZERO, |last| last.latest);
    Preview { attempts, window }
}

/// One planned attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedAttempt {
    /// Of its generation, from 1.
    pub number: u32,
    /// Its time if every delay is the shortest.
    pub earliest: Timestamp,
    /// Its time if every delay is the longest.
    pub latest: Timestamp,
}

/// The attempts after the `number`-th of a generation if that one is made at `at` and every one fails. The generation was first
/// due at `first_due`.
pub fn preview_after(
    policy: &Policy,
    number: u32,
    at: Timestamp,
    first_due: Timestamp,
) -> impl Iterator<Item = PlannedAttempt> + '_ {
    let made = usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
    let end = policy.named_max_age.map_or(Timestamp::MAX, |age| first_due.later(age));
    let start = PlannedAttempt { number: number.max(1), earliest: at, latest: at };
    let later = policy.delay_ranges().skip(made).scan(start, |last, (shortest, longest)| {
        *last = PlannedAttempt {
            number: last.number.saturating_add(1),
            earliest: last.earliest.later(shortest),
            latest: last.latest.later(longest),
        };
        Some(*last)
    });
    let is_possible = move |one: &PlannedAttempt| !policy.is_exceeded_by(one.earliest.since(first_due));
    later.take_while(is_possible).map(move |one| PlannedAttempt { latest: one.latest.min(end), ..one })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jitter::Jitter;
    use crate::policy::Preset;
    use crate::strategy::{Backoff, Strategy};
    use serde_json::json;

    #[test]
    fn the_preview_of_notify_is_the_table_of_s3() {
        let expected = json!({
            "attempts": [
                {"number": 1, "earliest": "0s", "latest": "0s"},
                {"number": 2, "earliest": "27s", "latest": "33s"},
                {"number": 3, "earliest": "81s", "latest": "99s"},
                {"number": 4, "earliest": "189s", "latest": "231s"},
                {"number": 5, "earliest": "405s", "latest": "495s"},
            ],
            "window": "495s",
        });
        assert_eq!(serde_json::to_value(preview(&Preset::Notify.policy())).unwrap(), expected);
    }

    #[test]
    fn a_policy_that_never_retries_has_one_attempt() {
        let base = Preset::Notify.policy();
        let policy = crate::policy::Policy {
            backoff: Backoff { strategy: Strategy::None, ..base.backoff.clone() },
            ..base
        };
        assert_eq!(preview(&policy).attempts.len(), 1);
        assert_eq!(preview(&policy).window, Duration::ZERO);
    }

    /// The times in seconds of `notify` with this maximum age.
    fn with_max_age(millis: u64) -> (Vec<(u64, u64)>, Duration) {
        let named_max_age = Some(Duration::from_millis(millis));
        let told = preview(&crate::policy::Policy { named_max_age, ..Preset::Notify.policy() });
        let secs = |attempt: &PreviewedAttempt| (attempt.earliest.as_secs(), attempt.latest.as_secs());
        (told.attempts.iter().map(secs).collect(), told.window)
    }

    #[test]
    fn the_preview_ends_where_the_maximum_age_ends_it() {
        let all = [(0, 0), (27, 33), (81, 99), (189, 231), (405, 495)];
        let secs = Duration::from_secs;
        assert_eq!(with_max_age(496_000), (all.to_vec(), secs(495)));
        assert_eq!(with_max_age(495_000), (all.to_vec(), secs(495)));
        // The fifth may still come, but not as late as it otherwise would.
        let capped = [(0, 0), (27, 33), (81, 99), (189, 231), (405, 410)];
        assert_eq!(with_max_age(410_000), (capped.to_vec(), secs(410)));
        let capped = [(0, 0), (27, 33), (81, 99), (189, 231), (405, 405)];
        assert_eq!(with_max_age(405_000), (capped.to_vec(), secs(405)));
        // The fifth never comes, so that the end is that of the fourth.
        assert_eq!(with_max_age(404_999), (all[..4].to_vec(), secs(231)));
        assert_eq!(with_max_age(26_000), (all[..1].to_vec(), secs(0)));
        assert_eq!(with_max_age(1), (all[..1].to_vec(), secs(0)));
    }

    #[test]
    fn without_a_maximum_age_of_its_own_every_attempt_of_a_policy_is_shown() {
        for preset in Preset::ALL {
            let policy = preset.policy();
            let told = preview(&policy);
            assert_eq!(told.attempts.len(), policy.max_attempts as usize, "{preset:?}");
            assert_eq!(told.window, policy.window(), "{preset:?}");
        }
    }

    /// What the preview shows is what is decided: a retry is not sent past the maximum age.
    #[test]
    fn the_preview_agrees_with_the_decisions() {
        use crate::policy::{BeforeSend, decide_before_send};
        use crate::time::Timestamp;
        let first_due = Timestamp::from_millis(1_800_000_000_000);
        let policy = Preset::Notify.policy();
        for age in [1, 33, 100, 200, 300, 405, 495, 1_000] {
            let policy = crate::policy::Policy {
                named_max_age: Some(Duration::from_secs(age)),
                jitter: Jitter::None,
                ..policy.clone()
            };
            let sent = |attempt: &PreviewedAttempt| {
                let facts = BeforeSend {
                    now: first_due.later(attempt.earliest),
                    first_due,
                    expires_at: None,
                    cancel_requested: false,
                    interruptions: 0,
                };
                decide_before_send(&policy, &facts).is_none()
            };
            let told = preview(&policy).attempts;
            let unbounded =
                preview(&crate::policy::Policy { named_max_age: None, ..policy.clone() }).attempts;
            assert!(told.iter().all(sent), "{age}: {told:?}");
            assert!(!unbounded[told.len()..].iter().any(sent), "{age}: {told:?}");
        }
    }

    #[test]
    fn attempts_without_a_delay_are_ten_milliseconds_apart() {
        let base = Preset::Notify.policy();
        let backoff = Backoff { strategy: Strategy::Immediate, ..base.backoff.clone() };
        let policy = crate::policy::Policy { backoff, jitter: Jitter::Full, max_attempts: 1_000, ..base };
        let told = preview(&policy);
        assert_eq!((told.attempts.len(), told.window), (1_000, Duration::from_millis(9_990)));
        for (number, attempt) in (1..).zip(&told.attempts) {
            let at = Duration::from_millis(10 * (u64::from(attempt.number) - 1));
            assert_eq!((attempt.number, attempt.earliest, attempt.latest), (number, at, at));
        }
    }

    #[test]
    fn decorrelated_delays_spread_from_one_to_the_next() {
        let policy = crate::policy::Policy { jitter: Jitter::Decorrelated, ..Preset::Notify.policy() };
        let times: Vec<(u64, u64)> = preview(&policy)
            .attempts
            .iter()
            .map(|attempt| (attempt.earliest.as_secs(), attempt.latest.as_secs()))
            .collect();
        assert_eq!(times, [(0, 0), (30, 90), (60, 360), (90, 840), (120, 1_320)]);
    }

    #[test]
    fn what_follows_an_attempt_counts_from_when_it_is_made() {
        let policy = Preset::Notify.policy();
        let at = |secs: i64| Timestamp::from_millis(secs * 1_000);
        let after = |policy: &crate::policy::Policy, number| -> Vec<(u32, i64, i64)> {
            let planned = preview_after(policy, number, at(1_000), at(900));
            planned
                .map(|one| (one.number, one.earliest.as_millis() / 1_000, one.latest.as_millis() / 1_000))
                .collect()
        };
        assert_eq!(after(&policy, 3), [(4, 1_108, 1_132), (5, 1_324, 1_396)]);
        assert_eq!(after(&policy, 5), []);
        assert_eq!(after(&policy, 9), []);
        // From the first on it is the preview itself.
        let whole: Vec<u32> =
            preview(&policy).attempts.iter().skip(1).map(|attempt| attempt.number).collect();
        assert_eq!(after(&policy, 1).iter().map(|one| one.0).collect::<Vec<_>>(), whole);
        // The maximum age counts from the first due time.
        let named_max_age = Some(Duration::from_secs(300));
        let short = crate::policy::Policy { named_max_age, ..policy };
        assert_eq!(after(&short, 3), [(4, 1_108, 1_132)]);
        assert_eq!(after(&short, 2), [(3, 1_054, 1_066), (4, 1_162, 1_198)]);
    }
}
