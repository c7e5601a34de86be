//! Timestamps: UTC, whole microseconds, saturating arithmetic.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::DateTime;

use crate::as_text::as_text;

/// Microseconds since the Unix epoch.
///
/// The range is that of RFC 3339 (years 0000 to 9999), so every value can be shown. Arithmetic saturates at
/// its ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an RFC 3339 time with seconds and an offset, such as 2026-04-15T10:45:30.000Z")]
pub struct BadTimestamp {
    text: String,
}

impl Timestamp {
    pub const EPOCH: Self = Self(0);
    pub const MAX: Self = Self(253_402_300_800_000_000 - 1);
    pub const MIN: Self = Self(-62_167_219_200_000_000);

    /// Saturates at the ends of the range.
    pub const fn from_micros(micros: i64) -> Self {
        if micros > Self::MAX.0 {
            Self::MAX
        } else if micros < Self::MIN.0 {
            Self::MIN
        } else {
            Self(micros)
        }
    }

    /// Saturates at the ends of the range.
    pub const fn from_millis(millis: i64) -> Self {
        Self::from_micros(millis.saturating_mul(1_000))
    }

    const fn is_in_range(self) -> bool {
        Self::MIN.0 <= self.0 && self.0 <= Self::MAX.0
    }

    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Rounded down.
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Rounded down. Ends are counted per hour.
    pub const fn as_hours(self) -> i64 {
        self.0.div_euclid(3_600_000_000)
    }

    /// Saturates at [`Self::MAX`].
    #[must_use]
    pub fn later(self, delay: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros(delay)))
    }

    /// Saturates at [`Self::MIN`].
    #[must_use]
    pub fn earlier(self, delay: Duration) -> Self {
        Self::from_micros(self.0.saturating_sub(micros(delay)))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Whole microseconds, saturating.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = EPOCH_DATE
            .checked_add(SignedDuration::from_millis(self.as_millis()))
            .expect("a Timestamp is held within the calendar");
        write!(out, "{:04}-{:02}-{:02}T", shown.year(), shown.month(), shown.day())?;
        write!(out, "{:02}:{:02}:{:02}.", shown.hour(), shown.minute(), shown.second())?;
        write!(out, "{:03}Z", shown.millisecond())
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
        read(text).ok_or_else(|| BadTimestamp { text: text.chars().take(64).collect() })
    }
}

impl Timestamp {
    /// As a calendar time in UTC, to the microsecond.
    pub(crate) fn to_civil(self) -> DateTime {
        EPOCH_DATE
            .checked_add(SignedDuration::from_micros(self.0))
            .expect("a Timestamp is held within the calendar")
    }

    /// From a calendar time in UTC; `None` if it is out of range.
    pub(crate) fn from_civil(time: DateTime) -> Option<Self> {
        Some(Self(i64::try_from(time.duration_since(EPOCH_DATE).as_micros()).ok()?))
            .filter(|time| time.is_in_range())
    }
}

/// The epoch as a calendar date.
const EPOCH_DATE: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

const MINUTE: i64 = 60_000_000;

/// Converts a calendar time in UTC; `None` if it does not exist.
pub(crate) fn civil(date: (i16, i8, i8), hour: i8, minute: i8, second: i8) -> Option<Timestamp> {
    Timestamp::from_civil(DateTime::new(date.0, date.1, date.2, hour, minute, second, 0).ok()?)
}

/// Accepts exactly RFC 3339: `2026-04-15T10:45:30`, up to nine digits of a fraction, an offset.
fn read(text: &str) -> Option<Timestamp> {
    let (moment, rest) = text.split_at_checked(19)?;
    let bytes = moment.as_bytes();
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|(at, mark)| bytes[*at].to_ascii_uppercase() != *mark) {
        return None;
    }
    let date = (number(&moment[..4])?, number(&moment[5..7])?, number(&moment[8..10])?);
    let (hour, minute) = (number(&moment[11..13])?, number(&moment[14..16])?);
    let second: i64 = number(&moment[17..])?;
    let (micros, rest) = fraction(rest)?;
    let minute_start = civil(date, hour, minute, 0)?.0 - offset(rest)? * MINUTE;
    // A leap second is the last second of a day. It becomes the first second of the next day.
    let may_leap = minute_start.div_euclid(MINUTE).rem_euclid(24 * 60) == 24 * 60 - 1;
    if second > if may_leap { 60 } else { 59 } {
        return None;
    }
    Some(Timestamp(minute_start + second * 1_000_000 + micros)).filter(|time| time.is_in_range())
}

/// The microseconds of a fraction, rounded down, and the rest of the text.
fn fraction(rest: &str) -> Option<(i64, &str)> {
    let Some(behind) = rest.strip_prefix('.') else { return Some((0, rest)) };
    let end = behind.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(behind.len());
    let (digits, rest) = behind.split_at(end);
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    let nanos: i64 = number(&format!("{digits:0<9}"))?;
    Some((nanos / 1_000, rest))
}

