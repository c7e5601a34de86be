//! The bench: measures throughput on this machine, over loopback.
//!
//! Sender and sink run in this process, the server in its own, and all share the cores. The upper limit is
//! the bare rate: the same sender and the same sink without a server between them. The candidates are
//! measured in turn in each round, so that other load on the machine affects all of them alike.
//!
//! Invariant: a rate counts notifications that were accepted, arrived at the sink and were recorded as
//! delivered. The clock stops when the last of them is recorded.

mod child;
mod database;
mod endure;
mod figure;
mod fill;
mod letter;
mod load;
mod machine;
mod measure;
mod own;
mod place;
mod report;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use posthaste_core::channel::Channel;
use posthaste_core::flow::FlowKey;
use posthaste_wire::guard::Guard;
use posthaste_wire::sink::{Sink, SinkOptions};
use tempfile::TempDir;

use self::database::Postgres;
pub(crate) use self::endure::Endurance;
pub(crate) use self::endure::endure;
use self::figure::Figure;
use self::letter::BODY;
use self::load::Failures;
use self::machine::Machine;
use self::measure::{Node, Trial};
pub(crate) use self::place::Asked;
use self::place::{Place, Whose};
use self::report::Figures;
pub(crate) use self::report::Report;
use crate::clock::SystemClock;

/// Maximum number of accepted and not yet delivered notifications. The sender waits beyond it.
const UNDER_WAY: u64 = 2_000;
/// Of the half load, one notification in this many fails at first.
const FAILS_FIRST: u64 = 10;
/// Delay of a retry.
const PUT_OFF: Duration = Duration::from_secs(1);
/// Maximum duration of the warm-up of a server.
const WARM_UP: Duration = Duration::from_millis(500);
/// Maximum number of arrivals that are stored in one half load.
const KEEP: usize = 400_000;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Duration of each load.
    pub(crate) time: Duration,
    pub(crate) rounds: usize,
    /// Notifications of each kind (waiting, finished, dead) in the filled store; 0 for no filled store.
    pub(crate) rows: u64,
    pub(crate) connections: usize,
    /// Notifications per batch.
    pub(crate) batch: usize,
    /// The store that is measured; with `rows`, the filled one.
    pub(crate) store: Asked,
}

impl Settings {
    /// A batch is as much work as many single sends, so fewer connections keep the server busy.
    fn batch_connections(&self) -> usize {
        (self.connections / 8).max(2)
    }
}

/// `say` reports the progress.
pub(crate) async fn run(settings: Settings, say: &dyn Fn(&str)) -> anyhow::Result<Report> {
    let mut bench = Bench::new(settings).await?;
    let filled = bench.fill(say).await?;
    for round in 1..=bench.settings.rounds {
        say(&format!("round {round} of {}", bench.settings.rounds));
        bench.round(round, filled.as_ref()).await?;
    }
    let postgres = match &bench.postgres {
        Some(postgres) => Some(postgres.described().await?),
        None => None,
    };
    Ok(Report {
        postgres,
        machine: bench.machine,
        settings: bench.settings,
        figures: bench.figures,
        failures: bench.failures,
    })
}

struct Bench {
    settings: Settings,
    directory: TempDir,
    /// Whether the named store exists from an earlier run.
    was_there: bool,
    /// Measured in addition to SQLite, if requested.
    postgres: Option<Postgres>,
    machine: Machine,
    sink: Arc<Sink>,
    /// The sink for notifications that fail at first. It stores the arrivals.
    late: Sink,
    figures: Figures,
    failures: Failures,
}

impl Bench {
    async fn new(settings: Settings) -> anyhow::Result<Self> {
        let (file, rows) = (settings.store.file(), settings.rows);
        let was_there = match file {
            Some(path) => own::claim(path).await?,
            None => false,
        };
        let place = match file {
            Some(path) => std::path::absolute(path)?.parent().context("--store names no file")?.to_owned(),
            None => std::env::temp_dir(),
        };
        let directory = tempfile::Builder::new()
            .prefix("posthaste-bench-")
            .tempdir_in(&place)
            .with_context(|| format!("{} is not writable", place.display()))?;
        let postgres = match &settings.store {
            Asked::Nothing | Asked::File(_) => None,
            Asked::OwnServer => Some(Postgres::own(&[]).await?),
            Asked::Database(url) => {
                ensure!(rows == 0, "--rows compares a filled store with an empty one: use --store postgres");
                Some(Postgres::given(url).await?)
            }
        };
        let options = |keep| SinkOptions { keep, excerpt: 0, ..SinkOptions::new(Arc::new(SystemClock)) };
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Ok(Self {
            machine: Machine::look(directory.path()),
            directory,
            was_there,
            postgres,
            sink: Arc::new(Sink::start(anywhere, options(0)).await?),
            late: Sink::start(anywhere, options(KEEP)).await?,
            figures: Figures::default(),
            failures: Failures::default(),
            settings,
        })
    }

