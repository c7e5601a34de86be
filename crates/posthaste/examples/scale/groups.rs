//! `groups`: the job that fills failure groups of dead letters from before, lists of a million dead letters by group, and what the
//! groups cost a settlement that buries.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use posthaste::client::Client;
use posthaste::clock::SystemClock;
use posthaste_core::group::GroupBy;
use posthaste_engine::clock::Clock as _;
use posthaste_engine::store::Store as Seam;
use posthaste_store::postgres::{PostgresOptions, PostgresStore};
use posthaste_store::sqlite::{Options, SqliteStore};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Setting;
use super::burials::{BATCH, Burials, Spreading};
use super::fill::{Dialect, content, run_sql};
use super::neighbour::sink;
use super::operation::{percentile, sends};
use super::place::Place;
use super::server::Server;
use super::verdict::{Times, Verdict, shown};

/// What the dead letters from before have in common. Their tenants and templates are fewer, their causes are 520.
const DESTINATIONS: u64 = 12_000;
const TENANTS: u64 = 20;
const TEMPLATES: u64 = 30;
/// A day: the hours of groups reach back so far.
const SPREAD: Duration = Duration::from_secs(24 * 3_600);
/// The longest that the job may take.
const PATIENCE: Duration = Duration::from_secs(3_000);
/// How long single sends are measured without the job.
const ALONE: Duration = Duration::from_secs(10);
const LIST_GOAL: Duration = Duration::from_millis(50);
/// How often each list is asked for.
const LISTS: usize = 20;
/// How many settlements are measured with the groups, and as many without.
const ROUNDS: usize = 15;

/// Measures the job, the lists and burials. `--size` is the number of dead letters from before.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let (rows, mut verdict) = (setting.size.unwrap_or(1_000_000), Verdict::default());
    let place = setting.place().await?;
    let begun = Instant::now();
    run_sql(&place, &letters(&place, rows)?)?;
    eprintln!("  {rows} dead letters written in {:.1} s", begun.elapsed().as_secs_f64());
    let server = setting.serve(&place).await?;
    fill(&server, rows, &mut verdict).await?;
    lists(&server.admin()?, "all tenants", &mut verdict).await?;
    lists(&server.client(&server.key_for("t7").await?)?, "a tenant", &mut verdict).await?;
    server.0.stop().await?;
    bury(&place, &mut verdict).await?;
    Ok(verdict)
}

/// Dead letters as a version before wrote them, from the earliest on.
fn letters(place: &Place, rows: u64) -> anyhow::Result<String> {
    let in_file = place.file().is_some();
    let (Dialect { id, .. }, letter) =
        if in_file { (Dialect::SQLITE, "char") } else { (Dialect::POSTGRES, "chr") };
    let first = SystemClock.now().earlier(SPREAD).as_millis();
    let (spread, content) = (SPREAD.as_millis(), content()?);
    let number = |count: u64| {
        format!(
            "with recursive n (i) as (select cast(0 as bigint) union all select i + 1 from n where i < {count} - 1)"
        )
    };
    Ok(format!(
        "begin;
         insert into flow (tenant, channel, destination)
         {flows}
         select 't' || i % {TENANTS}, 0, 'https://d' || i || '.example:443'
         from n;
         insert into dead_letter (id, notification, flow, priority, recipient, template, content, reason, text, attempts,
             failure, status_code, status, created_at, tenant)
         {numbers}
         select {id}, {id}, flow.id, 2, 'r', 't' || i % {TEMPLATES}, '{content}', 'MAX_ATTEMPTS_EXCEEDED',
             'answered 503: upstream ' || {letter}(cast(97 + i % 26 as integer)) || {letter}(cast(97 + i / 26 % 20 as integer))
                 || ' said no to ' || i,
             '[]', 1, 503, 0, made * 1000, flow.tenant
         from (select i, {first} + i * {spread} / {rows} as made from n) as numbered
         join flow
         on flow.destination = 'https://d' || i % {DESTINATIONS} || '.example:443';
         commit;",
        flows = number(DESTINATIONS),
        numbers = number(rows),
    ))
}

/// Runs the job beside single sends.
async fn fill(server: &Server, rows: u64, verdict: &mut Verdict) -> anyhow::Result<()> {
    let (client, receiver) = (server.admin()?, sink(0).await?);
    let to = receiver.url("/ok");
    let alone = sends(&client, &to, sleep(ALONE)).await?;
    let begun = Instant::now();
    let job = async {
        // If it is running already, this is refused.
        client.post("/v1/jobs/failure-groups/run", &json!({})).await?;
        filled(&client, rows).await
    };
    let mut end = Ok(());
    let beside = sends(&client, &to, async { end = job.await }).await?;
    end?;
    let took = begun.elapsed();
    let each = took.as_secs_f64() * 1e6 / rows as f64;
    verdict.note(format!("the job, for {rows} dead letters"), format!("{}, {each:.0} us each", shown(took)));
    verdict.note("answer to a send without it: 99th percentile", shown(percentile(alone)));
    verdict.note("answer to a send meanwhile: 99th percentile", shown(percentile(beside)));
    Ok(())
}

