//! `flows`: one tenant has work that is due in hundreds of thousands of flows; another tenant's retries must not wait for it.

use std::time::Duration;

use anyhow::bail;
use posthaste::clock::SystemClock;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock as _;
use tokio::time::sleep;

use super::Setting;
use super::fill::Waiting;
use super::neighbour::{Neighbour, Pace, sink};
use super::place::Store;
use super::server::Readiness;
use super::verdict::Verdict;

/// How late a retry of the other tenant may be.
const GOAL: Duration = Duration::from_millis(500);
/// 20 retries a second.
const PACE: Pace = Pace { count: 600, over: Duration::from_secs(30) };
/// How long before the flows become due the other tenant begins.
const BEFORE: Duration = Duration::from_secs(5);

/// Measures with a backlog from before the start, and with one that becomes due all at once.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let flows = setting.size.unwrap_or(match setting.store {
        Store::Sqlite => 400_000,
        Store::Postgres => 200_000,
    });
    let mut verdict = Verdict::default();
    for moment in [Moment::BeforeTheStart, Moment::WhileItRuns] {
        one(setting, flows, moment, &mut verdict).await?;
    }
    Ok(verdict)
}

#[derive(Clone, Copy)]
enum Moment {
    BeforeTheStart,
    WhileItRuns,
}

impl Moment {
    /// When the flows become due. What is due later is given the time that filling takes.
    fn due(self, flows: u64) -> Timestamp {
        let now = SystemClock.now();
        match self {
            Self::BeforeTheStart => now.earlier(Duration::from_secs(60)),
            Self::WhileItRuns => now.later(Duration::from_secs(30) + Duration::from_micros(100 * flows)),
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::BeforeTheStart => "due before the start",
            Self::WhileItRuns => "due at the same second",
        }
    }
}

async fn one(setting: &Setting, flows: u64, moment: Moment, verdict: &mut Verdict) -> anyhow::Result<()> {
    let (place, slow) = (setting.place().await?, sink(0).await?);
    let due = moment.due(flows);
    // A slow receiver, so that the backlog stays for as long as is measured.
    Waiting { tenant: "a", flows, rows: flows, due, to: &slow.url("/delay/1s") }.write(&place)?;
    let server = setting.serve(&place).await?;
    let (neighbour, readiness) = (Neighbour::of(&server).await?, Readiness::watch(&server)?);
    if matches!(moment, Moment::WhileItRuns) {
        let now = SystemClock.now();
        if due <= now.later(BEFORE) {
            bail!("filling took too long here: the flows are due already");
        }
        sleep(due.since(now) - BEFORE).await;
    }
    let retried = neighbour.retries(PACE).await?;
    let name = format!("{flows} flows {}", moment.words());
    verdict.below(format!("{name}: latest retry of b"), &retried.late, GOAL);
    verdict.note(format!("{name}: slowest first attempt of b"), retried.first.described());
    verdict.note(format!("{name}: attempts of a meanwhile"), slow.received().to_string());
    verdict.note(format!("{name}: most memory"), format!("{} MiB", server.peak_memory()?));
    let (asked, not) = readiness.seen();
    verdict.wanted(format!("{name}: /readyz not 200"), format!("{not} of {asked}"), "never", not == 0);
    Ok(())
}
