//! `costs`: what one notification costs, by the way it is sent, and how late retries are at half load.

use std::time::Duration;

use anyhow::ensure;

use super::Setting;
use super::load::{Measured, Rig, Way};
use super::neighbour::{Neighbour, Pace};
use super::verdict::{Spread, Verdict};

const ROUNDS: usize = 5;
/// How many retries are measured, over how long.
const RETRIES: Pace = Pace { count: 500, over: Duration::from_secs(5) };
const GOAL: Duration = Duration::from_millis(100);

/// Measures all ways of sending in turn, in several rounds.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let (place, mut rig, mut verdict) = (setting.place().await?, Rig::new().await?, Verdict::default());
    let server = setting.serve(&place).await?;
    let (mut bare, mut accepted) = (vec![], 0);
    let mut rounds: [Vec<Measured>; 4] = Default::default();
    // The first round warms up and is not counted.
    for round in 0..=ROUNDS {
        let alone = rig.bare().await?;
        for (way, measured) in Way::ALL.into_iter().zip(&mut rounds) {
            let one = rig.load(&[&server], &place, way).await?;
            accepted += one.accepted;
            eprintln!("  round {round}, {}: {:.0}/s, {:.1} µs", way.name(), one.rate, one.server);
            measured.extend((round > 0).then_some(one));
        }
        bare.extend((round > 0).then_some(alone));
    }
    verdict.note("bare: requests a second", Spread::of(bare.iter().map(|one| one.0).collect()).shown(0));
    verdict
        .note("bare: processor time each, µs", Spread::of(bare.iter().map(|one| one.1).collect()).shown(1));
    for (way, measured) in Way::ALL.into_iter().zip(&rounds) {
        let of = |figure: fn(&Measured) -> f64| Spread::of(measured.iter().map(figure).collect());
        let ratios = measured.iter().zip(&bare).map(|(one, bare)| one.rate / bare.0).collect();
        for (what, spread, digits) in [
            ("notifications a second", of(|one| one.rate), 0),
            ("rate to bare", Spread::of(ratios), 3),
            ("processor time of the server each, µs", of(|one| one.server), 1),
            ("processor time of the database each, µs", of(|one| one.database), 1),
            ("processor time of sender and receiver each, µs", of(|one| one.others), 1),
            ("bytes to disk by the server each", of(|one| one.written), 0),
            ("bytes of PostgreSQL's log each", of(|one| one.wal), 0),
        ] {
            if spread.median > 0.0 {
                verdict.note(format!("{}: {what}", way.name()), spread.shown(digits));
            }
        }
    }
    verdict.note("bytes of the store each", format!("{:.0}", place.size()? as f64 / accepted as f64));
    verdict.note("most memory of the server", format!("{} MiB", server.peak_memory()?));
    let rate = Spread::of(rounds[0].iter().map(|one| one.rate).collect()).median / 2.0;
    let (neighbour, letter) = (Neighbour::of(&server).await?, rig.letter(&server, Way::Single)?);
    let load = rig.sender.pace(&letter, rate, RETRIES.over + Duration::from_secs(2));
    let (sent, retried) = tokio::join!(load, neighbour.retries(RETRIES));
    let failures = sent?.failures;
    ensure!(failures.first.is_none(), "{}", failures.text().unwrap_or_default());
    let (name, late) = (format!("retries at half load ({rate:.0}/s): lateness"), retried?.late);
    let met = late.is_complete() && late.quantile(0.99) < GOAL;
    verdict.wanted(name, late.described(), format!("p99 under {} ms", GOAL.as_millis()), met);
    Ok(verdict)
}
