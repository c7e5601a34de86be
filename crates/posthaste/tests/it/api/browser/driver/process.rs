//! A chromedriver of the test's own, which never outlives it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;

/// How long chromedriver may take to say where it listens.
const PATIENCE: Duration = Duration::from_secs(20);
/// The shell ends chromedriver and its browser when its input ends: with the test, also if that panics or is killed.
/// Job control gives the two a process group of their own.
const KEEPER: &str =
    "set -m; chromedriver --port=0 & cat >/dev/null; kill -KILL -- -$!; wait; rm -rf -- \"$1\"";

/// Ends with its value.
pub(super) struct Process {
    keeper: Child,
    /// Kept open, because chromedriver writes to it.
    output: Lines<BufReader<ChildStdout>>,
    pub(super) port: u16,
}

impl Process {
    /// Starts chromedriver at a free port, which it prints. `profile` is removed at the end.
    pub(super) async fn start(profile: &Path) -> Result<Self, String> {
        let mut keeper = Command::new("bash")
            .args(["-c", KEEPER, "keeper"])
            .arg(profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let output = ChildStdout::from_std(keeper.stdout.take().unwrap()).unwrap();
        let mut process = Self { keeper, output: BufReader::new(output).lines(), port: 0 };
        let port = tokio::time::timeout(PATIENCE, process.read_port()).await;
        process.port = port.ok().flatten().ok_or(
            "chromedriver names no port. scripts/test installs it, with chromium; is it on the PATH?",
        )?;
        Ok(process)
    }

    async fn read_port(&mut self) -> Option<u16> {
        while let Ok(Some(line)) = self.output.next_line().await {
            // The first line repeats the port that was asked for.
            let port = line.split("on port ").nth(1).and_then(|rest| rest.trim_end_matches('.').parse().ok());
            if port.is_some_and(|port| port != 0) {
                return port;
            }
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
