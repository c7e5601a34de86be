//! A client that a public generator makes from the served openapi.json, used against the built program.
//!
//! The generator is openapi-python-client, from PyPI.

use std::process::Command;

use super::packages::{ready, run, venv};
use super::program::{Home, KEY, sink};

/// The generator. It also brings what its clients need: attrs and httpx.
const GENERATOR: &str = "openapi-python-client==0.29.1";

#[tokio::test]
async fn a_generated_python_client_sends_reads_pages_and_knows_problems() {
    let Some(bin) = ready("python3-venv", || venv(&[GENERATOR])).await else { return };
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
