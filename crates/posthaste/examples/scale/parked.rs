//! `parked`: 100,000 notifications wait behind one destination that is down. That must cost nothing: neither while the server has
//! nothing else to do, nor beside other traffic.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use posthaste::bench::load::Bound;
use posthaste_wire::sink::Sink;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::Setting;
use super::load::{Rig, Way};
use super::neighbour::{KEEP, sink};
use super::operation::sample;
use super::place::Place;
use super::server::Server;
use super::verdict::{Spread, Times, Verdict, shown};

const ROWS: u64 = 100_000;
/// How many are in a request.
const BATCH: u64 = 500;
/// How many meet the receiver before its breaker opens: enough for the threshold that is built in.
const FIRST: u64 = 20;
/// How long a server is left alone before it is watched, and how long it is watched.
const SETTLE: Duration = Duration::from_secs(20);
/// The same with parked rows. Its breaks are 10, 20, 40, 80 and 160 s long at first, so one probe falls into the time; later it is
/// one in 5 min.
const SETTLE_PARKED: Duration = Duration::from_secs(100);
const WATCHED: Duration = Duration::from_secs(60);
/// How many bytes more may be written while they are parked.
const MORE: u64 = 300_000;
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(3);
const RATE_GOAL: f64 = 0.95;
/// How much longer the way may take, unless it takes at most a quarter longer.
const DELAY_GOAL: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures without other traffic, and then beside it.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let (rows, mut verdict) = (setting.size.unwrap_or(ROWS), Verdict::default());
    idle(setting, rows, &mut verdict).await?;
    beside(setting, rows, &mut verdict).await?;
    Ok(verdict)
}

/// A receiver that is down, its breaker open, and so many notifications that wait for it.
async fn park(server: &Server, rows: u64) -> anyhow::Result<Sink> {
    let (down, client) = (sink(0).await?, server.client(&server.key_for("a").await?)?);
    let policy = json!({"strategy": "fixed", "initialDelay": "1h", "maxAttempts": 9, "quick": {"tries": 0}});
    let one = json!({"channel": "webhook", "to": down.url("/status/503"), "body": {"order": 4711}, "policy": policy});
    let send = async |count: u64| {
        let batch = json!({"notifications": vec![&one; usize::try_from(count)?]});
        let answer = client.post("/v1/notifications/batch", &batch).await?;
        ensure!(answer.status.is_success(), "{}", String::from_utf8_lossy(&answer.body));
        Ok(())
    };
    send(FIRST).await?;
    timeout(PATIENCE, down.wait_for(FIRST / 2)).await.context("nothing met the receiver that is down")?;
    sleep(Duration::from_secs(2)).await;
    let failed = down.received();
    let mut left = rows;
    while left > 0 {
        send(left.min(BATCH)).await?;
        left -= left.min(BATCH);
    }
    let more = down.received() - failed;
    ensure!(more <= 10, "{more} were sent to a receiver that is down: its breaker is not open");
    Ok(down)
}

async fn idle(setting: &Setting, rows: u64, verdict: &mut Verdict) -> anyhow::Result<()> {
    let place = setting.place().await?;
    let server = setting.serve(&place).await?;
    let alone = written(&server, &place, SETTLE).await?;
    let down = park(&server, rows).await?;
    let probes = down.received();
    let parked = written(&server, &place, SETTLE_PARKED).await?;
    let probes = down.received() - probes;
    let megabytes = |bytes: u64| format!("{:.2} MB", bytes as f64 / 1e6);
    let seconds = WATCHED.as_secs();
    verdict.note(format!("written in {seconds} s by an idle server"), megabytes(alone));
    verdict.wanted(
        format!("{rows} parked: written in {seconds} s"),
        megabytes(parked),
        format!("at most {} more", megabytes(MORE)),
        parked <= alone + MORE,
    );
    verdict.note(
        format!("{rows} parked: probes in {} s", (SETTLE_PARKED + WATCHED).as_secs()),
        probes.to_string(),
    );
    verdict.note(format!("{rows} parked: most memory"), format!("{} MiB", server.peak_memory()?));
    down.stop().await;
    Ok(())
}

