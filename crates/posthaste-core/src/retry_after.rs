//! Reads the `Retry-After` header.

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;

use crate::reply::RetryAfter;
use crate::time::Timestamp;

/// The longest header value that is looked at.
const LONGEST: usize = 64;

/// Reads a number of seconds or an HTTP date; anything else is as if the header were missing.
///
/// A number too large to hold is a very long wait, which policies cut; it is no reason to come back sooner.
pub fn parse(value: &str) -> Option<RetryAfter> {
    let value = value.trim();
    if value.is_empty() || value.len() > LONGEST {
        return None;
    }
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(RetryAfter::In(Duration::from_secs(value.parse().unwrap_or(u64::MAX))));
    }
    let date = DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(RetryAfter::At(Timestamp::from_micros(date.as_microsecond())))
}

impl RetryAfter {
    /// How long to wait from `now`.
    pub fn wait(self, now: Timestamp) -> Duration {
        match self {
            Self::In(wait) => wait,
            Self::At(date) => date.since(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn seconds_and_dates_are_read() {
        assert_eq!(parse("120"), Some(RetryAfter::In(Duration::from_secs(120))));
        assert_eq!(parse(" 0 "), Some(RetryAfter::In(Duration::ZERO)));
        assert_eq!(parse("99999999999999999999999"), Some(RetryAfter::In(Duration::from_secs(u64::MAX))));
        let date = "1994-11-06T08:49:37Z".parse().unwrap();
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(RetryAfter::At(date)));
    }

    #[test]
    fn garbage_is_as_if_there_were_no_header() {
        for value in
            ["", "  ", "-1", "1.5", "soon", "1994-11-06T08:49:37Z", "Sun, 06 Nov", "+5", &"9".repeat(65)]
        {
            assert_eq!(parse(value), None, "{value}");
        }
    }

    #[test]
    fn a_date_that_has_passed_asks_for_no_wait() {
        let now = Timestamp::from_millis(10_000);
        assert_eq!(RetryAfter::At(Timestamp::from_millis(9_000)).wait(now), Duration::ZERO);
        assert_eq!(RetryAfter::At(Timestamp::from_millis(12_500)).wait(now), Duration::from_millis(2_500));
        assert_eq!(RetryAfter::In(Duration::from_secs(3)).wait(now), Duration::from_secs(3));
    }

    proptest! {
        #[test]
        fn no_header_makes_the_reader_panic(value in ".{0,80}") {
            let _ = parse(&value);
        }
    }
}
