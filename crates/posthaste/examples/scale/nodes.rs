//! `nodes`: two nodes on one PostgreSQL, with half of the connections to each, compared with one node.

use anyhow::ensure;

use super::Setting;
use super::load::{Measured, Rig, Way};
use super::place::Store;
use super::verdict::{Spread, Verdict};

const ROUNDS: usize = 5;
const GOAL: f64 = 0.95;

/// Measures one node before and after two, in each round, so that slow changes of the machine affect both alike.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    ensure!(setting.store == Store::Postgres, "nodes share a database: this needs --store postgres");
    let (place, mut rig, mut verdict) = (setting.place().await?, Rig::new().await?, Verdict::default());
    let first = setting.serve(&place).await?;
    let ways = [Way::Single, Way::Batch];
    let (mut ratios, mut rates, mut times) = ([vec![], vec![]], [vec![], vec![]], [vec![], vec![]]);
    let micros = |one: &Measured| one.server + one.database + one.others;
    // The first round warms up and is not counted.
    for round in 0..=ROUNDS {
        let mut before = vec![];
        for way in ways {
            before.push(rig.load(&[&first], &place, way).await?);
        }
        let second = setting.serve(&place).await?;
        rig.load(&[&second], &place, Way::Single).await?;
        let mut both = vec![];
        for way in ways {
            both.push(rig.load(&[&first, &second], &place, way).await?);
        }
        second.0.stop().await?;
        for (at, way) in ways.into_iter().enumerate() {
            let after = rig.load(&[&first], &place, way).await?;
            let ratio = both[at].rate * 2.0 / (before[at].rate + after.rate);
            eprintln!("  round {round}, {}: {ratio:.2}", way.name());
            if round > 0 {
                ratios[at].push(ratio);
                rates[at].push(both[at].rate);
                times[at].push(micros(&both[at]) / micros(&before[at]));
            }
        }
    }
    for (at, way) in ways.into_iter().enumerate() {
        let name = way.name();
        let [ratio, rate, time] = [&ratios, &rates, &times].map(|of| Spread::of(of[at].clone()));
        verdict.note(format!("{name}: two nodes, notifications a second"), rate.shown(0));
        verdict.note(format!("{name}: processor time of all programs, two nodes to one"), time.shown(2));
        let met = ratio.median >= GOAL;
        verdict.wanted(format!("{name}: two nodes to one"), ratio.shown(2), format!("at least {GOAL}"), met);
    }
    Ok(verdict)
}
