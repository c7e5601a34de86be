//! Converts the configuration of the systems that Posthaste replaces to ours.
//!
//! Three formats are known: the JSON sections of S2 (`PollyConfig`, `Hangfire`, `CircuitBreaker`), the
//! `NOTIFY_` variables of S3 (as lines or as a JSON object) and the policy JSON of S0. The field names tell
//! which one it is.

mod notify;
mod scan;
mod shumoul;
mod zgw;

pub use self::notify::VARIABLES as NOTIFY_VARIABLES;
pub use self::scan::cron as scan_at;

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::channel::Channel;
use crate::duration;
use crate::fields::{BadField, Fields, excerpt};
use crate::policy::PolicyLayer;

/// The converted configuration, as `{policy, breaker, jobs}`. Parts that the source does not have are null.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Imported {
    pub policy: PolicyLayer,
    pub breaker: Option<ImportedBreaker>,
    pub jobs: Option<ImportedJobs>,
    /// The channel of the policy, if the source names one.
    #[serde(skip)]
    pub channel: Option<Channel>,
    /// What was left out or changed, for the user to check.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportedBreaker {
    /// Number of failed attempts in a row after which it opens.
    pub failure_threshold: u32,
    /// How long it stays open the first time.
    #[serde(with = "crate::duration")]
    pub first_break: Duration,
    /// How long it stays open at most.
    #[serde(with = "crate::duration")]
    pub break_duration: Duration,
    /// Time without a request after which its state is dropped.
    #[serde(with = "crate::duration")]
    pub forget_after: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportedJobs {
    pub expire_failed: ExpireFailed,
}

/// The job that expires old failed notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExpireFailed {
    /// In UTC; null if the job is off.
    pub cron: Option<String>,
    /// Minimum age of the failure.
    #[serde(with = "crate::duration")]
    pub after: Duration,
}

const EXPECTED: &str = "is not a known configuration; expected the JSON sections PollyConfig, Hangfire or \
                        CircuitBreaker, a policy with retryStrategy and initialDelaySeconds, or NOTIFY_ variables";

/// Converts a configuration file.
pub fn import(text: &str) -> Result<Imported, BadField> {
    let trimmed = text.trim_start_matches('\u{feff}').trim();
    if !trimmed.starts_with(['{', '[']) {
        return notify::from_lines(trimmed);
    }
    let value: Value = serde_json::from_str(trimmed)
        .map_err(|error| BadField::new("file", format!("is not JSON: {error}")))?;
    import_json(&value)
}

/// Converts a configuration that is already parsed.
pub fn import_json(value: &Value) -> Result<Imported, BadField> {
    let Value::Object(map) = value else {
        return Err(BadField::new("file", EXPECTED));
    };
    let has = |known: &[&str]| map.keys().any(|key| known.contains(&key.as_str()));
    if has(&zgw::SECTIONS) {
        zgw::read(value)
    } else if map.keys().any(|key| key.starts_with("NOTIFY_")) {
        notify::read(value)
    } else if has(&shumoul::KEY_FIELDS) {
        shumoul::read(value)
    } else {
        Err(BadField::new("file", EXPECTED))
    }
}

/// Checks the finished layer. An error names the field of the source.
fn checked(layer: PolicyLayer, names: &[(&str, &str)]) -> Result<PolicyLayer, BadField> {
    match layer.check() {
        Ok(()) => Ok(layer),
        Err(error) => {
            let theirs = names.iter().find(|(ours, _)| error.field.starts_with(ours));
            Err(theirs.map_or(error.clone(), |(_, theirs)| BadField::new(*theirs, error.reason)))
        }
    }
}

/// A whole number, also as text, because some configuration systems store all values as text.
fn whole(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<u32>, BadField> {
    loose(fields, name, "a whole number, not negative", |value| match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64().and_then(|number| u32::try_from(number).ok()),
    })
}

fn number(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<f64>, BadField> {
    loose(fields, name, "a number", |value| match value {
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        other => other.as_f64(),
    })
}

fn flag(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<bool>, BadField> {
    loose(fields, name, "true or false", |value| match value {
        Value::String(text) => text.trim().to_ascii_lowercase().parse().ok(),
        other => other.as_bool(),
    })
}

/// A number of seconds, also as text. No unit is accepted: the name of the field has it.
fn seconds(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<Duration>, BadField> {
    let Some(value) = fields.take(name)? else { return Ok(None) };
    if let Value::String(text) = value
        && !text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-')
    {
        return Err(fields.bad(name, format!("must be a number of seconds, not {}", excerpt(value))));
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
    let bad = || fields.bad(name, format!("must be {expected}, not {}", excerpt(value)));
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
