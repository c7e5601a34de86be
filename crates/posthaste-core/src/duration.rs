//! Durations as text.
//!
//! Accepted: `500ms`, `30s`, `5m`, `4h`, `1d` (also with decimals), a plain number of seconds, and the .NET
//! spans `d.hh:mm`, `hh:mm:ss.fff` and their mixtures. Shown: a whole number of the largest unit that is
//! exact. Parts of a millisecond are shown as a fraction (`0.25ms`), so that no precision is lost. For people:
//! the three largest units, `3d 11h 8m`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};
use serde_json::Value;

/// 36,500 days. A longer duration is taken for a typing error.
pub const MAXIMUM: Duration = Duration::from_secs(36_500 * 86_400);

const SECOND: u128 = 1_000_000_000;
const MINUTE: u128 = 60 * SECOND;
const HOUR: u128 = 60 * MINUTE;
const DAY: u128 = 24 * HOUR;
const MILLISECOND: u128 = 1_000_000;

/// From the largest to the smallest.
const UNITS: [(&str, u128); 5] = [("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND)];

const EMPTY: &str = "is empty; a duration such as 30s was expected";
const NEGATIVE: &str = "is negative";
const UNREADABLE: &str = "is not a duration such as 500ms, 30s, 5m, 4h, 1d, 0.00:15 or a number of seconds";
const NO_UNIT: &str = "has no unit; a duration such as 30s was expected";
const TOO_LONG: &str = "is longer than 36500d";
const TOO_FINE: &str = "is finer than a nanosecond";
const OUT_OF_RANGE: &str = "has hours beyond 23, or minutes or seconds beyond 59";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {reason}")]
pub struct BadDuration {
    text: String,
    reason: &'static str,
}

impl BadDuration {
    fn new(text: &str, reason: &'static str) -> Self {
        Self { text: text.chars().take(64).collect(), reason }
    }
}

pub fn parse(text: &str) -> Result<Duration, BadDuration> {
    let trimmed = text.trim();
    let nanos = match trimmed.chars().next() {
        None => Err(EMPTY),
        Some('-') => Err(if trimmed.contains(|c: char| c.is_ascii_digit()) { NEGATIVE } else { UNREADABLE }),
        Some(_) if trimmed.contains(':') => span(trimmed),
        Some(_) => amount(trimmed),
    };
    nanos.and_then(bounded).map_err(|reason| BadDuration::new(text, reason))
}

/// A duration beside which a time can be written: a plain number could be either, so it needs a unit.
pub fn with_unit(text: &str) -> Result<Duration, BadDuration> {
    if !text.contains(|c: char| c.is_ascii_alphabetic() || c == ':') {
        return Err(BadDuration::new(text, NO_UNIT));
    }
    parse(text)
}

/// Accepts text, or a number of seconds.
pub fn from_json(value: &Value) -> Result<Duration, BadDuration> {
    match value {
        Value::String(text) => parse(text),
        Value::Number(number) => seconds(number),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err(BadDuration::new(&value.to_string(), UNREADABLE))
        }
    }
}

/// Formats a duration in the largest unit that is exact.
pub fn show(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let exact = UNITS.into_iter().find(|(_, size)| nanos.is_multiple_of(*size));
    match exact {
        Some((unit, size)) => format!("{}{unit}", nanos / size),
        None => {
            let shown = format!("{}.{:06}", nanos / MILLISECOND, nanos % MILLISECOND);
            format!("{}ms", shown.trim_end_matches('0'))
        }
    }
}

/// Formats a duration for people: at most three units, the smaller ones are cut off. Below a minute it has
/// milliseconds (`4.5s`, `12ms`).
pub fn words(duration: Duration) -> String {
    const LONG: usize = 4;
    const SHOWN: usize = 3;
    let nanos = duration.as_nanos();
    if nanos < MILLISECOND {
        return show(duration);
    }
    if nanos < SECOND {
        return format!("{}ms", nanos / MILLISECOND);
    }
    if nanos < MINUTE {
        let text = format!("{}.{:03}", nanos / SECOND, nanos % SECOND / MILLISECOND);
        return format!("{}s", text.trim_end_matches('0').trim_end_matches('.'));
    }
    let mut rest = nanos;
    let parts = UNITS[..LONG].iter().map(|(unit, size)| {
        let count = rest / size;
        rest %= size;
        (count, unit)
    });
    let from_the_first = parts.skip_while(|(count, _)| *count == 0).take(SHOWN);
    let told = from_the_first.filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}"));
    told.collect::<Vec<_>>().join(" ")
}

/// For `#[serde(with = "crate::duration")]`.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&show(*duration))
}

/// For `#[serde(with = "crate::duration")]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let value = Value::deserialize(deserializer)?;
    from_json(&value).map_err(serde::de::Error::custom)
}

