//! Random variation of delays, so that notifications that failed together are not retried together.
//!
//! Each kind of jitter is a range, from which `draw` picks uniformly. `percent`, `full` and `equal` apply to
//! the capped delay (S3: 27 to 33 s around 30 s, and 432 to 528 s around the cap of 480 s).

use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::duration;
use crate::fields::{BadField, Fields, excerpt};
use crate::strategy::{from_nanos, scale};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// The nominal delay.
    None,
    /// Adds between zero and this much.
    Plus(Duration),
    /// Up to this many percent more or less.
    Percent(f64),
    /// Between zero and the delay.
    Full,
    /// Between half the delay and the delay.
    Equal,
    /// Between the first delay and three times the previous one, up to the cap.
    Decorrelated,
}

/// The input of jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    /// The capped delay of the strategy.
    pub nominal: Duration,
    /// Lower bound of decorrelated jitter.
    pub floor: Duration,
    /// Zero before the first retry.
    pub previous: Duration,
    /// Upper bound of decorrelated jitter.
    pub cap: Option<Duration>,
}

impl Jitter {
    /// The shortest and the longest possible delay.
    pub fn range(self, base: Base) -> (Duration, Duration) {
        let nominal = base.nominal;
        match self {
            Self::None => (nominal, nominal),
            Self::Plus(max) => (nominal, nominal.saturating_add(max)),
            Self::Percent(percent) => {
                // Dividing last keeps whole percents of whole seconds exact.
                let swing = from_nanos((nominal.as_nanos() as f64 * percent / 100.0).round() as u128);
                (nominal.saturating_sub(swing), nominal.saturating_add(swing))
            }
            Self::Full => (Duration::ZERO, nominal),
            Self::Equal => (nominal / 2, nominal),
            Self::Decorrelated => {
                let tripled = base.previous.max(base.floor).saturating_mul(3);
                (base.floor, tripled.min(base.cap.unwrap_or(Duration::MAX)).max(base.floor))
            }
        }
    }

    /// The delay that `draw` (in `0.0..1.0`) picks.
    pub fn apply(self, base: Base, draw: f64) -> Duration {
        let (shortest, longest) = self.range(base);
        between(shortest, longest, draw)
    }

    /// Accepts a name, `{"plus": duration}` or `{"percent": number}`.
    pub(crate) fn from_json(path: &str, value: &Value) -> Result<Self, BadField> {
        let bad = || {
            let all = "`none`, `full`, `equal`, `decorrelated`, {\"plus\": ..} or {\"percent\": ..}";
            BadField::new(path, format!("must be {all}, not {}", excerpt(value)))
        };
        match value {
            Value::String(name) => match name.as_str() {
                "none" => Ok(Self::None),
                "full" => Ok(Self::Full),
                "equal" => Ok(Self::Equal),
                "decorrelated" => Ok(Self::Decorrelated),
                _ => Err(bad()),
            },
            Value::Object(_) => {
                let mut fields = Fields::of(path, value)?;
                let (plus, percent) = (fields.duration("plus")?, fields.number("percent")?);
                fields.finish()?;
                match (plus, percent) {
                    (Some(max), None) => Ok(Self::Plus(max)),
                    (None, Some(percent)) => Ok(Self::Percent(percent)),
                    (None, None) | (Some(_), Some(_)) => Err(bad()),
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(bad()),
        }
    }
}

impl Serialize for Jitter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str("none"),
            Self::Full => serializer.serialize_str("full"),
            Self::Equal => serializer.serialize_str("equal"),
            Self::Decorrelated => serializer.serialize_str("decorrelated"),
            Self::Plus(max) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("plus", &duration::show(*max))?;
                map.end()
            }
            Self::Percent(percent) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("percent", &Number(*percent))?;
                map.end()
            }
        }
    }
}

