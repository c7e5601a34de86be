//! Idempotency keys, in two tables that take turns, a day each.
//!
//! Invariant: a key is known for a day from its first request. Reads leave out expired rows. They are removed
//! beside other work, a bounded number per transaction, when the turn of their table comes again.

use posthaste_core::notification::Tenant;
use posthaste_core::time::{Timestamp, micros};
use posthaste_engine::store::{Accepted, FirstAnswer, Idempotency};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::fault::Result;
use super::planted::Planted;
use super::writer::Tx;

/// Maximum number of rows that are read in a transaction which also runs commands: well under a millisecond.
pub(super) const MAX_ROWS_BESIDE_COMMANDS: usize = 200;

/// Maximum number of rows that are read in a transaction of its own, while no command waits: some
/// milliseconds.
pub(super) const MAX_ROWS_ALONE: usize = 2_000;

/// Number of bytes of removed answers after which a step ends, so that a few large answers take no longer
/// than many small ones.
const MAX_BYTES: i64 = 1 << 20;

/// The tables of even and odd days.
const TABLES: [&str; 2] = ["idempotency_even", "idempotency_odd"];

/// A day and its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DayTable {
    day: i64,
    /// Index in `TABLES`.
    table: usize,
}

impl DayTable {
    fn at(now: Timestamp) -> Self {
        let day = now.as_micros().div_euclid(micros(Idempotency::LIFE));
        Self { day, table: usize::from(day.rem_euclid(2) == 1) }
    }

    /// The row of `idempotency_day` with the day whose keys the table holds.
    fn held(self) -> i64 {
        i64::from(self.table == 1)
    }

    /// The row with the day before which the table holds no keys. Older versions do not know this row: they
    /// emptied the table when they wrote the other one.
    fn cleared(self) -> i64 {
        2 + self.held()
    }
}

/// Returns `None` if the key is unknown or expired.
pub(super) fn idempotent(
    conn: &Connection,
    tenant: &Tenant,
    key: &str,
    now: Timestamp,
) -> Result<Option<FirstAnswer>> {
    for table in TABLES {
        let mut select = conn.prepare_cached(&format!(
            "select hash, answer, at
             from {table}
             where tenant = ?1
             and key = ?2"
        ))?;
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?));
        let Some((hash, answer, at)) = select.query_row(params![tenant.as_str(), key], read).optional()?
        else {
            continue;
        };
        if now.since(Timestamp::from_micros(at)) < Idempotency::LIFE {
            return Ok(Some(FirstAnswer { hash, answer }));
        }
    }
    Ok(None)
}

/// The keys as of one moment.
pub(super) struct Keys {
    now: Timestamp,
    turn: DayTable,
}

impl Keys {
    /// Selects the table of the day.
    pub(super) fn turn(tx: &mut Tx<'_>, now: Timestamp) -> Result<Self> {
        tx.expired_keys.start_pass_if_due(tx.conn, now)?;
        Ok(Self { now, turn: DayTable::at(now) })
    }

    /// Returns `None` if the key is unknown or expired.
    pub(super) fn known(&self, tx: &Tx<'_>, idempotency: &Idempotency) -> Result<Option<Accepted>> {
        if tx.bug(Planted::TwinStoredTwice) {
            return Ok(None);
        }
        let Idempotency { tenant, key, hash, .. } = idempotency;
        let first = idempotent(tx.conn, tenant, key, self.now)?;
        Ok(first
            .map(|first| if first.hash == *hash { Accepted::Twin(first.answer) } else { Accepted::Conflict }))
    }

    /// Stores a new key. It replaces an expired one that is not removed yet.
    pub(super) fn remember(&self, conn: &Connection, idempotency: &Idempotency) -> Result<()> {
        let mut insert = conn.prepare_cached(&format!(
            "insert or replace into {} (tenant, key, hash, answer, at)
             values (?1, ?2, ?3, ?4, ?5)",
            TABLES[self.turn.table]
        ))?;
        insert.execute(params![
            idempotency.tenant.as_str(),
            idempotency.key,
            idempotency.hash,
            idempotency.answer,
            self.now.as_micros(),
        ])?;
        Ok(())
    }
}

/// The removal of expired keys: one pass over a table each time its turn comes.
#[derive(Default)]
pub(super) struct ExpiredKeys {
    /// The last day whose table is known to hold no older keys.
    cleared: Option<DayTable>,
    pass: Option<Pass>,
}

