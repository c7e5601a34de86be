//! `destinations`: the same sends to hundreds of thousands of destinations, and to one.
//!
//! Every destination is an address of its own below 127.0.0.0/8, and one receiver listens at all of them. With so many
//! destinations no connection can be used twice, and what a node remembers about flows is not enough for all. The loads with
//! a few thousand destinations have only the first of the two.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Method, StatusCode};
use posthaste::client::Client;
use posthaste::clock::SystemClock;
use posthaste_wire::sink::{Sink, SinkOptions};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Setting;
use super::place::Place;
use super::server::Server;
use super::verdict::{Spread, Verdict};

/// The rate with all destinations, as a share of the rate with one.
const GOAL: f64 = 0.6;
const ROUNDS: usize = 5;
/// More than the connections that a node keeps open, and far fewer than the flows that it remembers.
const FEW: u64 = 2_000;
/// How many notifications are on their way at a time, at most.
const UNDER_WAY: u64 = 2_000;
/// The longest that nothing may arrive.
const STALLED: Duration = Duration::from_secs(30);
/// The first of the addresses; the others follow.
const FIRST: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 0);

/// How notifications are handed in: over how many connections, and how many in a request.
struct Way {
    name: &'static str,
    connections: usize,
    batch: usize,
}

const WAYS: [Way; 2] = [
    Way { name: "batches of 100", connections: 8, batch: 100 },
    Way { name: "single sends", connections: 64, batch: 1 },
];

/// Measures both ways of sending, with each number of destinations in turn.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let many = setting.size.unwrap_or(200_000);
    let mut verdict = Verdict::default();
    for way in &WAYS {
        one(setting, way, many, &mut verdict).await?;
    }
    Ok(verdict)
}

async fn one(setting: &Setting, way: &Way, many: u64, verdict: &mut Verdict) -> anyhow::Result<()> {
    let place = setting.place().await?;
    // The connections that the server keeps open are as many as a receiver usually takes.
    let options =
        SinkOptions { keep: 0, excerpt: 0, connections: 8_192, ..SinkOptions::new(Arc::new(SystemClock)) };
    let sink = Arc::new(Sink::start("0.0.0.0:0".parse()?, options).await?);
    let server = setting.serve(&place).await?;
    let key = server.key_for("a").await?;
    let loads = [(1, many / 4), (FEW, many / 4), (many, many)];
    let mut rounds: Vec<Vec<Measured>> = vec![];
    // The first round makes the flows and is not counted.
    for round in 0..=ROUNDS {
        let mut measured = vec![];
        for (destinations, count) in loads {
            let letters = letters(way, destinations, count, sink.address().port());
            let one = load(way, letters, &server, &place, &key, &sink).await?;
            eprintln!("  {}, round {round}, {destinations} destinations: {one}", way.name);
            measured.push(one);
        }
        if round > 0 {
            rounds.push(measured);
        }
    }
    for (which, (destinations, _)) in loads.iter().enumerate() {
        let name = format!("{}, {destinations} destinations", way.name);
        let of = |figure: fn(&Measured) -> f64| {
            Spread::of(rounds.iter().map(|round| figure(&round[which])).collect())
        };
        verdict.note(format!("{name}: sends a second"), of(|one| one.rate).shown(0));
        verdict.note(
            format!("{name}: processor time of server and database each, µs"),
            of(Measured::micros).shown(0),
        );
        let ratio = Spread::of(rounds.iter().map(|round| round[which].rate / round[0].rate).collect());
        match which {
            0 => {}
            1 => verdict.note(format!("{name}: rate to one"), ratio.shown(2)),
            _ => verdict.wanted(
                format!("{name}: rate to one"),
                ratio.shown(2),
                format!("at least {GOAL}"),
                ratio.median >= GOAL,
            ),
        }
    }
    verdict.note(format!("{}: most memory", way.name), format!("{} MiB", server.peak_memory()?));
    Ok(())
}

/// The requests for so many notifications. The destinations are taken in an order that has nothing to do with their numbers,
/// each once before one comes again.
fn letters(way: &Way, destinations: u64, count: u64, port: u16) -> Vec<Bytes> {
    let mut order: Vec<u32> = (0..).take(destinations as usize).collect();
    fastrand::shuffle(&mut order);
    let letters: Vec<String> = order
        .iter()
        .cycle()
        .take(count as usize)
        .map(|number| {
            let address = Ipv4Addr::from_bits(FIRST.to_bits() + number);
            format!(r#"{{"channel":"webhook","to":"http://{address}:{port}/ok","body":{{"order":4711}}}}"#)
        })
        .collect();
    if way.batch == 1 {
        return letters.into_iter().map(Bytes::from).collect();
    }
    let batch = |some: &[String]| Bytes::from(format!(r#"{{"notifications":[{}]}}"#, some.join(",")));
    letters.chunks(way.batch).map(batch).collect()
}

/// What a load gave.
struct Measured {
    /// Notifications a second.
    rate: f64,
    /// Processor time for each notification: of the server, and of the database.
    server: Duration,
    database: Duration,
}

impl Measured {
    fn micros(&self) -> f64 {
        (self.server + self.database).as_secs_f64() * 1e6
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:.0}/s ({} µs", self.rate, self.server.as_micros())?;
        if !self.database.is_zero() {
            write!(out, " + {} µs", self.database.as_micros())?;
        }
        out.write_str(")")
    }
}

/// Sends all of it as fast as it is taken, and waits until everything has arrived and is recorded.
async fn load(
    way: &Way,
    letters: Vec<Bytes>,
    server: &Server,
    place: &Place,
    key: &str,
    sink: &Arc<Sink>,
) -> anyhow::Result<Measured> {
    let (letters, next, taken) =
        (Arc::new(letters), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let (used, database, before) = (server.processor_time()?, place.processor_time()?, sink.received());
    let begun = Instant::now();
    let mut senders = JoinSet::new();
    for _ in 0..way.connections {
        let (client, letters, next) = (server.client(key)?, letters.clone(), next.clone());
        let (taken, sink, batch) = (taken.clone(), sink.clone(), way.batch as u64);
        senders.spawn(async move {
            while let Some(letter) = letters.get(next.fetch_add(1, Ordering::Relaxed)) {
                while before + taken.load(Ordering::Relaxed) > sink.received() + UNDER_WAY {
                    sleep(Duration::from_millis(1)).await;
                }
                send(&client, batch, letter).await?;
                taken.fetch_add(batch, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    for sent in senders.join_all().await {
        sent?;
    }
    let count = taken.load(Ordering::Relaxed);
    timeout(STALLED, sink.wait_for(before + count)).await.context("not everything arrived")?;
    server.at_rest(STALLED).await?;
    let each = |time: Duration| time / u32::try_from(count).unwrap_or(u32::MAX);
    Ok(Measured {
        rate: count as f64 / begun.elapsed().as_secs_f64(),
        server: each(server.processor_time()?.saturating_sub(used)),
        database: each(place.processor_time()?.saturating_sub(database)),
    })
}

async fn send(client: &Client, batch: u64, letter: &Bytes) -> anyhow::Result<()> {
    let path = if batch == 1 { "/v1/notifications" } else { "/v1/notifications/batch" };
    let answer = client.send(Method::POST, path, &[], letter.clone()).await?;
    ensure!(answer.status == StatusCode::ACCEPTED, "not taken: {}", String::from_utf8_lossy(&answer.body));
    Ok(())
}
