//! The delay after a failed attempt, before jitter and the minimum wait.
//!
//! Invariant: nothing overflows. A delay that does not fit becomes the cap or `Duration::MAX`.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How delays grow. The codes are those of S0, the names are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum Strategy {
    /// No retries.
    None = 0,
    /// The same delay each time.
    Fixed = 1,
    /// The delay is multiplied each time.
    Exponential = 2,
    /// The delay grows by the same amount each time.
    Linear = 3,
    /// Only [`crate::policy::MIN_WAIT`].
    Immediate = 4,
    /// Delays from a list; the last one repeats.
    Schedule = 5,
}

impl Strategy {
    /// In the order of their codes.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Fixed, Self::Exponential, Self::Linear, Self::Immediate, Self::Schedule];

    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fixed => "fixed",
            Self::Exponential => "exponential",
            Self::Linear => "linear",
            Self::Immediate => "immediate",
            Self::Schedule => "schedule",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// A strategy with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Backoff {
    pub strategy: Strategy,
    /// The delay after the first failed attempt.
    pub initial_delay: Duration,
    /// Factor of exponential delays.
    pub multiplier: f64,
    /// The cap of exponential and linear delays.
    pub maximum_delay: Option<Duration>,
    /// The delays of a schedule.
    pub schedule: Arc<[Duration]>,
}

impl Backoff {
    /// The delay after failed attempt `n` of the generation (1, 2, ..); `None` if there is no retry.
    pub fn nominal(&self, n: u32) -> Option<Duration> {
        let step = n.saturating_sub(1);
        match self.strategy {
            Strategy::None => None,
            Strategy::Fixed => Some(self.initial_delay),
            Strategy::Exponential => {
                let power = self.multiplier.powi(i32::try_from(step).unwrap_or(i32::MAX));
                Some(self.capped(scale(self.initial_delay, power)))
            }
            Strategy::Linear => Some(self.capped(self.initial_delay.saturating_mul(n.max(1)))),
            Strategy::Immediate => Some(Duration::ZERO),
            Strategy::Schedule => {
                let at = usize::try_from(step).unwrap_or(usize::MAX);
                // A checked policy has entries. The initial delay is a fallback.
                Some(*self.schedule.get(at).or(self.schedule.last()).unwrap_or(&self.initial_delay))
            }
        }
    }

    /// Lower bound of decorrelated jitter after failed attempt `n`.
    ///
    /// For schedules and zero delays it is the nominal delay, so that jitter never goes below a schedule.
    pub(crate) fn floor(&self, n: u32) -> Duration {
        match self.strategy {
            Strategy::Fixed | Strategy::Exponential | Strategy::Linear => self.nominal(1).unwrap_or_default(),
            Strategy::None | Strategy::Immediate | Strategy::Schedule => self.nominal(n).unwrap_or_default(),
        }
    }

    fn capped(&self, delay: Duration) -> Duration {
        self.maximum_delay.map_or(delay, |maximum| delay.min(maximum))
    }
}

/// A duration times a factor, rounded to the nanosecond, saturating.
pub(crate) fn scale(duration: Duration, factor: f64) -> Duration {
    // The cast saturates: infinity becomes the maximum, NaN (zero times infinity) becomes zero.
    from_nanos((duration.as_nanos() as f64 * factor).round() as u128)
}

