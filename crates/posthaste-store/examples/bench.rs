//! How fast the SQLite store is, as a share of a plain insert of the same rows into one table in the same
//! run.
//!
//! `cargo run --release -p posthaste-store --example bench -- --rows 0,1000000,5000000`; `--help` tells the
//! rest.
//!
//! Everything goes through the `Store` seam in batches of 500 with fsync, one batch at a time, so each batch
//! pays for its own commit. Of the rows that are already there nine in ten were delivered and one waits for a
//! later time. The scenarios take turns in each round, and in each turn the plain insert runs beside the
//! store.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::{Attempt, Outcome};
use posthaste_core::channel::Channel;
use posthaste_core::flow::{Bucket, FlowId, FlowKey, Quota};
use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::{Body, Content, Notification, Priority};
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Arrival, Claimed, Ending, Next, Nodes, Queue, Request, Settlement};
use posthaste_store::sqlite::{Options, SqliteStore, Synchronous};
use rusqlite::params;

pub use self::watch::Watch;
use self::watch::memory;

#[path = "bench/watch.rs"]
mod watch;

type Outcomes<T> = Result<T, Box<dyn std::error::Error>>;

/// Rows in a batch: what one commit holds.
const BATCH: usize = 500;
/// Batches in a turn.
const TURN: usize = 5;
/// New ids a millisecond.
const RATE: u64 = 50;
/// Rows behind a quota of 0.
const PARKED: u64 = 100_000;

/// What to run.
pub struct Settings {
    /// How many rows are in the store already, a scenario each.
    pub rows: Vec<u64>,
    /// How often everything is measured; the median is told.
    pub rounds: usize,
    /// Batches of each step in a round.
    pub batches: usize,
    /// Rows that are parked in the scenario that has some; none is no such scenario.
    pub parked: u64,
    /// Flows of the scenario that has many; none is no such scenario.
    pub flows: usize,
    /// What time is measured by.
    pub watch: Watch,
    /// Whether to answer in JSON.
    pub json: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rows: vec![0],
            rounds: 5,
            batches: 40,
            parked: PARKED,
            flows: 1_000,
            watch: Watch::Wall,
            json: false,
        }
    }
}

/// What can be asked for, with what is taken where it is not.
const USAGE: &str = "usage: bench [option value]...
  --rows 0             rows that are there already, a scenario each: 0,1000000
  --rounds 5           how often everything is measured
  --batches 40         batches of each step in a round
  --parked 100000      rows of the scenario that has parked ones; 0 leaves it out
  --flows 1000         flows of the scenario that has many; 0 leaves it out
  --watch wall         wall or cpu: what time is measured by
  --output table       table or json
  --help               this text";

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a command")]
fn main() -> Outcomes<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help") {
        println!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let settings = match settings(&arguments) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return Ok(ExitCode::from(2));
        }
    };
    let directory = tempfile::tempdir()?;
    println!("{}", run(&settings, directory.path())?);
    Ok(ExitCode::SUCCESS)
}

/// What the arguments ask for, or the first that makes no sense.
pub fn settings(arguments: &[String]) -> Result<Settings, String> {
    let mut settings = Settings::default();
    for pair in arguments.chunks(2) {
        let name = pair[0].as_str();
        let value = pair.get(1).map_or("", String::as_str);
        let known = match name {
            "--rows" => set(&mut settings.rows, value.split(',').map(|rows| rows.parse().ok()).collect()),
            "--rounds" => set(&mut settings.rounds, value.parse().ok().filter(|rounds| *rounds > 0)),
            "--batches" => set(&mut settings.batches, value.parse().ok().filter(|batches| *batches > 0)),
            "--parked" => set(&mut settings.parked, value.parse().ok()),
            "--flows" => set(&mut settings.flows, value.parse().ok()),
            "--watch" => {
                set(&mut settings.watch, choice(value, [("wall", Watch::Wall), ("cpu", Watch::Cpu)]))
            }
            "--output" => set(&mut settings.json, choice(value, [("table", false), ("json", true)])),
            _ => return Err(format!("{name} is not known")),
        };
        known.ok_or_else(|| format!("{name} does not take `{value}`"))?;
    }
    Ok(settings)
}

fn set<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

fn choice<T: Copy>(word: &str, choices: [(&str, T); 2]) -> Option<T> {
    choices.into_iter().find(|(name, _)| *name == word).map(|(_, choice)| choice)
}

