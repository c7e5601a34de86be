//! The keys under which repeated requests are known, in two tables that take turns of a day each.
//!
//! Invariant: of requests with one key that come at the same time, whoever inserts the key first is new; the others wait
//! for its commit and then read its answer. The tables are emptied by `truncate`, and only when a day begins.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use posthaste_core::time::{Timestamp, micros};
use posthaste_engine::store::{Accepted, FirstAnswer, Idempotency, Request};
use tokio_postgres::error::SqlState;

use super::fault::{Fault, Result};
use super::planted::Planted;
use super::rows::Columns;
use super::tx::{Mode, Then, Tx, bind, step};

/// The tables by their turns.
const TABLES: [&str; 2] = ["idempotency_even", "idempotency_odd"];

/// For so long after a day began, a key is taken in yesterday's table first: somebody whose request came just before
/// midnight may be taking it there at this moment.
const OVERLAP: Duration = Duration::from_secs(300);

/// The days that the two tables are known to hold.
pub(super) struct Days([AtomicI64; 2]);

impl Default for Days {
    fn default() -> Self {
        Self([AtomicI64::new(i64::MIN), AtomicI64::new(i64::MIN)])
    }
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy)]
struct Turn {
    day: i64,
    /// The table of the day.
    table: usize,
    /// Whether the day before may still be going on elsewhere.
    overlap: bool,
}

impl Turn {
    fn at(now: Timestamp) -> Self {
        let life = micros(Idempotency::LIFE);
        let (day, into) = (now.as_micros().div_euclid(life), now.as_micros().rem_euclid(life));
        Self { day, table: usize::from(day.rem_euclid(2) == 1), overlap: into < micros(OVERLAP) }
    }
}

impl Days {
    /// Whether the table of that moment holds its day already.
    pub(super) fn ready(&self, now: Timestamp) -> bool {
        let turn = Turn::at(now);
        self.0[turn.table].load(Ordering::Relaxed) >= turn.day
    }

    /// Empties the table whose turn has come, unless somebody has: what it holds is a day old or older. This is a
    /// transaction by itself, before the first key of the day. Where the table cannot be had within a moment, because
    /// somebody reads it for long, it keeps its old rows for another turn; nobody takes them for known.
    pub(super) async fn turn(&self, tx: &Tx, now: Timestamp) -> Result<()> {
        let Turn { day, table, .. } = Turn::at(now);
        let number = i64::from(table == 1);
        let locked = "select day from idempotency_day where turn = $1 for update";
        let steps = [step!(locked, bind![number => INT8])];
        let rows = tx.send(Some(Mode::Write), &steps, Then::GoOn).await?.pop().unwrap_or_default();
        let row = rows.first().ok_or_else(|| Fault::nonsense("idempotency_day lacks a row"))?;
        let held: i64 = Columns::of(row).take()?;
        if held < day {
            let emptied = tx
                .batch(&format!(
                    "savepoint before_truncate; set local lock_timeout = '200ms'; truncate {}",
                    TABLES[table]
                ))
                .await;
            match emptied {
                Ok(()) => {}
                Err(Fault::Postgres(error)) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                    tracing::warn!(table = TABLES[table], "old idempotency keys stay for another turn");
                    tx.batch("rollback to savepoint before_truncate").await?;
                }
                Err(fault) => return Err(fault),
            }
            let sql = "update idempotency_day set day = $2 where turn = $1";
            tx.rows(sql, bind![number => INT8, day => INT8]).await?;
        }
        tx.batch("commit").await?;
        self.0[table].store(held.max(day), Ordering::Relaxed);
        Ok(())
    }
}

/// A key with whose it is.
type Name<'r> = (&'r str, &'r str);

/// What each request is answered, in a transaction that this begins: those that are new have taken their keys.
pub(super) async fn answers(
    tx: &Tx,
    days: &Days,
    requests: &[Request],
    now: Timestamp,
) -> Result<Vec<Accepted>> {
    debug_assert!(days.ready(now), "the table of the day was made ready before");
    // The first request of each key in this call speaks for it. Sorted, so that calls take keys in the same order.
    let mut firsts: BTreeMap<Name<'_>, &Idempotency> = BTreeMap::new();
    for key in requests.iter().filter_map(|request| request.idempotency.as_ref()) {
        firsts.entry((key.tenant.as_str(), &key.key)).or_insert(key);
    }
    let turn = Turn::at(now);
    let taken = take(tx, turn, &firsts, now).await?;
    let lost: Vec<Name<'_>> = firsts.keys().filter(|name| !taken.contains(*name)).copied().collect();
    let known = if lost.is_empty() { HashMap::new() } else { read(tx, turn, &lost, now).await? };
    let mut used: HashSet<Name<'_>> = HashSet::new();
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        let Some(key) = &request.idempotency else {
            answers.push(Accepted::New);
            continue;
        };
        let name = (key.tenant.as_str(), key.key.as_str());
        if (taken.contains(&name) && used.insert(name)) || tx.bug(Planted::TwinStoredTwice) {
            answers.push(Accepted::New);
            continue;
        }
        let first = firsts.get(&name).filter(|_| taken.contains(&name));
        let (hash, answer) = match (first, known.get(&(name.0.to_owned(), name.1.to_owned()))) {
            (Some(first), _) => (&first.hash[..], &first.answer),
            (None, Some((hash, answer))) => (&hash[..], answer),
            (None, None) => return Err(Fault::nonsense("a key is neither new nor known")),
        };
        answers.push(if hash == key.hash { Accepted::Twin(answer.clone()) } else { Accepted::Conflict });
    }
    Ok(answers)
}

