//! Quick tries: repeats within one attempt, in memory, seconds apart.
//!
//! Invariant: the waits of one attempt never add up to more than the limit, and each of them is at least 10
//! ms.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::layer::QuickLayer;
use super::{MIN_WAIT, is_past};
use crate::jitter::between;
use crate::reply::{Answer, Fault, Reply};
use crate::strategy::scale;
use crate::time::Timestamp;

/// The default upper bound on the sum of all waits.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(8);

/// The resolved settings of quick tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quick {
    /// Number of repeats; the first try is not counted.
    pub tries: u32,
    /// The wait before the first repeat.
    pub delay: Duration,
    pub backoff: QuickBackoff,
    /// Whether a wait is random, between zero and its length.
    pub jitter: bool,
    /// Whether `Retry-After` is a lower bound for a wait.
    pub retry_after: bool,
    /// Statuses that are repeated in addition to the defaults.
    pub status_codes: Arc<[u16]>,
    pub when: When,
    /// Upper bound on the sum of all waits.
    pub limit: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QuickBackoff {
    /// The same wait each time.
    Constant,
    /// The wait grows by the same amount each time.
    Linear,
    /// The wait doubles each time.
    Exponential,
}

/// Which failed tries may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Every failure that may pass.
    Any,
    /// Only failures that cannot have had an effect at the receiver.
    Unsent,
}

impl QuickBackoff {
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "constant" => Some(Self::Constant),
            "linear" => Some(Self::Linear),
            "exponential" => Some(Self::Exponential),
            _ => None,
        }
    }

    /// The sum of the waits of `tries` repeats, without jitter and limit.
    pub(crate) fn total_wait(self, delay: Duration, tries: u32) -> Duration {
        (1..=tries).fold(Duration::ZERO, |sum, n| sum.saturating_add(self.wait(delay, n)))
    }

    /// The wait before repeat `n` (1, 2, ..), without jitter.
    pub(crate) fn wait(self, delay: Duration, n: u32) -> Duration {
        match self {
            Self::Constant => delay,
            Self::Linear => delay.saturating_mul(n),
            Self::Exponential => {
                scale(delay, 2f64.powi(i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX)))
            }
        }
    }
}

impl When {
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "any" => Some(Self::Any),
            "unsent" => Some(Self::Unsent),
            _ => None,
        }
    }
}

impl Quick {
    pub(super) fn to_layer(&self) -> QuickLayer {
        QuickLayer {
            tries: Some(self.tries),
            delay: Some(self.delay),
            backoff: Some(self.backoff),
            jitter: Some(self.jitter),
            retry_after: Some(self.retry_after),
            status_codes: Some(self.status_codes.to_vec()),
            when: Some(self.when),
            limit: Some(self.limit),
        }
    }
}

/// What has happened in an attempt when one of its tries has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoFar {
    /// The quick tries made; the first try is not counted.
    pub repeats: u32,
    /// What they have waited.
    pub waited: Duration,
    pub now: Timestamp,
    /// When the notification expires.
    pub expires_at: Option<Timestamp>,
}

/// The wait before the next quick try, at least [`MIN_WAIT`], or `None` if the attempt ends with this reply.
///
/// No quick try starts at or past the expiry. The caller must not pass a reply that the configuration counts as
/// delivered. If `Retry-After` ends the quick tries, the scheduled retry reads it from the same reply.
pub fn next(quick: &Quick, reply: &Reply, so_far: &SoFar, draw: f64) -> Option<Duration> {
    if so_far.repeats >= quick.tries || !may_repeat(quick, reply) {
        return None;
    }
    let nominal = quick.backoff.wait(quick.delay, so_far.repeats.saturating_add(1));
    let drawn = if quick.jitter { between(Duration::ZERO, nominal, draw) } else { nominal };
    let asked = reply
        .retry_after()
        .filter(|_| quick.retry_after)
        .map_or(Duration::ZERO, |asked| asked.wait(so_far.now));
    let wait = drawn.max(asked).max(MIN_WAIT);
    let in_limit = wait <= quick.limit.saturating_sub(so_far.waited);
    let in_time = !is_past(so_far.expires_at, so_far.now.later(wait));
    (in_limit && in_time).then_some(wait)
}

/// How long a quick try whose time has come may wait for a slot of the node, at most to the expiry. After that the attempt
/// ends as it stands: a scheduled retry can be had by other nodes, and costs nobody a slot meanwhile.
pub fn max_wait_for_slot(now: Timestamp, expires_at: Option<Timestamp>) -> Duration {
    expires_at.map_or(MAX_WAIT_FOR_SLOT, |expiry| expiry.since(now).min(MAX_WAIT_FOR_SLOT))
}

const MAX_WAIT_FOR_SLOT: Duration = Duration::from_secs(2);