/// Runs every scenario and answers with the report.
pub fn run(settings: &Settings, directory: &Path) -> Outcomes<String> {
    std::fs::create_dir_all(directory)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut sides = vec![];
    for rows in &settings.rows {
        sides.push(runtime.block_on(Side::new(directory, &format!("{rows} rows"), *rows, 8, 0))?);
    }
    if settings.parked > 0 {
        let name = format!("{} parked", settings.parked);
        sides.push(runtime.block_on(Side::new(directory, &name, 0, 8, settings.parked))?);
    }
    if settings.flows > 0 {
        let name = format!("{} flows", settings.flows);
        sides.push(runtime.block_on(Side::new(directory, &name, 0, settings.flows, 0))?);
    }
    for _ in 0..settings.rounds {
        // The scenarios take short turns, so that what else the machine does meets all of them alike.
        for start in (0..settings.batches).step_by(TURN) {
            for side in &mut sides {
                side.watch = settings.watch;
                runtime.block_on(side.turn(TURN.min(settings.batches - start)))?;
            }
        }
        for side in &mut sides {
            side.end_round(settings.batches);
        }
    }
    let resident = memory("VmRSS:");
    Ok(if settings.json { json(&sides, resident) } else { table(&sides, resident) })
}

/// One scenario: a store, a plain table, and what was measured.
struct Side {
    name: String,
    store: SqliteStore,
    plain: Plain,
    flows: Vec<(FlowId, FlowKey)>,
    parked: Option<FlowId>,
    node: NodeId,
    fence: i64,
    made: u64,
    watch: Watch,
    random: fastrand::Rng,
    took: BTreeMap<&'static str, Duration>,
    rates: BTreeMap<&'static str, Vec<f64>>,
}

impl Side {
    async fn new(directory: &Path, name: &str, rows: u64, flows: usize, parked: u64) -> Outcomes<Self> {
        let path = directory.join(format!("{}.db", name.replace(' ', "-")));
        let key = |number: usize| FlowKey {
            tenant: format!("tenant-{}", number % 100).parse().expect("a plain name"),
            channel: Channel::Webhook,
            destination: format!("https://hooks-{number}.example.com").into(),
        };
        let keys: Vec<FlowKey> = (0..flows).map(key).collect();
        // Filling needs no durability; what is measured does.
        let fast = Options { synchronous: Synchronous::Off, unsafe_durability: true, ..Options::default() };
        let store = SqliteStore::open(&path, fast)?;
        let numbers = store.intern(keys.clone()).await?;
        let node = store.join("fill".to_owned(), Duration::from_secs(3600), clock(0)).await?.node;
        let mut side = Self {
            name: name.to_owned(),
            store,
            plain: Plain::new(&directory.join(format!("{}.plain", name.replace(' ', "-"))))?,
            flows: numbers.into_iter().zip(keys).collect(),
            parked: None,
            node,
            fence: 0,
            made: 0,
            watch: Watch::Wall,
            random: fastrand::Rng::with_seed(1),
            took: BTreeMap::new(),
            rates: BTreeMap::new(),
        };
        side.fill(rows, parked).await?;
        drop(std::mem::replace(
            &mut side.store,
            SqliteStore::open(directory.join("none"), Options::default())?,
        ));
        side.store = SqliteStore::open(&path, Options::default())?;
        std::fs::remove_file(directory.join("none"))?;
        side.node =
            side.store.join("bench".to_owned(), Duration::from_secs(3600), clock(side.made)).await?.node;
        Ok(side)
    }

    async fn fill(&mut self, rows: u64, parked: u64) -> Outcomes<()> {
        const CHUNK: u64 = 5_000;
        for start in (0..rows).step_by(CHUNK as usize) {
            let count = CHUNK.min(rows - start);
            let later = Some(Duration::from_secs(86_400));
            let waiting = self.requests(count / 10, None, later);
            self.store.accept(waiting, clock(self.made)).await?;
            self.fence += 1;
            let lease = Lease { node: self.node, fence: Fence(self.fence) };
            let leased = self.requests(count - count / 10, Some(lease), None);
            let settled = leased.iter().map(|request| delivered(&request.arrivals[0], lease)).collect();
            self.store.accept(leased, clock(self.made)).await?;
            self.store.settle(settled, clock(self.made)).await?;
        }
        if parked > 0 {
            let key = FlowKey {
                tenant: "blocked".parse()?,
                channel: Channel::Webhook,
                destination: "https://down.example.com".into(),
            };
            let flow = self.store.intern(vec![key.clone()]).await?[0];
            let others = std::mem::replace(&mut self.flows, vec![(flow, key)]);
            for start in (0..parked).step_by(CHUNK as usize) {
                let requests = self.requests(CHUNK.min(parked - start), None, None);
                self.store.accept(requests, clock(self.made)).await?;
            }
            self.flows = others;
            self.parked = Some(flow);
        }
        Ok(())
    }

