//! The bench: what this machine can do, in one run on loopback.
//!
//! Sender and sink are in this process, the server is a process of its own, and all share the cores. The limit is the
//! bare rate: the same sender against the same sink, without a server between them. What is compared takes turns in
//! each round, so that what else the machine does meets all of it alike.
//!
//! Invariant: a rate counts notifications that were acknowledged, arrived at the sink and are recorded as delivered;
//! the clock stops when the last of them is recorded.

mod child;
mod fill;
mod letter;
mod load;
mod machine;
mod own;
mod report;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use posthaste_core::channel::Channel;
use posthaste_core::flow::FlowKey;
use posthaste_wire::guard::Guard;
use posthaste_wire::sink::{Sink, SinkOptions};
use tempfile::TempDir;

use self::child::{ServerProcess, processor_time};
use self::letter::{BODY, Letters};
use self::load::{Bound, Failures, Sent, flood, pace};
use self::machine::Machine;
pub(crate) use self::report::Report;
use self::report::{Figure, Figures};
use crate::clock::SystemClock;

/// How many notifications may be taken and not yet delivered before the sender waits.
const UNDER_WAY: u64 = 2_000;
/// One in so many sends of the half load fails at first.
const FAILS_FIRST: u64 = 10;
/// How long a retry is put off.
const PUT_OFF: Duration = Duration::from_secs(1);
/// How long a server is used before it is measured, at most.
const WARM_UP: Duration = Duration::from_millis(500);
/// The most arrivals of one half load that are remembered.
const KEEP: usize = 400_000;

/// What is measured.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How long each load lasts.
    pub(crate) time: Duration,
    /// How often everything is measured.
    pub(crate) rounds: usize,
    /// Notifications of each kind (waiting, finished, dead) in the store that is compared to the empty one; 0 for none.
    pub(crate) rows: u64,
    /// Connections of the sender.
    pub(crate) connections: usize,
    /// Notifications in a batch.
    pub(crate) batch: usize,
    /// The file of the store that is measured, or where rows are asked for of the filled one.
    pub(crate) store: Option<PathBuf>,
}

impl Settings {
    /// A batch is worth many single sends, so it takes fewer connections to keep the server busy.
    fn batch_connections(&self) -> usize {
        (self.connections / 8).max(2)
    }
}

/// Measures everything. `say` is told what is under way.
pub(crate) async fn run(settings: Settings, say: &dyn Fn(&str)) -> anyhow::Result<Report> {
    let mut bench = Bench::new(settings).await?;
    let filled = bench.fill(say).await?;
    for round in 1..=bench.settings.rounds {
        say(&format!("round {round} of {}", bench.settings.rounds));
        bench.round(filled.as_deref()).await?;
    }
    Ok(Report {
        machine: bench.machine,
        settings: bench.settings,
        figures: bench.figures,
        failures: bench.failures,
    })
}

struct Bench {
    settings: Settings,
    directory: TempDir,
    /// Whether the named store was there before, from an earlier run.
    was_there: bool,
    machine: Machine,
    sink: Arc<Sink>,
    /// Where what fails at first goes; it remembers when what came.
    late: Sink,
    figures: Figures,
    failures: Failures,
}

/// What one load on a server gave.
struct Measured {
    rate: f64,
    sent: Sent,
    written: f64,
    /// Processor time for each notification, of the server and of sender and sink, in microseconds.
    time: (f64, f64),
}

impl Bench {
    async fn new(settings: Settings) -> anyhow::Result<Self> {
        let was_there = match &settings.store {
            Some(path) => own::claim(path).await?,
            None => false,
        };
        let place = match &settings.store {
            Some(path) => std::path::absolute(path)?.parent().context("--store names no file")?.to_owned(),
            None => std::env::temp_dir(),
        };
        let directory = tempfile::Builder::new()
            .prefix("posthaste-bench-")
            .tempdir_in(&place)
            .with_context(|| format!("{} cannot be written to", place.display()))?;
        let options = |keep| SinkOptions { keep, excerpt: 0, ..SinkOptions::new(Arc::new(SystemClock)) };
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Ok(Self {
            machine: Machine::look(directory.path()),
            directory,
            was_there,
            sink: Arc::new(Sink::start(anywhere, options(0)).await?),
            late: Sink::start(anywhere, options(KEEP)).await?,
            figures: Figures::default(),
            failures: Failures::default(),
            settings,
        })
    }

