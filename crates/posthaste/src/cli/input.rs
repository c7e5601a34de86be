//! Input of the commands: texts from flags, files and stdin, and times.

use std::fs::File;
use std::io::{self, Read};

use anyhow::Context;
use posthaste_core::duration;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock;
use serde_json::value::RawValue;

use super::WrongUse;
use crate::clock::SystemClock;

/// In bytes. No request may be larger.
const MAX_SIZE: u64 = 16 * 1024 * 1024;

/// A flag's value: the text itself, `@file` for the content of a file, `-` for stdin.
pub(crate) fn text(given: &str) -> anyhow::Result<String> {
    match given.strip_prefix('@') {
        Some(path) => file(path),
        None if given == "-" => file("-"),
        None => Ok(given.to_owned()),
    }
}

/// The content of a file, or stdin if the path is `-`.
pub(crate) fn file(path: &str) -> anyhow::Result<String> {
    let (mut content, name) = (String::new(), if path == "-" { "stdin" } else { path });
    let read = if path == "-" {
        io::stdin().lock().take(MAX_SIZE + 1).read_to_string(&mut content)
    } else {
        File::open(path).and_then(|file| file.take(MAX_SIZE + 1).read_to_string(&mut content))
    };
    let read = read.with_context(|| format!("cannot read {name}"))?;
    anyhow::ensure!(read as u64 <= MAX_SIZE, "{name} holds more than {} MiB", MAX_SIZE / 1024 / 1024);
    Ok(content)
}

/// JSON as text, as `@file` or from stdin. `flag` is named in the error.
pub(crate) fn json(flag: &str, given: &str) -> anyhow::Result<Box<RawValue>> {
    check_json(flag, text(given)?)
}

/// Checks JSON and keeps it as written: numbers and the order of fields do not change. `what` is named in the
/// error.
pub(crate) fn check_json(what: &str, text: String) -> anyhow::Result<Box<RawValue>> {
    Ok(RawValue::from_string(text).map_err(|error| WrongUse(format!("{what} is not JSON: {error}")))?)
}

/// A time in the future: RFC 3339, or how long from now.
pub(crate) fn future(given: &str) -> Result<Timestamp, String> {
    let wrong = || "give a time such as 2026-04-15T10:45:30Z, or a duration such as 15m".to_owned();
    given
        .parse()
        .or_else(|_| duration::parse(given).map(|duration| SystemClock.now().later(duration)))
        .map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_or_a_distance_from_now() {
        assert_eq!(future("2026-04-15T12:45:30+02:00").unwrap().to_string(), "2026-04-15T10:45:30.000Z");
        let now = SystemClock.now();
        assert!(future("1h").unwrap() > now);
        assert!(future("tomorrow").unwrap_err().contains("15m"));
    }
}