/// The minutes that a local time is ahead of UTC.
fn offset(text: &str) -> Option<i64> {
    if text == "Z" || text == "z" {
        return Some(0);
    }
    let (sign, ahead) = match text.split_at_checked(1)? {
        ("+", ahead) => (1, ahead),
        ("-", ahead) => (-1, ahead),
        _ => return None,
    };
    let (hours, minutes) = ahead.split_once(':').filter(|_| ahead.len() == 5)?;
    let (hours, minutes): (i64, i64) = (number(hours)?, number(minutes)?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

/// Only ASCII digits: no sign and no space.
pub(crate) fn number<T: FromStr>(digits: &str) -> Option<T> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

as_text!(Timestamp);

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
    fn the_ends_of_the_calendar_are_shown_and_read() {
        assert_eq!(Timestamp::MIN.to_string(), "0000-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!("9999-12-31T23:59:59.999999Z".parse(), Ok(Timestamp::MAX));
        assert_eq!("0000-01-01T00:00:00Z".parse(), Ok(Timestamp::MIN));
    }

    #[test]
    fn what_rfc_3339_allows_is_read() {
        let base = 1_776_249_930_000_000;
        let table = [
            ("2026-04-15T10:45:30Z", base),
            ("2026-04-15t10:45:30z", base),
            ("2026-04-15T10:45:30+00:00", base),
            ("2026-04-15T10:45:30-00:00", base),
            ("2026-04-15T12:45:30+02:00", base),
            ("2026-04-14T10:46:30-23:59", base),
            ("2026-04-15T10:45:30.5Z", base + 500_000),
            ("2026-04-15T10:45:30.123456Z", base + 123_456),
            ("2026-04-15T10:45:30.123456999Z", base + 123_456),
            ("2026-04-15T10:45:30.000000001+00:00", base),
            ("1969-12-31T23:59:59.999999Z", -1),
            ("2024-02-29T00:00:00Z", 1_709_164_800_000_000),
            ("1990-12-31T23:59:60Z", 662_688_000_000_000),
            ("1990-12-31T15:59:60.25-08:00", 662_688_000_250_000),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
        ];
        for (text, micros) in table {
            assert_eq!(text.parse(), Ok(Timestamp(micros)), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_time_is_an_error_that_shows_it() {
        let table = [
            "",
            "yesterday",
            "2026-04-15",
            "2026-04-15T10:45Z",
            "2026-04-15T10:45:30",
            "2026-04-15 10:45:30Z",
            "2026-04-15_10:45:30Z",
            "2026-04-15T10:45:30.Z",
            "2026-04-15T10:45:30,5Z",
            "2026-04-15T10:45:30.1234567890Z",
            "2026-04-15T10:45:30 Z",
            " 2026-04-15T10:45:30Z",
            "2026-04-15T10:45:30Z ",
            "2026-04-15T10:45:30ZZ",
            "2026-04-15T10:45:30+0200",
            "2026-04-15T10:45:30+02",
            "2026-04-15T10:45:30+2:00",
            "2026-04-15T10:45:30+24:00",
            "2026-04-15T10:45:30+02:60",
            "2026-04-15T10:45:30+02:00[Europe/Berlin]",
            "2026-04-15T10:45:30[UTC]",
            "20260415T104530Z",
            "+2026-04-15T10:45:30Z",
            "-002026-04-15T10:45:30Z",
            "12026-04-15T10:45:30Z",
            "2026-4-15T10:45:30Z",
            "2026-+4-15T10:45:30Z",
            "2026-13-15T10:45:30Z",
            "2026-00-15T10:45:30Z",
            "2026-04-31T10:45:30Z",
            "2025-02-29T10:45:30Z",
            "2026-04-15T24:00:00Z",
            "2026-04-15T10:60:30Z",
            "2026-04-15T10:45:60Z",
            "2026-04-15T10:45:61Z",
            "9999-12-31T23:59:60Z",
            "9999-12-31T23:59:59-00:01",
            "0000-01-01T00:00:00+00:01",
            "2026-04-15T10:45:3\u{661}Z",
            "2026-04-1\u{2212}T10:45:30Z",
        ];
        for text in table {
            let error = text.parse::<Timestamp>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
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

        #[test]
        fn whatever_is_shown_is_read_back_to_the_millisecond(at in any::<i64>()) {
            let at = Timestamp::from_micros(at);
            prop_assert_eq!(at.to_string().len(), "2026-04-15T10:45:30.000Z".len());
            prop_assert_eq!(at.to_string().parse(), Ok(Timestamp::from_millis(at.as_millis())));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,40}") {
            let _ = text.parse::<Timestamp>();
        }

        #[test]
        fn no_text_like_a_time_makes_the_reader_panic(text in "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:]{8}[.0-9]{0,12}[-+Zz0-9:]{0,7}") {
            let _ = text.parse::<Timestamp>();
        }
    }
}
