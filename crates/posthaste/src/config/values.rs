//! Parsers of single values. Values of a file have types; values of variables and flags are text.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use posthaste_core::duration;
use posthaste_core::fields;
use posthaste_core::import;
use posthaste_core::job::{BadSchedule, Schedule};
use posthaste_core::policy::MAX_TIMEOUT;
use serde_json::Value;
use url::Url;

use super::layers::ConfigValue;
use super::named::Secret;
use super::secret_text::secret_text;

/// A value, or an error text that follows the key.
pub(super) type Read<T> = Result<T, String>;

/// The error about a value in the place of a section. The value is not shown, since it may be a URL with a
/// password.
pub(super) const SECTION: &str = "must be a section with keys in it, not a value";

/// A short form of a value, for errors.
pub(super) fn excerpt(value: &Value) -> String {
    if value.is_object() { "a section".to_owned() } else { fields::excerpt(value) }
}

fn expected(what: &str, given: &ConfigValue) -> String {
    format!("must be {what}, not {}", excerpt(&given.value))
}

pub(super) fn text(given: &ConfigValue) -> Read<String> {
    given.value.as_str().map(str::to_owned).ok_or_else(|| expected("a text", given))
}

/// In bytes.
const MAX_NAME: usize = 128;

/// A name of one line. Empty means none.
pub(super) fn optional_name(given: &ConfigValue) -> Read<Option<String>> {
    let text = optional_text(given)?;
    if text.as_ref().is_some_and(|text| text.len() > MAX_NAME || text.chars().any(char::is_control)) {
        return Err(format!("must be at most {MAX_NAME} printable bytes"));
    }
    Ok(text)
}

/// Empty means none.
pub(super) fn optional_text(given: &ConfigValue) -> Read<Option<String>> {
    text(given).map(|text| Some(text).filter(|text| !text.is_empty()))
}

/// The address of a site, without a path. Empty means none.
pub(super) fn web_address(given: &ConfigValue) -> Read<Option<Url>> {
    let Some(text) = optional_text(given)? else { return Ok(None) };
    let what = "an address such as https://posthaste.example.com, without a path";
    let is_site = |url: &Url| {
        let bare = url.username().is_empty() && url.password().is_none();
        matches!(url.scheme(), "http" | "https") && url.path() == "/" && url.query().is_none() && bare
    };
    let url = Url::parse(text.trim()).ok().filter(is_site).filter(|url| url.fragment().is_none());
    url.map(Some).ok_or_else(|| expected(what, given))
}

/// A text that is never shown, not even in errors. `env:NAME` and `file:PATH` say where it stands.
pub(super) fn secret(given: &ConfigValue) -> Read<Option<Secret>> {
    let text = given.value.as_str().ok_or_else(|| "must be a text in quotes".to_owned())?;
    let text = secret_text(text)?;
    Ok(Some(text).filter(|text| !text.is_empty()).map(Secret::new))
}

pub(super) fn flag(given: &ConfigValue) -> Read<bool> {
    let flag = match &given.value {
        Value::String(text) if given.origin.is_text() => text.trim().to_ascii_lowercase().parse().ok(),
        value => value.as_bool(),
    };
    flag.ok_or_else(|| expected("true or false", given))
}

pub(super) fn whole(bounds: RangeInclusive<u32>) -> impl Fn(&ConfigValue) -> Read<u32> {
    move |given| {
        let number = match &given.value {
            Value::String(text) if given.origin.is_text() => text.trim().parse().ok(),
            value => value.as_u64().and_then(|number| u32::try_from(number).ok()),
        };
        let what = || format!("a whole number from {} to {}", bounds.start(), bounds.end());
        number.filter(|number| bounds.contains(number)).ok_or_else(|| expected(&what(), given))
    }
}

pub(super) fn any_duration(given: &ConfigValue) -> Read<Duration> {
    let what = "a duration such as 500ms, 30s, 5m, 4h, 1d or a number of seconds";
    match &given.value {
        value @ (Value::String(_) | Value::Number(_)) => {
            duration::from_json(value).map_err(|error| format!("cannot be used: {error}"))
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(expected(what, given)),
    }
}

pub(super) fn positive_duration(given: &ConfigValue) -> Read<Duration> {
    any_duration(given).and_then(|length| {
        if length.is_zero() { Err("must be longer than 0s".to_owned()) } else { Ok(length) }
    })
}

const MAX_WAIT: Duration = Duration::from_secs(86_400);

/// At least 1 ms, because PostgreSQL counts in milliseconds and takes 0 as no limit.
pub(super) fn wait(given: &ConfigValue) -> Read<Duration> {
    let length = any_duration(given)?;
    if length < Duration::from_millis(1) || length > MAX_WAIT {
        return Err(expected("from 1ms to 1d", given));
    }
    Ok(length)
}

/// The upper bound on timeouts that a caller may set.
pub(super) fn max_timeout(given: &ConfigValue) -> Read<Duration> {
    let length = any_duration(given)?;
    if length < Duration::from_secs(1) || length > MAX_TIMEOUT {
        return Err(expected("from 1s to 10m", given));
    }
    Ok(length)
}

/// A positive duration, or `never`.
pub(super) fn duration_or_never(given: &ConfigValue) -> Read<Option<Duration>> {
    if given.value == "never" {
        return Ok(None);
    }
    positive_duration(given).map(Some).map_err(|reason| format!("{reason}; or `never`"))
}

/// Five fields of cron, S2's words for a time (`05:00`, `Monday`), or `never` and its other words.
pub(super) fn cron(given: &ConfigValue) -> Read<Option<Schedule>> {
    let what = "`never` or a cron expression of five fields such as `0 2 * * *`";
    let text = given.value.as_str().ok_or_else(|| expected(what, given))?;
    let text = match import::scan_at(text) {
        Ok(Some(cron)) => Cow::Owned(cron),
        Ok(None) => return Ok(None),
        Err(_) => Cow::Borrowed(text),
    };
    match Schedule::parse(&text) {
        Ok(schedule) => Ok(Some(schedule)),
        Err(BadSchedule::Form(_)) => Err(expected(what, given)),
        Err(never @ BadSchedule::Never(_)) => Err(never.to_string()),
    }
}

/// One of a short list of names.
pub(super) fn name<T: Copy>(all: &'static [(&'static str, T)]) -> impl Fn(&ConfigValue) -> Read<T> {
    move |given| {
        let found = all.iter().find(|(name, _)| given.value == **name).map(|(_, value)| *value);
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        found.ok_or_else(|| expected(&format!("one of {}", names.join(", ")), given))
    }
}

/// A list of texts. In a variable or a flag it is separated by commas.
pub(super) fn list(given: &ConfigValue) -> Read<Vec<String>> {
    match &given.value {
        Value::String(text) if given.origin.is_text() => Ok(split(text).map(str::to_owned).collect()),
        Value::Array(list) => {
            let texts: Option<Vec<String>> =
                list.iter().map(|value| value.as_str().map(str::to_owned)).collect();
            texts.ok_or_else(|| "must be a list of texts".to_owned())
        }
        _ => Err(expected("a list of texts", given)),
    }
}

pub(super) fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}
