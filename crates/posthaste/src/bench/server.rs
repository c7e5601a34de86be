//! The server process that is measured.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::StatusCode;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::keys;

/// Timeout for the start and the stop of a server.
const PATIENCE: Duration = Duration::from_secs(120);
/// Interval of the checks whether the server is ready or done.
const INTERVAL: Duration = Duration::from_millis(2);

/// A running server. Dropping it kills it.
pub struct ServerProcess {
    /// Without a slash at its end.
    pub url: String,
    /// The admin key.
    pub key: String,
    /// Time from the start of the process until it is ready.
    pub started_in: Duration,
    client: Client,
    child: Child,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts the program as a server on a store, with the default settings. The log is in `directory`.
    pub async fn start(program: &Path, store_url: &str, directory: &Path) -> anyhow::Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let (key, log) = (keys::fresh(), directory.join(format!("server-{}.log", address.port())));
        let mut command = Command::new(program);
        command
            .args(["serve", "--listen", &address.to_string()])
            .args(["--set", "security.allow_subnets=127.0.0.0/8", "--set", "log.level=warn"])
            // Settings for another server must not change the result.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("POSTHASTE_ADMIN_KEY", &key)
            // Not an argument, because arguments are visible to all users and the URL may contain a password.
            .env("POSTHASTE__STORE__URL", store_url)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .kill_on_drop(true);
        let start = Instant::now();
        let child = command.spawn().context("the server cannot be started")?;
        let url = format!("http://{address}");
        let client = Client::new(&url, Some(&key))?;
        let mut server = Self { url, key, started_in: Duration::ZERO, client, child, log };
        while !server.is_ready().await {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended with {status} instead of starting:\n{}", server.log_text());
            }
            if start.elapsed() > PATIENCE {
                bail!("the server was not ready after {} s:\n{}", PATIENCE.as_secs(), server.log_text());
            }
            sleep(INTERVAL).await;
        }
        server.started_in = start.elapsed();
        Ok(server)
    }

    async fn is_ready(&self) -> bool {
        self.client.get("/readyz").await.is_ok_and(|answer| answer.status == StatusCode::OK)
    }

    /// Number of notifications that this process has ended: delivered, and in any other state.
    pub async fn ended(&self) -> anyhow::Result<(u64, u64)> {
        let answer = self.client.get("/metrics").await.with_context(|| self.log_text())?;
        let text = String::from_utf8_lossy(&answer.body);
        let (mut succeeded, mut other) = (0, 0);
        for line in text.lines().filter_map(|line| line.strip_prefix("posthaste_ended_total{state=")) {
            let (state, count) = line.split_once("} ").context("/metrics has an unexpected format")?;
            let count: u64 = count.trim().parse().context("/metrics has an unexpected format")?;
            *if state == "\"succeeded\"" { &mut succeeded } else { &mut other } += count;
        }
        Ok((succeeded, other))
    }

    /// Waits until `count` notifications have ended. Returns how many of them were not delivered.
    pub async fn wait_for(&self, count: u64, within: Duration) -> anyhow::Result<u64> {
        let start = Instant::now();
        loop {
            let (succeeded, other) = self.ended().await?;
            if succeeded + other >= count {
                return Ok(other);
            }
            if start.elapsed() > within {
                let (missing, seconds) = (count - succeeded - other, within.as_secs());
                bail!("{missing} accepted notifications were not recorded within {seconds} s");
            }
            sleep(INTERVAL).await;
        }
    }

    /// A number from a file of `/proc/PID`, by the name in front of it.
    pub fn proc(&self, file: &str, name: &str) -> anyhow::Result<u64> {
        let path = format!("/proc/{}/{file}", self.pid()?);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.with_context(|| format!("{path} has no value {name}"))
    }

    /// In bytes.
    pub fn peak_memory(&self) -> anyhow::Result<u64> {
        Ok(self.proc("status", "VmHWM:")? * 1024)
    }

    pub fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().with_context(|| format!("the server has ended by itself:\n{}", self.log_text()))
    }

    /// Asks the server to stop, and waits until it has.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.pid()?;
        // The standard library can only send SIGKILL.
        Command::new("sh").args(["-c", &format!("kill -TERM {pid}")]).status().await?;
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status =
            ended.with_context(|| format!("the server did not stop within {} s", PATIENCE.as_secs()))??;
        if !status.success() {
            bail!("the server ended with {status}:\n{}", self.log_text());
        }
        Ok(())
    }

    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