/// Takes the keys that nobody has taken within a day, and answers which.
async fn take<'r>(
    tx: &Tx,
    turn: Turn,
    firsts: &BTreeMap<Name<'r>, &'r Idempotency>,
    now: Timestamp,
) -> Result<HashSet<Name<'r>>> {
    let (today, yesterday) = (TABLES[turn.table], TABLES[1 - turn.table]);
    let mut keys: Vec<&Idempotency> = firsts.values().copied().collect();
    let mut begin = Some(Mode::Write);
    if turn.overlap {
        let won = take_in(tx, begin.take(), &taking(yesterday, Some(today)), &keys, now).await?;
        keys.retain(|key| won.contains(&(key.tenant.as_str().to_owned(), key.key.clone())));
    }
    let sql = taking(today, (!turn.overlap).then_some(yesterday));
    let won = take_in(tx, begin, &sql, &keys, now).await?;
    let is_won = |name: &&Name<'r>| won.contains(&(name.0.to_owned(), name.1.to_owned()));
    Ok(firsts.keys().filter(is_won).copied().collect())
}

async fn take_in(
    tx: &Tx,
    begin: Option<Mode>,
    sql: &str,
    keys: &[&Idempotency],
    now: Timestamp,
) -> Result<HashSet<(String, String)>> {
    let tenants: Vec<&str> = keys.iter().map(|key| key.tenant.as_str()).collect();
    let names: Vec<&str> = keys.iter().map(|key| key.key.as_str()).collect();
    let hashes: Vec<&[u8]> = keys.iter().map(|key| &key.hash[..]).collect();
    let answers: Vec<&[u8]> = keys.iter().map(|key| &key.answer[..]).collect();
    let bound = bind![
        tenants => TEXT_ARRAY,
        names => TEXT_ARRAY,
        hashes => BYTEA_ARRAY,
        answers => BYTEA_ARRAY,
        now.as_micros() => INT8,
        forgotten(now) => INT8,
    ];
    let mut rows = tx.send(begin, &[step!(sql, bound)], Then::GoOn).await?;
    let won = rows.pop().unwrap_or_default();
    won.iter().map(|row| name(&mut Columns::of(row))).collect()
}

/// A key that was first used then or before is not known any more.
fn forgotten(now: Timestamp) -> i64 {
    now.as_micros().saturating_sub(micros(Idempotency::LIFE))
}

/// Inserts keys, or takes those over that are forgotten. Somebody else's insert of the same key is waited for.
fn taking(table: &str, unless_in: Option<&str>) -> String {
    let unless = unless_in.map_or(String::new(), |other| {
        format!("where not exists (select from {other} o where o.tenant = u.tenant and o.key = u.key and o.at > $6)")
    });
    format!(
        "insert into {table} as k (tenant, key, hash, answer, at)
         select u.tenant, u.key, u.hash, u.answer, $5
         from unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[]) as u (tenant, key, hash, answer)
         {unless}
         on conflict (tenant, key) do update
         set hash = excluded.hash, answer = excluded.answer, at = excluded.at
         where k.at <= $6
         returning tenant, key"
    )
}

/// The hash and the answer of keys that are known. Where both tables know one, today's is the one that was taken last.
async fn read(
    tx: &Tx,
    turn: Turn,
    names: &[Name<'_>],
    now: Timestamp,
) -> Result<HashMap<(String, String), (Vec<u8>, Vec<u8>)>> {
    let tenants: Vec<&str> = names.iter().map(|name| name.0).collect();
    let keys: Vec<&str> = names.iter().map(|name| name.1).collect();
    let mut known = HashMap::new();
    for table in [TABLES[1 - turn.table], TABLES[turn.table]] {
        let sql = format!(
            "select k.tenant, k.key, k.hash, k.answer
             from unnest($1::text[], $2::text[]) as u (tenant, key)
             join {table} k on k.tenant = any(array[u.tenant]) and k.key = any(array[u.key])
             where k.at > $3"
        );
        let bound = bind![tenants => TEXT_ARRAY, keys => TEXT_ARRAY, forgotten(now) => INT8];
        for row in &tx.rows(&sql, bound).await? {
            let mut columns = Columns::of(row);
            known.insert(name(&mut columns)?, (columns.take()?, columns.take()?));
        }
    }
    Ok(known)
}

fn name(columns: &mut Columns<'_>) -> Result<(String, String)> {
    Ok((columns.take()?, columns.take()?))
}

/// The hash and the answer of the first request under a key, if it is known.
pub(super) async fn known(tx: &Tx, tenant: &str, key: &str, now: Timestamp) -> Result<Option<FirstAnswer>> {
    let sql = "
        select hash, answer, at
        from idempotency_even
        where tenant = $1 and key = $2 and at > $3
        union all
        select hash, answer, at
        from idempotency_odd
        where tenant = $1 and key = $2 and at > $3
        order by at desc
        limit 1";
    let bound = bind![tenant => TEXT, key => TEXT, forgotten(now) => INT8];
    let rows = tx.alone(Mode::Read, sql, bound).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut columns = Columns::of(row);
    let hash: &[u8] = columns.take()?;
    let hash = hash.try_into().map_err(|_| Fault::nonsense("a hash that is none"))?;
    Ok(Some(FirstAnswer { hash, answer: columns.take()? }))
}
