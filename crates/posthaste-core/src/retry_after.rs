//! Reads the `Retry-After` header.

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;

use crate::reply::RetryAfter;
use crate::time::{Timestamp, civil, number};

/// In bytes.
const MAX_LENGTH: usize = 64;

/// Accepts a number of seconds or an HTTP date. Any other value counts as a missing header.
///
/// A number that does not fit is taken as a very long wait, which the policy limits.
pub fn parse(value: &str) -> Option<RetryAfter> {
    let value = value.trim();
    if value.is_empty() || value.len() > MAX_LENGTH {
        return None;
    }
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(RetryAfter::In(Duration::from_secs(value.parse().unwrap_or(u64::MAX))));
    }
    http_date(value).or_else(|| mail_date(value)).map(RetryAfter::At)
}

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The three formats of RFC 9110. A wrong day of the week is accepted.
fn http_date(value: &str) -> Option<Timestamp> {
    let words: Vec<&str> = value.split_ascii_whitespace().collect();
    let (day, (year, month, date), time) = match words.as_slice() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        [day, date, month, year, time, "GMT"] => {
            (day.strip_suffix(',')?, (full_year(year)?, *month, *date), *time)
        }
        // Sunday, 06-Nov-94 08:49:37 GMT
        [day, dashed, time, "GMT"] => {
            let (date, rest) = dashed.split_once('-')?;
            let (month, year) = rest.split_once('-')?;
            (day.strip_suffix(',')?, (short_year(year)?, month, date), *time)
        }
        // Sun Nov  6 08:49:37 1994
        [day, month, date, time, year] => (*day, (full_year(year)?, *month, *date), *time),
        _ => return None,
    };
    DAYS.iter().find(|known| **known == day || known[..3] == *day)?;
    let month = MONTHS.iter().position(|known| *known == month)?;
    let date = (year, i8::try_from(month + 1).ok()?, number(date)?);
    let (hour, rest) = time.split_once(':')?;
    let (minute, second) = rest.split_once(':')?;
    civil(date, number(hour)?, number(minute)?, number(second)?)
}

fn full_year(year: &str) -> Option<i16> {
    number(year).filter(|_| year.len() == 4)
}

/// A year of two digits means 1970 to 2069, as in POSIX. RFC 9110 would need the current time.
fn short_year(year: &str) -> Option<i16> {
    let short: i16 = number(year).filter(|_| year.len() == 2)?;
    Some(if short < 70 { 2000 + short } else { 1900 + short })
}

/// Dates with an offset. Some servers send them, although HTTP has no such format.
fn mail_date(value: &str) -> Option<Timestamp> {
    let date = DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(Timestamp::from_micros(date.as_microsecond()))
}

impl RetryAfter {
    /// The wait from `now`.
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
    fn every_form_of_a_date_is_read() {
        let table = [
            ("Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37Z"),
            ("Sunday, 06-Nov-94 08:49:37 GMT", "1994-11-06T08:49:37Z"),
            ("Sun Nov  6 08:49:37 1994", "1994-11-06T08:49:37Z"),
            ("Wed Nov 16 08:49:37 1994", "1994-11-16T08:49:37Z"),
            ("Friday, 31-Dec-69 23:59:59 GMT", "2069-12-31T23:59:59Z"),
            ("Thursday, 01-Jan-70 00:00:00 GMT", "1970-01-01T00:00:00Z"),
            ("Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59Z"),
            ("Fri Dec 31 23:59:59 9999", "9999-12-31T23:59:59Z"),
            // A wrong day of the week is no reason to come back sooner.
            ("Mon, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37Z"),
            ("Sun, 06 Nov 1994 10:49:37 +0200", "1994-11-06T08:49:37Z"),
            ("06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37Z"),
        ];
        for (value, date) in table {
            assert_eq!(parse(value), Some(RetryAfter::At(date.parse().unwrap())), "{value}");
        }
    }

    #[test]
    fn a_date_that_does_not_exist_is_as_if_there_were_no_header() {
        let table = [
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 37 GMT",
            "Sun, 06 Nov 10000 08:49:37 GMT",
            "Sun, 06 Nuv 1994 08:49:37 GMT",
            "Sunday, 06-Nov-094 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 CET",
            "Sunday 06-Nov-94 08:49:37 GMT",
            "Some, 06-Nov-94 08:49:37 GMT",
            "Sun Nov 6 08:49:37 94",
            "Sun Nov -6 08:49:37 1994",
        ];
        for value in table {
            assert_eq!(parse(value), None, "{value}");
        }
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

        #[test]
        fn no_header_like_a_date_makes_the_reader_panic(value in "(Sun|Sunday),? ([0-9A-Za-zé:,-]{1,9} ){2,5}GMT") {
            let _ = parse(&value);
        }
    }
}
