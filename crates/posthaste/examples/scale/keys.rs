//! `keys`: at midnight the table of the idempotency keys of two days ago has its turn again, with millions of keys in it.
//!
//! The table is filled as it would be found by the first request of the day, which is the first that carries a key.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};
use posthaste::client::Client;
use posthaste::clock::SystemClock;
use posthaste_core::time::micros;
use posthaste_engine::clock::Clock as _;
use posthaste_engine::store::Idempotency;
use serde_json::json;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep};

use super::Setting;
use super::fill::{run_in_database, run_in_file};
use super::neighbour::sink;
use super::server::Readiness;
use super::verdict::{Times, Verdict};

/// How many connections send, half of them with keys.
const CONNECTIONS: usize = 8;
const WATCHED: Duration = Duration::from_secs(10);
const GOAL: Duration = Duration::from_millis(100);

/// Measures the longest sends while the table is made ready for its day, and the same with next to no keys in it: what the
/// disk and the rest of the machine do is in both.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::default();
    for keys in [1, setting.size.unwrap_or(3_000_000)] {
        one(setting, keys, &mut verdict).await?;
    }
    Ok(verdict)
}

async fn one(setting: &Setting, keys: u64, verdict: &mut Verdict) -> anyhow::Result<()> {
    let (place, sink) = (setting.place().await?, sink(0).await?);
    block_in_place(|| match place.file() {
        Some(file) => run_in_file(&file, &sql(keys, "zeroblob")),
        None => run_in_database(&place, &sql(keys, "pg_temp.zeroblob")),
    })?;
    let server = setting.serve(&place).await?;
    let (key, readiness) = (server.key_for("b").await?, Readiness::watch(&server)?);
    let body: Arc<str> = json!({"channel": "webhook", "to": sink.url("/ok"), "body": {}}).to_string().into();
    let mut senders = JoinSet::new();
    for number in 0..CONNECTIONS {
        senders.spawn(send(server.client(&key)?, number, body.clone()));
    }
    let (mut keyed, mut plain) = (vec![], vec![]);
    for (number, took) in senders.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()? {
        if has_keys(number) { &mut keyed } else { &mut plain }.extend(took);
    }
    let name = format!("{keys} old key{}", if keys == 1 { "" } else { "s" });
    verdict.below(format!("{name}: longest send with a key"), &Times::of(keyed, vec![]), GOAL);
    verdict.below(format!("{name}: longest send without one"), &Times::of(plain, vec![]), GOAL);
    let (asked, not) = readiness.seen();
    verdict.wanted(format!("{name}: /readyz not 200"), format!("{not} of {asked}"), "never", not == 0);
    Ok(())
}

/// The keys of the day before yesterday, in the table whose turn it is today.
fn sql(keys: u64, zeroblob: &str) -> String {
    let life = micros(Idempotency::LIFE);
    let day = SystemClock.now().as_micros().div_euclid(life);
    let (turn, table) =
        (day.rem_euclid(2), ["idempotency_even", "idempotency_odd"][usize::from(day.rem_euclid(2) == 1)]);
    let function = if zeroblob == "zeroblob" {
        ""
    } else {
        "create function pg_temp.zeroblob(n integer) returns bytea
         language sql immutable as $$ select decode(repeat('00', n), 'hex') $$;"
    };
    format!(
        "{function}
         insert into {table} (tenant, key, hash, answer, at)
         with recursive n (i) as (select cast(0 as bigint) union all select i + 1 from n where i < {keys} - 1)
         select 'b', 'order-' || i || '-paid', {zeroblob}(32), {zeroblob}(200), {at}
         from n;
         delete from idempotency_day where turn = {turn};
         insert into idempotency_day (turn, day) values ({turn}, {day} - 2);",
        at = (day - 2) * life + life / 2,
    )
}

const fn has_keys(number: usize) -> bool {
    number.is_multiple_of(2)
}

/// Sends one after the other; answers how long each took.
async fn send(client: Client, number: usize, body: Arc<str>) -> anyhow::Result<(usize, Vec<Duration>)> {
    let (begun, mut took) = (Instant::now(), vec![]);
    while begun.elapsed() < WATCHED {
        let key = HeaderValue::from_str(&format!("new-{number}-{}", took.len()))?;
        let header = (HeaderName::from_static("idempotency-key"), key);
        let headers: Vec<_> = has_keys(number).then_some(header).into_iter().collect();
        let from = Instant::now();
        let answer =
            client.send(Method::POST, "/v1/notifications", &headers, Bytes::from(body.to_string())).await?;
        anyhow::ensure!(answer.status == StatusCode::ACCEPTED, "a send was answered with {}", answer.status);
        took.push(from.elapsed());
        sleep(Duration::from_millis(5)).await;
    }
    Ok((number, took))
}
