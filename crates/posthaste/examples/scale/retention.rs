//! `retention`: the store levels off under load while rows are removed, and removing them costs little of the rate.
//!
//! Periods are seconds, and the job `retention` is asked for all the time, so that as much is removed as comes.

use std::time::Duration;

use anyhow::ensure;
use posthaste::client::Client;
use tokio::time::{Instant, sleep};

use super::Setting;
use super::endure::Halves;
use super::load::{Rig, Way};
use super::place::{Place, Store};
use super::server::Server;
use super::verdict::{Spread, Verdict};

/// How long rows are kept.
const KEPT: &str = "[retention]\nattempts = \"5s\"\ndelivered = \"10s\"\nfailed = \"10s\"\n";
/// How often the job is asked for.
const RUN: Duration = Duration::from_millis(500);
/// How many seconds the load takes, if nothing else is said.
const SECONDS: u64 = 120;
/// How often the rate is measured with and without removal.
const ROUNDS: usize = 5;
/// The share of the rate that has to be left while rows are removed.
const LEAST: f64 = 0.9;
/// Growth in bytes that is ignored: pages and blocks are used again a little later than they are freed.
const SPARED: f64 = 8e6;

/// Sends at half of the rate that it measured first. `--size` is the number of seconds.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let place = setting.place().await?;
    std::fs::write(place.directory().join("posthaste.toml"), KEPT)?;
    if setting.store == Store::Postgres {
        place.sql("alter system set autovacuum_naptime = '1s'")?;
        place.sql("select pg_reload_conf()")?;
    }
    let (mut rig, mut verdict, server) =
        (Rig::new().await?, Verdict::default(), setting.serve(&place).await?);
    rig.load(&[&server], &place, Way::Single).await?;
    compare(&mut rig, &server, &place, &mut verdict).await?;
    let rate = rig.load(&[&server], &place, Way::Single).await?.rate / 2.0;
    let time = Duration::from_secs(setting.size.unwrap_or(SECONDS));
    let letter = rig.letter(&server, Way::Single)?;
    let sizes = async {
        tokio::select! { sizes = watch(&place, time) => sizes, never = remove(server.admin()?) => never }
    };
    let (sent, sizes) = tokio::join!(rig.sender.pace(&letter, rate, time), sizes);
    let (sent, sizes) = (sent?, sizes?);
    ensure!(sent.failures.first.is_none(), "{}", sent.failures.text().unwrap_or_default());
    server.at_rest(Duration::from_secs(60)).await?;
    verdict.note("notifications", format!("{}, {rate:.0} a second", sent.accepted));
    let halves = Halves::of(sizes.iter().copied());
    let shown = format!("{:.1} and {:.1} MB", halves.first / 1e6, halves.second / 1e6);
    verdict.wanted("size: most of each half", shown, "level", halves.is_level(SPARED));
    let metrics = server.admin()?.get("/metrics").await?;
    for line in String::from_utf8_lossy(&metrics.body).lines() {
        if let Some(of) =
            line.strip_prefix("posthaste_retention_removed_total").filter(|of| !of.ends_with(" 0"))
        {
            verdict.note("removed", of.to_owned());
        }
    }
    Ok(verdict)
}

/// The rate with removal, as a share of the rate without it, in turns.
async fn compare(rig: &mut Rig, server: &Server, place: &Place, verdict: &mut Verdict) -> anyhow::Result<()> {
    let (mut without, mut with, mut shares) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        // What it removes later comes from here and from the rounds before.
        let alone = rig.load(&[server], place, Way::Single).await?.rate;
        sleep(Duration::from_secs(8)).await;
        let servers = [server];
        let both = tokio::select! {
            loaded = rig.load(&servers, place, Way::Single) => loaded?.rate,
            never = remove(server.admin()?) => never?,
        };
        without.push(alone);
        with.push(both);
        shares.push(both / alone);
    }
    verdict.note("a second without removal", Spread::of(without).shown(0));
    verdict.note("a second with it", Spread::of(with).shown(0));
    let share = Spread::of(shares);
    verdict.wanted("share of the rate", share.shown(2), format!("at least {LEAST}"), share.median >= LEAST);
    Ok(())
}

/// Asks for the job again and again. Returns only an error.
async fn remove<T>(admin: Client) -> anyhow::Result<T> {
    loop {
        // While a run is under way this is refused.
        admin.post("/v1/jobs/retention/run", &serde_json::json!({})).await?;
        sleep(RUN).await;
    }
}

/// The size of the store, each second.
async fn watch(place: &Place, time: Duration) -> anyhow::Result<Vec<f64>> {
    let (start, mut sizes) = (Instant::now(), vec![]);
    while start.elapsed() < time {
        sleep(Duration::from_secs(1)).await;
        sizes.push(place.size()? as f64);
    }
    Ok(sizes)
}
