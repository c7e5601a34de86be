//! The server process that is measured, and its figures from /proc.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::StatusCode;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::place::Place;
use crate::client::Client;
use crate::keys;

/// Timeout for the start and the stop of a server.
const PATIENCE: Duration = Duration::from_secs(120);
/// Timeout without progress while notifications are still to be recorded.
pub(super) const STALLED: Duration = Duration::from_secs(30);
/// Interval of the checks whether the server is ready or done.
const LOOK: Duration = Duration::from_millis(2);

/// The unit of processor time in /proc; it is the same for all programs on Linux.
const TICK: Duration = Duration::from_millis(10);

pub(super) struct ServerProcess {
    pub(super) address: SocketAddr,
    /// The admin key.
    pub(super) key: String,
    /// Time from the start of the process until it is ready.
    pub(super) started_in: Duration,
    client: Client,
    child: Child,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts this program as a server on that store, with the default settings.
    pub(super) async fn start(store: &Place, directory: &Path) -> anyhow::Result<Self> {
        let address = free_address()?;
        let (key, log) = (keys::fresh(), directory.join(format!("server-{}.log", address.port())));
        let mut command = Command::new(std::env::current_exe().context("this program cannot be found")?);
        // Settings for another server must not change the result.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("POSTHASTE"))
        {
            command.env_remove(name);
        }
        command
            .args(["serve", "--listen", &address.to_string()])
            .args(["--set", "security.allow_subnets=127.0.0.0/8", "--set", "log.level=warn"])
            // Failures that the bench requests are not an outage.
            .args(["--set", "breaker.failure_threshold=1000000"])
            .env("POSTHASTE_ADMIN_KEY", &key)
            // Not an argument, because arguments are visible to all users and the URL may contain a password.
            .env("POSTHASTE__STORE__URL", store.url())
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .kill_on_drop(true);
        let start = Instant::now();
        let child = command.spawn().context("the server cannot be started")?;
        let client = Client::new(&format!("http://{address}"), Some(&key))?;
        let mut server = Self { address, key, started_in: Duration::ZERO, client, child, log };
        while !server.is_ready().await {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended with {status} instead of starting:\n{}", server.log_text());
            }
            if start.elapsed() > PATIENCE {
                bail!("the server was not ready after {} s:\n{}", PATIENCE.as_secs(), server.log_text());
            }
            tokio::time::sleep(LOOK).await;
        }
        server.started_in = start.elapsed();
        Ok(server)
    }

    async fn is_ready(&self) -> bool {
        self.client.get("/readyz").await.is_ok_and(|answer| answer.status == StatusCode::OK)
    }

    async fn ended(&self) -> anyhow::Result<(u64, u64)> {
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

    /// In bytes.
    pub(super) fn peak_memory(&self) -> anyhow::Result<u64> {
        Ok(self.proc("status", "VmHWM:")? * 1024)
    }

    /// Bytes written to the disk.
    pub(super) fn written(&self) -> anyhow::Result<u64> {
        self.proc("io", "write_bytes:")
    }

    /// On all cores.
    pub(super) fn processor_time(&self) -> anyhow::Result<Duration> {
        Ok(processor_time(&self.pid()?.to_string())?.own)
    }

    fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the server has ended")
    }

    fn proc(&self, file: &str, name: &str) -> anyhow::Result<u64> {
        let pid = self.pid()?;
        let path = format!("/proc/{pid}/{file}");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.with_context(|| format!("{path} has no value {name}"))
    }

    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
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

    fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Number of notifications that have ended: succeeded, and in any other state.
pub(super) async fn ended(servers: &[&ServerProcess]) -> anyhow::Result<(u64, u64)> {
    let mut all = (0, 0);
    for server in servers {
        let (succeeded, other) = server.ended().await?;
        all = (all.0 + succeeded, all.1 + other);
    }
    Ok(all)
}

/// Waits until `count` notifications have ended. Returns how many of them have not succeeded.
pub(super) async fn wait_for(servers: &[&ServerProcess], count: u64) -> anyhow::Result<u64> {
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        let (succeeded, other) = ended(servers).await?;
        let all = succeeded + other;
        if all >= count {
            return Ok(other);
        }
        if all > last {
            (last, moved) = (all, Instant::now());
        }
        if moved.elapsed() > STALLED {
            let (missing, patience) = (count - all, STALLED.as_secs());
            bail!(
                "{missing} of {count} notifications were accepted but not recorded, without progress for {patience} s"
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Processor time of a process, in user and kernel mode.
pub(super) struct ProcessorTime {
    pub(super) own: Duration,
    /// Of children that have ended.
    pub(super) ended: Duration,
}

/// `pid` is a number or `self`.
pub(super) fn processor_time(pid: &str) -> anyhow::Result<ProcessorTime> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The program name is in parentheses and may contain anything. The 12th and the 13th number after it are
    // the process's own user and kernel time, the next two those of its children.
    let numbers = text.rsplit_once(')').map_or("", |(_, numbers)| numbers);
    let times = numbers.split_whitespace().skip(11).take(4);
    let ticks: Option<Vec<u32>> = times.map(|time| time.parse().ok()).collect();
    let Some([user, kernel, children_user, children_kernel]) = ticks.as_deref() else {
        bail!("{path} has no times");
    };
    Ok(ProcessorTime { own: TICK * (user + kernel), ended: TICK * (children_user + children_kernel) })
}

/// A free address. If another process takes it first, the server reports that.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}
