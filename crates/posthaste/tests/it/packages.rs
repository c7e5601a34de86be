//! Packages of public registries that a test needs. The first run installs them below the build output.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command and returns what went wrong with it.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&said)))
}

/// The directory of the programs of a venv with these packages of PyPI.
pub(crate) fn venv(packages: &[&str]) -> Result<PathBuf, String> {
    let place = installed(packages, |place| {
        run(Command::new("python3").args(["-m", "venv"]).arg(place))?;
        run(Command::new(place.join("bin/pip")).args(["install", "--quiet"]).args(packages))
    })?;
    Ok(place.join("bin"))
}

/// The directory `node_modules` with these packages of npm.
pub(crate) fn node_modules(packages: &[&str]) -> Result<PathBuf, String> {
    let place = installed(packages, |place| {
        let flags = ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
        run(Command::new("npm").args(flags).arg(place).args(packages).current_dir(place))
    })?;
    Ok(place.join("node_modules"))
}

/// A directory with what was installed there once.
fn installed(
    packages: &[&str],
    install: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let name = packages.join("-").replace(['=', '@', '/'], "-");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
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

/// What was installed, or the reason why it could not be, said aloud. On a machine of ours it is a mistake.
pub(crate) async fn ready(
    what: &str,
    install: impl FnOnce() -> Result<PathBuf, String> + Send + 'static,
) -> Option<PathBuf> {
    let reason = match tokio::task::spawn_blocking(install).await.unwrap() {
        Ok(place) => return Some(place),
        Err(reason) => reason,
    };
    let is_ours = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ours, "install {what}, and let it reach its registry: {reason}");
    // Past the test runner, which would keep it to itself.
    let _ = writeln!(io::stderr(), "\n!!! left out, because {what} is not possible here: {reason}\n");
    None
}