/// For an optional duration; use with `default` and `skip_serializing_if`.
pub mod optional {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};
    use serde_json::Value;

    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let value = Option::<Value>::deserialize(deserializer)?;
        let read = value.filter(|value| !value.is_null()).map(|value| super::from_json(&value));
        read.transpose().map_err(serde::de::Error::custom)
    }
}

/// For an optional list of durations; use with `default` and `skip_serializing_if`.
pub mod list {
    use std::time::Duration;

    use serde::Serializer;

    pub fn serialize<S: Serializer>(list: &Option<Vec<Duration>>, serializer: S) -> Result<S::Ok, S::Error> {
        match list {
            Some(list) => serializer.collect_seq(list.iter().map(|duration| super::show(*duration))),
            None => serializer.serialize_none(),
        }
    }
}

fn seconds(number: &serde_json::Number) -> Result<Duration, BadDuration> {
    let bad = |reason| BadDuration::new(&number.to_string(), reason);
    if let Some(whole) = number.as_u64() {
        return bounded(u128::from(whole) * SECOND).map_err(bad);
    }
    let float = number.as_f64().unwrap_or(f64::INFINITY);
    if float < 0.0 {
        return Err(bad(NEGATIVE));
    }
    let read = Duration::try_from_secs_f64(float).map_err(|_| bad(TOO_LONG))?;
    bounded(read.as_nanos()).map_err(bad)
}

/// Refuses durations longer than `MAXIMUM`.
fn bounded(nanos: u128) -> Result<Duration, &'static str> {
    if nanos > MAXIMUM.as_nanos() {
        return Err(TOO_LONG);
    }
    let (secs, rest) = (nanos / SECOND, nanos % SECOND);
    Ok(Duration::new(
        u64::try_from(secs).expect("MAXIMUM fits"),
        u32::try_from(rest).expect("a remainder of 10^9 fits"),
    ))
}

/// A number with a unit. The default unit is seconds.
fn amount(text: &str) -> Result<u128, &'static str> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = if unit.is_empty() { "s" } else { unit };
    let (_, size) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or(UNREADABLE)?;
    exact(number, size)
}

/// A .NET span: `[d.]hh:mm[:ss[.fffffff]]`.
fn span(text: &str) -> Result<u128, &'static str> {
    let parts: Vec<&str> = text.split(':').collect();
    let (first, minutes, secs) = match parts.as_slice() {
        [first, minutes] => (*first, *minutes, "0"),
        [first, minutes, secs] => (*first, *minutes, *secs),
        _ => return Err(UNREADABLE),
    };
    let (days, hours) = first.split_once('.').unwrap_or(("0", first));
    if days.contains('.') || hours.contains('.') || minutes.contains('.') {
        return Err(UNREADABLE);
    }
    let (hours, minutes, secs) = (exact(hours, HOUR)?, exact(minutes, MINUTE)?, exact(secs, SECOND)?);
    if hours >= DAY || minutes >= HOUR || secs >= MINUTE {
        return Err(OUT_OF_RANGE);
    }
    Ok(exact(days, DAY)? + hours + minutes + secs)
}