/// Saturates at `Duration::MAX`.
pub(crate) fn from_nanos(nanos: u128) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    match (u64::try_from(nanos / SECOND), u32::try_from(nanos % SECOND)) {
        (Ok(secs), Ok(rest)) => Duration::new(secs, rest),
        (Err(_), _) | (_, Err(_)) => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::Strategy;
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::Strategy as _;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn backoff(strategy: Strategy) -> Backoff {
        Backoff {
            strategy,
            initial_delay: secs(30),
            multiplier: 2.0,
            maximum_delay: Some(secs(480)),
            schedule: Arc::from([secs(60), secs(300), secs(900)]),
        }
    }

    #[test]
    fn names_and_numbers_lead_back_to_their_strategy() {
        for (number, strategy) in Strategy::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(strategy.code()), number);
            assert_eq!(Strategy::from_code(strategy.code()), Some(strategy));
            assert_eq!(Strategy::from_name(strategy.name()), Some(strategy));
            assert_eq!(serde_json::to_value(strategy).unwrap(), strategy.name());
        }
        assert_eq!(Strategy::from_code(6), None);
    }

    #[test]
    fn each_strategy_waits_as_its_table_says() {
        let table: [(Strategy, &[u64]); 5] = [
            (Strategy::Fixed, &[30, 30, 30, 30, 30, 30]),
            (Strategy::Exponential, &[30, 60, 120, 240, 480, 480, 480]),
            (Strategy::Linear, &[30, 60, 90, 120, 150]),
            (Strategy::Immediate, &[0, 0, 0]),
            (Strategy::Schedule, &[60, 300, 900, 900, 900]),
        ];
        for (strategy, delays) in table {
            for (n, delay) in (1..).zip(delays) {
                assert_eq!(backoff(strategy).nominal(n), Some(secs(*delay)), "{strategy:?} {n}");
            }
        }
        assert_eq!(backoff(Strategy::None).nominal(1), None);
    }

    #[test]
    fn a_linear_delay_is_capped_only_where_a_cap_is_set() {
        assert_eq!(backoff(Strategy::Linear).nominal(100), Some(secs(480)));
        let free = Backoff { maximum_delay: None, ..backoff(Strategy::Linear) };
        assert_eq!(free.nominal(100), Some(secs(3_000)));
    }

    #[test]
    fn an_exponential_delay_without_a_cap_grows_to_the_longest_there_is() {
        let free = Backoff { maximum_delay: None, ..backoff(Strategy::Exponential) };
        assert_eq!(free.nominal(11), Some(secs(30_720)));
        assert_eq!(free.nominal(u32::MAX), Some(Duration::MAX));
        let zero = Backoff { initial_delay: Duration::ZERO, ..free };
        assert_eq!(zero.nominal(u32::MAX), Some(Duration::ZERO));
    }

    #[test]
    fn half_multipliers_are_exact_to_the_nanosecond() {
        let slow = Backoff { multiplier: 1.5, ..backoff(Strategy::Exponential) };
        assert_eq!(slow.nominal(2), Some(secs(45)));
        assert_eq!(slow.nominal(3), Some(Duration::from_millis(67_500)));
    }

    fn durations() -> impl proptest::strategy::Strategy<Value = Duration> {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::MAX),
            (any::<u64>(), 0u32..1_000_000_000).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
            (0u64..1_000_000).prop_map(Duration::from_millis),
        ]
    }

    proptest! {
        #[test]
        fn delays_never_shrink_and_never_pass_the_cap(
            initial_delay in durations(), maximum in durations(), capped in any::<bool>(),
            multiplier in prop_oneof![Just(1.0), 1.001..10.0, 10.0..1e300], n in prop_oneof![1u32..50, 1..u32::MAX],
            which in 1usize..4,
        ) {
            let (strategy, maximum_delay) = (Strategy::ALL[which], capped.then_some(maximum));
            let backoff = Backoff { strategy, initial_delay, multiplier, maximum_delay, schedule: Arc::from([]) };
            let (now, next) = (backoff.nominal(n).unwrap(), backoff.nominal(n + 1).unwrap());
            prop_assert!(now <= next, "{now:?} then {next:?}");
            if capped && strategy != Strategy::Fixed {
                prop_assert!(next <= maximum);
            }
        }

        #[test]
        fn no_figures_overflow(
            initial_delay in durations(), maximum in proptest::option::of(durations()), multiplier in any::<f64>(),
            n in any::<u32>(), schedule in proptest::collection::vec(durations(), 0..4), which in 0usize..6,
        ) {
            let strategy = Strategy::ALL[which];
            let backoff = Backoff {
                strategy, initial_delay, multiplier, maximum_delay: maximum, schedule: Arc::from(schedule),
            };
            for n in [n, 0, 1, u32::MAX] {
                prop_assert_eq!(backoff.nominal(n).is_none(), strategy == Strategy::None);
                let _ = backoff.floor(n);
            }
        }
    }
}
