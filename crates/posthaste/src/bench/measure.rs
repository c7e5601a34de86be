//! The loads of a round and their figures.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use posthaste_wire::sink::Sink;
use tokio::time::Instant;

use super::child::{STALLED, ServerProcess, ended, processor_time, wait_for};
use super::figure::Figure;
use super::letter::{self, Letters};
use super::load::{Bound, Letter, Sent, flood, pace};
use super::place::{Place, Whose};
use super::{Bench, FAILS_FIRST, PUT_OFF, UNDER_WAY, WARM_UP};

/// A server and its requests.
pub(super) struct Node {
    pub(super) server: ServerProcess,
    pub(super) letters: Letters,
}

impl Node {
    pub(super) async fn start(place: &Place, bench: &Bench) -> anyhow::Result<Self> {
        let server = ServerProcess::start(place, bench.directory.path()).await?;
        let letters = Letters::new(&server, &bench.sink, &bench.late, bench.settings.batch);
        Ok(Self { server, letters })
    }
}

/// A store in a round, with its server.
pub(super) struct Trial {
    pub(super) place: Place,
    pub(super) node: Node,
    /// Accepted notifications.
    pub(super) taken: u64,
    /// Rate of single sends.
    pub(super) single: f64,
    /// Rate of batches.
    pub(super) batch: f64,
}

impl Trial {
    pub(super) const fn whose(&self) -> Whose {
        self.place.whose()
    }
}

/// The figures of one load.
struct Measured {
    rate: f64,
    sent: Sent,
    /// Bytes that the server wrote to the disk, per notification.
    written: f64,
    /// Bytes of the write-ahead log of PostgreSQL, per notification.
    wal: Option<f64>,
    time: Times,
}

/// Processor time per notification, in microseconds.
struct Times {
    /// Of all servers.
    server: f64,
    /// Of a temporary PostgreSQL server.
    store: Option<f64>,
    /// Of sender and sink.
    others: f64,
}

impl Times {
    fn all(&self) -> f64 {
        self.server + self.store.unwrap_or(0.0) + self.others
    }
}

/// Selects a request of a server.
type Pick = fn(&Letters) -> &Letter;

const SINGLE: Pick = |letters| &letters.single;
const BATCH: Pick = |letters| &letters.batch;

struct Kind {
    rate: Figure,
    backlog: Figure,
    written: Figure,
    wal: Figure,
    server: Figure,
    store: Figure,
    others: Figure,
    share: Figure,
}

impl Bench {
    /// Measures the bare rate: the sender against the sink. Returns the processor time per request, in
    /// microseconds.
    pub(super) async fn bare(&mut self) -> anyhow::Result<f64> {
        let letter = letter::bare(&self.sink);
        let bound = Bound { time: self.settings.time, under_way: None };
        let own = processor_time("self")?.own;
        let sent = flood(&[(self.sink.address(), &letter)], self.settings.connections, &bound).await?;
        let took = sent.started.elapsed();
        let own = processor_time("self")?.own.saturating_sub(own);
        self.failures.add(sent.failures);
        ensure!(sent.taken > 0, "the sink received nothing from the sender");
        self.figures.note(Whose::Machine, Figure::Bare, sent.taken as f64 / took.as_secs_f64());
        let each = micros_each(own, sent.taken);
        self.figures.note(Whose::Machine, Figure::TimeBare, each);
        Ok(each)
    }

    /// Warms a server up. Returns the number of accepted notifications. The other servers share its store and
    /// may deliver them.
    pub(super) async fn warm_up(
        &mut self,
        place: &Place,
        node: &Node,
        others: &[&Node],
    ) -> anyhow::Result<u64> {
        let all: Vec<&Node> = [&[node], others].concat();
        let servers: Vec<&ServerProcess> = all.iter().map(|node| &node.server).collect();
        let before = ended(&servers).await?;
        node.letters.check(&node.server).await?;
        let mut taken = 1 + node.letters.batch.holds;
        wait_for(&servers, before.0 + before.1 + taken).await?;
        let time = WARM_UP.min(self.settings.time);
        for (pick, connections) in [self.singles(), self.batches()] {
            taken += self.load_for(time, place, &all, pick, connections).await?.sent.taken;
        }
        Ok(taken)
    }

