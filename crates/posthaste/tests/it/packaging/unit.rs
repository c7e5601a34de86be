//! The systemd unit, checked by systemd and held to the program.

use std::fs;
use std::process::Command;
use std::time::Duration;

use posthaste::cli;

use super::{longest_stop, read, run, settings, tool};

/// The value of a key that stands there once.
fn value(unit: &str, key: &str) -> String {
    let found: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix(&format!("{key}="))).collect();
    let [one] = found[..] else { panic!("{key} stands there {} times", found.len()) };
    one.to_owned()
}

#[test]
fn systemd_accepts_the_unit() {
    let Some(systemd) = tool("systemd-analyze", "systemd") else { return };
    let place = tempfile::tempdir().unwrap();
    // It asks whether the program is there, so it is told where this one is.
    let unit =
        read("packaging/posthaste.service").replace("/usr/bin/posthaste", env!("CARGO_BIN_EXE_posthaste"));
    let path = place.path().join("posthaste.service");
    fs::write(&path, &unit).unwrap();
    let said = run(Command::new(&systemd).args(["verify", "--man=no"]).arg(&path));
    let about_us: Vec<&str> = said.lines().filter(|line| line.contains("posthaste.service")).collect();
    assert!(about_us.is_empty(), "{about_us:?}");
    // It would say so if it read the unit and did not like it.
    fs::write(&path, unit.replace("ProtectSystem=strict", "ProtectSystem=perhaps")).unwrap();
    let ran = Command::new(&systemd).args(["verify", "--man=no"]).arg(&path).output().unwrap();
    assert!(String::from_utf8_lossy(&ran.stderr).contains("protect system"), "{ran:?}");
}

#[test]
fn the_unit_starts_the_program_waits_for_its_drain_and_lets_it_open_files() {
    let unit = read("packaging/posthaste.service");
    let start = value(&unit, "ExecStart");
    let parsed = cli::command().try_get_matches_from(start.split(' '));
    assert!(parsed.is_ok(), "{start}: {}", parsed.unwrap_err());
    let config = settings(&[]);
    let stop: u64 = value(&unit, "TimeoutStopSec").trim_end_matches('s').parse().unwrap();
    assert!(Duration::from_secs(stop) > longest_stop(&config) + Duration::from_secs(5));
    let files: u32 = value(&unit, "LimitNOFILE").parse().unwrap();
    assert!(files > config.server.connections + 2 * config.engine.concurrency + 64);
    assert_eq!(value(&unit, "WorkingDirectory"), format!("%S/{}", value(&unit, "StateDirectory")));
    for (key, wanted) in [("NoNewPrivileges", "yes"), ("ProtectSystem", "strict"), ("DynamicUser", "yes")] {
        assert_eq!(value(&unit, key), wanted);
    }
}
