//! S3: the `NOTIFY_` variables, as lines of an environment file or as a JSON object.
//!
//! A missing variable has S3's default. `NOTIFY_MAX_RETRIES` counts attempts, including the first.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{EXPECTED, Imported, checked, number, seconds, whole};
use crate::fields::{BadField, Fields};
use crate::jitter::Jitter;
use crate::policy::PolicyLayer;
use crate::strategy::Strategy;

const PREFIX: &str = "NOTIFY_";
const ATTEMPTS: &str = "NOTIFY_MAX_RETRIES";
const TIMEOUT: &str = "NOTIFY_ADAPTER_TIMEOUT_SEC";
const BASE: &str = "NOTIFY_BACKOFF_BASE_SEC";
const PERCENT: &str = "NOTIFY_BACKOFF_JITTER_PERCENT";

/// All that S3 reads.
pub const VARIABLES: [&str; 4] = [ATTEMPTS, TIMEOUT, BASE, PERCENT];

/// The cap of S3's backoff. No variable changes it.
const CAP: Duration = Duration::from_secs(480);

/// Accepts lines of the form `NAME=value`, with `export`, quotes and comments as in a shell.
pub(super) fn from_lines(text: &str) -> Result<Imported, BadField> {
    let mut map = Map::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or_else(|| BadField::new("file", EXPECTED))?;
        map.insert(name.trim().to_owned(), Value::from(unquoted(value)));
    }
    if !map.keys().any(|name| name.starts_with(PREFIX)) {
        return Err(BadField::new("file", EXPECTED));
    }
    read(&Value::Object(map))
}

/// Reads the variables from an object. Variables of other services are left out, with a warning that does not
/// show their values.
pub(super) fn read(document: &Value) -> Result<Imported, BadField> {
    let all = document.as_object().into_iter().flatten();
    let (ours, others): (Vec<_>, Vec<_>) = all.partition(|(name, _)| name.starts_with(PREFIX));
    let ours = Value::Object(ours.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect());
    let mut fields = Fields::of("", &ours)?;
    let attempts = whole(&mut fields, ATTEMPTS)?.unwrap_or(5);
    let timeout = seconds(&mut fields, TIMEOUT)?.unwrap_or(Duration::from_secs(10));
    let base = seconds(&mut fields, BASE)?.unwrap_or(Duration::from_secs(30));
    let percent = number(&mut fields, PERCENT)?.unwrap_or(10.0);
    fields.finish()?;
    let policy = PolicyLayer {
        strategy: Some(Strategy::Exponential),
        initial_delay: Some(base),
        multiplier: Some(2.0),
        maximum_delay: Some(CAP.max(base)),
        max_attempts: Some(attempts),
        jitter: Some(Jitter::Percent(percent)),
        timeout: Some(timeout),
        ..PolicyLayer::default()
    };
    let names =
        [("maxAttempts", ATTEMPTS), ("jitter", PERCENT), ("timeout", TIMEOUT), ("initialDelay", BASE)];
    let policy = checked(policy, &names)?;
    let left_out = |(name, _): (&String, &Value)| {
        format!("{}: variable left out", name.chars().take(64).collect::<String>())
    };
    Ok(Imported { policy, warnings: others.into_iter().map(left_out).collect(), ..Imported::default() })
}

/// A value without its quotes, or without the comment behind it.
fn unquoted(value: &str) -> &str {
    let value = value.trim();
    for quote in ['"', '\''] {
        if let Some((inside, _)) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return inside;
        }
    }
    value.split_once(" #").map_or(value, |(before, _)| before.trim_end())
}

#[cfg(test)]
mod tests {
    use super::super::import;
    use super::*;
    use crate::policy::{Preset, resolve};
    use serde_json::json;

    const DEFAULTS: &str = "NOTIFY_MAX_RETRIES=5\nNOTIFY_ADAPTER_TIMEOUT_SEC=10\nNOTIFY_BACKOFF_BASE_SEC=30\n\
                            NOTIFY_BACKOFF_JITTER_PERCENT=10\n";

    #[test]
    fn the_variables_are_said_in_our_form() {
        let expected = json!({
            "policy": {"strategy": "exponential", "initialDelay": "30s", "multiplier": 2, "maximumDelay": "8m",
                "maxAttempts": 5, "jitter": {"percent": 10}, "timeout": "10s"},
            "breaker": null,
            "jobs": null,
        });
        let imported = import(DEFAULTS).unwrap();
        assert_eq!(serde_json::to_value(&imported).unwrap(), expected);
        assert_eq!(resolve(Preset::Notify, [&imported.policy]), Preset::Notify.policy());
        assert_eq!(import("NOTIFY_MAX_RETRIES=5").unwrap(), imported);
        assert_eq!(
            import("{\"NOTIFY_MAX_RETRIES\": 5, \"NOTIFY_BACKOFF_BASE_SEC\": \"30\"}").unwrap(),
            imported
        );
    }

    #[test]
    fn lines_are_read_as_shells_write_them() {
        let text = "# ours\n\nexport NOTIFY_MAX_RETRIES='7' # more\r\nNOTIFY_BACKOFF_BASE_SEC=600 # slow\n\
                    DATABASE_URL=\"postgres://secret\"\n";
        let imported = import(text).unwrap();
        assert_eq!(imported.policy.max_attempts, Some(7));
        assert_eq!(imported.policy.initial_delay, Some(Duration::from_secs(600)));
        assert_eq!(imported.policy.maximum_delay, imported.policy.initial_delay);
        assert_eq!(imported.warnings, ["DATABASE_URL: variable left out"]);
    }

    #[test]
    fn what_is_wrong_is_refused_by_its_name() {
        for (text, field) in [
            ("NOTIFY_MAX_RETRIES=0", ATTEMPTS),
            ("NOTIFY_MAX_RETRIES=many", ATTEMPTS),
            ("NOTIFY_MAX_RETRIES=-1", ATTEMPTS),
            ("NOTIFY_ADAPTER_TIMEOUT_SEC=0", TIMEOUT),
            ("NOTIFY_ADAPTER_TIMEOUT_SEC=5m", TIMEOUT),
            ("NOTIFY_BACKOFF_BASE_SEC=-30", BASE),
            ("NOTIFY_BACKOFF_BASE_SEC=99999999999", BASE),
            ("NOTIFY_BACKOFF_BASE_SEC=", BASE),
            ("NOTIFY_BACKOFF_JITTER_PERCENT=101", PERCENT),
            ("NOTIFY_BACKOFF_JITTER_PERCENT=NaN", PERCENT),
            ("NOTIFY_MAX_RETRY=5", "NOTIFY_MAX_RETRY"),
        ] {
            assert_eq!(import(text).unwrap_err().field, field, "{text}");
        }
    }
}
