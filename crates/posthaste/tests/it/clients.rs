//! A client that a public generator makes from the served openapi.json, used against the built program.
//!
//! The generator is openapi-python-client, in a venv below the build output. The first run installs it from PyPI.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::{Home, KEY, sink};

/// The generator. It also brings what its clients need: attrs and httpx.
const GENERATOR: &str = "openapi-python-client==0.29.1";

/// Runs a command and returns what went wrong with it.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&said)))
}

/// The programs of a venv with the generator.
fn installed() -> Result<PathBuf, String> {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join(GENERATOR.replace("==", "-"));
    let (bin, whole) = (venv.join("bin"), venv.join("whole"));
    if !whole.exists() {
        // What an interrupted run left behind is of no use.
        let _ = fs::remove_dir_all(&venv);
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        run(Command::new(bin.join("pip")).args(["install", "--quiet", GENERATOR]))?;
        fs::write(whole, "").map_err(|error| error.to_string())?;
    }
    Ok(bin)
}

/// The generator, or the reason why there is none, said aloud. On a machine of ours it is a mistake that there is none.
fn generator() -> Option<PathBuf> {
    let reason = match installed() {
        Ok(bin) => return Some(bin),
        Err(reason) => reason,
    };
    let is_ours = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ours, "install python3-venv, and let pip reach PyPI: {reason}");
    // Past the test runner, which would keep it to itself.
    let _ = writeln!(io::stderr(), "\n!!! clients: not possible here: {reason}\n");
    None
}

#[tokio::test]
async fn a_generated_python_client_sends_reads_pages_and_knows_problems() {
    let Some(bin) = tokio::task::spawn_blocking(generator).await.unwrap() else { return };
    let home = Home::new(&[]);
    let program = home.start().await;
    let sink = sink().await;
    let server = format!("http://{}", program.address());
    let place = home.path().to_owned();
    let (ok, refused) = (sink.url("/ok"), sink.url("/status/400"));
    let used = tokio::task::spawn_blocking(move || {
        let mut generate = Command::new(bin.join("openapi-python-client"));
        generate.args(["generate", "--meta", "none", "--output-path", "posthaste_client"]);
        generate.args(["--url", &format!("{server}/openapi.json")]).current_dir(&place);
        run(&mut generate)?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clients/use.py");
        let mut python = Command::new(bin.join("python"));
        python.arg(script).args([&server, KEY, &ok, &refused]).env("PYTHONPATH", &place).current_dir(&place);
        run(&mut python)
    });
    if let Err(wrong) = used.await.unwrap() {
        panic!("{wrong}");
    }
    program.stop().await;
    sink.stop().await;
}
