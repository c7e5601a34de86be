//! Rows in bulk: what would take the API hours is written by SQL before the server starts.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use posthaste::clock::SystemClock;
use posthaste_core::channel::Channel;
use posthaste_core::notification::{Body, Content, Priority};
use posthaste_core::policy::PolicyLayer;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock as _;
use posthaste_engine::store::Progress;
use rusqlite::Connection;
use serde_json::json;
use tokio::task::block_in_place;

use super::place::Place;

/// How far away a day is on which nothing is measured.
pub(crate) const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Notifications of one tenant that wait for an attempt.
pub(crate) struct Waiting<'a> {
    pub(crate) tenant: &'a str,
    /// How many destinations it has. They are names alone: everything goes to one address.
    pub(crate) flows: u64,
    /// How many notifications, spread evenly over the destinations.
    pub(crate) rows: u64,
    pub(crate) due: Timestamp,
    /// The address that all of them go to.
    pub(crate) to: &'a str,
}

impl Waiting<'_> {
    /// Writes them. The server must not run on a file yet.
    pub(crate) fn write(&self, place: &Place) -> anyhow::Result<()> {
        self.write_in(Lane::Main, place)
    }

    /// The same in that lane: in that of retries they wait for their second attempt.
    pub(crate) fn write_in(&self, lane: Lane, place: &Place) -> anyhow::Result<()> {
        let began = SystemClock.now();
        block_in_place(|| match place.file() {
            Some(file) => run_in_file(&file, &self.sql(lane, Dialect::SQLITE)?),
            None => run_in_database(place, &self.sql(lane, Dialect::POSTGRES)?),
        })?;
        let took = SystemClock.now().since(began);
        eprintln!("  {} rows in {} flows written in {:.1} s", self.rows, self.flows, took.as_secs_f64());
        Ok(())
    }

    fn sql(&self, lane: Lane, dialect: Dialect) -> anyhow::Result<String> {
        let Self { tenant, flows, rows, due, to } = self;
        let Dialect { id, writer } = dialect;
        let (channel, priority) = (Channel::Webhook.code(), Priority::Normal.code());
        let Progress { generation, attempt, base } = match lane {
            Lane::Main => Progress::START,
            Lane::Retry => Progress { attempt: 2, ..Progress::START },
        };
        let (lane, due, made) = (lane.code(), due.as_micros(), made(*rows).as_millis());
        let content = content()?;
        Ok(format!(
            "begin;
             insert into flow (tenant, channel, destination)
             with recursive n (i) as (select cast(0 as bigint) union all select i + 1 from n where i < {flows} - 1)
             select '{tenant}', {channel}, 'http://' || i || '.example.com:80'
             from n;
             create temp table filled as
             with recursive n (i) as (select cast(0 as bigint) union all select i + 1 from n where i < {rows} - 1)
             select {id} as id, i % {flows} + (select min(id) from flow where tenant = '{tenant}') as flow
             from (select i, {made} + i / {PER_MILLISECOND} as made from n) as numbered;
             insert into notification (id, flow, recipient, priority, content)
             select id, flow, '{to}', {priority}, '{content}'
             from filled;
             insert into queue (id, flow, lane, priority, due, first_due, delay, attempt, base, generation,
                 interruptions, cancel)
             select id, flow, {lane}, {priority}, {due}, {due}, 0, {attempt}, {base}, {generation}, 0, false
             from filled;
             insert into counter (tenant, channel, kind, hour, {writer} n)
             values ('{tenant}', {channel}, {lane}, 0, {writer_value} {rows}),
                 ('', {channel}, {lane}, 0, {writer_value} {rows});
             drop table filled;
             commit;",
            writer_value = if writer.is_empty() { "" } else { "0," },
        ))
    }
}

/// How many ids are made in a millisecond.
const PER_MILLISECOND: u64 = 100;

/// When the first of so many ids is made, so that the last of them is made just now.
fn made(rows: u64) -> Timestamp {
    SystemClock.now().earlier(Duration::from_millis(rows / PER_MILLISECOND + 1))
}

/// A small body, and a policy that retries a few times.
pub(crate) fn content() -> anyhow::Result<String> {
    let policy = json!({
        "strategy": "fixed", "initialDelay": "1s", "jitter": "none", "maxAttempts": 100, "quick": {"tries": 0},
        "timeout": "10s",
    });
    let policy = PolicyLayer::from_json(&policy).map_err(|bad| anyhow::anyhow!("{bad}"))?;
    let content = Content { policy: Some(policy), ..Content::of(Body::Json("{}".to_owned())) };
    Ok(serde_json::to_string(&content)?)
}

/// Where the two stores differ.
pub(crate) struct Dialect {
    /// An id from the columns `made` (milliseconds) and `i`: a UUIDv7 without chance in it.
    pub(crate) id: &'static str,
    /// The further column of a counter.
    writer: &'static str,
}

impl Dialect {
    pub(crate) const SQLITE: Self = Self { id: "unhex(printf('%012x70008000%012x', made, i))", writer: "" };
    pub(crate) const POSTGRES: Self = Self {
        id: "(lpad(to_hex(made), 12, '0') || '70008000' || lpad(to_hex(i), 12, '0'))::uuid",
        writer: "writer,",
    };
}

/// Runs statements in a store that no server uses.
pub(crate) fn run_sql(place: &Place, sql: &str) -> anyhow::Result<()> {
    block_in_place(|| match place.file() {
        Some(file) => run_in_file(&file, sql),
        None => run_in_database(place, sql),
    })
}

/// Runs statements in a file that no server uses. Nothing is to survive a power cut.
pub(crate) fn run_in_file(file: &Path, sql: &str) -> anyhow::Result<()> {
    let conn = Connection::open(file)?;
    conn.execute_batch("pragma synchronous = off; pragma cache_size = -500000; pragma temp_store = memory;")?;
    conn.execute_batch(sql).context("the rows were not written")?;
    conn.execute_batch("pragma wal_checkpoint(truncate);")?;
    Ok(())
}

/// Runs statements in the database, and brings it into the state of one that has been used for a while.
pub(crate) fn run_in_database(place: &Place, sql: &str) -> anyhow::Result<()> {
    place.sql(&format!("set synchronous_commit = off; set work_mem = '256MB'; {sql}"))?;
    for tidy in ["vacuum (analyze)", "checkpoint"] {
        place.sql(tidy)?;
    }
    Ok(())
}