    /// Makes the store with rows in it, where some are asked for, and answers where it is.
    async fn fill(&mut self, say: &dyn Fn(&str)) -> anyhow::Result<Option<PathBuf>> {
        let rows = self.settings.rows;
        if rows == 0 {
            return Ok(None);
        }
        let path = self.given_store()?.unwrap_or_else(|| self.directory.path().join("filled.db"));
        if self.was_there {
            say(&format!("{} is there already and is not filled again", path.display()));
            return Ok(Some(path));
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
        fill::fill(&path, rows, flow, BODY, progress).await.context("the store cannot be filled")?;
        Ok(Some(path))
    }

    fn given_store(&self) -> anyhow::Result<Option<PathBuf>> {
        Ok(self.settings.store.as_deref().map(std::path::absolute).transpose()?)
    }

    async fn round(&mut self, filled: Option<&Path>) -> anyhow::Result<()> {
        let bare = self.bare().await?;
        let empty_path = match (self.given_store()?, filled) {
            (Some(path), None) => path,
            _ => self.directory.path().join("empty.db"),
        };
        let empty = ServerProcess::start(&empty_path, self.directory.path()).await?;
        self.figures.note(Figure::Start, empty.started_in.as_secs_f64());
        let letters = Letters::new(&empty, &self.sink, &self.late, self.settings.batch);
        let mut all = self.warm_up(&empty, &letters).await?;
        let other = match filled {
            None => None,
            Some(path) => Some(self.start_filled(path).await?),
        };

        let single = self.single(&empty, &letters).await?;
        self.figures.note(Figure::TimeShareSingle, bare / (single.time.0 + single.time.1));
        if let Some((server, letters)) = &other {
            let rate = self.load(server, &letters.single, self.settings.connections).await?.rate;
            self.figures.note(Figure::FilledSingle, rate);
            self.figures.note(Figure::FilledToEmptySingle, rate / single.rate);
        }
        let batch = self.batch(&empty, &letters).await?;
        self.figures.note(Figure::TimeShareBatch, bare / (batch.time.0 + batch.time.1));
        if let Some((server, letters)) = &other {
            let rate = self.load(server, &letters.batch, self.settings.batch_connections()).await?.rate;
            self.figures.note(Figure::FilledBatch, rate);
            self.figures.note(Figure::FilledToEmptyBatch, rate / batch.rate);
        }
        let keyed = self.load(&empty, &letters.single_with_key, self.settings.connections).await?;
        self.figures.note(Figure::SingleWithKey, keyed.rate);
        let keyed_batch =
            self.load(&empty, &letters.batch_with_key, self.settings.batch_connections()).await?;
        self.figures.note(Figure::BatchWithKey, keyed_batch.rate);
        all += self.half_load(&empty, &letters, single.rate / 2.0).await?;
        all += [&single, &batch, &keyed, &keyed_batch].iter().map(|one| one.sent.taken).sum::<u64>();

        self.figures.note(Figure::PeakMemory, empty.peak_memory()? as f64);
        let size = empty.stop().await?;
        if filled.is_some() || self.settings.store.is_none() {
            self.figures.note(Figure::FileSize, size as f64 / all as f64);
            std::fs::remove_file(&empty_path)?;
        }
        if let Some((server, _)) = other {
            self.figures.note(Figure::FilledPeakMemory, server.peak_memory()? as f64);
            let size = server.stop().await?;
            self.figures.note(Figure::FilledFile, size as f64);
        }
        Ok(())
    }

    /// The limit: the sender against the sink. Answers the processor time of each request, in microseconds.
    async fn bare(&mut self) -> anyhow::Result<f64> {
        let letter = letter::bare(&self.sink);
        let bound = Bound { time: self.settings.time, under_way: None };
        let own = processor_time("self")?;
        let sent = flood(self.sink.address(), self.settings.connections, &letter, &bound).await?;
        let took = sent.started.elapsed();
        let own = processor_time("self")?.saturating_sub(own);
        self.failures.add(sent.failures);
        ensure!(sent.taken > 0, "the sink took nothing from the sender");
        self.figures.note(Figure::Bare, sent.taken as f64 / took.as_secs_f64());
        let each = micros_each(own, sent.taken);
        self.figures.note(Figure::TimeBare, each);
        Ok(each)
    }

    async fn start_filled(&mut self, path: &Path) -> anyhow::Result<(ServerProcess, Letters)> {
        let server = ServerProcess::start(path, self.directory.path()).await?;
        self.figures.note(Figure::FilledStart, server.started_in.as_secs_f64());
        let letters = Letters::new(&server, &self.sink, &self.late, self.settings.batch);
        self.warm_up(&server, &letters).await?;
        Ok((server, letters))
    }

    /// Uses the server a little, and answers how many notifications it took.
    async fn warm_up(&mut self, server: &ServerProcess, letters: &Letters) -> anyhow::Result<u64> {
        letters.check(server).await?;
        let first = 1 + letters.batch.holds;
        server.wait_for(first).await?;
        let time = WARM_UP.min(self.settings.time);
        let single = self.load_for(time, server, &letters.single, self.settings.connections).await?;
        let batch = self.load_for(time, server, &letters.batch, self.settings.batch_connections()).await?;
        Ok(first + single.sent.taken + batch.sent.taken)
    }

    async fn single(&mut self, server: &ServerProcess, letters: &Letters) -> anyhow::Result<Measured> {
        let measured = self.load(server, &letters.single, self.settings.connections).await?;
        self.figures.note(Figure::Single, measured.rate);
        self.figures.note(Figure::WrittenSingle, measured.written);
        self.figures.note(Figure::TimeServerSingle, measured.time.0);
        self.figures.note(Figure::TimeOthersSingle, measured.time.1);
        self.figures.note(Figure::BacklogSingle, measured.sent.backlog as f64);
        let took = millis(&measured.sent.took);
        self.figures.note_spread([Figure::AcceptP50, Figure::AcceptP99, Figure::AcceptMax], took)?;
        Ok(measured)
    }

    async fn batch(&mut self, server: &ServerProcess, letters: &Letters) -> anyhow::Result<Measured> {
        let measured = self.load(server, &letters.batch, self.settings.batch_connections()).await?;
        self.figures.note(Figure::Batch, measured.rate);
        self.figures.note(Figure::WrittenBatch, measured.written);
        self.figures.note(Figure::TimeServerBatch, measured.time.0);
        self.figures.note(Figure::TimeOthersBatch, measured.time.1);
        self.figures.note(Figure::BacklogBatch, measured.sent.backlog as f64);
        Ok(measured)
    }

    async fn load(
        &mut self,
        server: &ServerProcess,
        letter: &load::Letter,
        connections: usize,
    ) -> anyhow::Result<Measured> {
        self.load_for(self.settings.time, server, letter, connections).await
    }

    /// Sends for a while, and waits until all of it is delivered and recorded.
    async fn load_for(
        &mut self,
        time: Duration,
        server: &ServerProcess,
        letter: &load::Letter,
        connections: usize,
    ) -> anyhow::Result<Measured> {
        let (before, wrote) = (server.ended().await?, server.written()?);
        let (its, own) = (server.processor_time()?, processor_time("self")?);
        let received = self.sink.received();
        let bound = Bound { time, under_way: Some((self.sink.clone(), UNDER_WAY)) };
        let sent = flood(server.address, connections, letter, &bound).await?;
        self.recorded(server, before, &sent).await?;
        let took = sent.started.elapsed();
        let arrived = self.sink.received() - received;
        ensure!(arrived >= sent.taken, "{} were recorded, but {arrived} arrived", sent.taken);
        let wrote = server.written()?.saturating_sub(wrote);
        let its = micros_each(server.processor_time()?.saturating_sub(its), sent.taken);
        let own = micros_each(processor_time("self")?.saturating_sub(own), sent.taken);
        let taken = sent.taken as f64;
        let rate = taken / took.as_secs_f64();
        Ok(Measured { rate, sent, written: wrote as f64 / taken, time: (its, own) })
    }

    /// Waits until all that was taken is recorded. `before` is what had ended before.
    async fn recorded(
        &mut self,
        server: &ServerProcess,
        before: (u64, u64),
        sent: &Sent,
    ) -> anyhow::Result<()> {
        self.failures.add(sent.failures.clone());
        if sent.taken == 0 {
            let first = sent.failures.first.as_deref().unwrap_or("nothing was sent");
            bail!("no notification was taken: {first}");
        }
        let other = server.wait_for(before.0 + before.1 + sent.taken).await?;
        ensure!(other == before.1, "{} notifications ended undelivered", other - before.1);
        Ok(())
    }

    /// Half of what the server can do, a part of it to be sent again after a second. Answers how many were taken.
    async fn half_load(
        &mut self,
        server: &ServerProcess,
        letters: &Letters,
        rate: f64,
    ) -> anyhow::Result<u64> {
        let before = server.ended().await?;
        // The load goes on until the last retry is due.
        let times = (self.settings.time + PUT_OFF, PUT_OFF);
        let both = (&letters.single, &letters.fails_first);
        let sent = pace(server.address, self.settings.connections, both, FAILS_FIRST, rate, times).await?;
        self.figures.note(Figure::HalfLoad, sent.taken as f64 / sent.started.elapsed().as_secs_f64());
        self.recorded(server, before, &sent).await?;
        let took = millis(&sent.took);
        self.figures.note_spread([Figure::HalfP50, Figure::HalfP99, Figure::HalfMax], took)?;
        let late = lateness(&self.late)?;
        self.figures.note_spread([Figure::LateP50, Figure::LateP99, Figure::LateMax], late)?;
        self.late.clear();
        Ok(sent.taken)
    }
}

/// How much later than a second after its first arrival each notification arrived again, in milliseconds. It is an upper
/// bound: the failure has to be heard of before the second begins.
fn lateness(sink: &Sink) -> anyhow::Result<Vec<f64>> {
    let mut first = std::collections::HashMap::new();
    let mut late = vec![];
    for arrival in sink.arrivals() {
        let id = arrival.id.context("something arrived without its webhook-id")?;
        match first.remove(&id) {
            None => drop(first.insert(id, arrival.at)),
            Some(at) => {
                late.push((arrival.at.since(at).as_secs_f64() - PUT_OFF.as_secs_f64()).max(0.0) * 1e3)
            }
        }
    }
    ensure!(first.is_empty(), "{} notifications that failed at first did not arrive again", first.len());
    Ok(late)
}

fn micros_each(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

fn millis(took: &[Duration]) -> Vec<f64> {
    took.iter().map(|took| took.as_secs_f64() * 1e3).collect()
}
