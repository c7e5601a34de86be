//! A longer run on PostgreSQL at half load, to check that vacuum keeps up.
//!
//! Each delivered notification leaves a dead row in the queue, and each commit one in the counters. The size
//! of those tables must level off; the history grows.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::child::{ended, wait_for};
use super::database::{Database, Postgres};
use super::load::pace;
use super::measure::Node;
use super::place::Place;
use super::{Asked, Bench, FAILS_FIRST, PUT_OFF, Settings};

/// Tables whose size must level off.
const LEVEL: [&str; 4] = ["queue", "counter", "node", "setting_version"];
/// Tables that grow with the history.
const GROWING: [&str; 3] = ["notification", "attempt", "ended"];
/// Maximum number of samples, at most one per second.
const SAMPLES: u32 = 60;
/// Runs of at least this length use the default settings of vacuum; for shorter ones it runs every second.
const LONG: Duration = Duration::from_secs(300);
/// Maximum ratio of the second half of the run to the first.
const LARGER: f64 = 1.25;
/// Dead rows below which vacuum does not run (`autovacuum_vacuum_threshold`), and their size in bytes.
const SPARED: (f64, f64) = (10_000.0, 6e6);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Look {
    dead: f64,
    bytes: f64,
}

struct Sample {
    at: Duration,
    tables: BTreeMap<String, Look>,
}

pub(crate) struct Endurance {
    postgres: String,
    /// Notifications per second.
    rate: f64,
    taken: u64,
    samples: Vec<Sample>,
}

/// Sends at half the maximum rate for that time, and samples the tables.
pub(crate) async fn endure(
    settings: Settings,
    time: Duration,
    say: &dyn Fn(&str),
) -> anyhow::Result<Endurance> {
    let mut bench = Bench::new(Settings { store: Asked::Nothing, ..settings.clone() }).await?;
    let often: &[&str] = if time < LONG { &["autovacuum_naptime = 1s"] } else { &[] };
    bench.postgres = Some(match &settings.store {
        Asked::Database(url) => Postgres::given(url).await?,
        Asked::Nothing | Asked::File(_) | Asked::OwnServer => Postgres::own(often).await?,
    });
    let postgres = bench.postgres.as_ref().expect("it was just put there");
    let (described, database) = (postgres.described().await?, postgres.database("endurance").await?);
    let place = Place::Database(database);
    let node = Node::start(&place, &bench).await?;
    bench.warm_up(&place, &node, &[]).await?;
    let rate = bench.rate(&place, &node).await? / 2.0;
    say(&format!("{rate:.0} notifications a second for {} s", time.as_secs()));
    let before = ended(&[&node.server]).await?;
    let Place::Database(database) = &place else { unreachable!("it was made as one") };
    let both = (&node.letters.single, &node.letters.fails_first);
    let load = pace(node.server.address, settings.connections, both, FAILS_FIRST, rate, (time, PUT_OFF));
    let (sent, samples) = tokio::join!(load, watch(database, time, say));
    let (sent, samples) = (sent?, samples?);
    let failures = &sent.failures;
    ensure!(
        failures.refused + failures.broken == 0,
        "{} requests failed; the first: {}",
        failures.refused + failures.broken,
        failures.first.as_deref().unwrap_or_default()
    );
    wait_for(&[&node.server], before.0 + before.1 + sent.taken).await?;
    node.server.stop().await?;
    Ok(Endurance { postgres: described, rate, taken: sent.taken, samples })
}

async fn watch(database: &Database, time: Duration, say: &dyn Fn(&str)) -> anyhow::Result<Vec<Sample>> {
    let every = (time / SAMPLES).max(Duration::from_secs(1));
    let start = Instant::now();
    let mut samples = vec![];
    while start.elapsed() < time {
        tokio::time::sleep(every).await;
        let sample = Sample { at: start.elapsed(), tables: look(database).await? };
        if let Some(queue) = sample.tables.get("queue") {
            let (at, Look { dead, bytes }) = (sample.at.as_secs(), queue);
            say(&format!("{at} s: queue {:.1} MB, {dead} dead rows", bytes / 1e6));
        }
        samples.push(sample);
    }
    Ok(samples)
}