/// What the server writes while nothing is asked of it; with a database the bytes of its log, too.
async fn written(server: &Server, place: &Place, settle: Duration) -> anyhow::Result<u64> {
    let bytes = || anyhow::Ok(server.0.proc("io", "write_bytes:")? + place.wal()?);
    sleep(settle).await;
    let before = bytes()?;
    sleep(WATCHED).await;
    Ok(bytes()?.saturating_sub(before))
}

/// Two servers take turns: one with the parked rows and one without.
async fn beside(setting: &Setting, rows: u64, verdict: &mut Verdict) -> anyhow::Result<()> {
    let rig = Rig::keeping(KEEP).await?;
    let (empty, full) = (setting.place().await?, setting.place().await?);
    let servers = [setting.serve(&empty).await?, setting.serve(&full).await?];
    let down = park(&servers[1], rows).await?;
    for way in [Way::Single, Way::Batch] {
        let mut rates = [vec![], vec![]];
        for _ in 0..ROUNDS {
            for (server, rates) in servers.iter().zip(&mut rates) {
                rates.push(rate(&rig, server, way).await?);
            }
        }
        let shares = rates[0].iter().zip(&rates[1]).map(|(alone, beside)| beside / alone);
        let share = Spread::of(shares.collect());
        let name = format!("{rows} parked: {}", way.name());
        verdict.note(format!("{name}: a second without them"), Spread::of(rates[0].clone()).shown(0));
        verdict.wanted(
            format!("{name}: rate as a share of that"),
            share.shown(2),
            format!("at least {RATE_GOAL}"),
            share.median >= RATE_GOAL,
        );
    }
    delays(&rig, &servers, rows, verdict).await?;
    down.stop().await;
    Ok(())
}

/// Notifications that arrived a second.
async fn rate(rig: &Rig, server: &Server, way: Way) -> anyhow::Result<f64> {
    let (letter, received) = (rig.letter(server, way)?, rig.sink.received());
    let sent =
        rig.sender.over(way.connections()).flood(&[letter], Bound::Time(TIME), Some(&rig.sink)).await?;
    ensure!(sent.failures.first.is_none(), "{}", sent.failures.text().unwrap_or_default());
    let arrived = timeout(PATIENCE, rig.sink.wait_for(received + sent.accepted)).await;
    arrived.context("not everything that was accepted arrived")?;
    let rate = sent.accepted as f64 / sent.started.elapsed().as_secs_f64();
    recorded(server).await?;
    Ok(rate)
}

/// Waits until nothing is being sent: what is parked stays queued.
async fn recorded(server: &Server) -> anyhow::Result<()> {
    let client: Arc<_> = Arc::new(server.admin()?);
    let at_rest = async {
        loop {
            let stats: Value = client.get("/v1/stats").await?.json()?;
            if stats["sending"] == 0 {
                return anyhow::Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, at_rest).await.context("something is still being sent")?
}

/// The times from send to arrival at half of the rate.
async fn delays(rig: &Rig, servers: &[Server; 2], rows: u64, verdict: &mut Verdict) -> anyhow::Result<()> {
    let half = rate(rig, &servers[0], Way::Single).await? / 2.0;
    let mut late = [vec![], vec![]];
    for _ in 0..ROUNDS {
        for (server, late) in servers.iter().zip(&mut late) {
            let times: Times = sample(rig, server, half).await?;
            ensure!(times.is_complete(), "not everything arrived: {}", times.described());
            late.push(times.quantile(0.99).as_secs_f64());
        }
    }
    let [alone, parked] = late.map(|rounds| Duration::from_secs_f64(Spread::of(rounds).median));
    let goal = alone.mul_f64(1.25).max(alone + DELAY_GOAL);
    let name = format!("half load ({half:.0}/s): send to arrival, median of {ROUNDS} p99");
    verdict.note(format!("{name}, without them"), shown(alone));
    verdict.wanted(
        format!("{name}, with {rows} parked"),
        shown(parked),
        format!("at most {}", shown(goal)),
        parked <= goal,
    );
    Ok(())
}
