//! The server that is measured: a process of its own, and what the system says about it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::StatusCode;
use posthaste::bench::server::ServerProcess;
use posthaste::client::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::place::Place;

/// How long an exchange may take before it counts as not answered.
const WITHIN: Duration = Duration::from_secs(60);
/// What the system counts processor time in; it is the same for every program on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// A running server. Dropping it kills it.
pub(crate) struct Server(pub(crate) ServerProcess);

impl Server {
    /// Starts the binary on that store, with the settings that are built in.
    pub(crate) async fn start(binary: &Path, place: &Place) -> anyhow::Result<Self> {
        Ok(Self(ServerProcess::start(binary, &place.url(), place.directory()).await?))
    }

    /// A client with a connection and a key of its own.
    pub(crate) fn client(&self, key: &str) -> anyhow::Result<Client> {
        Ok(Client::new(&self.0.url, Some(key))?.within(WITHIN))
    }

    /// A client with the admin key.
    pub(crate) fn admin(&self) -> anyhow::Result<Client> {
        self.client(&self.0.key)
    }

    /// A new key for that tenant.
    pub(crate) async fn key_for(&self, tenant: &str) -> anyhow::Result<String> {
        let asked = json!({"name": "scale", "tenant": tenant});
        let answer = self.client(&self.0.key)?.post("/v1/keys", &asked).await?;
        let shown: Value = answer.json()?;
        Ok(shown["key"].as_str().with_context(|| format!("no key was made: {shown}"))?.to_owned())
    }

    /// Waits until nothing is queued, under way or to be retried.
    pub(crate) async fn at_rest(&self, within: Duration) -> anyhow::Result<()> {
        let (client, start) = (self.client(&self.0.key)?, Instant::now());
        while start.elapsed() < within {
            let stats: Value = client.get("/v1/stats").await?.json()?;
            if ["queued", "sending", "inRetry"].iter().all(|kind| stats[kind] == 0) {
                return Ok(());
            }
            sleep(Duration::from_millis(10)).await;
        }
        bail!("not everything ended within {} s:\n{}", within.as_secs(), self.0.log_text())
    }

    /// The most memory that it had, in MiB.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<u64> {
        Ok(self.0.peak_memory()? / 1024 / 1024)
    }

    /// The processor time that it took, on all cores.
    pub(crate) fn processor_time(&self) -> anyhow::Result<Duration> {
        processor_time(&self.0.pid()?.to_string())
    }
}

async fn is_ready(client: &Client) -> bool {
    client.get("/readyz").await.is_ok_and(|answer| answer.status == StatusCode::OK)
}

/// Asks `/readyz` a few times a second, over a connection of its own.
pub(crate) struct Readiness(JoinSet<()>, tokio::sync::watch::Receiver<(u32, u32)>);

impl Readiness {
    /// Begins to ask.
    pub(crate) fn watch(server: &Server) -> anyhow::Result<Self> {
        let client = server.admin()?.within(Duration::from_secs(3));
        let (tell, told) = tokio::sync::watch::channel((0, 0));
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                let ready = is_ready(&client).await;
                tell.send_modify(|(asked, not)| {
                    *asked += 1;
                    *not += u32::from(!ready);
                });
                sleep(Duration::from_millis(250)).await;
            }
        });
        Ok(Self(task, told))
    }

    /// How often it was asked, and how often the answer was not 200.
    pub(crate) fn seen(&self) -> (u32, u32) {
        debug_assert_eq!(self.0.len(), 1, "the task goes on until this is dropped");
        *self.1.borrow()
    }
}

/// The processor time of a process and of its children that have ended, outside and inside of the kernel.
pub(crate) fn processor_time(pid: &str) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name of the program stands in brackets and may hold anything; what follows are numbers, of which the 12th to the
    // 15th are these times.
    let numbers = text.rsplit_once(')').map_or("", |(_, numbers)| numbers);
    let ticks: u32 =
        numbers.split_whitespace().skip(11).take(4).filter_map(|word| word.parse::<u32>().ok()).sum();
    Ok(TICK * ticks)
}
