//! Points in time: UTC, whole microseconds, with arithmetic that saturates instead of overflowing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time as microseconds since the Unix epoch.
///
/// The range is that of the calendar (years -9999 to 9999), so every value can be shown; arithmetic stops at its ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A text that is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an RFC 3339 time such as 2026-04-15T10:45:30.000Z")]
pub struct BadTimestamp {
    text: String,
}

impl Timestamp {
    /// The start of 1970.
    pub const EPOCH: Self = Self(0);
    /// The latest time that can be shown.
    pub const MAX: Self = Self(253_402_207_200_000_000 - 1);
    /// The earliest time that can be shown.
    pub const MIN: Self = Self(-377_705_023_201_000_000 + 1);

    /// The time that many microseconds after the epoch, held within the calendar.
    pub const fn from_micros(micros: i64) -> Self {
        if micros > Self::MAX.0 {
            Self::MAX
        } else if micros < Self::MIN.0 {
            Self::MIN
        } else {
            Self(micros)
        }
    }

    /// The time that many milliseconds after the epoch, held within the calendar.
    pub const fn from_millis(millis: i64) -> Self {
        Self::from_micros(millis.saturating_mul(1_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since the epoch, rounded down.
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Whole hours since the epoch: the bucket that ends are counted in.
    pub const fn as_hours(self) -> i64 {
        self.0.div_euclid(3_600_000_000)
    }

    /// This time and `delay` later; the end of the calendar if that lies beyond it.
    #[must_use]
    pub fn later(self, delay: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros(delay)))
    }

    /// This time and `delay` earlier; the start of the calendar if that lies before it.
    #[must_use]
    pub fn earlier(self, delay: Duration) -> Self {
        Self::from_micros(self.0.saturating_sub(micros(delay)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A duration in whole microseconds, the most that fits where it does not.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = jiff::Timestamp::from_microsecond(self.as_millis() * 1_000)
            .expect("a Timestamp is held within the calendar");
        write!(out, "{shown:.3}")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for Timestamp {
    type Err = BadTimestamp;

    fn from_str(text: &str) -> Result<Self, BadTimestamp> {
        text.parse::<jiff::Timestamp>()
            .map(|parsed| Self::from_micros(parsed.as_microsecond()))
            .map_err(|_| BadTimestamp { text: text.chars().take(64).collect() })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_time_is_shown_in_utc_with_milliseconds() {
        let time: Timestamp = "2026-04-15T12:45:30.0005+02:00".parse().unwrap();
        assert_eq!(time.to_string(), "2026-04-15T10:45:30.000Z");
        assert_eq!(Timestamp::EPOCH.to_string(), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn text_that_is_no_time_is_an_error_that_shows_it() {
        let error = "yesterday".parse::<Timestamp>().unwrap_err();
        assert!(error.to_string().contains("`yesterday`"));
    }

    proptest! {
        #[test]
        fn arithmetic_never_overflows_and_every_result_can_be_shown(
            at in any::<i64>(), secs in any::<u64>(), nanos in 0u32..1_000_000_000
        ) {
            let (at, delay) = (Timestamp::from_micros(at), Duration::new(secs, nanos));
            prop_assert!(at.later(delay) >= at);
            prop_assert!(at.earlier(delay) <= at);
            prop_assert!(!at.later(delay).to_string().is_empty());
            prop_assert!(!at.earlier(delay).to_string().is_empty());
            prop_assert!(at.later(delay).since(at) <= delay);
        }
    }
}
