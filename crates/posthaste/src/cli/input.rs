//! Input of the commands: texts from flags, files and stdin, and times.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use posthaste_core::duration;
use posthaste_core::time::Timestamp;
use serde_json::value::RawValue;

use super::WrongUse;

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

/// Whether stdin was read. Its content can be given to one flag only.
static STDIN_READ: AtomicBool = AtomicBool::new(false);

/// Notes that stdin is used, which can happen only once.
pub(crate) fn take_stdin() -> anyhow::Result<()> {
    if STDIN_READ.swap(true, Ordering::Relaxed) {
        return Err(WrongUse("only one of the values can be -, because stdin is read once".to_owned()).into());
    }
    Ok(())
}

/// The content of a file, or stdin if the path is `-`.
pub(crate) fn file(path: &str) -> anyhow::Result<String> {
    if path == "-" {
        take_stdin()?;
    }
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

/// JSON as text, as `@file` or from stdin. It is kept as written: numbers and the order of fields do not change.
/// `what` is named in the error.
pub(crate) fn json(what: &str, given: &str) -> anyhow::Result<Box<RawValue>> {
    Ok(RawValue::from_string(text(given)?).map_err(|error| {
        let hint = if Path::new(given).is_file() {
            format!("; to read that file, write @{given}")
        } else {
            String::new()
        };
        WrongUse(format!("{what} is not JSON: {error}{hint}"))
    })?)
}

/// A duration of whole seconds, at least one, as a number of seconds.
pub(crate) fn whole_seconds(given: &str) -> Result<u64, String> {
    let duration = duration::parse(given).map_err(|error| error.to_string())?;
    if duration < Duration::from_secs(1) || duration.subsec_nanos() != 0 {
        return Err("give whole seconds, at least one, such as 90s or 1h".to_owned());
    }
    Ok(duration.as_secs())
}

/// A time, or a duration that the server counts from acceptance. It is sent as given: a repeat under the same
/// idempotency key must have the same bytes. A plain number is seconds, for which the API wants the unit.
pub(crate) fn future(given: &str) -> Result<String, String> {
    if given.parse::<Timestamp>().is_ok() || duration::with_unit(given).is_ok() {
        return Ok(given.to_owned());
    }
    match duration::parse(given) {
        Ok(_) => Ok(format!("{}s", given.trim())),
        Err(_) => Err("give a time such as 2026-04-15T10:45:30Z, or a duration such as 15m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_is_whole_seconds() {
        for (text, seconds) in [("1h", 3_600), ("90", 90), ("1.5m", 90), ("1d", 86_400), ("1s", 1)] {
            assert_eq!(whole_seconds(text), Ok(seconds), "{text}");
        }
        for text in ["0", "500ms", "1.5s", "-1h", "soon", ""] {
            assert!(whole_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_is_sent_as_given() {
        for (given, sent) in [
            ("2026-04-15T12:45:30+02:00", "2026-04-15T12:45:30+02:00"),
            ("1h", "1h"),
            ("00:00:30", "00:00:30"),
            ("90", "90s"),
            ("1.5", "1.5s"),
        ] {
            assert_eq!(future(given).unwrap(), sent, "{given}");
        }
        assert!(future("tomorrow").unwrap_err().contains("15m"));
    }
}
