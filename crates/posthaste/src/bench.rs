//! The bench: measures throughput on this machine, over loopback.
//!
//! Sender and sink run in this process, the server in its own, and all share the cores. The upper limit is
//! the bare rate: the same sender and the same sink without a server between them. The stores are measured in
//! turn in each round, so that other load on the machine affects all of them alike.
//!
//! Invariant: a rate counts notifications that were accepted, arrived at the sink and were recorded as
//! delivered. The clock stops when the last of them is recorded.

pub mod database;
mod figures;
pub mod load;
mod report;
pub mod server;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use posthaste_wire::sink::{Sink, SinkOptions};
use tempfile::TempDir;

use self::database::Postgres;
use self::figures::{
    ACCEPT, ACCEPT_HALF, BARE, BATCH, Figures, HALF_LOAD, PEAK_MEMORY, SINGLE, START, Subject,
};
use self::load::{Bound, Failures, Letter, Sender, Sent, notification};
use self::report::Machine;
pub(crate) use self::report::Report;
use self::server::ServerProcess;
use crate::clock::SystemClock;

/// Maximum duration of the warm-up of a server.
const WARM_UP: Duration = Duration::from_millis(500);
/// Flows of the waiting notifications in the filled store, and notifications per batch while it is filled.
const FILLED_FLOWS: usize = 100;
/// Time within which everything is delivered and recorded once the load has ended.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

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
    /// The directory of the SQLite files, instead of that for temporary files.
    pub(crate) directory: Option<PathBuf>,
    /// PostgreSQL beside SQLite, if requested.
    pub(crate) postgres: Option<Requested>,
}

#[derive(Debug, Clone)]
pub(crate) enum Requested {
    /// A temporary server.
    Own,
    /// The database at this URL, which must be empty.
    Given(String),
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
        bench.round(round, filled.as_deref()).await?;
    }
    let Bench { machine, settings, figures, failures, postgres, .. } = bench;
    let postgres = match &postgres {
        Some(postgres) => Some(postgres.described().await?),
        None => None,
    };
    Ok(Report::new(&settings, machine, postgres, figures, failures))
}

struct Bench {
    settings: Settings,
    directory: TempDir,
    postgres: Option<Postgres>,
    machine: Machine,
    sender: Sender,
    sink: Arc<Sink>,
    figures: Figures,
    failures: Failures,
}

/// A store in a round, with its server and the requests for it.
struct Trial {
    subject: Subject,
    server: ServerProcess,
    single: Letter,
    batch: Letter,
    /// Rate of single sends.
    rate: f64,
}

impl Bench {
    async fn new(settings: Settings) -> anyhow::Result<Self> {
        let place = settings.directory.clone().unwrap_or_else(std::env::temp_dir);
        let directory = tempfile::Builder::new()
            .prefix("posthaste-bench-")
            .tempdir_in(std::path::absolute(&place)?)
            .with_context(|| format!("no store can be made in {}", place.display()))?;
        let postgres = match &settings.postgres {
            None => None,
            Some(Requested::Own) => Some(Postgres::own()?),
            Some(Requested::Given(url)) => {
                ensure!(settings.rows == 0, "--rows needs a second, empty database: use --store postgres");
                Some(Postgres::given(url).await?)
            }
        };
        let sink = SinkOptions { keep: 0, excerpt: 0, ..SinkOptions::new(Arc::new(SystemClock)) };
        Ok(Self {
            machine: Machine::look(directory.path()),
            directory,
            postgres,
            sender: Sender::new(settings.connections)?,
            sink: Arc::new(Sink::start(([127, 0, 0, 1], 0).into(), sink).await?),
            figures: Figures::default(),
            failures: Failures::default(),
            settings,
        })
    }