    /// One turn: the plain insert and each step of the store, batch beside batch.
    async fn turn(&mut self, batches: usize) -> Outcomes<()> {
        for _ in 0..batches {
            let requests = self.requests(BATCH as u64, None, None);
            let arrivals: Vec<&Arrival> = requests.iter().flat_map(|request| &request.arrivals).collect();
            let start = self.watch.start();
            self.plain.insert(&arrivals)?;
            *self.took.entry("plain").or_default() += self.watch.since(start);
            let start = self.watch.start();
            self.store.accept(requests, clock(self.made)).await?;
            *self.took.entry("accept").or_default() += self.watch.since(start);

            let mut batch = vec![];
            while batch.len() < BATCH {
                self.fence += 1;
                let lease = Lease { node: self.node, fence: Fence(self.fence) };
                let quotas = self.quotas();
                let start = self.watch.start();
                let claimed = self.store.claim(quotas, lease, clock(self.made)).await?.claimed;
                *self.took.entry("claim").or_default() += self.watch.since(start);
                batch.extend(claimed);
            }
            let settled: Vec<Settlement> = batch.iter().map(settlement).collect();
            let start = self.watch.start();
            self.store.settle(settled, clock(self.made)).await?;
            *self.took.entry("settle").or_default() += self.watch.since(start);

            self.fence += 1;
            let lease = Lease { node: self.node, fence: Fence(self.fence) };
            let leased = self.requests(BATCH as u64, Some(lease), None);
            let settled = leased.iter().map(|request| delivered(&request.arrivals[0], lease)).collect();
            let start = self.watch.start();
            self.store.accept(leased, clock(self.made)).await?;
            *self.took.entry("accept leased").or_default() += self.watch.since(start);
            self.store.settle(settled, clock(self.made)).await?;
        }
        Ok(())
    }

    fn end_round(&mut self, batches: usize) {
        for (step, time) in std::mem::take(&mut self.took) {
            self.rates.entry(step).or_default().push((batches * BATCH) as f64 / time.as_secs_f64());
        }
    }

    /// A quota for each flow, all of them in every claim, and 0 for what is parked.
    fn quotas(&self) -> Vec<Quota> {
        let quota = |flow, limit| {
            let bucket = Bucket { flow, lane: Lane::Main, priority: Priority::Normal };
            Quota { bucket, limit }
        };
        let most = u32::try_from(BATCH).unwrap_or(u32::MAX);
        let flows = self.flows.iter().map(|(flow, _)| quota(*flow, most));
        self.parked.map(|flow| quota(flow, 0)).into_iter().chain(flows).collect()
    }

    /// New requests of one notification each, spread over the flows.
    fn requests(&mut self, count: u64, lease: Option<Lease>, later: Option<Duration>) -> Vec<Request> {
        (0..count).map(|_| self.request(lease, later)).collect()
    }

    fn request(&mut self, lease: Option<Lease>, later: Option<Duration>) -> Request {
        self.made += 1;
        let now = clock(self.made);
        let (flow, key) = &self.flows[self.random.usize(..self.flows.len())];
        let number = self.made;
        let body = format!(
            "{{\"event\":\"order.paid\",\"order\":{{\"id\":{number},\"total\":\"129.90\",\"currency\":\"EUR\",\
             \"customer\":\"cus_{:016x}\"}},\"note\":\"{}\"}}",
            self.random.u64(..),
            "thank you for your order ".repeat(6),
        );
        let (id, to) =
            (NotificationId::new(now, self.random.u128(..)), format!("{}/orders/{number}", key.destination));
        let notification = Notification {
            event_key: Some("order.paid".to_owned()),
            correlation_id: Some(format!("order-{number}")),
            ..Notification::new(id, key.clone(), to, Content::of(Body::Json(body)))
        };
        let due = later.map_or(now, |later| now.later(later));
        let arrival = Arrival { notification: Arc::new(notification), flow: *flow, due, lease };
        Request { idempotency: None, arrivals: vec![arrival] }
    }
}

/// The time at which the notification with that number is made.
fn clock(number: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + i64::try_from(number / RATE).unwrap_or(i64::MAX))
}

fn settlement(claimed: &Claimed) -> Settlement {
    outcome(claimed.notification.id, claimed.lease)
}

