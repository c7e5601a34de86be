//! Understands the configuration of the systems that Posthaste takes over from, and says it in our form.
//!
//! Three shapes are known: the JSON sections of S2 (`PollyConfig`, `Hangfire`, `CircuitBreaker`), the `NOTIFY_`
//! variables of S3 (as lines or as a JSON object) and the policy JSON of S0. Which one it is shows in the field names.

mod notify;
mod scan;
mod shumoul;
mod zgw;

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::channel::Channel;
use crate::duration;
use crate::fields::{BadField, Fields, glimpse};
use crate::policy::PolicyLayer;

/// What a configuration says in our form, as `{policy, breaker, jobs}`; what it does not speak of is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Imported {
    /// The retry policy.
    pub policy: PolicyLayer,
    /// The circuit breaker.
    pub breaker: Option<ImportedBreaker>,
    /// The jobs.
    pub jobs: Option<ImportedJobs>,
    /// The channel that the policy is for, where the source names one.
    #[serde(skip)]
    pub channel: Option<Channel>,
    /// What was left out or understood in a way that a person should know of.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// The figures of a circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportedBreaker {
    /// After how many failed attempts in a row it opens.
    pub failure_threshold: u32,
    /// How long it stays open.
    #[serde(with = "crate::duration")]
    pub break_duration: Duration,
    /// After how long without a call it is forgotten.
    #[serde(with = "crate::duration")]
    pub forget_after: Duration,
}

/// The jobs that a configuration speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportedJobs {
    /// The clearing of what failed long ago.
    pub expire_failed: ExpireFailed,
}

/// When failed notifications are cleared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExpireFailed {
    /// When the job runs, in UTC; null if it is off.
    pub cron: Option<String>,
    /// How long ago a notification must have failed.
    #[serde(with = "crate::duration")]
    pub after: Duration,
}

const EXPECTED: &str = "is no configuration that is known here; expected the JSON sections PollyConfig, Hangfire or \
                        CircuitBreaker, a policy with retryStrategy and initialDelaySeconds, or NOTIFY_ variables";

/// Reads a configuration file.
pub fn import(text: &str) -> Result<Imported, BadField> {
    let trimmed = text.trim_start_matches('\u{feff}').trim();
    if !trimmed.starts_with(['{', '[']) {
        return notify::from_lines(trimmed);
    }
    let value: Value = serde_json::from_str(trimmed)
        .map_err(|error| BadField::new("file", format!("is not JSON: {error}")))?;
    import_json(&value)
}

/// Reads a configuration that is JSON already.
pub fn import_json(value: &Value) -> Result<Imported, BadField> {
    let Value::Object(map) = value else {
        return Err(BadField::new("file", EXPECTED));
    };
    let has = |known: &[&str]| map.keys().any(|key| known.contains(&key.as_str()));
    if has(&zgw::SECTIONS) {
        zgw::read(value)
    } else if map.keys().any(|key| key.starts_with("NOTIFY_")) {
        notify::read(value)
    } else if has(&shumoul::SIGNS) {
        shumoul::read(value)
    } else {
        Err(BadField::new("file", EXPECTED))
    }
}

/// Checks the finished layer; a complaint names the field of the source that it came from.
fn checked(layer: PolicyLayer, names: &[(&str, &str)]) -> Result<PolicyLayer, BadField> {
    match layer.check() {
        Ok(()) => Ok(layer),
        Err(error) => {
            let theirs = names.iter().find(|(ours, _)| error.field.starts_with(ours));
            Err(theirs.map_or(error.clone(), |(_, theirs)| BadField::new(*theirs, error.reason)))
        }
    }
}

/// A whole number, also as text: configuration systems keep all values as text.
fn whole(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<u32>, BadField> {
    loose(fields, name, "a whole number, not negative", |value| match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64().and_then(|number| u32::try_from(number).ok()),
    })
}

/// A number, also as text.
fn number(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<f64>, BadField> {
    loose(fields, name, "a number", |value| match value {
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        other => other.as_f64(),
    })
}

/// A yes or no, also as text.
fn flag(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<bool>, BadField> {
    loose(fields, name, "true or false", |value| match value {
        Value::String(text) => text.trim().to_ascii_lowercase().parse().ok(),
        other => other.as_bool(),
    })
}

/// A number of seconds, also as text, but without a unit: the name of the field says it.
fn seconds(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<Duration>, BadField> {
    let Some(value) = fields.take(name)? else { return Ok(None) };
    if let Value::String(text) = value
        && !text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-')
    {
        return Err(fields.bad(name, format!("must be a number of seconds, not {}", glimpse(value))));
    }
    duration::from_json(value).map(Some).map_err(|error| fields.bad(name, error))
}

fn loose<T>(
    fields: &mut Fields<'_>,
    name: &'static str,
    expected: &str,
    read: fn(&Value) -> Option<T>,
) -> Result<Option<T>, BadField> {
    let Some(value) = fields.take(name)? else { return Ok(None) };
    let bad = || fields.bad(name, format!("must be {expected}, not {}", glimpse(value)));
    read(value).map(Some).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_unknown_shape_is_an_error_that_says_what_was_expected() {
        for text in ["{}", "[]", "{\"strategy\": \"fixed\"}", "", "A=1", "hello"] {
            let error = import(text).unwrap_err();
            assert!(error.reason.contains("PollyConfig"), "{text}: {error}");
        }
        assert!(import("{\"PollyConfig\": ").unwrap_err().to_string().starts_with("file: is not JSON"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_importer_panic(text in ".{0,80}|(NOTIFY_[A-Z_]{0,20}=[-0-9.]{0,30}\n){0,3}") {
            let _ = import(&text);
        }
    }
}