    /// Creates the filled store, if rows are requested: on PostgreSQL if that is measured. Returns its URL.
    async fn fill(&self, say: &dyn Fn(&str)) -> anyhow::Result<Option<String>> {
        let rows = self.settings.rows;
        if rows == 0 {
            return Ok(None);
        }
        let url = match &self.postgres {
            Some(postgres) => postgres.database("filled").await?,
            None => self.file("filled.db"),
        };
        let server = self.serve(&url).await?;
        let waiting = |number| {
            let more = format!(r#","tenant":"tenant-{}","notBefore":"365d""#, number % 10);
            notification(&format!("https://hooks-{number}.example.com/orders"), &more)
        };
        let to_sink = |path| vec![notification(&self.sink.url(path), ""); FILLED_FLOWS];
        for (kind, notifications, sink) in [
            ("waiting", (0..FILLED_FLOWS).map(waiting).collect(), None),
            ("finished", to_sink("/ok"), Some(&self.sink)),
            ("dead", to_sink("/status/400"), Some(&self.sink)),
        ] {
            say(&format!("filling: {rows} {kind}"));
            let letter = Letter::batch(&server.url, &server.key, &notifications)?;
            let bound = Bound::Requests(rows.div_ceil(letter.holds));
            let before = server.ended().await?;
            let sender = self.sender.over(self.settings.batch_connections());
            let sent = sender.flood(&[letter], bound, sink).await?;
            ensure!(sent.failures.first.is_none(), "{}", sent.failures.text().unwrap_or_default());
            if sink.is_some() {
                server.wait_for(before.0 + before.1 + sent.accepted, SETTLED_WITHIN).await?;
            }
        }
        server.stop().await?;
        if self.postgres.is_some() {
            Postgres::tidy(&url).await?;
        }
        Ok(Some(url))
    }

    /// The URL of a SQLite file.
    fn file(&self, name: &str) -> String {
        format!("sqlite://{}", self.directory.path().join(name).display())
    }

    /// Starts this program as a server.
    async fn serve(&self, store_url: &str) -> anyhow::Result<ServerProcess> {
        let program = std::env::current_exe().context("this program cannot be found")?;
        ServerProcess::start(&program, store_url, self.directory.path()).await
    }

    async fn round(&mut self, round: usize, filled: Option<&str>) -> anyhow::Result<()> {
        self.bare().await?;
        let mut stores = vec![(Subject::Sqlite, self.file(&format!("round_{round}.db")))];
        if let Some(postgres) = &self.postgres {
            stores.push((Subject::Postgres, postgres.database(&format!("round_{round}")).await?));
        }
        stores.extend(filled.map(|url| (Subject::Filled, url.to_owned())));
        let mut trials = vec![];
        for (subject, url) in stores {
            trials.push(self.begin(subject, &url).await?);
        }
        for trial in &mut trials {
            self.single(trial).await?;
        }
        for trial in &trials {
            let (rate, _) = self.load(trial, &trial.batch, self.settings.time).await?;
            self.figures.note(trial.subject, BATCH, rate);
        }
        for trial in &trials {
            self.half_load(trial).await?;
        }
        for trial in trials {
            self.figures.note(trial.subject, PEAK_MEMORY, trial.server.peak_memory()? as f64);
            trial.server.stop().await?;
        }
        std::fs::remove_file(self.directory.path().join(format!("round_{round}.db")))?;
        if let Some(postgres) = &self.postgres {
            postgres.remove(&format!("round_{round}")).await?;
        }
        Ok(())
    }

    /// Measures the bare rate: the sender against the sink.
    async fn bare(&mut self) -> anyhow::Result<()> {
        let bound = Bound::Time(self.settings.time);
        let sent = self.sender.flood(&[Letter::bare(&self.sink)?], bound, None).await?;
        let took = sent.started.elapsed();
        self.failures.add(sent.failures);
        ensure!(sent.accepted > 0, "the sink received nothing from the sender");
        self.figures.note(Subject::Machine, BARE, sent.accepted as f64 / took.as_secs_f64());
        Ok(())
    }

    /// Starts a server and warms it up.
    async fn begin(&mut self, subject: Subject, url: &str) -> anyhow::Result<Trial> {
        let server = self.serve(url).await?;
        self.figures.note(subject, START, server.started_in.as_secs_f64());
        let to = self.sink.url("/ok");
        let trial = Trial {
            subject,
            single: Letter::single(&server.url, &server.key, &to)?,
            batch: Letter::batch(
                &server.url,
                &server.key,
                &vec![notification(&to, ""); self.settings.batch],
            )?,
            rate: 0.0,
            server,
        };
        for letter in [&trial.single, &trial.batch] {
            self.load(&trial, letter, WARM_UP.min(self.settings.time)).await?;
        }
        Ok(trial)
    }

    async fn single(&mut self, trial: &mut Trial) -> anyhow::Result<()> {
        let (rate, sent) = self.load(trial, &trial.single, self.settings.time).await?;
        trial.rate = rate;
        self.figures.note(trial.subject, SINGLE, rate);
        self.figures.note_times(trial.subject, ACCEPT, sent.took);
        Ok(())
    }

    /// Runs a load, and waits until all of it is delivered and recorded. Returns the rate.
    async fn load(&mut self, trial: &Trial, letter: &Letter, time: Duration) -> anyhow::Result<(f64, Sent)> {
        let connections =
            if letter.holds == 1 { self.settings.connections } else { self.settings.batch_connections() };
        let (before, received) = (trial.server.ended().await?, self.sink.received());
        let (letters, bound) = (std::slice::from_ref(letter), Bound::Time(time));
        let sent = self.sender.over(connections).flood(letters, bound, Some(&self.sink)).await?;
        // The server is asked only when everything has arrived, because that costs it time.
        let arrived = self.sink.wait_for(received + sent.accepted);
        tokio::time::timeout(SETTLED_WITHIN, arrived).await.with_context(|| {
            format!("not all accepted notifications arrived within {} s", SETTLED_WITHIN.as_secs())
        })?;
        self.recorded(trial, before, &sent).await?;
        Ok((sent.accepted as f64 / sent.started.elapsed().as_secs_f64(), sent))
    }

    /// Waits until all accepted notifications are recorded as delivered.
    async fn recorded(&mut self, trial: &Trial, before: (u64, u64), sent: &Sent) -> anyhow::Result<()> {
        self.failures.add(sent.failures.clone());
        let failures = sent.failures.text().unwrap_or_default();
        ensure!(sent.accepted > 0, "no notification was accepted: {failures}");
        let other = trial.server.wait_for(before.0 + before.1 + sent.accepted, SETTLED_WITHIN).await?;
        ensure!(other == before.1, "{} notifications ended without delivery", other - before.1);
        Ok(())
    }

    /// Measures half of the maximum rate.
    async fn half_load(&mut self, trial: &Trial) -> anyhow::Result<()> {
        let before = trial.server.ended().await?;
        let sent = self.sender.pace(&trial.single, trial.rate / 2.0, self.settings.time).await?;
        let rate = sent.accepted as f64 / sent.started.elapsed().as_secs_f64();
        self.figures.note(trial.subject, HALF_LOAD, rate);
        self.recorded(trial, before, &sent).await?;
        self.figures.note_times(trial.subject, ACCEPT_HALF, sent.took);
        Ok(())
    }
}
