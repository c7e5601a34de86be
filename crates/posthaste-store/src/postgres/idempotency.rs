//! Idempotency keys, in two tables that take turns, a day each.
//!
//! Invariant: of concurrent requests with the same key, the one that inserts the key first is new. The others
//! wait for its commit and read its answer. The tables are emptied by `truncate`, and only when a day begins.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use posthaste_core::time::{Timestamp, micros};
use posthaste_engine::store::{Accepted, FirstAnswer, Idempotency, Request};
use tokio_postgres::error::SqlState;

use super::fault::{Fault, Result};
use super::planted::Planted;
use super::rows::Columns;
use super::tx::{Mode, Then, Tx, bind, statement};

/// The tables of even and odd days.
const TABLES: [&str; 2] = ["idempotency_even", "idempotency_odd"];

/// For this long after a day has begun, a key is looked up in yesterday's table first: a request from just
/// before midnight may be inserting it there.
const OVERLAP: Duration = Duration::from_secs(300);

/// The days whose keys the two tables are known to hold.
pub(super) struct Days([AtomicI64; 2]);

impl Default for Days {
    fn default() -> Self {
        Self([AtomicI64::new(i64::MIN), AtomicI64::new(i64::MIN)])
    }
}

/// A day and its table.
#[derive(Debug, Clone, Copy)]
struct DayTable {
    day: i64,
    /// Index in `TABLES`.
    table: usize,
    /// Whether requests of the day before may still be running.
    overlap: bool,
}

impl DayTable {
    fn at(now: Timestamp) -> Self {
        let life = micros(Idempotency::LIFE);
        let (day, into) = (now.as_micros().div_euclid(life), now.as_micros().rem_euclid(life));
        Self { day, table: usize::from(day.rem_euclid(2) == 1), overlap: into < micros(OVERLAP) }
    }
}

impl Days {
    /// Whether the table of the day is already prepared.
    pub(super) fn ready(&self, now: Timestamp) -> bool {
        let turn = DayTable::at(now);
        self.0[turn.table].load(Ordering::Relaxed) >= turn.day
    }

    /// Empties the table of the day, unless another node has: its keys are at least a day old. Runs in its
    /// own transaction, before the first key of the day. If the table cannot be locked soon, because a long
    /// read uses it, the old rows stay for another turn; they are expired, so they are ignored.
    pub(super) async fn turn(&self, tx: &Tx, now: Timestamp) -> Result<()> {
        let DayTable { day, table, .. } = DayTable::at(now);
        let number = i64::from(table == 1);
        let locked = "select day from idempotency_day where turn = $1 for update";
        let steps = [statement!(locked, bind![number => INT8])];
        let rows = tx.send(Some(Mode::Write), &steps, Then::Continue).await?.pop().unwrap_or_default();
        let row = rows.first().ok_or_else(|| Fault::damaged("idempotency_day lacks a row"))?;
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

/// Tenant and key.
type Name<'r> = (&'r str, &'r str);

/// Returns the answer of each request. The keys of new requests are inserted. If `begin` is set, the transaction
/// begins with this.
pub(super) async fn answers(
    tx: &Tx,
    begin: Option<Mode>,
    days: &Days,
    requests: &[Request],
    now: Timestamp,
) -> Result<Vec<Accepted>> {
    debug_assert!(days.ready(now), "the table of the day was made ready before");
    // Only the first request of each key in this call is inserted. The keys are sorted, so that all calls
    // lock them in the same order.
    let mut firsts: BTreeMap<Name<'_>, &Idempotency> = BTreeMap::new();
    for key in requests.iter().filter_map(|request| request.idempotency.as_ref()) {
        firsts.entry((key.tenant.as_str(), &key.key)).or_insert(key);
    }
    let turn = DayTable::at(now);
    let taken = take(tx, begin, turn, &firsts, now).await?;
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
            (None, None) => return Err(Fault::damaged("a key is neither new nor known")),
        };
        answers.push(if hash == key.hash { Accepted::Twin(answer.clone()) } else { Accepted::Conflict });
    }
    Ok(answers)
}

/// Inserts the keys that were not used within a day, and returns those.
async fn take<'r>(
    tx: &Tx,
    mut begin: Option<Mode>,
    turn: DayTable,
    firsts: &BTreeMap<Name<'r>, &'r Idempotency>,
    now: Timestamp,
) -> Result<HashSet<Name<'r>>> {
    let (today, yesterday) = (TABLES[turn.table], TABLES[1 - turn.table]);
    let mut keys: Vec<&Idempotency> = firsts.values().copied().collect();
    if turn.overlap {
        let won = take_in(tx, begin.take(), &insert_keys(yesterday, Some(today)), &keys, now).await?;
        keys.retain(|key| won.contains(&(key.tenant.as_str().to_owned(), key.key.clone())));
    }
    let sql = insert_keys(today, (!turn.overlap).then_some(yesterday));
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
        expired_since(now) => INT8,
    ];
    let mut rows = tx.send(begin, &[statement!(sql, bound)], Then::Continue).await?;
    let won = rows.pop().unwrap_or_default();
    won.iter().map(|row| name(&mut Columns::of(row))).collect()
}

/// Keys that were first used at this time or earlier are expired.
fn expired_since(now: Timestamp) -> i64 {
    now.as_micros().saturating_sub(micros(Idempotency::LIFE))
}

/// Inserts keys, or replaces expired ones. Waits for concurrent inserts of the same key.
fn insert_keys(table: &str, unless_in: Option<&str>) -> String {
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

/// The hash and the answer of known keys. If both tables have a key, today's row is the newer one.
async fn read(
    tx: &Tx,
    turn: DayTable,
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
        let bound = bind![tenants => TEXT_ARRAY, keys => TEXT_ARRAY, expired_since(now) => INT8];
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

/// Returns `None` if the key is unknown or expired.
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
    let bound = bind![tenant => TEXT, key => TEXT, expired_since(now) => INT8];
    let rows = tx.alone(Mode::Read, sql, bound).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut columns = Columns::of(row);
    let hash: &[u8] = columns.take()?;
    let hash = hash.try_into().map_err(|_| Fault::damaged("a hash that is none"))?;
    Ok(Some(FirstAnswer { hash, answer: columns.take()? }))
}