/// A decimal number times a size, without rounding. The limits on digits prevent an overflow.
fn exact(number: &str, size: u128) -> Result<u128, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(UNREADABLE);
    }
    if whole.len() > 20 {
        return Err(TOO_LONG);
    }
    if fraction.len() > 18 {
        return Err(TOO_FINE);
    }
    let whole: u128 = whole.parse().map_err(|_| UNREADABLE)?;
    let parts: u128 = fraction.parse().map_err(|_| UNREADABLE)?;
    let scale = fraction.bytes().fold(1u128, |scale, _| scale * 10);
    if !(parts * size).is_multiple_of(scale) {
        return Err(TOO_FINE);
    }
    Ok(whole * size + parts * size / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn beside_times_a_duration_has_a_unit() {
        for (text, secs) in [("10s", 10), ("1.5m", 90), ("1d", 86_400), ("00:00:30", 30), ("1.00:00", 86_400)]
        {
            assert_eq!(with_unit(text), Ok(Duration::from_secs(secs)), "{text}");
        }
        for text in ["", "10", "1.5", "32472144000", "-10s", "soon", "10 s", "12:00:00Z", "36501d"] {
            assert!(with_unit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_spelling_of_a_duration_is_read() {
        let table = [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("4h", 14_400_000),
            ("1d", 86_400_000),
            ("1.5s", 1_500),
            ("90", 90_000),
            ("0.25", 250),
            ("0", 0),
            (" 15m ", 900_000),
            ("00:00:00.500", 500),
            ("00:00:30", 30_000),
            ("00:05:00", 300_000),
            ("0.00:15", 900_000),
            ("0.00:30", 1_800_000),
            ("0.01:00", 3_600_000),
            ("0.04:00", 14_400_000),
            ("1.00:00", 86_400_000),
            ("7.00:00", 604_800_000),
            ("1.02:03:04.005", 93_784_005),
            ("05:00", 18_000_000),
        ];
        for (text, millis) in table {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_an_error_with_the_text_and_the_reason() {
        let table = [
            ("", EMPTY),
            ("   ", EMPTY),
            ("-5s", NEGATIVE),
            ("-00:05", NEGATIVE),
            ("-", UNREADABLE),
            ("2w", UNREADABLE),
            ("5us", UNREADABLE),
            ("5 m", UNREADABLE),
            ("5M", UNREADABLE),
            ("soon", UNREADABLE),
            ("NaN", UNREADABLE),
            ("inf", UNREADABLE),
            ("1e3", UNREADABLE),
            (".5s", UNREADABLE),
            ("5.s", UNREADABLE),
            ("1.2.3s", UNREADABLE),
            ("1:2:3:4", UNREADABLE),
            (":", UNREADABLE),
            ("1.2.3:00", UNREADABLE),
            ("00:0.5", UNREADABLE),
            ("24:00", OUT_OF_RANGE),
            ("00:60", OUT_OF_RANGE),
            ("00:00:60", OUT_OF_RANGE),
            ("36501d", TOO_LONG),
            ("99999999999999999999d", TOO_LONG),
            ("999999999999999999999999999999999999999999d", TOO_LONG),
            ("0.0000000001s", TOO_FINE),
            ("0.0000000000000000000001s", TOO_FINE),
        ];
        for (text, reason) in table {
            let error = parse(text).expect_err(text);
            assert_eq!((error.text.as_str(), error.reason), (text, reason));
        }
    }

    #[test]
    fn json_numbers_are_seconds_and_other_values_are_refused() {
        assert_eq!(from_json(&json!(30)), Ok(Duration::from_secs(30)));
        assert_eq!(from_json(&json!(0.1)), Ok(Duration::from_millis(100)));
        assert_eq!(from_json(&json!("1d")), Ok(Duration::from_secs(86_400)));
        for bad in
            [json!(-1), json!(-0.5), json!(1e300), json!(u64::MAX), json!(null), json!(true), json!([1])]
        {
            assert!(from_json(&bad).is_err(), "{bad}");
        }
        assert_eq!(from_json(&json!(-1)).unwrap_err().to_string(), "`-1` is negative");
    }

    #[test]
    fn a_duration_is_shown_in_the_largest_exact_unit() {
        let table = [
            (0, "0s"),
            (500_000_000, "500ms"),
            (90_000_000_000, "90s"),
            (480_000_000_000, "8m"),
            (900_000_000_000, "15m"),
            (86_400_000_000_000, "1d"),
            (90_000_000_000_000, "25h"),
            (250_000, "0.25ms"),
            (1, "0.000001ms"),
            (1_000_500_000, "1000.5ms"),
        ];
        for (nanos, text) in table {
            assert_eq!(show(Duration::from_nanos(nanos)), text);
        }
        assert!(!show(Duration::MAX).is_empty());
    }

    #[test]
    fn people_read_the_three_largest_units() {
        let table = [
            (0, "0s"),
            (250_000, "0.25ms"),
            (1_500_000, "1ms"),
            (12_000_000, "12ms"),
            (999_999_999, "999ms"),
            (1_000_000_000, "1s"),
            (4_500_000_000, "4.5s"),
            (30_012_000_000, "30.012s"),
            (59_999_999_999, "59.999s"),
            (60_000_000_000, "1m"),
            (99_000_000_000, "1m 39s"),
            (99_900_000_000, "1m 39s"),
            (495_000_000_000, "8m 15s"),
            (3_600_000_000_000, "1h"),
            (3_601_000_000_000, "1h 1s"),
            (86_400_000_000_000, "1d"),
            (86_459_000_000_000, "1d"),
            (90_060_000_000_000, "1d 1h 1m"),
            (299_315_500_000_000, "3d 11h 8m"),
        ];
        for (nanos, text) in table {
            assert_eq!(words(Duration::from_nanos(nanos)), text, "{nanos}");
        }
        assert_eq!(words(MAXIMUM), "36500d");
        assert!(!words(Duration::MAX).is_empty());
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back_the_same(secs in 0..36_500u64 * 86_400, nanos in 0u32..1_000_000_000) {
            for duration in [Duration::new(secs, nanos), Duration::from_secs(secs), Duration::from_millis(secs)] {
                prop_assert_eq!(parse(&show(duration)), Ok(duration));
            }
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[-0-9.:dhms ]{0,60}|.{0,40}") {
            if let Ok(duration) = parse(&text) {
                prop_assert!(duration <= MAXIMUM);
            }
        }

        #[test]
        fn no_number_makes_the_reader_panic(float in any::<f64>(), whole in any::<i64>()) {
            for value in [json!(float), json!(whole)] {
                if let Ok(duration) = from_json(&value) {
                    prop_assert!(duration <= MAXIMUM);
                }
            }
        }
    }
}