/// Writes whole numbers without a fraction: `10`, not `10.0`.
pub(crate) struct Number(pub(crate) f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let whole = self.0 as u32;
        if f64::from(whole) == self.0 {
            serializer.serialize_u32(whole)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

/// The duration that `draw` picks from a range. A draw outside of `0.0..=1.0` is clamped.
pub(crate) fn between(shortest: Duration, longest: Duration, draw: f64) -> Duration {
    let width = longest.saturating_sub(shortest);
    let draw = if draw.is_nan() { 0.0 } else { draw.clamp(0.0, 1.0) };
    shortest.saturating_add(scale(width, draw).min(width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const ALMOST_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn base(nominal: u64, previous: u64) -> Base {
        Base { nominal: secs(nominal), floor: secs(30), previous: secs(previous), cap: Some(secs(480)) }
    }

    #[test]
    fn each_kind_has_its_range() {
        let table = [
            (Jitter::None, base(30, 0), (30_000, 30_000)),
            (Jitter::Plus(secs(30)), base(60, 0), (60_000, 90_000)),
            (Jitter::Percent(10.0), base(30, 0), (27_000, 33_000)),
            (Jitter::Percent(10.0), base(240, 0), (216_000, 264_000)),
            (Jitter::Percent(100.0), base(30, 0), (0, 60_000)),
            (Jitter::Full, base(30, 0), (0, 30_000)),
            (Jitter::Equal, base(30, 0), (15_000, 30_000)),
            (Jitter::Decorrelated, base(30, 0), (30_000, 90_000)),
            (Jitter::Decorrelated, base(60, 100), (30_000, 300_000)),
            (Jitter::Decorrelated, base(120, 400), (30_000, 480_000)),
        ];
        for (jitter, base, (shortest, longest)) in table {
            let expected = (Duration::from_millis(shortest), Duration::from_millis(longest));
            assert_eq!(jitter.range(base), expected, "{jitter:?} {base:?}");
            assert_eq!(jitter.apply(base, 0.0), expected.0);
            assert_eq!(jitter.apply(base, 0.5), (expected.0 + expected.1) / 2);
        }
    }

    #[test]
    fn jitter_is_written_as_it_is_read() {
        let table = [
            (json!("none"), Jitter::None),
            (json!("full"), Jitter::Full),
            (json!("equal"), Jitter::Equal),
            (json!("decorrelated"), Jitter::Decorrelated),
            (json!({"plus": "30s"}), Jitter::Plus(secs(30))),
            (json!({"percent": 10}), Jitter::Percent(10.0)),
            (json!({"percent": 12.5}), Jitter::Percent(12.5)),
        ];
        for (value, jitter) in table {
            assert_eq!(Jitter::from_json("jitter", &value), Ok(jitter));
            assert_eq!(serde_json::to_value(jitter).unwrap(), value);
        }
        for (bad, field) in [
            (json!("some"), "jitter"),
            (json!(3), "jitter"),
            (json!({}), "jitter"),
            (json!({"plus": "1s", "percent": 1}), "jitter"),
            (json!({"plus": "x"}), "jitter.plus"),
            (json!({"minus": "1s"}), "jitter.minus"),
        ] {
            assert_eq!(Jitter::from_json("jitter", &bad).unwrap_err().field, field);
        }
    }

    fn durations() -> impl Strategy<Value = Duration> {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::MAX),
            (any::<u64>(), 0u32..1_000_000_000).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
            (0u64..1_000_000).prop_map(Duration::from_millis),
        ]
    }

    fn kinds() -> impl Strategy<Value = Jitter> {
        prop_oneof![
            Just(Jitter::None),
            Just(Jitter::Full),
            Just(Jitter::Equal),
            Just(Jitter::Decorrelated),
            durations().prop_map(Jitter::Plus),
            (0.0..=100.0).prop_map(Jitter::Percent),
            any::<f64>().prop_map(Jitter::Percent),
        ]
    }

    proptest! {
        #[test]
        fn every_draw_stays_within_the_range(
            jitter in kinds(), nominal in durations(), floor in durations(), previous in durations(),
            cap in proptest::option::of(durations()), draw in 0.0..1.0,
        ) {
            let base = Base { nominal, floor, previous, cap };
            let (shortest, longest) = jitter.range(base);
            prop_assert!(shortest <= longest);
            for draw in [draw, 0.0, ALMOST_ONE, 1.0, -1.0, 2.0, f64::NAN, f64::INFINITY] {
                let delay = jitter.apply(base, draw);
                prop_assert!(shortest <= delay && delay <= longest, "{shortest:?} {delay:?} {longest:?}");
            }
        }

        #[test]
        fn a_larger_draw_never_waits_less(nominal in durations(), one in 0.0..1.0, two in 0.0..1.0) {
            let base = Base { nominal, floor: nominal, previous: nominal, cap: None };
            let (low, high) = if one < two { (one, two) } else { (two, one) };
            prop_assert!(Jitter::Full.apply(base, low) <= Jitter::Full.apply(base, high));
        }
    }
}
