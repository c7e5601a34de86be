//! `scripts/release`, with the program of the tests in place of a release build.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use posthaste::cli;

use super::{read, repository, run};

fn release(to: &Path) -> String {
    let mut script = Command::new(repository("scripts/release"));
    script
        .args(["--binary", env!("CARGO_BIN_EXE_posthaste"), "--to"])
        .arg(to)
        .env("SOURCE_DATE_EPOCH", "1700000000");
    // The speed of gzip is what this test waits for.
    run(script.env("POSTHASTE_RELEASE_LEVEL", "1"))
}

#[test]
fn the_archive_has_what_operators_install() {
    let place = tempfile::tempdir().unwrap();
    let name = format!("posthaste-{}-{}-linux", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let said = release(place.path());
    assert!(said.contains("stripped"), "{said}");
    run(Command::new("sha256sum").arg("-c").arg(format!("{name}.tar.gz.sha256")).current_dir(&place));
    run(Command::new("tar").arg("xzf").arg(format!("{name}.tar.gz")).current_dir(&place));
    let root = place.path().join(&name);
    for path in [
        "share/bash-completion/completions/posthaste",
        "share/zsh/site-functions/_posthaste",
        "share/fish/vendor_completions.d/posthaste.fish",
        "share/man/man1/posthaste.1.gz",
        "share/doc/posthaste/LICENSE",
        "share/doc/posthaste/README.md",
        "share/doc/posthaste/prometheus-rules.yml",
        "share/doc/posthaste/grafana-dashboard.json",
        "share/doc/posthaste/swagger-ui/NOTICE",
        "lib/systemd/system/posthaste.service",
        "etc/posthaste/posthaste.toml",
    ] {
        assert!(root.join(path).metadata().is_ok_and(|file| file.len() > 20), "{path}");
    }
    for command in cli::command().get_subcommands() {
        let page = format!("share/man/man1/posthaste-{}.1.gz", command.get_name());
        assert!(root.join(&page).exists(), "{page}");
    }
    let told = run(Command::new(root.join("bin/posthaste")).arg("--version"));
    assert_eq!(told.trim(), format!("posthaste {}", env!("CARGO_PKG_VERSION")));
    // What the page tells to install is in it.
    let page = read("docs/deploy.md");
    let installed = page.lines().filter_map(|line| line.strip_prefix("install -D -m 644 "));
    let installed: BTreeSet<&str> = installed.map(|rest| rest.split(' ').next().unwrap()).collect();
    assert_eq!(installed.len(), 2);
    for path in installed {
        assert!(root.join(path).exists(), "docs/deploy.md installs {path}");
    }
}

#[test]
fn a_wrong_call_of_the_release_script_says_so() {
    for (args, code) in
        [(&["--nonsense"][..], 2), (&["--binary"], 2), (&["--binary", "/nowhere"], 1), (&["--help"], 0)]
    {
        let ran = Command::new(repository("scripts/release")).args(args).output().unwrap();
        assert_eq!(ran.status.code(), Some(code), "{args:?}");
    }
}