    /// The rate of single sends.
    pub(super) async fn rate(&mut self, place: &Place, node: &Node) -> anyhow::Result<f64> {
        Ok(self.load(place, &[node], self.singles()).await?.rate)
    }

    fn singles(&self) -> (Pick, usize) {
        (SINGLE, self.settings.connections)
    }

    fn batches(&self) -> (Pick, usize) {
        (BATCH, self.settings.batch_connections())
    }

    /// Measures single sends. `bare` is the processor time of a bare request.
    pub(super) async fn single(&mut self, trial: &mut Trial, bare: f64) -> anyhow::Result<()> {
        let measured = self.load(&trial.place, &[&trial.node], self.singles()).await?;
        let kind = Kind {
            rate: Figure::Single,
            backlog: Figure::BacklogSingle,
            written: Figure::WrittenSingle,
            wal: Figure::WalSingle,
            server: Figure::TimeServerSingle,
            store: Figure::TimeStoreSingle,
            others: Figure::TimeOthersSingle,
            share: Figure::TimeShareSingle,
        };
        self.note_load(trial.whose(), &kind, &measured, bare);
        let took = millis(&measured.sent.took);
        self.figures.note_spread(
            trial.whose(),
            [Figure::AcceptP50, Figure::AcceptP99, Figure::AcceptMax],
            took,
        )?;
        trial.taken += measured.sent.taken;
        trial.single = measured.rate;
        Ok(())
    }

    /// Measures batches. `bare` is the processor time of a bare request.
    pub(super) async fn batch(&mut self, trial: &mut Trial, bare: f64) -> anyhow::Result<()> {
        let measured = self.load(&trial.place, &[&trial.node], self.batches()).await?;
        let kind = Kind {
            rate: Figure::Batch,
            backlog: Figure::BacklogBatch,
            written: Figure::WrittenBatch,
            wal: Figure::WalBatch,
            server: Figure::TimeServerBatch,
            store: Figure::TimeStoreBatch,
            others: Figure::TimeOthersBatch,
            share: Figure::TimeShareBatch,
        };
        self.note_load(trial.whose(), &kind, &measured, bare);
        trial.taken += measured.sent.taken;
        trial.batch = measured.rate;
        Ok(())
    }

    fn note_load(&mut self, whose: Whose, kind: &Kind, measured: &Measured, bare: f64) {
        let Measured { rate, sent, written, wal, time } = measured;
        // A node on PostgreSQL itself writes nothing to the disk.
        let written = Some(*written).filter(|_| whose == Whose::Sqlite);
        for (figure, value) in [
            (kind.rate, Some(*rate)),
            (kind.backlog, Some(sent.backlog as f64)),
            (kind.written, written),
            (kind.wal, *wal),
            (kind.server, Some(time.server)),
            (kind.store, time.store),
            (kind.others, Some(time.others)),
            (kind.share, Some(bare / time.all())),
        ] {
            if let Some(value) = value {
                self.figures.note(whose, figure, value);
            }
        }
    }

    /// Measures single sends to the filled store, after those to the empty one.
    pub(super) async fn filled_single(&mut self, trial: &Trial, full: &Node) -> anyhow::Result<()> {
        let rate = self.load(&trial.place, &[full], self.singles()).await?.rate;
        self.figures.note(trial.whose(), Figure::FilledSingle, rate);
        self.figures.note(trial.whose(), Figure::FilledToEmptySingle, rate / trial.single);
        Ok(())
    }

    /// Measures batches to the filled store, after those to the empty one.
    pub(super) async fn filled_batch(&mut self, trial: &Trial, full: &Node) -> anyhow::Result<()> {
        let rate = self.load(&trial.place, &[full], self.batches()).await?.rate;
        self.figures.note(trial.whose(), Figure::FilledBatch, rate);
        self.figures.note(trial.whose(), Figure::FilledToEmptyBatch, rate / trial.batch);
        Ok(())
    }

