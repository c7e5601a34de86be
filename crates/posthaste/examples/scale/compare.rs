//! `compare`: an older build (`--binary`) and the present one, in turn, each on a store of its own.

use anyhow::ensure;

use super::load::{Measured, Rig, Way};
use super::place::Place;
use super::server::Server;
use super::verdict::{Spread, Verdict};
use super::{Setting, built};

const ROUNDS: usize = 5;
/// The share of the older build's rate that the present one has to reach.
const GOAL: f64 = 0.97;

/// One of the two builds.
struct Build {
    place: Place,
    server: Server,
}

impl Build {
    async fn start(setting: &Setting) -> anyhow::Result<Self> {
        let place = setting.place().await?;
        let server = setting.serve(&place).await?;
        Ok(Self { place, server })
    }
}

/// Loads both builds with each way of sending, round by round. Who comes first changes with each round.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let present = Setting { binary: built()?.canonicalize()?, ..*setting };
    ensure!(setting.binary != present.binary, "name the older build with --binary");
    let (mut rig, mut verdict) = (Rig::new().await?, Verdict::default());
    let builds = [Build::start(setting).await?, Build::start(&present).await?];
    let mut rounds: [Vec<[Measured; 2]>; 4] = Default::default();
    // The first round warms up and is not counted.
    for round in 0..=ROUNDS {
        for (way, measured) in Way::ALL.into_iter().zip(&mut rounds) {
            let pair = in_turn(&mut rig, &builds, way, round % 2).await?;
            let [old, new] = &pair;
            eprintln!(
                "  round {round}, {}: {:.0}/s and {:.0}/s, {:.1} µs and {:.1} µs",
                way.name(),
                old.rate,
                new.rate,
                old.server,
                new.server
            );
            measured.extend((round > 0).then_some(pair));
        }
    }
    for (way, pairs) in Way::ALL.into_iter().zip(&rounds) {
        let ratio = |figure: fn(&Measured) -> f64| {
            Spread::of(pairs.iter().map(|[old, new]| figure(new) / figure(old)).collect())
        };
        let rate = ratio(|one| one.rate);
        let met = rate.median >= GOAL;
        verdict.wanted(format!("{}: rate", way.name()), rate.shown(2), format!("at least {GOAL}"), met);
        verdict
            .note(format!("{}: processor time of the server", way.name()), ratio(|one| one.server).shown(2));
    }
    Ok(verdict)
}

/// Loads one build and then the other; returns the older one's figures first.
async fn in_turn(
    rig: &mut Rig,
    builds: &[Build; 2],
    way: Way,
    first: usize,
) -> anyhow::Result<[Measured; 2]> {
    let one = rig.load(&[&builds[first].server], &builds[first].place, way).await?;
    let other = rig.load(&[&builds[1 - first].server], &builds[1 - first].place, way).await?;
    Ok(if first == 0 { [one, other] } else { [other, one] })
}
