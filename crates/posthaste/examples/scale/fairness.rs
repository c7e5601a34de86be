//! `fairness`: what a quiet tenant sees while another one makes noise at half of what the server could do: its destination hangs, it
//! has a million notifications queued, or 100,000 of its retries are due in the same second.

use std::time::Duration;

use anyhow::ensure;
use posthaste::bench::load::Letter;
use posthaste::clock::SystemClock;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock as _;
use posthaste_wire::sink::Sink;
use tokio::time::{Instant, sleep};

use super::Setting;
use super::fill::Waiting;
use super::load::{Rig, Way};
use super::neighbour::{Neighbour, Pace, sink};
use super::place::Place;
use super::verdict::{Times, Verdict, shown};

/// What the quiet tenant sends.
const PACE: Pace = Pace { count: 1_000, over: Duration::from_secs(10) };
/// How much longer its way may take, unless it takes at most a quarter longer.
const GOAL: Duration = Duration::from_millis(20);
/// The noise begins so long before it is measured.
const BEFORE: Duration = Duration::from_secs(3);
/// How long the server runs before rows become due: it starts, and the quiet tenant is measured alone.
const LEAD: Duration = Duration::from_secs(20);
/// The destination that rows in bulk go to, by its name.
const NOISY: &str = "http://0.example.com:80";

/// What the noisy tenant does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Noise {
    Hanging,
    Queue,
    Retries,
}

impl Noise {
    const ALL: [Self; 3] = [Self::Hanging, Self::Queue, Self::Retries];

    /// How many rows it has, and in which lane.
    fn rows(self, size: Option<u64>) -> (u64, Lane) {
        match self {
            Self::Hanging => (0, Lane::Main),
            Self::Queue => (size.unwrap_or(1_000_000), Lane::Main),
            Self::Retries => (size.unwrap_or(100_000), Lane::Retry),
        }
    }

    fn name(self, size: Option<u64>) -> String {
        let (rows, _) = self.rows(size);
        match self {
            Self::Hanging => "a destination that hangs".to_owned(),
            Self::Queue => format!("{rows} queued"),
            Self::Retries => format!("{rows} retries due in one second"),
        }
    }
}

/// Measures the quiet tenant alone and beside each noise.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let (mut verdict, mut rig) = (Verdict::default(), Rig::new().await?);
    let capacity = {
        let place = setting.place().await?;
        let server = setting.serve(&place).await?;
        rig.load(&[&server], &place, Way::Single).await?.rate
    };
    verdict.note("what the server can do, a second", format!("{capacity:.0}"));
    for noise in Noise::ALL {
        one(setting, &rig, noise, capacity / 2.0, &mut verdict).await?;
    }
    Ok(verdict)
}

async fn one(
    setting: &Setting,
    rig: &Rig,
    noise: Noise,
    rate: f64,
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    let (place, receiver) = (setting.place().await?, sink(0).await?);
    let due = fill(&place, &receiver, noise, setting.size, rate)?;
    let server = setting.serve(&place).await?;
    let neighbour = Neighbour::of(&server).await?;
    let alone = neighbour.sends(PACE).await?;
    let (beside, noisy) = if noise == Noise::Hanging {
        let letter = Letter::single(&server.0.url, &server.key_for("a").await?, &receiver.url("/hang"))?;
        let load = rig.sender.pace(&letter, rate, BEFORE + PACE.over + Duration::from_secs(1));
        let quiet = async {
            sleep(BEFORE).await;
            neighbour.sends(PACE).await
        };
        let (sent, beside) = tokio::join!(load, quiet);
        (beside?, format!("{} accepted, {} tried", sent?.accepted, receiver.received()))
    } else {
        let left = due.as_micros().saturating_sub(SystemClock.now().as_micros());
        ensure!(left > 0, "the rows were due before the quiet tenant was measured alone");
        sleep(Duration::from_micros(u64::try_from(left)?) + Duration::from_secs(1)).await;
        let (begun, before) = (Instant::now(), receiver.received());
        let beside = neighbour.sends(PACE).await?;
        let arrived = receiver.received() - before;
        (beside, format!("{:.0} a second", arrived as f64 / begun.elapsed().as_secs_f64()))
    };
    told(verdict, &noise.name(setting.size), (&alone, &beside), &noisy, rate);
    receiver.stop().await;
    Ok(())
}

fn told(verdict: &mut Verdict, name: &str, (alone, beside): (&Times, &Times), noisy: &str, rate: f64) {
    let (before, during) = (alone.quantile(0.99), beside.quantile(0.99));
    let goal = before.mul_f64(1.25).max(before + GOAL);
    verdict.note(format!("{name}: the noise, at most {rate:.0} a second"), noisy);
    verdict.note(format!("{name}: b's send to arrival, alone"), alone.described());
    verdict.wanted(
        format!("{name}: b's send to arrival, meanwhile"),
        beside.described(),
        format!("p99 at most {}", shown(goal)),
        beside.is_complete() && during <= goal,
    );
}

/// Writes the rows of the noisy tenant and the limit of their destination. Returns when they are due.
fn fill(
    place: &Place,
    receiver: &Sink,
    noise: Noise,
    size: Option<u64>,
    rate: f64,
) -> anyhow::Result<Timestamp> {
    let (rows, lane) = noise.rows(size);
    if rows == 0 {
        return Ok(SystemClock.now());
    }
    let limit = format!("[destinations.\"{NOISY}\"]\nrate = {rate:.0}\n");
    std::fs::write(place.directory().join("posthaste.toml"), limit)?;
    // A million rows take a while to be written.
    let writing = Duration::from_millis(rows / 20);
    let due = SystemClock.now().later(LEAD + writing);
    Waiting { tenant: "a", flows: 1, rows, due, to: &receiver.url("/ok") }.write_in(lane, place)?;
    Ok(due)
}
