//! S2: the JSON sections `PollyConfig`, `Hangfire` and `CircuitBreaker`.
//!
//! Polly's retries become quick tries, Hangfire's become the schedule. Hangfire retries every failure type,
//! without jitter. Every break of the circuit breaker is as long as the first. Other sections are left out with
//! a warning.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{ExpireFailed, Imported, ImportedBreaker, ImportedJobs, checked, flag, scan, whole};
use crate::duration::{parse, show};
use crate::failure::FailureType;
use crate::fields::{BadField, Fields, excerpt};
use crate::jitter::Jitter;
use crate::policy::quick::{DEFAULT_LIMIT, QuickBackoff, When};
use crate::policy::{MAX_QUICK_LIMIT, MAX_QUICK_TRIES, PolicyLayer, QuickLayer};

pub(super) const SECTIONS: [&str; 3] = ["PollyConfig", "Hangfire", "CircuitBreaker"];

/// The sender that is used if Polly configures several.
const SENDER: &str = "NotificatiesSender";
const CODES: &str = "AddRetryOnHttpStatusCodes";

pub(super) fn read(document: &Value) -> Result<Imported, BadField> {
    let mut imported = Imported::default();
    for (name, section) in document.as_object().into_iter().flatten() {
        match name.as_str() {
            "PollyConfig" => polly(section, &mut imported)?,
            "Hangfire" => hangfire(section, &mut imported)?,
            "CircuitBreaker" => breaker(section, &mut imported)?,
            other => imported.warnings.push(format!("{}: section left out", short(other))),
        }
    }
    let names = [
        ("quick.statusCodes", CODES),
        ("quick", "PollyConfig"),
        ("timeout", "Timeout.Timeout"),
        ("schedule", "Hangfire.RetrySchedule"),
    ];
    imported.policy = checked(imported.policy, &names)?;
    Ok(imported)
}

/// `AddRetryOnHttpStatusCodes` is documented directly under `PollyConfig`, but its example is inside the
/// sender. Both are read.
fn polly(section: &Value, imported: &mut Imported) -> Result<(), BadField> {
    let Value::Object(map) = section else {
        return Err(BadField::new("PollyConfig", format!("must be an object, not {}", excerpt(section))));
    };
    let mut quick = QuickLayer::default();
    if let Some(list) = map.get(CODES) {
        quick.status_codes =
            Some(status_codes(list, &format!("PollyConfig.{CODES}"), &mut imported.warnings)?);
    }
    if let Some((name, sender_section)) = pick_sender(map, &mut imported.warnings)? {
        let path = format!("PollyConfig.{}", short(name));
        sender(&path, sender_section, &mut quick, imported)?;
    }
    if quick != QuickLayer::default() {
        // Polly also repeats requests that may have had an effect. The scopes below must not change that.
        imported.policy.quick = Some(QuickLayer { when: Some(When::Any), ..quick });
    }
    Ok(())
}

fn pick_sender<'a>(
    map: &'a Map<String, Value>,
    warnings: &mut Vec<String>,
) -> Result<Option<(&'a String, &'a Value)>, BadField> {
    let senders: Vec<_> = map.iter().filter(|(name, _)| *name != CODES).collect();
    if let [] | [_] = senders.as_slice() {
        return Ok(senders.first().copied());
    }
    let Some(chosen) = senders.iter().find(|(name, _)| *name == SENDER).copied() else {
        return Err(BadField::new("PollyConfig", format!("has several senders and none is {SENDER}")));
    };
    for (name, _) in senders.iter().filter(|(name, _)| *name != SENDER) {
        warnings.push(format!("PollyConfig.{}: only {SENDER} was read", short(name)));
    }
    Ok(Some(chosen))
}