    /// Measures two nodes on the same database, with the connections spread over both. One node alone is
    /// measured before and after, so that slow changes affect both alike.
    pub(super) async fn two_nodes(&mut self, trial: &mut Trial) -> anyhow::Result<()> {
        let second = Node::start(&trial.place, self).await?;
        trial.taken += self.warm_up(&trial.place, &second, &[&trial.node]).await?;
        let both = [&trial.node, &second];
        let single = self.load(&trial.place, &both, self.singles()).await?;
        let batch = self.load(&trial.place, &both, self.batches()).await?;
        second.server.stop().await?;
        let one_single = self.load(&trial.place, &[&trial.node], self.singles()).await?;
        let one_batch = self.load(&trial.place, &[&trial.node], self.batches()).await?;
        for (figure, value) in [
            (Figure::TwoNodesSingle, single.rate),
            (Figure::TwoNodesBatch, batch.rate),
            (Figure::TwoToOneSingle, single.rate * 2.0 / (trial.single + one_single.rate)),
            (Figure::TwoToOneBatch, batch.rate * 2.0 / (trial.batch + one_batch.rate)),
            (Figure::TimeTwoNodesSingle, single.time.all()),
            (Figure::TimeTwoNodesBatch, batch.time.all()),
        ] {
            self.figures.note(trial.place.whose(), figure, value);
        }
        trial.taken +=
            [&single, &batch, &one_single, &one_batch].iter().map(|one| one.sent.taken).sum::<u64>();
        Ok(())
    }

    /// Measures sends with an idempotency key.
    pub(super) async fn keyed(&mut self, trial: &mut Trial) -> anyhow::Result<()> {
        let single: (Pick, usize) = (|letters| &letters.single_with_key, self.settings.connections);
        let batch: (Pick, usize) = (|letters| &letters.batch_with_key, self.settings.batch_connections());
        for (figure, how) in [(Figure::SingleWithKey, single), (Figure::BatchWithKey, batch)] {
            let measured = self.load(&trial.place, &[&trial.node], how).await?;
            self.figures.note(trial.whose(), figure, measured.rate);
            trial.taken += measured.sent.taken;
        }
        Ok(())
    }

    async fn load(
        &mut self,
        place: &Place,
        nodes: &[&Node],
        (pick, connections): (Pick, usize),
    ) -> anyhow::Result<Measured> {
        self.load_for(self.settings.time, place, nodes, pick, connections).await
    }

    /// Runs a load, and waits until all of it is delivered and recorded.
    async fn load_for(
        &mut self,
        time: Duration,
        place: &Place,
        nodes: &[&Node],
        pick: Pick,
        connections: usize,
    ) -> anyhow::Result<Measured> {
        let servers: Vec<&ServerProcess> = nodes.iter().map(|node| &node.server).collect();
        let to: Vec<_> = nodes.iter().map(|node| (node.server.address, pick(&node.letters))).collect();
        let before = ended(&servers).await?;
        let wal = place.wal().await?;
        let meter = self.meter(place, &servers)?;
        let received = self.sink.received();
        let bound = Bound { time, under_way: Some((self.sink.clone(), UNDER_WAY)) };
        let sent = flood(&to, connections, &bound).await?;
        arrived(&self.sink, received + sent.taken).await?;
        self.recorded(&servers, before, &sent).await?;
        let took = sent.started.elapsed();
        let after = self.meter(place, &servers)?;
        let taken = sent.taken as f64;
        let wal = match (wal, place.wal().await?) {
            (Some(before), Some(after)) => Some(after.saturating_sub(before) as f64 / taken),
            _ => None,
        };
        let each = |before: Duration, after: Duration| micros_each(after.saturating_sub(before), sent.taken);
        let time = Times {
            server: each(meter.server, after.server),
            store: meter.store.zip(after.store).map(|(before, after)| each(before, after)),
            others: each(meter.others, after.others),
        };
        let written = after.written.saturating_sub(meter.written) as f64 / taken;
        Ok(Measured { rate: taken / took.as_secs_f64(), sent, written, wal, time })
    }

