//! What operators install: the image, the unit, the archive, the alert rules, and the page about them.

mod deploy;
mod image;
mod monitoring;
mod release;
mod unit;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use posthaste::config::{Config, Sources};

/// A part of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The settings of a server that runs with these variables.
fn settings(variables: &[(String, String)]) -> Config {
    let nowhere = tempfile::tempdir().unwrap();
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let sources =
        Sources { directory: nowhere.path().into(), variables: variables.collect(), ..Sources::default() };
    Config::load(sources).unwrap()
}

/// How long a stop takes at most: the drain, and the closing of the connections (`CLOSE_TIMEOUT` of the wiring).
fn longest_stop(config: &Config) -> Duration {
    config.server.drain_timeout + Duration::from_secs(2)
}

/// A program that scripts/test installs, or the reason why there is none, said aloud. On a machine of ours that is a mistake.
fn tool(name: &str, package: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_posthaste")).join("../../tools").join(name);
    for path in [PathBuf::from(name), beside] {
        if Command::new(&path).arg("--version").output().is_ok_and(|ran| ran.status.success()) {
            return Some(path);
        }
    }
    let is_ours = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ours, "{name} is missing: scripts/test installs it from Debian's {package}");
    // Past the test runner, which would keep it to itself.
    let _ =
        writeln!(io::stderr(), "\n!!! packaging: not possible here: {name} is missing (Debian: {package})\n");
    None
}

/// Runs a program to its end and returns what it said.
fn run(command: &mut Command) -> String {
    let ran = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{command:?}: {said}");
    said
}