fn sender(
    path: &str,
    value: &Value,
    quick: &mut QuickLayer,
    imported: &mut Imported,
) -> Result<(), BadField> {
    let mut fields = Fields::of(path, value)?;
    if let Some(retry) = fields.take("Retry")? {
        let mut retry = Fields::of(&fields.path("Retry"), retry)?;
        quick.retry_after = flag(&mut retry, "ShouldRetryAfterHeader")?;
        quick.tries = whole(&mut retry, "MaxRetryAttempts")?;
        quick.backoff = backoff(&mut retry)?;
        quick.jitter = flag(&mut retry, "UseJitter")?;
        quick.delay = span(&mut retry, "Delay")?;
        raise_limit(&retry, quick, &mut imported.warnings)?;
        retry.finish()?;
    }
    if let Some(timeout) = fields.take("Timeout")? {
        let mut timeout = Fields::of(&fields.path("Timeout"), timeout)?;
        imported.policy.timeout = span(&mut timeout, "Timeout")?;
        timeout.finish()?;
    }
    if let Some(list) = fields.take(CODES)? {
        quick.status_codes = Some(status_codes(list, &fields.path(CODES), &mut imported.warnings)?);
    }
    fields.finish()
}

fn backoff(fields: &mut Fields<'_>) -> Result<Option<QuickBackoff>, BadField> {
    let find = |name: &str| QuickBackoff::from_name(&name.to_ascii_lowercase());
    fields.name("BackoffType", find, "Constant, Linear, Exponential")
}

/// Polly does not limit its waits. Our limit is raised as far as its settings need, up to a maximum.
fn raise_limit(
    retry: &Fields<'_>,
    quick: &mut QuickLayer,
    warnings: &mut Vec<String>,
) -> Result<(), BadField> {
    let (Some(tries), Some(delay)) = (quick.tries, quick.delay) else { return Ok(()) };
    if tries > MAX_QUICK_TRIES {
        return Err(retry.bad("MaxRetryAttempts", format!("must be at most {MAX_QUICK_TRIES}, not {tries}")));
    }
    let backoff = quick.backoff.unwrap_or(QuickBackoff::Exponential);
    let waits = backoff.total_wait(delay, tries);
    if waits > MAX_QUICK_LIMIT {
        let reason = format!("the waits add up to {}, more than {}", show(waits), show(MAX_QUICK_LIMIT));
        return Err(retry.bad("MaxRetryAttempts", reason));
    }
    if waits > DEFAULT_LIMIT {
        quick.limit = Some(waits);
        let path = retry.path("MaxRetryAttempts");
        warnings.push(format!("{path}: the waits add up to {}, so quick.limit was raised", show(waits)));
    }
    Ok(())
}

/// Codes separated by semicolons. The `...` of the documentation's example is ignored with a warning.
fn status_codes(value: &Value, path: &str, warnings: &mut Vec<String>) -> Result<Vec<u16>, BadField> {
    let bad = |reason: String| BadField::new(path, reason);
    let text = value
        .as_str()
        .ok_or_else(|| bad(format!("must be a text such as `404;409`, not {}", excerpt(value))))?;
    let mut codes = Vec::new();
    for entry in text.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
        if entry == "..." {
            warnings.push(format!("{path}: the entry `...` was ignored"));
            continue;
        }
        let code = entry.parse().map_err(|_| bad(format!("`{}` is not a status code", short(entry))))?;
        if !(300..=599).contains(&code) {
            return Err(bad(format!("{code} is not a failure status (300 to 599)")));
        }
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    Ok(codes)
}

fn hangfire(section: &Value, imported: &mut Imported) -> Result<(), BadField> {
    let mut fields = Fields::of("Hangfire", section)?;
    if let Some(text) = fields.text("RetrySchedule")? {
        let entry = |entry: &str| parse_span(entry).map_err(|reason| fields.bad("RetrySchedule", reason));
        let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty());
        let schedule = entries.map(entry).collect::<Result<Vec<_>, _>>()?;
        imported.policy = PolicyLayer {
            schedule: Some(schedule),
            jitter: Some(Jitter::None),
            retry_on: BTreeMap::from(FailureType::ALL.map(|failure_type| (failure_type, true))),
            ..std::mem::take(&mut imported.policy)
        };
    }
    let scan = fields.text("ExpireFailedJobsScanAt")?;
    let after = span(&mut fields, "ExpireFailedJobAfter")?;
    if scan.is_some() || after.is_some() {
        let cron = scan.map(scan::cron).transpose();
        let cron = cron.map_err(|reason| fields.bad("ExpireFailedJobsScanAt", reason))?.flatten();
        let after = after.unwrap_or(Duration::from_secs(7 * 86_400));
        imported.jobs = Some(ImportedJobs { expire_failed: ExpireFailed { cron, after } });
    }
    fields.finish()
}