fn may_repeat(quick: &Quick, reply: &Reply) -> bool {
    match (reply.answer, quick.when) {
        (Answer::Http { status, .. }, When::Any) => match status {
            200..=299 => false,
            408 | 429 | 500..=599 => true,
            other => quick.status_codes.contains(&other),
        },
        (Answer::Http { .. }, When::Unsent)
        | (Answer::Smtp { .. } | Answer::Taken | Answer::Refused, When::Any | When::Unsent) => false,
        (Answer::Fault(fault), when) => match fault {
            Fault::Refused | Fault::NoRoute | Fault::Dns | Fault::Tls => true,
            Fault::Reset => when == When::Any,
            Fault::Timeout | Fault::Forbidden | Fault::Unsendable | Fault::NoProvider | Fault::Broken => {
                false
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Preset;
    use crate::reply::RetryAfter;
    use proptest::prelude::*;

    fn zgw() -> Quick {
        Preset::Zgw.policy().quick
    }

    fn http(status: u16) -> Reply {
        Reply::http(status)
    }

    fn asking(status: u16, secs: u64) -> Reply {
        Reply::http_after(status, Some(RetryAfter::In(Duration::from_secs(secs))))
    }

    fn fault(fault: Fault) -> Reply {
        Reply::fault(fault, "")
    }

    fn first(quick: &Quick, reply: &Reply) -> Option<Duration> {
        after(quick, reply, 0, Duration::ZERO, 0.5)
    }

    fn after(quick: &Quick, reply: &Reply, repeats: u32, waited: Duration, draw: f64) -> Option<Duration> {
        next(quick, reply, &SoFar { repeats, waited, now: Timestamp::EPOCH, expires_at: None }, draw)
    }

    const FAULTS: [Fault; 10] = [
        Fault::Refused,
        Fault::NoRoute,
        Fault::Dns,
        Fault::Tls,
        Fault::Reset,
        Fault::Timeout,
        Fault::Forbidden,
        Fault::Unsendable,
        Fault::NoProvider,
        Fault::Broken,
    ];

    #[test]
    fn the_zgw_tries_come_after_half_a_second_one_two_and_four() {
        let mut waited = Duration::ZERO;
        let mut waits = Vec::new();
        while let Some(wait) = after(&zgw(), &http(503), waits.len() as u32, waited, 0.9) {
            waits.push(wait.as_millis());
            waited += wait;
        }
        assert_eq!(waits, [500, 1_000, 2_000, 4_000]);
    }

    #[test]
    fn there_are_as_many_repeats_as_tries_are_set() {
        let quick = Quick { delay: Duration::ZERO, ..zgw() };
        let repeated = |repeats| after(&quick, &http(500), repeats, Duration::ZERO, 0.5).is_some();
        assert_eq!([0, 3, 4, 5].map(repeated), [true, true, false, false]);
        assert_eq!(first(&Quick { tries: 0, ..quick }, &http(500)), None);
    }

    #[test]
    fn waits_are_constant_linear_or_doubling() {
        let table = [
            (QuickBackoff::Constant, [100, 100, 100, 100]),
            (QuickBackoff::Linear, [100, 200, 300, 400]),
            (QuickBackoff::Exponential, [100, 200, 400, 800]),
        ];
        for (backoff, waits) in table {
            for (n, wait) in (1..).zip(waits) {
                assert_eq!(backoff.wait(Duration::from_millis(100), n), Duration::from_millis(wait));
            }
        }
    }

    #[test]
    fn only_connection_errors_5xx_408_429_and_listed_codes_are_repeated() {
        let quick = Quick { status_codes: Arc::from([404]), ..zgw() };
        for status in 0..1_000 {
            let repeated = matches!(status, 404 | 408 | 429 | 500..=599);
            assert_eq!(first(&quick, &http(status)).is_some(), repeated, "{status}");
        }
        for each in FAULTS {
            let unrepeated =
                [Fault::Timeout, Fault::Forbidden, Fault::Unsendable, Fault::NoProvider, Fault::Broken];
            let repeated = !unrepeated.contains(&each);
            assert_eq!(first(&quick, &fault(each)).is_some(), repeated, "{each:?}");
        }
        let busy = Reply::smtp(421, None, "");
        assert_eq!(first(&quick, &busy), None);
        assert_eq!(first(&quick, &Reply::refused("busy", "")), None);
    }

    #[test]
    fn unsent_repeats_only_what_surely_had_no_effect() {
        let quick = Quick { when: When::Unsent, status_codes: Arc::from([404]), ..zgw() };
        for status in 0..1_000 {
            assert_eq!(first(&quick, &http(status)), None, "{status}");
        }
        for each in FAULTS {
            let repeated = matches!(each, Fault::Refused | Fault::NoRoute | Fault::Dns | Fault::Tls);
            assert_eq!(first(&quick, &fault(each)).is_some(), repeated, "{each:?}");
        }
    }

    #[test]
    fn a_delivered_answer_is_never_repeated_even_if_it_is_listed() {
        let quick = Quick { status_codes: Arc::from([200]), ..zgw() };
        assert_eq!(first(&quick, &http(200)), None);
    }

    #[test]
    fn retry_after_lengthens_a_wait_or_ends_the_tries() {
        assert_eq!(first(&zgw(), &asking(503, 3)), Some(Duration::from_secs(3)));
        assert_eq!(first(&zgw(), &asking(503, 0)), Some(Duration::from_millis(500)));
        assert_eq!(first(&zgw(), &asking(503, 8)), Some(Duration::from_secs(8)));
        assert_eq!(first(&zgw(), &asking(503, 9)), None);
        let late = after(&zgw(), &asking(503, 3), 1, Duration::from_secs(6), 0.0);
        assert_eq!(late, None);
        let deaf = Quick { retry_after: false, ..zgw() };
        assert_eq!(first(&deaf, &asking(503, 9)), Some(Duration::from_millis(500)));
    }

    #[test]
    fn no_quick_try_starts_at_or_past_the_expiry() {
        let now = Timestamp::from_millis(10_000);
        let half = Duration::from_millis(500);
        for (expires_at, reply, wait) in [
            (None, http(503), Some(half)),
            (Some(10_501), http(503), Some(half)),
            (Some(10_500), http(503), None),
            (Some(10_000), http(503), None),
            (Some(9_000), http(503), None),
            (Some(13_001), asking(503, 3), Some(Duration::from_secs(3))),
            (Some(13_000), asking(503, 3), None),
        ] {
            let so_far = SoFar {
                repeats: 0,
                waited: Duration::ZERO,
                now,
                expires_at: expires_at.map(Timestamp::from_millis),
            };
            assert_eq!(next(&zgw(), &reply, &so_far, 0.5), wait, "{expires_at:?} {reply:?}");
        }
    }

    #[test]
    fn a_try_waits_two_seconds_for_a_slot_and_not_past_the_expiry() {
        let now = Timestamp::from_millis(10_000);
        for (expires_at, millis) in
            [(None, 2_000), (Some(60_000), 2_000), (Some(11_000), 1_000), (Some(10_000), 0), (Some(1), 0)]
        {
            let longest = max_wait_for_slot(now, expires_at.map(Timestamp::from_millis));
            assert_eq!(longest, Duration::from_millis(millis), "{expires_at:?}");
        }
    }

    #[test]
    fn jitter_draws_between_the_least_wait_and_the_whole_one() {
        let quick = Quick { jitter: true, ..zgw() };
        let wait = |draw| after(&quick, &http(500), 1, Duration::ZERO, draw);
        assert_eq!(wait(0.0), Some(MIN_WAIT));
        assert_eq!(wait(0.001), Some(MIN_WAIT));
        assert_eq!(wait(0.5), Some(Duration::from_millis(500)));
    }

    #[test]
    fn a_wait_is_at_least_ten_milliseconds_as_long_as_that_is_within_the_limit() {
        let none = Quick { delay: Duration::ZERO, ..zgw() };
        assert_eq!(first(&none, &http(503)), Some(Duration::from_millis(10)));
        assert_eq!(first(&none, &asking(503, 0)), Some(Duration::from_millis(10)));
        for (limit, repeats) in [(0, 0), (9, 0), (10, 1), (39, 3), (8_000, 20)] {
            let quick = Quick { tries: 20, limit: Duration::from_millis(limit), ..none.clone() };
            let (mut waited, mut made) = (Duration::ZERO, 0);
            while let Some(wait) = after(&quick, &http(503), made, waited, 0.0) {
                waited += wait;
                made += 1;
            }
            assert_eq!((made, waited), (repeats, MIN_WAIT * repeats), "{limit} ms");
        }
    }

    proptest! {
        #[test]
        fn waits_never_add_up_to_more_than_the_limit(
            tries in any::<u32>(), delay in any::<u64>(), limit in 0u64..20_000, jitter in any::<bool>(),
            which in 0usize..3, asked in proptest::option::of(0u64..30), draw in 0.0..1.0,
        ) {
            let backoff = [QuickBackoff::Constant, QuickBackoff::Linear, QuickBackoff::Exponential][which];
            let (delay, limit) = (Duration::from_micros(delay), Duration::from_millis(limit));
            let quick = Quick { tries, delay, backoff, jitter, limit, ..zgw() };
            let reply = asked.map_or(http(500), |secs| asking(500, secs));
            let mut waited = Duration::ZERO;
            for repeats in 0..tries.min(50) {
                let Some(wait) = after(&quick, &reply, repeats, waited, draw) else { break };
                prop_assert!(wait >= MIN_WAIT);
                waited += wait;
            }
            prop_assert!(waited <= limit);
            prop_assert_eq!(after(&quick, &reply, tries, Duration::ZERO, draw), None);
        }
    }
}
