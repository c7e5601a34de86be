//! `streams`: what 500 open streams cost: of the counters, and of a tenant to which nothing happens.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use posthaste::client::{Client, Opened};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Setting;
use super::load::{Measured, Rig, Way};
use super::server::Server;
use super::verdict::{Spread, Verdict};

const ROUNDS: usize = 5;
const STREAMS: u64 = 500;
/// The tenant to which nothing happens. The load is that of another one.
const QUIET: &str = "quiet";
/// How long a server is left alone before its memory is read.
const SETTLES: Duration = Duration::from_secs(5);
/// How long its processor time is watched.
const WATCHED: Duration = Duration::from_secs(20);
/// How long all streams together may take to open.
const PATIENCE: Duration = Duration::from_secs(60);
const MEMORY_GOAL: f64 = 30.0;
const RATE_GOAL: f64 = 0.97;

/// What the streams show.
#[derive(Clone, Copy)]
enum Kind {
    Counters,
    QuietTenant,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Counters, Self::QuietTenant];

    const fn name(self) -> &'static str {
        match self {
            Self::Counters => "counters",
            Self::QuietTenant => "one quiet tenant",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Counters => "/v1/stream?events=stats",
            Self::QuietTenant => "/v1/stream?events=notification",
        }
    }

    /// Opens that many streams, which are read until the answer is dropped.
    async fn open(self, server: &Server, streams: u64) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
        let client = match self {
            Self::Counters => server.admin()?,
            Self::QuietTenant => server.client(&server.key_for(QUIET).await?)?,
        };
        let (client, opened, mut readers) = (Arc::new(client), Arc::new(Semaphore::new(0)), JoinSet::new());
        for _ in 0..streams {
            readers.spawn(read(client.clone(), self.path(), opened.clone()));
        }
        let all = u32::try_from(streams)?;
        let _ =
            timeout(PATIENCE, opened.acquire_many(all)).await.context("not all streams were opened")??;
        Ok(readers)
    }
}

/// Reads a stream to its end, which does not come.
async fn read(client: Arc<Client>, path: &str, opened: Arc<Semaphore>) -> anyhow::Result<()> {
    let mut events = match client.open(path, &[]).await? {
        Opened::Events(events) => events,
        Opened::Answer(answer) => bail!("no stream: {}", String::from_utf8_lossy(&answer.body)),
    };
    events.next().await?;
    opened.add_permits(1);
    while events.next().await?.is_some() {}
    Ok(())
}

/// Measures the memory on a server that has done nothing else, and the rate with and without streams in turn.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let (streams, mut verdict) = (setting.size.unwrap_or(STREAMS), Verdict::default());
    for kind in Kind::ALL {
        let place = setting.place().await?;
        let server = setting.serve(&place).await?;
        let (before, idle) = (memory(&server).await?, share(&server).await?);
        let readers = kind.open(&server, streams).await?;
        let (more, busy) = (memory(&server).await? - before, share(&server).await? - idle);
        drop(readers);
        let name = format!("{streams} streams, {}", kind.name());
        let goal = format!("under {MEMORY_GOAL} MB");
        verdict.wanted(format!("{name}: memory"), format!("{more:.1} MB"), goal, more < MEMORY_GOAL);
        let millis = format!("{:.1} ms", busy * 1_000.0);
        verdict.note(format!("{name}: processor time a second, without a load"), millis);
    }
    for way in [Way::Single, Way::Batch] {
        rates(setting, way, streams, &mut verdict).await?;
    }
    Ok(verdict)
}

/// In megabytes, once it has settled.
async fn memory(server: &Server) -> anyhow::Result<f64> {
    sleep(SETTLES).await;
    Ok(server.0.proc("status", "VmRSS:")? as f64 * 1024.0 / 1e6)
}

/// The share of one core that it takes, with nothing to do but its streams.
async fn share(server: &Server) -> anyhow::Result<f64> {
    let used = server.processor_time()?;
    sleep(WATCHED).await;
    Ok(server.processor_time()?.saturating_sub(used).as_secs_f64() / WATCHED.as_secs_f64())
}

/// Without streams before and after those with them, so that slow changes of the machine affect both alike.
async fn rates(setting: &Setting, way: Way, streams: u64, verdict: &mut Verdict) -> anyhow::Result<()> {
    let (place, mut rig) = (setting.place().await?, Rig::new().await?);
    let server = setting.serve(&place).await?;
    let mut rounds: [Vec<(Measured, Measured, Measured)>; 2] = Default::default();
    // The first round warms up and is not counted.
    for round in 0..=ROUNDS {
        for (kind, measured) in Kind::ALL.into_iter().zip(&mut rounds) {
            let before = rig.load(&[&server], &place, way).await?;
            let readers = kind.open(&server, streams).await?;
            let with = rig.load(&[&server], &place, way).await?;
            drop(readers);
            let after = rig.load(&[&server], &place, way).await?;
            eprintln!(
                "  round {round}, {}, {}: {:.0}/s before, {:.0}/s with, {:.0}/s after",
                way.name(),
                kind.name(),
                before.rate,
                with.rate,
                after.rate
            );
            measured.extend((round > 0).then_some((before, with, after)));
        }
    }
    for (kind, rounds) in Kind::ALL.into_iter().zip(&rounds) {
        let ratio = |of: fn(&Measured) -> f64| {
            let one = |(before, with, after): &(Measured, Measured, Measured)| {
                of(with) * 2.0 / (of(before) + of(after))
            };
            Spread::of(rounds.iter().map(one).collect())
        };
        let name = format!("{}, {streams} streams, {}", way.name(), kind.name());
        let (rate, time) = (ratio(|one| one.rate), ratio(|one| one.server + one.database));
        verdict.note(format!("{name}: processor time of server and database, to none"), time.shown(3));
        let met = rate.median >= RATE_GOAL;
        verdict.wanted(format!("{name}: rate to none"), rate.shown(3), format!("at least {RATE_GOAL}"), met);
    }
    Ok(())
}