async fn look(database: &Database) -> anyhow::Result<BTreeMap<String, Look>> {
    let sql = "select relname, n_dead_tup, pg_total_relation_size(relid) from pg_stat_user_tables";
    let mut tables = BTreeMap::new();
    for row in database.probe.rows(sql).await? {
        if let [name, dead, bytes] = &row[..]
            && (LEVEL.contains(&name.as_str()) || GROWING.contains(&name.as_str()))
        {
            tables.insert(name.clone(), Look { dead: dead.parse()?, bytes: bytes.parse()? });
        }
    }
    Ok(tables)
}

/// The maximum of each half of the run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Halves {
    first: f64,
    second: f64,
}

impl Halves {
    fn of(values: &[f64]) -> Self {
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let (first, second) = values.split_at(values.len() / 2);
        Self { first: most(first), second: most(second) }
    }

    /// Whether the second half is not much larger than the first. Growth up to `spared` is ignored.
    fn is_level(self, spared: f64) -> bool {
        self.second <= self.first * LARGER + spared
    }
}

impl Endurance {
    fn halves(&self, table: &str, pick: fn(&Look) -> f64) -> Halves {
        let looks = self.samples.iter().filter_map(|sample| sample.tables.get(table));
        Halves::of(&looks.map(pick).collect::<Vec<_>>())
    }

    fn is_level(&self, table: &str) -> bool {
        let (dead, bytes) = (self.halves(table, |look| look.dead), self.halves(table, |look| look.bytes));
        dead.is_level(SPARED.0) && bytes.is_level(SPARED.1)
    }

    pub(crate) fn json(&self) -> Value {
        let series = |table: &str, pick: fn(&Look) -> f64| -> Vec<f64> {
            self.samples.iter().filter_map(|sample| sample.tables.get(table)).map(pick).collect()
        };
        let tables = LEVEL.iter().chain(&GROWING).map(|table| {
            let mut shown = json!({
                "deadRows": series(table, |look| look.dead), "bytes": series(table, |look| look.bytes),
            });
            if LEVEL.contains(table) {
                shown["level"] = json!(self.is_level(table));
            }
            ((*table).to_owned(), shown)
        });
        json!({
            "postgres": self.postgres,
            "rate": self.rate,
            "notifications": self.taken,
            "seconds": self.samples.iter().map(|sample| sample.at.as_secs_f64()).collect::<Vec<_>>(),
            "tables": tables.collect::<serde_json::Map<_, _>>(),
        })
    }

    pub(crate) fn machine(&self) -> String {
        format!("{}\n{} notifications, {:.0} a second", self.postgres, self.taken, self.rate)
    }

    /// Columns: table, maximum dead rows and megabytes of each half, verdict.
    pub(crate) fn lines(&self) -> Vec<[String; 6]> {
        let line = |table: &&str| {
            let dead = self.halves(table, |look| look.dead);
            let bytes = self.halves(table, |look| look.bytes);
            let verdict = match (LEVEL.contains(table), self.is_level(table)) {
                (false, _) => "grows with the history",
                (true, true) => "level",
                (true, false) => "NOT LEVEL",
            };
            let megabytes = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
            [
                (*table).to_owned(),
                format!("{:.0}", dead.first),
                format!("{:.0}", dead.second),
                megabytes(bytes.first),
                megabytes(bytes.second),
                verdict.to_owned(),
            ]
        };
        LEVEL.iter().chain(&GROWING).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_up_and_down_is_level_and_what_only_grows_is_not() {
        let saw: Vec<f64> = (0..60).map(|at| f64::from(at % 10) * 1e5).collect();
        assert!(Halves::of(&saw).is_level(SPARED.0));
        let growing: Vec<f64> = (0..60).map(|at| f64::from(at) * 1e5).collect();
        assert!(!Halves::of(&growing).is_level(SPARED.0));
        // Below the threshold of vacuum, growth is ignored.
        let small: Vec<f64> = (0..60).map(|at| f64::from(at) * 100.0).collect();
        assert!(Halves::of(&small).is_level(SPARED.0));
    }
}
