//! `endure`: half load on PostgreSQL for some minutes, to see that vacuum keeps up.
//!
//! Each delivered notification leaves a dead row in the queue, and each commit one in the counters. The size of those tables
//! must level off; the history grows.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use posthaste::bench::load::{Letter, notification};
use tokio::time::{Instant, sleep};

use super::Setting;
use super::load::{Rig, Way};
use super::place::{Place, Store};
use super::verdict::Verdict;

/// Tables whose size must level off.
const LEVEL: [&str; 4] = ["queue", "counter", "node", "setting_version"];
/// Tables that grow with the history.
const GROWING: [&str; 3] = ["notification", "attempt", "ended"];
/// How often the tables are looked at, at most once a second.
const SAMPLES: u32 = 60;
/// Runs of at least this length use the default settings of vacuum; for shorter ones it runs every second.
const LONG: u64 = 300;
/// Upper bound on the ratio of the second half of the run to the first.
const LARGER: f64 = 1.25;
/// Dead rows below which vacuum does not run, and their size in bytes.
const SPARED: (f64, f64) = (10_000.0, 6e6);
/// A tenth of the load fails at first and is retried.
const POLICY: &str = r#","policy":{"strategy":"fixed","initialDelay":"1s","maxAttempts":3,"jitter":"none","quick":{"tries":0}}"#;

/// Dead rows and bytes of each table, in the order of the samples.
type Samples = BTreeMap<String, Vec<(f64, f64)>>;

/// Sends at half of the rate that it measured first. `--size` is the number of seconds.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    ensure!(setting.store == Store::Postgres, "vacuum is PostgreSQL's: this needs --store postgres");
    let seconds = setting.size.unwrap_or(LONG);
    let (place, mut rig, mut verdict) = (setting.place().await?, Rig::new().await?, Verdict::default());
    if seconds < LONG {
        place.sql("alter system set autovacuum_naptime = '1s'")?;
        place.sql("select pg_reload_conf()")?;
    }
    let server = setting.serve(&place).await?;
    rig.load(&[&server], &place, Way::Single).await?;
    let rate = rig.load(&[&server], &place, Way::Single).await?.rate / 2.0;
    let time = Duration::from_secs(seconds);
    let well = rig.letter(&server, Way::Single)?;
    let failing = [notification(&rig.sink.url("/sequence/503,200"), POLICY)];
    let failing = Letter::batch(&server.0.url, &server.0.key, &failing)?;
    let few = rig.sender.over(8);
    let loads = (rig.sender.pace(&well, rate * 0.9, time), few.pace(&failing, rate * 0.1, time));
    let (sent, failed, samples) = tokio::join!(loads.0, loads.1, watch(&place, time));
    let (sent, failed, samples) = (sent?, failed?, samples?);
    for failures in [&sent.failures, &failed.failures] {
        ensure!(failures.first.is_none(), "{}", failures.text().unwrap_or_default());
    }
    server.at_rest(Duration::from_secs(60)).await?;
    verdict.note("notifications a second", format!("{rate:.0}, of which a tenth fails at first"));
    verdict.note("notifications", (sent.accepted + failed.accepted).to_string());
    for table in LEVEL.iter().chain(&GROWING) {
        let seen = samples.get(*table).map_or(&[][..], Vec::as_slice);
        let dead = Halves::of(seen.iter().map(|one| one.0));
        let bytes = Halves::of(seen.iter().map(|one| one.1));
        let shown = format!(
            "{:.0} and {:.0} dead rows, {:.1} and {:.1} MB",
            dead.first,
            dead.second,
            bytes.first / 1e6,
            bytes.second / 1e6
        );
        let name = format!("{table}: most of each half");
        if LEVEL.contains(table) {
            let level = !seen.is_empty() && dead.is_level(SPARED.0) && bytes.is_level(SPARED.1);
            verdict.wanted(name, shown, "level", level);
        } else {
            verdict.note(name, shown);
        }
    }
    Ok(verdict)
}

async fn watch(place: &Place, time: Duration) -> anyhow::Result<Samples> {
    let every = (time / SAMPLES).max(Duration::from_secs(1));
    let (start, mut samples) = (Instant::now(), Samples::new());
    while start.elapsed() < time {
        sleep(every).await;
        let sql = "select relname, n_dead_tup, pg_total_relation_size(relid) from pg_stat_user_tables";
        for row in place.sql(sql)?.lines() {
            if let [name, dead, bytes] = row.split('|').collect::<Vec<_>>()[..] {
                samples.entry(name.to_owned()).or_default().push((dead.parse()?, bytes.parse()?));
            }
        }
    }
    Ok(samples)
}

/// The maximum of each half of the run.
pub(crate) struct Halves {
    pub(crate) first: f64,
    pub(crate) second: f64,
}

impl Halves {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let (first, second) = values.split_at(values.len() / 2);
        Self { first: most(first), second: most(second) }
    }

    /// Whether the second half is not much larger than the first. Growth up to `spared` is ignored.
    pub(crate) fn is_level(&self, spared: f64) -> bool {
        self.second <= self.first * LARGER + spared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_up_and_down_is_level_and_what_only_grows_is_not() {
        assert!(Halves::of((0..60).map(|at| f64::from(at % 10) * 1e5)).is_level(SPARED.0));
        assert!(!Halves::of((0..60).map(|at| f64::from(at) * 1e5)).is_level(SPARED.0));
        // Below the threshold of vacuum, growth is ignored.
        assert!(Halves::of((0..60).map(|at| f64::from(at) * 100.0)).is_level(SPARED.0));
    }
}
