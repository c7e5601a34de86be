//! The command line as people call it: the built binary, its words and its exit codes.

mod administration;
mod alone;
mod batch;
mod client;
mod destinations;
mod dev;
mod failures;
mod limits;
mod listing;
mod migrate;
mod morning_after;
mod outages;
pub(crate) mod page;
mod served;
mod sink;
mod starts;
mod tail;
mod tokens;
mod walkthrough;

use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use tokio::process::Command;

/// How long a command may take before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The binary, told nothing by the environment that the tests run in.
fn posthaste(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    command.args(args).env_remove("POSTHASTE_URL").env_remove("POSTHASTE_KEY").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) async fn run(args: &[&str]) -> Ended {
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

/// A command that is still running and is listened to. It blocks, so the other side needs a thread of its own.
struct Talk {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Talk {
    fn start(command: Command) -> Self {
        let mut child = command.into_std().spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line that it says.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for its end; answers the exit code and what was on stderr.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // It has ended already where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