/// A pass over a table in key order.
struct Pass {
    turn: DayTable,
    now: Timestamp,
    /// Tenant and key of the last row that was read, as bytes: damaged text must not stop the pass.
    after: (Vec<u8>, Vec<u8>),
}

impl ExpiredKeys {
    /// Starts a pass if a table's turn has come since the last one.
    pub(super) fn start_pass_if_due(&mut self, conn: &Connection, now: Timestamp) -> Result<()> {
        let turn = DayTable::at(now);
        if self.cleared == Some(turn) {
            return Ok(());
        }
        if let Some(pass) = self.pass.as_mut().filter(|pass| pass.turn == turn) {
            pass.now = pass.now.max(now);
            return Ok(());
        }
        let mut select = conn.prepare_cached(
            "select day
             from idempotency_day
             where turn = ?1",
        )?;
        let mut day = |row: i64| select.query_row([row], |row| row.get::<_, i64>(0)).optional();
        let held = day(turn.held())?;
        let cleared = day(turn.cleared())?.or(held);
        if cleared.is_some_and(|cleared| cleared >= turn.day) {
            self.cleared = Some(turn);
            return Ok(());
        }
        keep_day(conn, turn.cleared(), cleared.unwrap_or(turn.day - 2))?;
        keep_day(conn, turn.held(), turn.day)?;
        self.pass = Some(Pass { turn, now, after: (vec![], vec![]) });
        Ok(())
    }

    pub(super) fn is_running(&self) -> bool {
        self.pass.is_some()
    }

    /// Continues the pass for at most `most` rows.
    pub(super) fn step(&mut self, conn: &Connection, most: usize) -> Result<()> {
        let Some(pass) = &mut self.pass else { return Ok(()) };
        if pass.step(conn, most)? {
            keep_day(conn, pass.turn.cleared(), pass.turn.day)?;
            self.cleared = Some(pass.turn);
            self.pass = None;
        }
        Ok(())
    }

    /// Forgets the progress after a rollback, so that the pass starts again.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn keep_day(conn: &Connection, row: i64, day: i64) -> Result<()> {
    let mut insert = conn.prepare_cached(
        "insert or replace into idempotency_day (turn, day)
         values (?1, ?2)",
    )?;
    insert.execute([row, day])?;
    Ok(())
}

struct StoredKey {
    name: (Vec<u8>, Vec<u8>),
    at: i64,
    bytes: i64,
}

impl Pass {
    /// Removes the expired keys among the next rows. Returns whether the end was reached.
    fn step(&mut self, conn: &Connection, most: usize) -> Result<bool> {
        let table = TABLES[self.turn.table];
        let rows = self.next(conn, most)?;
        let mut delete = conn.prepare_cached(&format!(
            "delete from {table}
             where tenant = cast(?1 as text)
             and key = cast(?2 as text)"
        ))?;
        let (count, mut bytes) = (rows.len(), 0);
        for StoredKey { name, at, bytes: size } in rows {
            if bytes >= MAX_BYTES {
                return Ok(false);
            }
            if self.now.since(Timestamp::from_micros(at)) >= Idempotency::LIFE {
                delete.execute(params![name.0, name.1])?;
                bytes += size;
            }
            self.after = name;
        }
        Ok(count < most)
    }

    /// The next rows in the order of tenant and key: first the rest of the tenant, then other tenants. For
    /// one comparison of both columns SQLite would read all rows of the tenant.
    fn next(&self, conn: &Connection, most: usize) -> Result<Vec<StoredKey>> {
        let read = |row: &Row<'_>| {
            Ok(StoredKey { name: (row.get(0)?, row.get(1)?), at: row.get(2)?, bytes: row.get(3)? })
        };
        let mut rows: Vec<StoredKey> = vec![];
        for place in ["tenant = cast(?1 as text) and key > cast(?2 as text)", "tenant > cast(?1 as text)"] {
            let mut select = conn.prepare_cached(&format!(
                "select cast(tenant as blob), cast(key as blob), at, length(answer)
                 from {}
                 where {place}
                 order by tenant, key
                 limit ?3",
                TABLES[self.turn.table]
            ))?;
            let left = i64::try_from(most - rows.len()).unwrap_or(i64::MAX);
            let found = select.query_map(params![self.after.0, self.after.1, left], read)?;
            for row in found {
                rows.push(row?);
            }
        }
        Ok(rows)
    }
}