    fn meter(&self, place: &Place, servers: &[&ServerProcess]) -> anyhow::Result<Meter> {
        let mut meter = Meter { others: processor_time("self")?.own, ..Meter::default() };
        for server in servers {
            meter.server += server.processor_time()?;
            meter.written += server.written()?;
        }
        if let Some(postgres) = self.postgres.as_ref().filter(|_| place.whose() == Whose::Postgres) {
            meter.store = postgres.processor_time()?;
        }
        Ok(meter)
    }

    /// Waits until all accepted notifications are recorded. `before` is the number that had ended before.
    async fn recorded(
        &mut self,
        servers: &[&ServerProcess],
        before: (u64, u64),
        sent: &Sent,
    ) -> anyhow::Result<()> {
        self.failures.add(sent.failures.clone());
        if sent.taken == 0 {
            let first = sent.failures.first.as_deref().unwrap_or("nothing was sent");
            bail!("no notification was accepted: {first}");
        }
        let other = wait_for(servers, before.0 + before.1 + sent.taken).await?;
        ensure!(other == before.1, "{} notifications ended without delivery", other - before.1);
        Ok(())
    }

    /// Measures half of the maximum rate. A part of it fails at first and is retried after a second.
    pub(super) async fn half_load(&mut self, trial: &mut Trial) -> anyhow::Result<()> {
        let (server, letters, whose) = (&trial.node.server, &trial.node.letters, trial.whose());
        let before = ended(&[server]).await?;
        // The load continues until the last retry is due.
        let times = (self.settings.time + PUT_OFF, PUT_OFF);
        let both = (&letters.single, &letters.fails_first);
        let (connections, rate) = (self.settings.connections, trial.single / 2.0);
        let sent = pace(server.address, connections, both, FAILS_FIRST, rate, times).await?;
        let rate = sent.taken as f64 / sent.started.elapsed().as_secs_f64();
        self.figures.note(whose, Figure::HalfLoad, rate);
        self.recorded(&[server], before, &sent).await?;
        let took = millis(&sent.took);
        self.figures.note_spread(whose, [Figure::HalfP50, Figure::HalfP99, Figure::HalfMax], took)?;
        let late = lateness(&self.late)?;
        self.figures.note_spread(whose, [Figure::LateP50, Figure::LateP99, Figure::LateMax], late)?;
        self.late.clear();
        trial.taken += sent.taken;
        Ok(())
    }
}

/// Resources used so far.
#[derive(Default)]
struct Meter {
    server: Duration,
    store: Option<Duration>,
    others: Duration,
    written: u64,
}

/// Waits until the sink has received `count` notifications. Only then servers are asked what they have
/// recorded, because that costs them time, most of all on a database.
async fn arrived(sink: &Sink, count: u64) -> anyhow::Result<()> {
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        let received = sink.received();
        if received >= count {
            return Ok(());
        }
        if received > last {
            (last, moved) = (received, Instant::now());
        }
        ensure!(
            moved.elapsed() < STALLED,
            "{} notifications were accepted but did not arrive, without progress for {} s",
            count - received,
            STALLED.as_secs()
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// How much later than a second after its first arrival each notification arrived again, in milliseconds.
/// This is an upper bound: the second starts only after the server has received the failure.
fn lateness(sink: &Sink) -> anyhow::Result<Vec<f64>> {
    let mut first = std::collections::HashMap::new();
    let mut late = vec![];
    for arrival in sink.arrivals() {
        let id = arrival.id.context("a request arrived without webhook-id")?;
        match first.remove(&id) {
            None => drop(first.insert(id, arrival.at)),
            Some(at) => {
                late.push((arrival.at.since(at).as_secs_f64() - PUT_OFF.as_secs_f64()).max(0.0) * 1e3)
            }
        }
    }
    ensure!(first.is_empty(), "{} notifications that failed at first were not retried", first.len());
    Ok(late)
}

fn micros_each(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

fn millis(took: &[Duration]) -> Vec<f64> {
    took.iter().map(|took| took.as_secs_f64() * 1e3).collect()
}
