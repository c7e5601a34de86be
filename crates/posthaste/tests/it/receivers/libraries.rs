//! The public libraries that verify webhooks, from PyPI and npm, and the samples of the page in their languages.

use std::fs;
use std::process::Command;

use super::super::packages::{node_modules, ready, run, venv};
use super::{Case, deliveries, sample_in};

const PYTHON: [&str; 2] = ["standardwebhooks==1.1.0", "svix==2.9.1"];
const NODE: [&str; 4] = ["standardwebhooks@1.1.1", "svix@2.5.0", "typescript@5.9.3", "@types/node@20.19.0"];
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/receivers");

/// A directory with the deliveries and a sample of the page.
fn set_out(cases: &[Case], name: &str, sample: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("cases.json"), serde_json::to_vec(cases).unwrap()).unwrap();
    fs::write(place.path().join(name), sample).unwrap();
    place
}

#[tokio::test]
async fn the_verifiers_of_pypi_and_the_python_sample_take_what_is_genuine_and_nothing_else() {
    let Some(bin) = ready("python3-venv", || venv(&PYTHON)).await else { return };
    let place = set_out(&deliveries().await, "sample.py", sample_in("python"));
    let mut verify = Command::new(bin.join("python"));
    verify.arg(format!("{SCRIPTS}/verify.py")).current_dir(place.path()).env("PYTHONPATH", place.path());
    let verified = tokio::task::spawn_blocking(move || run(&mut verify)).await.unwrap();
    verified.unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[tokio::test]
async fn the_verifiers_of_npm_and_the_typescript_sample_take_what_is_genuine_and_nothing_else() {
    let Some(modules) = ready("nodejs and npm", || node_modules(&NODE)).await else { return };
    let place = set_out(&deliveries().await, "sample.ts", sample_in("typescript"));
    let here = place.path().to_owned();
    let verified = tokio::task::spawn_blocking(move || {
        std::os::unix::fs::symlink(modules, here.join("node_modules")).map_err(|error| error.to_string())?;
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