/// Waits until a run of the job has filled everything.
async fn filled(client: &Client, rows: u64) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let runs: Value = client.get("/v1/jobs/failure-groups/runs").await?.json()?;
        let runs = runs["data"].as_array().context("the job has no history")?;
        let ended = runs.iter().filter(|run| run["finishedAt"].is_string());
        if ended.filter_map(|run| run["count"].as_u64()).sum::<u64>() >= rows {
            return Ok(());
        }
        ensure!(Instant::now() < until, "the job did not end: {runs:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// The first page of the groups of each kind, and of the dead letters of one group.
async fn lists(client: &Client, whose: &str, verdict: &mut Verdict) -> anyhow::Result<()> {
    let mut group = None;
    for by in GroupBy::ALL.map(GroupBy::name) {
        let page = list(
            client,
            &format!("/v1/failure-groups?by={by}&limit=50"),
            &format!("groups by {by}, {whose}"),
            verdict,
        )
        .await?;
        group = group.or_else(|| page["data"][0]["id"].as_str().map(str::to_owned));
    }
    let group = group.context("there is no group")?;
    let name = format!("dead letters of a group, {whose}");
    list(client, &format!("/v1/dead-letters?group={group}"), &name, verdict).await?;
    Ok(())
}

async fn list(client: &Client, path: &str, name: &str, verdict: &mut Verdict) -> anyhow::Result<Value> {
    let (mut times, mut page) = (vec![], Value::Null);
    for _ in 0..LISTS {
        let from = Instant::now();
        let answer = client.get(path).await?;
        times.push(from.elapsed());
        ensure!(answer.status == http::StatusCode::OK, "{path} answers {}", answer.status);
        page = answer.json()?;
    }
    ensure!(page["data"].as_array().is_some_and(|rows| !rows.is_empty()), "{path} shows nothing");
    // The first look reads what no list has read yet.
    verdict.note(format!("{name}: first look"), shown(times.remove(0)));
    verdict.below(name, &Times::of(times, vec![]), LIST_GOAL);
    Ok(page)
}

/// Settlements that bury, by the store itself, with the groups and without them in turns.
async fn bury(place: &Place, verdict: &mut Verdict) -> anyhow::Result<()> {
    let store: Arc<dyn Seam> = match place.file() {
        Some(file) => Arc::new(SqliteStore::open(file, Options::default())?),
        None => Arc::new(PostgresStore::connect(&place.url(), PostgresOptions::default()).await?),
    };
    let mut burials = Burials::new(store).await?;
    for spreading in Spreading::ALL {
        let (mut with, mut without) = (vec![], vec![]);
        for _ in 0..ROUNDS {
            count_groups(place, Counting::On)?;
            with.push(burials.settle(spreading).await?);
            count_groups(place, Counting::Off)?;
            without.push(burials.settle(spreading).await?);
        }
        let (with, without) = (Times::of(with, vec![]), Times::of(without, vec![]));
        let [usual, least] =
            [&with, &without].map(|times| times.quantile(0.5).as_secs_f64() * 1e6 / BATCH as f64);
        let name = format!("a settlement that buries {BATCH}, {}", spreading.name());
        verdict.note(format!("{name}: without groups"), without.described());
        verdict.note(format!("{name}: with them"), with.described());
        verdict.note(format!("{name}: the groups cost"), format!("{:.0} us a dead letter", usual - least));
    }
    count_groups(place, Counting::On)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Counting {
    On,
    Off,
}

/// Switches the groups of new dead letters on or off. PostgreSQL keeps them by a trigger. In a file the program does, for dead
/// letters with a fingerprint: a trigger takes it away, or writes it once more, so that both ways have the trigger in their time.
fn count_groups(place: &Place, counting: Counting) -> anyhow::Result<()> {
    let Some(file) = place.file() else {
        let how = if counting == Counting::On { "enable" } else { "disable" };
        place.sql(&format!("alter table dead_letter {how} trigger failure_group_insert"))?;
        return Ok(());
    };
    let fingerprint = if counting == Counting::On { "new.fingerprint" } else { "null" };
    rusqlite::Connection::open(file)?.execute_batch(&format!(
        "drop trigger if exists scale_groups;
         create trigger scale_groups after insert on dead_letter begin
             update dead_letter set fingerprint = {fingerprint} where id = new.id;
         end;"
    ))?;
    Ok(())
}
