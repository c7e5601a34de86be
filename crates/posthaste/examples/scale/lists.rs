//! `lists`: the first page of each list, with a million rows of others in front of what it shows.

use std::time::Duration;

use anyhow::ensure;
use posthaste::client::Client;
use posthaste::clock::SystemClock;
use posthaste_engine::clock::Clock as _;
use serde_json::Value;
use tokio::time::Instant;

use super::Setting;
use super::fill::{FAR, Waiting, run_sql};
use super::verdict::{Times, Verdict, shown};

const GOAL: Duration = Duration::from_millis(20);
/// How often each list is asked for.
const ROUNDS: usize = 20;
/// How many rows of b there are of each kind.
const FEW: u64 = 10;

/// A list, whose it is, its address, and how many rows its first page has.
const LISTS: [(&str, Whose, &str, usize); 10] = [
    ("a quiet tenant", Whose::B, "/v1/notifications", 50),
    ("a scattered tenant", Whose::C, "/v1/notifications", 50),
    ("one destination", Whose::All, "/v1/notifications?destination=http://0.b.example.com/x", 50),
    ("state retryScheduled", Whose::All, "/v1/notifications?state=retryScheduled", 10),
    ("state cancelled", Whose::All, "/v1/notifications?state=cancelled", 10),
    ("failed", Whose::B, "/v1/notifications/failed", 10),
    ("pending dead letters", Whose::All, "/v1/dead-letters", 10),
    ("a tenant's dead letters", Whose::B, "/v1/dead-letters?status=all", 10),
    ("a tenant's retry queue", Whose::B, "/v1/retry-queue", 10),
    ("a tenant's audit", Whose::B, "/v1/audit", 10),
];

#[derive(Clone, Copy)]
enum Whose {
    All,
    B,
    C,
}

/// Measures the first page of each list.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let rows = setting.size.unwrap_or(1_000_000);
    let (place, mut verdict) = (setting.place().await?, Verdict::default());
    let due = SystemClock.now().later(FAR);
    // What b has comes first, so that everything of a is in front of it.
    Waiting { tenant: "b", flows: 1, rows: FEW * 10, due, to: "http://127.0.0.1:9/" }.write(&place)?;
    run_sql(&place, &of_b())?;
    // The ids of a end at the moment of writing, a hundred in a millisecond.
    tokio::time::sleep(Duration::from_millis(rows / 100 + 200)).await;
    Waiting { tenant: "a", flows: 100, rows, due, to: "http://127.0.0.1:9/" }.write(&place)?;
    run_sql(&place, &of_a())?;
    run_sql(&place, &of_c(rows))?;
    // An older build has no such columns, and PostgreSQL fills them by itself.
    let _ = run_sql(&place, TENANTS);
    let server = setting.serve(&place).await?;
    let b = server.client(&server.key_for("b").await?)?;
    let (c, all) = (server.client(&server.key_for("c").await?)?, server.admin()?);
    for (what, whose, path, count) in LISTS {
        let client = match whose {
            Whose::B => &b,
            Whose::C => &c,
            Whose::All => &all,
        };
        one(client, what, path, count, &mut verdict).await?;
    }
    Ok(verdict)
}

async fn one(
    client: &Client,
    what: &str,
    path: &str,
    count: usize,
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    let (mut times, mut rows) = (vec![], 0);
    for _ in 0..ROUNDS {
        let from = Instant::now();
        let answer = client.get(path).await?;
        times.push(from.elapsed());
        ensure!(answer.status == http::StatusCode::OK, "{path} answers {}", answer.status);
        let page: Value = answer.json()?;
        rows = page["data"].as_array().map_or(0, Vec::len);
    }
    // The first look reads what no list has read yet.
    let cold = times.remove(0);
    verdict.wanted(
        format!("{what}: rows of the first page"),
        rows.to_string(),
        count.to_string(),
        rows == count,
    );
    verdict.note(format!("{what}: first look"), shown(cold));
    verdict.below(format!("{what}: first page"), &Times::of(times, vec![]), GOAL);
    Ok(())
}

/// Of b's rows ten each become retries, cancelled and dead letters that wait; ten acts of b are in the audit.
fn of_b() -> String {
    let flow = "(select min(id) from flow where tenant = 'b')";
    let next = |count: u64| {
        format!("(select id from queue where flow = {flow} and lane = 0 order by id limit {count})")
    };
    format!(
        "begin;
         update flow set destination = 'http://0.b.example.com:80' where id = {flow};
         update queue set lane = 1 where id in {few};
         {cancelled}
         {dead}
         insert into audit (tenant, actor, action, target, at, asked, count)
         {ten}
         select 'b', 'me', 'cancel', 'x', i, 1, 1 from n;
         -- The counters of all tenants are written with a's rows; no list looks at them.
         delete from counter;
         commit;",
        few = next(FEW),
        cancelled = ended(&next(FEW), 7),
        dead = ended(&next(FEW), 6),
        ten = numbers(FEW),
    )
}

/// Half of a's rows are delivered, a quarter are dead letters that were requeued and delivered; a did a hundred thousand acts.
fn of_a() -> String {
    let of_a = "flow in (select id from flow where tenant = 'a')";
    format!(
        "begin;
         insert into dead_letter (id, notification, flow, recipient, priority, content, reason, text, attempts, status,
             created_at)
         select id, id, flow, recipient, priority, content, 'PERMANENT_FAILURE', 'gone', '[]', 1, 0
         from notification
         where {of_a} and flow % 4 = 0;
         insert into ended (id, state, at, generation, base, attempt)
         select id, 2, 0, 1, 0, 1 from queue where {of_a} and flow % 4 < 3;
         delete from queue where {of_a} and flow % 4 < 3;
         insert into audit (tenant, actor, action, target, at, asked, count)
         {many}
         select 'a', 'me', 'cancel', 'x', i, 1, 1 from n;
         commit;",
        many = numbers(100_000),
    )
}

/// About sixty of a's rows, at equal distances, become those of c.
fn of_c(rows: u64) -> String {
    let every = (rows / 60).max(1);
    let to_c = |table: &str| {
        format!(
            "update {table}
             set flow = (select id from flow where tenant = 'c')
             where id in (
                 select id
                 from (select id, row_number() over (order by id) as n from notification) as numbered
                 where n % {every} = 0)"
        )
    };
    format!(
        "begin;
         insert into flow (tenant, channel, destination) values ('c', 0, 'http://0.c.example.com:80');
         {};
         {};
         commit;",
        to_c("notification"),
        to_c("queue"),
    )
}

const TENANTS: &str = "
    update ended
    set tenant = 'b'
    where state <> 2;
    update dead_letter
    set tenant = (select tenant from flow where flow.id = dead_letter.flow)
    where tenant is null";

fn numbers(count: u64) -> String {
    format!(
        "with recursive n (i) as (select cast(1 as bigint) union all select i + 1 from n where i < {count})"
    )
}

/// These rows of the queue end in that state, as dead letters where it is theirs.
fn ended(ids: &str, state: u8) -> String {
    let letters = if state == 6 {
        format!(
            "insert into dead_letter (id, notification, flow, recipient, priority, content, reason, text, attempts, status,
                 created_at)
             select id, id, flow, recipient, priority, content, 'PERMANENT_FAILURE', 'gone', '[]', 0, 0
             from notification
             where id in {ids};"
        )
    } else {
        String::new()
    };
    format!(
        "{letters}
         insert into ended (id, state, at, generation, base, attempt)
         select id, {state}, 0, 1, 0, 1 from notification where id in {ids};
         delete from queue where id in (select id from ended where state = {state});"
    )
}