fn delivered(arrival: &Arrival, lease: Lease) -> Settlement {
    outcome(arrival.notification.id, lease)
}

/// A delivery by the first attempt.
fn outcome(id: NotificationId, lease: Lease) -> Settlement {
    let attempt = Attempt {
        generation: 1,
        number: 1,
        started_at: id.made_at(),
        duration: Duration::from_micros(48_211),
        outcome: Outcome::Delivered,
        status_code: Some(200),
        error: None,
        last_try_at: None,
        quick_tries: vec![],
        provider: None,
        message_id: None,
        response: None,
    };
    Settlement { id, lease, cancel_seen: true, attempt: Some(attempt), next: Next::End(Ending::Delivered) }
}

/// One table with the id as its key, the same columns as the store's wide row, and the same pragmas.
struct Plain {
    conn: rusqlite::Connection,
}

impl Plain {
    fn new(path: &Path) -> Outcomes<Self> {
        let conn = rusqlite::Connection::open(path)?;
        conn.pragma_update(None, "page_size", 8192)?;
        conn.pragma_update(None, "journal_mode", "wal")?;
        conn.pragma_update(None, "synchronous", "full")?;
        conn.pragma_update(None, "cache_size", -(48 << 10))?;
        conn.pragma_update(None, "wal_autocheckpoint", 2048)?;
        conn.execute_batch(
            "create table plain (
                id blob not null primary key,
                flow integer not null,
                recipient text not null,
                priority integer not null,
                template text,
                subject text,
                event_key text,
                correlation_id text,
                not_before integer,
                expires integer,
                content text not null
            ) without rowid",
        )?;
        Ok(Self { conn })
    }

    fn insert(&mut self, arrivals: &[&Arrival]) -> Outcomes<()> {
        let transaction = self.conn.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "insert into plain (id, flow, recipient, priority, template, subject, event_key, correlation_id,
                     not_before, expires, content)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?;
            for arrival in arrivals {
                let notification = &arrival.notification;
                insert.execute(params![
                    notification.id.to_bytes(),
                    arrival.flow.0,
                    notification.to,
                    notification.priority.code(),
                    notification.template,
                    notification.subject,
                    notification.event_key,
                    notification.correlation_id,
                    notification.not_before.map(Timestamp::as_micros),
                    notification.expires_at.map(Timestamp::as_micros),
                    serde_json::to_string(&notification.content)?,
                ])?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

/// The median with the least and the greatest.
fn spread(rates: &[f64]) -> (f64, f64, f64) {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    (at(sorted.len() / 2), at(0), at(sorted.len().saturating_sub(1)))
}

/// The share of a step against the plain insert, turn by turn.
fn shares(side: &Side, step: &str) -> Vec<f64> {
    side.rates[step].iter().zip(&side.rates["plain"]).map(|(rate, plain)| rate / plain).collect()
}

const STEPS: [&str; 5] = ["plain", "accept", "accept leased", "claim", "settle"];

fn table(sides: &[Side], resident: u64) -> String {
    let mut lines = vec![format!(
        "{:<16} {:<14} {:>9} {:>19} {:>7} {:>13} {:>9}",
        "store", "step", "rows/s", "least..greatest", "share", "least..most", "to first"
    )];
    for side in sides {
        for step in STEPS {
            let (rate, least, greatest) = spread(&side.rates[step]);
            let (share, low, high) = spread(&shares(side, step));
            let first = spread(&shares(&sides[0], step)).0;
            lines.push(format!(
                "{:<16} {step:<14} {rate:>9.0} {:>19} {share:>7.2} {:>13} {:>8.0}%",
                side.name,
                format!("{least:.0}..{greatest:.0}"),
                format!("{low:.2}..{high:.2}"),
                100.0 * share / first,
            ));
        }
    }
    lines.push(format!("resident: {} MB", resident >> 10));
    lines.join("\n")
}

fn json(sides: &[Side], resident: u64) -> String {
    let one = |side: &Side| {
        let steps = STEPS.map(|step| {
            let ((rate, least, greatest), share) = (spread(&side.rates[step]), spread(&shares(side, step)));
            serde_json::json!({
                "step": step, "rowsPerSecond": rate, "least": least, "greatest": greatest,
                "share": share.0, "leastShare": share.1, "greatestShare": share.2,
            })
        });
        serde_json::json!({ "store": side.name, "steps": steps })
    };
    let stores: Vec<_> = sides.iter().map(one).collect();
    serde_json::json!({ "batch": BATCH, "stores": stores, "residentKiB": resident }).to_string()
}
