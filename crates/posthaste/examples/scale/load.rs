//! Loads of single sends and batches, by the sender of `posthaste bench`, and what they cost.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use posthaste::bench::load::{Bound, Letter, Sender, notification};
use posthaste_wire::sink::Sink;
use tokio::time::timeout;

use super::neighbour::sink;
use super::place::Place;
use super::server::{Server, processor_time};

/// How long a load is sent.
const TIME: Duration = Duration::from_secs(3);
/// The longest that something may take to arrive or to end after the load.
const PATIENCE: Duration = Duration::from_secs(60);

/// How notifications are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Single,
    Batch,
    SingleWithKey,
    BatchWithKey,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Single, Self::Batch, Self::SingleWithKey, Self::BatchWithKey];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Single => "single sends",
            Self::Batch => "batches of 100",
            Self::SingleWithKey => "single sends with Idempotency-Key",
            Self::BatchWithKey => "batches of 100 with Idempotency-Key",
        }
    }

    pub(crate) const fn connections(self) -> usize {
        match self {
            Self::Single | Self::SingleWithKey => 64,
            Self::Batch | Self::BatchWithKey => 8,
        }
    }
}

/// What a load gave. All but the rate is for each notification.
pub(crate) struct Measured {
    /// Notifications a second.
    pub(crate) rate: f64,
    pub(crate) accepted: u64,
    /// Processor time in microseconds.
    pub(crate) server: f64,
    pub(crate) database: f64,
    /// Of sender and sink.
    pub(crate) others: f64,
    /// Bytes that the servers wrote to the disk.
    pub(crate) written: f64,
    /// Bytes of PostgreSQL's log.
    pub(crate) wal: f64,
}

/// The sender and the receiver of all loads of a scenario.
pub(crate) struct Rig {
    pub(crate) sender: Sender,
    pub(crate) sink: Arc<Sink>,
    loads: u64,
}

/// What was used so far.
struct Used {
    server: Duration,
    database: Duration,
    others: Duration,
    written: u64,
    wal: u64,
}

impl Rig {
    pub(crate) async fn new() -> anyhow::Result<Self> {
        Self::keeping(0).await
    }

    /// A rig whose receiver remembers so many arrivals.
    pub(crate) async fn keeping(keep: usize) -> anyhow::Result<Self> {
        let sender = Sender::new(Way::Single.connections())?;
        Ok(Self { sender, sink: Arc::new(sink(keep).await?), loads: 0 })
    }

    /// The sender against the receiver, without a server. Returns the rate and the processor time of a request.
    pub(crate) async fn bare(&self) -> anyhow::Result<(f64, f64)> {
        let used = processor_time("self")?;
        let sent = self.sender.flood(&[Letter::bare(&self.sink)?], Bound::Time(TIME), None).await?;
        let took = sent.started.elapsed().as_secs_f64();
        let used = processor_time("self")?.saturating_sub(used);
        ensure!(sent.accepted > 0, "the receiver got nothing");
        Ok((sent.accepted as f64 / took, used.as_secs_f64() * 1e6 / sent.accepted as f64))
    }

    /// Sends for a few seconds, over connections to all of the servers, and waits until everything has arrived and is
    /// recorded. The servers share the store.
    pub(crate) async fn load(
        &mut self,
        servers: &[&Server],
        place: &Place,
        way: Way,
    ) -> anyhow::Result<Measured> {
        self.loads += 1;
        let letters: anyhow::Result<Vec<Letter>> =
            servers.iter().map(|server| self.letter(server, way)).collect();
        let (before, received) = (used(servers, place)?, self.sink.received());
        let sender = self.sender.over(way.connections());
        let sent = sender.flood(&letters?, Bound::Time(TIME), Some(&self.sink)).await?;
        ensure!(sent.failures.first.is_none(), "{}", sent.failures.text().unwrap_or_default());
        // A key that was used before would be answered and send nothing.
        let arrived = timeout(PATIENCE, self.sink.wait_for(received + sent.accepted)).await;
        arrived.context("not everything that was accepted arrived")?;
        servers[0].at_rest(PATIENCE).await?;
        let took = sent.started.elapsed().as_secs_f64();
        let after = used(servers, place)?;
        let count = sent.accepted as f64;
        let micros =
            |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64() * 1e6 / count;
        Ok(Measured {
            rate: count / took,
            accepted: sent.accepted,
            server: micros(before.server, after.server),
            database: micros(before.database, after.database),
            others: micros(before.others, after.others),
            written: after.written.saturating_sub(before.written) as f64 / count,
            wal: after.wal.saturating_sub(before.wal) as f64 / count,
        })
    }

    /// The request of one connection. Keys of different loads and servers differ.
    pub(crate) fn letter(&self, server: &Server, way: Way) -> anyhow::Result<Letter> {
        let (url, key, to) = (&server.0.url, &server.0.key, self.sink.url("/ok"));
        let letter = match way {
            Way::Single | Way::SingleWithKey => Letter::single(url, key, &to)?,
            Way::Batch | Way::BatchWithKey => Letter::batch(url, key, &vec![notification(&to, ""); 100])?,
        };
        Ok(match way {
            Way::Single | Way::Batch => letter,
            Way::SingleWithKey | Way::BatchWithKey => {
                letter.with_idempotency(&format!("{}-{}", &key[4..12], self.loads))
            }
        })
    }
}

fn used(servers: &[&Server], place: &Place) -> anyhow::Result<Used> {
    let (mut server, mut written) = (Duration::ZERO, 0);
    for one in servers {
        server += one.processor_time()?;
        written += one.0.proc("io", "write_bytes:")?;
    }
    let (database, others) = (place.processor_time()?, processor_time("self")?);
    Ok(Used { server, database, others, written, wal: place.wal()? })
}
