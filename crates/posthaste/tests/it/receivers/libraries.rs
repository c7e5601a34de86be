//! The public libraries that verify webhooks, from PyPI and npm, and the samples of the page in their languages.
//!
//! The first run installs them below the build output.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Case, deliveries, sample_in};

const PYTHON: [&str; 2] = ["standardwebhooks==1.1.0", "svix==2.9.1"];
const NODE: [&str; 4] = ["standardwebhooks@1.1.1", "svix@2.5.0", "typescript@5.9.3", "@types/node@20.19.0"];
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/receivers");

/// Runs a command and returns what went wrong with it.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&said)))
}

/// A directory below the build output with what was installed there once.
fn installed(name: &str, install: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace(['=', '@', '/'], "-"));
    let whole = place.join("whole");
    if !whole.exists() {
        // What an interrupted run left behind is of no use.
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).map_err(|error| error.to_string())?;
        install(&place)?;
        fs::write(whole, "").map_err(|error| error.to_string())?;
    }
    Ok(place)
}

fn python() -> Result<PathBuf, String> {
    let place = installed(&PYTHON.concat(), |place| {
        run(Command::new("python3").args(["-m", "venv"]).arg(place))?;
        run(Command::new(place.join("bin/pip")).args(["install", "--quiet"]).args(PYTHON))
    })?;
    Ok(place.join("bin/python"))
}

fn node() -> Result<PathBuf, String> {
    installed(&NODE.concat(), |place| {
        let flags = ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
        run(Command::new("npm").args(flags).arg(place).args(NODE).current_dir(place))
    })
}

/// What was installed, or the reason why it could not be, said aloud. On a machine of ours that is a mistake.
async fn ready(what: &'static str, install: fn() -> Result<PathBuf, String>) -> Option<PathBuf> {
    let reason = match tokio::task::spawn_blocking(install).await.unwrap() {
        Ok(place) => return Some(place),
        Err(reason) => reason,
    };
    let is_ours = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ours, "install {what}, and let it reach its registry: {reason}");
    // Past the test runner, which would keep it to itself.
    let _ = writeln!(io::stderr(), "\n!!! receivers: not possible here: {reason}\n");
    None
}

/// A directory with the deliveries and a sample of the page.
fn set_out(cases: &[Case], name: &str, sample: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("cases.json"), serde_json::to_vec(cases).unwrap()).unwrap();
    fs::write(place.path().join(name), sample).unwrap();
    place
}

#[tokio::test]
async fn the_verifiers_of_pypi_and_the_python_sample_take_what_is_genuine_and_nothing_else() {
    let Some(python) = ready("python3-venv", python).await else { return };
    let place = set_out(&deliveries().await, "sample.py", sample_in("python"));
    let mut verify = Command::new(python);
    verify.arg(format!("{SCRIPTS}/verify.py")).current_dir(place.path()).env("PYTHONPATH", place.path());
    let verified = tokio::task::spawn_blocking(move || run(&mut verify)).await.unwrap();
    verified.unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[tokio::test]
async fn the_verifiers_of_npm_and_the_typescript_sample_take_what_is_genuine_and_nothing_else() {
    let Some(node) = ready("nodejs and npm", node).await else { return };
    let place = set_out(&deliveries().await, "sample.ts", sample_in("typescript"));
    let here = place.path().to_owned();
    let verified = tokio::task::spawn_blocking(move || {
        std::os::unix::fs::symlink(node.join("node_modules"), here.join("node_modules"))
            .map_err(|error| error.to_string())?;
        let mut compile = Command::new("node");
        compile
            .arg("node_modules/typescript/bin/tsc")
            .args(["--strict", "--target", "es2022", "--module", "node16"]);
        run(compile.args(["--types", "node", "sample.ts"]).current_dir(&here))?;
        fs::copy(format!("{SCRIPTS}/verify.cjs"), here.join("verify.cjs"))
            .map_err(|error| error.to_string())?;
        run(Command::new("node").arg("verify.cjs").current_dir(&here))
    });
    verified.await.unwrap().unwrap_or_else(|wrong| panic!("{wrong}"));
}
