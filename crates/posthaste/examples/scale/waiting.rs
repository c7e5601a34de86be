//! `waiting`: millions of notifications wait for a day far away; a server that has nothing to do must do nothing.

use std::time::Duration;

use posthaste::clock::SystemClock;
use posthaste_engine::clock::Clock as _;
use tokio::time::{Instant, sleep};

use super::Setting;
use super::fill::{FAR, Waiting};
use super::neighbour::{Neighbour, Pace};
use super::verdict::Verdict;

/// How long the server is left alone after its start, and how long it is then watched.
const SETTLE: Duration = Duration::from_secs(10);
const WATCHED: Duration = Duration::from_secs(20);
/// The most of a core that an idle server may take, in percent.
const GOAL: f64 = 1.0;
/// How late a retry may be meanwhile.
const LATE: Duration = Duration::from_millis(100);
const PACE: Pace = Pace { count: 400, over: Duration::from_secs(20) };

/// Measures with the rows spread over a hundred flows, and all of them in one.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let rows = setting.size.unwrap_or(3_000_000);
    let mut verdict = Verdict::default();
    for flows in [100, 1] {
        one(setting, rows, flows, &mut verdict).await?;
    }
    Ok(verdict)
}

async fn one(setting: &Setting, rows: u64, flows: u64, verdict: &mut Verdict) -> anyhow::Result<()> {
    let place = setting.place().await?;
    let due = SystemClock.now().later(FAR);
    Waiting { tenant: "a", flows, rows, due, to: "http://127.0.0.1:9/" }.write(&place)?;
    let server = setting.serve(&place).await?;
    sleep(SETTLE).await;
    let (begun, own, database) = (Instant::now(), server.processor_time()?, place.processor_time()?);
    sleep(WATCHED).await;
    let share = |used: Duration| 100.0 * used.as_secs_f64() / begun.elapsed().as_secs_f64();
    let (own, database) = (share(server.processor_time()? - own), share(place.processor_time()? - database));
    let name = format!("{rows} waiting in {flows} flow{}", if flows == 1 { "" } else { "s" });
    let seen = format!("{own:.1} %, the database {database:.1} %");
    verdict.wanted(
        format!("{name}: of a core while idle"),
        seen,
        format!("under {GOAL} %"),
        own + database < GOAL,
    );
    let retried = Neighbour::of(&server).await?.retries(PACE).await?;
    verdict.below(format!("{name}: latest retry of b"), &retried.late, LATE);
    verdict.note(format!("{name}: most memory"), format!("{} MiB", server.peak_memory()?));
    Ok(())
}
