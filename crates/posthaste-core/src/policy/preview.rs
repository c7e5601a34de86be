//! The times of a policy's attempts.

use std::time::Duration;

use serde::Serialize;

use super::Policy;

/// Times are relative to the first attempt. `Retry-After` is not known and not included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    pub attempts: Vec<PreviewedAttempt>,
    /// The latest time of the last attempt.
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

/// The times of all attempts if every attempt fails.
pub fn preview(policy: &Policy) -> Preview {
    let first = PreviewedAttempt { number: 1, earliest: Duration::ZERO, latest: Duration::ZERO };
    let later = policy.delay_ranges().scan(first, |last, (shortest, longest)| {
        *last = PreviewedAttempt {
            number: last.number.saturating_add(1),
            earliest: last.earliest.saturating_add(shortest),
            latest: last.latest.saturating_add(longest),
        };
        Some(*last)
    });
    let attempts = std::iter::once(first).chain(later).collect();
    Preview { attempts, window: policy.window() }
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
}
