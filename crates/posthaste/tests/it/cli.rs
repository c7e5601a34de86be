//! The command line as people call it: the built binary, its words and its exit codes.

mod alone;
mod page;
mod served;

use std::io::{Seek, Write};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// How long a command may take before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

/// The binary, told nothing by the environment that the tests run in.
fn posthaste(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    command.args(args).env_remove("POSTHASTE_URL").env_remove("POSTHASTE_KEY").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn run(args: &[&str]) -> Ended {
    finish(posthaste(args), "").await
}

/// Runs a command to its end with this on stdin.
async fn finish(mut command: Command, input: &str) -> Ended {
    let mut stdin = tempfile::tempfile().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    stdin.rewind().unwrap();
    let child = command.stdin(stdin).spawn().unwrap();
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