fn breaker(section: &Value, imported: &mut Imported) -> Result<(), BadField> {
    let mut fields = Fields::of("CircuitBreaker", section)?;
    let failure_threshold = whole(&mut fields, "FailureThreshold")?.unwrap_or(10);
    if failure_threshold == 0 {
        return Err(fields.bad("FailureThreshold", "must be 1 or more"));
    }
    let break_duration = span(&mut fields, "BreakDuration")?.unwrap_or(Duration::from_secs(300));
    if break_duration.is_zero() {
        return Err(fields.bad("BreakDuration", "must be more than 0s"));
    }
    let minutes = whole(&mut fields, "CacheExpirationMinutes")?.unwrap_or(10);
    let cached = Duration::from_secs(u64::from(minutes) * 60);
    let forget_after = cached.max(break_duration);
    if cached < break_duration {
        let path = fields.path("CacheExpirationMinutes");
        imported.warnings.push(format!("{path}: raised to {}, the length of a break", show(forget_after)));
    }
    imported.breaker = Some(ImportedBreaker {
        failure_threshold,
        first_break: break_duration,
        break_duration,
        forget_after,
    });
    fields.finish()
}

fn span(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<Duration>, BadField> {
    let text = fields.text(name)?;
    text.map(parse_span).transpose().map_err(|reason| fields.bad(name, reason))
}

/// A span with a colon. A plain number means days in .NET and seconds here, so it is refused.
fn parse_span(text: &str) -> Result<Duration, String> {
    if !text.contains(':') {
        return Err(format!("`{}` is not a span such as 00:00:30 or 0.00:15", short(text)));
    }
    parse(text).map_err(|error| error.to_string())
}

fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Preset, resolve};
    use serde_json::json;

    fn document() -> Value {
        json!({
            "PollyConfig": {"NotificatiesSender": {
                "Retry": {"ShouldRetryAfterHeader": true, "MaxRetryAttempts": 4, "BackoffType": "Exponential",
                    "UseJitter": false, "Delay": "00:00:00.500"},
                "Timeout": {"Timeout": "00:00:30"},
                "AddRetryOnHttpStatusCodes": "404;..."
            }},
            "Hangfire": {"RetrySchedule": "0.00:15;0.00:30;0.01:00;0.04:00;1.00:00",
                "ExpireFailedJobsScanAt": "05:00", "ExpireFailedJobAfter": "7.00:00"},
            "CircuitBreaker": {"FailureThreshold": 10, "BreakDuration": "00:05:00", "CacheExpirationMinutes": 10}
        })
    }

    #[test]
    fn the_sections_of_the_documentation_are_said_in_our_form() {
        let imported = read(&document()).unwrap();
        let all = FailureType::ALL.map(|failure_type| (failure_type.name().to_owned(), json!(true)));
        let expected = json!({
            "policy": {
                "schedule": ["15m", "30m", "1h", "4h", "1d"],
                "jitter": "none",
                "timeout": "30s",
                "quick": {"tries": 4, "delay": "500ms", "backoff": "exponential", "jitter": false,
                    "retryAfter": true, "statusCodes": [404], "when": "any"},
                "retryOn": Value::Object(all.into_iter().collect()),
            },
            "breaker": {"failureThreshold": 10, "firstBreak": "5m", "breakDuration": "5m", "forgetAfter": "10m"},
            "jobs": {"expireFailed": {"cron": "0 5 * * *", "after": "7d"}},
        });
        assert_eq!(serde_json::to_value(&imported).unwrap(), expected);
        let dots = "PollyConfig.NotificatiesSender.AddRetryOnHttpStatusCodes: the entry `...` was ignored";
        assert_eq!(imported.warnings, [dots]);
    }

    #[test]
    fn what_is_imported_is_the_preset_zgw() {
        let mut without_codes = document();
        without_codes["PollyConfig"]["NotificatiesSender"]["AddRetryOnHttpStatusCodes"] = json!("");
        let imported = read(&without_codes).unwrap();
        let expected = Preset::Zgw.policy();
        let mut policy = resolve(Preset::Standard, [&imported.policy]);
        // Figures that only other strategies use come from below.
        policy.backoff.initial_delay = expected.backoff.initial_delay;
        policy.backoff.maximum_delay = expected.backoff.maximum_delay;
        assert_eq!(policy, expected);
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_path() {
        let sender = |value: Value| json!({"PollyConfig": {"NotificatiesSender": value}});
        let table = [
            (sender(json!({"AddRetryOnHttpStatusCodes": "404;x"})), "AddRetryOnHttpStatusCodes: `x` is not"),
            (
                sender(json!({"AddRetryOnHttpStatusCodes": "404;....."})),
                "AddRetryOnHttpStatusCodes: `.....` is",
            ),
            (sender(json!({"AddRetryOnHttpStatusCodes": "200"})), "AddRetryOnHttpStatusCodes: 200 is no"),
            (sender(json!({"Retry": {"Delay": "1"}})), "Retry.Delay: `1` is not a span"),
            (sender(json!({"Retry": {"Delays": "1"}})), "Retry.Delays: is unknown"),
            (sender(json!({"Retry": {"BackoffType": "x"}})), "Retry.BackoffType: must be one of Constant"),
            (sender(json!({"Timeout": {"Timeout": "-00:01"}})), "Timeout.Timeout: `-00:01` is negative"),
            (
                sender(json!({"Retry": {"MaxRetryAttempts": 9, "Delay": "00:00:01"}})),
                "Retry.MaxRetryAttempts: the waits add up to 511s",
            ),
        ];
        for (value, expected) in table {
            let error = read(&value).unwrap_err().to_string();
            assert!(error.starts_with(&format!("PollyConfig.NotificatiesSender.{expected}")), "{error}");
        }
        let table = [
            (json!({"Hangfire": {"RetrySchedule": ""}}), "Hangfire.RetrySchedule: is empty"),
            (
                json!({"Hangfire": {"RetrySchedule": "0.00:15;..."}}),
                "Hangfire.RetrySchedule: `...` is not a span",
            ),
            (json!({"Hangfire": {"ExpireFailedJobsScanAt": "x"}}), "Hangfire.ExpireFailedJobsScanAt: `x`"),
            (json!({"Hangfire": {"Workers": 3}}), "Hangfire.Workers: is unknown"),
            (
                json!({"CircuitBreaker": {"FailureThreshold": 0}}),
                "CircuitBreaker.FailureThreshold: must be 1",
            ),
            (
                json!({"CircuitBreaker": {"BreakDuration": "00:00"}}),
                "CircuitBreaker.BreakDuration: must be more",
            ),
            (json!({"CircuitBreaker": []}), "CircuitBreaker: must be an object"),
            (json!({"PollyConfig": {"A": {}, "B": {}}}), "PollyConfig: has several senders"),
        ];
        for (value, expected) in table {
            let error = read(&value).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_kept_as_it_is_comes_with_a_warning() {
        let imported = read(&json!({
            "Logging": {},
            "PollyConfig": {
                "AddRetryOnHttpStatusCodes": "401; 404;404;",
                "Other": {},
                "NotificatiesSender": {"Retry": {"MaxRetryAttempts": "5", "Delay": "00:00:00.500", "UseJitter": "True"}}
            },
            "CircuitBreaker": {"BreakDuration": "00:30:00"},
            "Hangfire": {"ExpireFailedJobsScanAt": "never"}
        }))
        .unwrap();
        let quick = imported.policy.quick.unwrap();
        assert_eq!((quick.tries, quick.jitter), (Some(5), Some(true)));
        assert_eq!(quick.limit, Some(Duration::from_millis(15_500)));
        assert_eq!(quick.status_codes, Some(vec![401, 404]));
        assert_eq!(imported.breaker.unwrap().forget_after, Duration::from_secs(1_800));
        assert_eq!(imported.jobs.unwrap().expire_failed.cron, None);
        assert_eq!(imported.warnings.len(), 4);
    }
}