    /// Creates the filled store, if rows are requested: on PostgreSQL if that is measured.
    async fn fill(&mut self, say: &dyn Fn(&str)) -> anyhow::Result<Option<Place>> {
        let rows = self.settings.rows;
        if rows == 0 {
            return Ok(None);
        }
        let place = match (&self.postgres, self.settings.store.file()) {
            (Some(postgres), _) => Place::Database(postgres.database("filled").await?),
            (None, Some(path)) => Place::File(std::path::absolute(path)?),
            (None, None) => Place::File(self.directory.path().join("filled.db")),
        };
        if self.was_there {
            say("the store exists and is not filled again");
            return Ok(Some(place));
        }
        let guard = Guard::allowing(&["127.0.0.0/8"]).expect("the subnet is well written");
        let flow = FlowKey {
            tenant: "default".parse().expect("the name is plain and short"),
            channel: Channel::Webhook,
            destination: guard.check_url(&self.sink.url("/ok"))?.destination.into(),
        };
        let every = (rows / 20).max(1);
        let told = std::cell::Cell::new(0);
        let progress = |done: u64| {
            if done / every > told.get() || done == rows {
                told.set(done / every);
                say(&format!("filling: {done} of {rows} waiting, finished and dead"));
            }
        };
        fill::fill(&place, rows, flow, BODY, progress).await.context("the store cannot be filled")?;
        if let Place::Database(database) = &place {
            database.tidy().await?;
        }
        Ok(Some(place))
    }

    /// The stores of a round. They are empty, unless one was named to be used again.
    async fn places(&self, round: usize, filled: Option<&Place>) -> anyhow::Result<Vec<Place>> {
        let mut places = vec![match (self.settings.store.file(), filled) {
            (Some(path), None) => Place::File(std::path::absolute(path)?),
            _ => Place::File(self.directory.path().join("empty.db")),
        }];
        if let Some(postgres) = &self.postgres {
            places.push(Place::Database(postgres.database(&round_name(round)).await?));
        }
        Ok(places)
    }

    async fn round(&mut self, round: usize, filled: Option<&Place>) -> anyhow::Result<()> {
        let bare = self.bare().await?;
        let mut trials = vec![];
        for place in self.places(round, filled).await? {
            trials.push(self.begin(place).await?);
        }
        let full = match filled {
            None => None,
            Some(place) => Some(self.start_filled(place).await?),
        };
        let is_filled = |trial: &Trial| filled.is_some_and(|place| place.whose() == trial.whose());
        for trial in &mut trials {
            self.single(trial, bare).await?;
            if let Some(full) = full.as_ref().filter(|_| is_filled(trial)) {
                self.filled_single(trial, full).await?;
            }
        }
        for trial in &mut trials {
            self.batch(trial, bare).await?;
            if let Some(full) = full.as_ref().filter(|_| is_filled(trial)) {
                self.filled_batch(trial, full).await?;
            }
        }
        for trial in trials.iter_mut().filter(|trial| trial.whose() == Whose::Postgres) {
            self.two_nodes(trial).await?;
        }
        for trial in &mut trials {
            self.keyed(trial).await?;
        }
        for trial in &mut trials {
            self.half_load(trial).await?;
        }
        for trial in trials {
            self.finish(trial, round, filled).await?;
        }
        if let (Some(full), Some(place)) = (full, filled) {
            self.figures.note(place.whose(), Figure::FilledPeakMemory, full.server.peak_memory()? as f64);
            full.server.stop().await?;
            self.figures.note(place.whose(), Figure::FilledFile, place.size().await? as f64);
        }
        Ok(())
    }

    /// Starts a server on an empty store and warms it up.
    async fn begin(&mut self, place: Place) -> anyhow::Result<Trial> {
        let node = Node::start(&place, self).await?;
        self.figures.note(place.whose(), Figure::Start, node.server.started_in.as_secs_f64());
        let taken = self.warm_up(&place, &node, &[]).await?;
        Ok(Trial { place, node, taken, single: 0.0, batch: 0.0 })
    }

    async fn start_filled(&mut self, place: &Place) -> anyhow::Result<Node> {
        let node = Node::start(place, self).await?;
        self.figures.note(place.whose(), Figure::FilledStart, node.server.started_in.as_secs_f64());
        self.warm_up(place, &node, &[]).await?;
        Ok(node)
    }

    /// Stops the server and removes the stores of this round.
    async fn finish(&mut self, trial: Trial, round: usize, filled: Option<&Place>) -> anyhow::Result<()> {
        let Trial { place, node, taken, .. } = trial;
        self.figures.note(place.whose(), Figure::PeakMemory, node.server.peak_memory()? as f64);
        node.server.stop().await?;
        let size = place.size().await? as f64 / taken as f64;
        match place {
            Place::File(path) => {
                if filled.is_some() || self.settings.store.file().is_none() {
                    self.figures.note(Whose::Sqlite, Figure::FileSize, size);
                    std::fs::remove_file(path)?;
                }
            }
            Place::Database(database) => {
                drop(database);
                let own = matches!(self.settings.store, Asked::OwnServer);
                if let Some(postgres) = self.postgres.as_ref().filter(|_| own) {
                    self.figures.note(Whose::Postgres, Figure::FileSize, size);
                    postgres.remove(&round_name(round)).await?;
                }
            }
        }
        Ok(())
    }
}

fn round_name(round: usize) -> String {
    format!("round_{round}")
}
