//! The keys under which repeated requests are known, in two tables that take turns of a day each.
//!
//! Invariant: a key is known for a day from its first request. Whoever reads leaves older rows out; they are removed beside
//! other work, a bounded number in each transaction, once the turn of their table comes again.

use posthaste_core::notification::Tenant;
use posthaste_core::time::{Timestamp, micros};
use posthaste_engine::store::{Accepted, FirstAnswer, Idempotency};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::fault::Result;
use super::planted::Planted;
use super::writer::Tx;

/// The most rows that are looked at in a transaction which also serves commands: well under a millisecond.
pub(super) const BESIDE: usize = 200;

/// The most rows that are looked at in a transaction of its own, while no command waits: some milliseconds.
pub(super) const ALONE: usize = 2_000;

/// The bytes of answers after which a removal stops, so that few large answers are as quick as many small ones.
const MOST_BYTES: i64 = 1 << 20;

/// The tables by their turns.
const TABLES: [&str; 2] = ["idempotency_even", "idempotency_odd"];

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    day: i64,
    /// The table of the day.
    table: usize,
}

impl Turn {
    fn at(now: Timestamp) -> Self {
        let day = now.as_micros().div_euclid(micros(Idempotency::LIFE));
        Self { day, table: usize::from(day.rem_euclid(2) == 1) }
    }

    /// The row of `idempotency_day` that says which day the table holds.
    fn held(self) -> i64 {
        i64::from(self.table == 1)
    }

    /// The row that says of which day and later ones everything in the table is. Programs from before it know only the
    /// other one, and emptied the table when they wrote it.
    fn cleared(self) -> i64 {
        2 + self.held()
    }
}

/// The hash and the answer of the first request under a key; none if it is not known, or not any more.
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

/// The two tables of keys at one moment.
pub(super) struct Keys {
    now: Timestamp,
    turn: Turn,
}

impl Keys {
    /// Finds whose turn it is.
    pub(super) fn turn(tx: &mut Tx<'_>, now: Timestamp) -> Result<Self> {
        tx.forgetting.at(tx.conn, now)?;
        Ok(Self { now, turn: Turn::at(now) })
    }

    /// What a repeat is answered with; none if the key is not known, or not any more.
    pub(super) fn known(&self, tx: &Tx<'_>, idempotency: &Idempotency) -> Result<Option<Accepted>> {
        if tx.bug(Planted::TwinStoredTwice) {
            return Ok(None);
        }
        let Idempotency { tenant, key, hash, .. } = idempotency;
        let first = idempotent(tx.conn, tenant, key, self.now)?;
        Ok(first
            .map(|first| if first.hash == *hash { Accepted::Twin(first.answer) } else { Accepted::Conflict }))
    }

    /// Keeps a key that is not known, in place of one that is forgotten and not removed yet.
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

/// The removal of forgotten keys: one walk through a table each time that its turn comes.
#[derive(Default)]
pub(super) struct Forgetting {
    /// The last turn whose table was found to hold nothing older.
    cleared: Option<Turn>,
    walk: Option<Walk>,
}

/// A walk through a table in the order of its keys.
struct Walk {
    turn: Turn,
    now: Timestamp,
    /// The tenant and the key of the last row that was looked at, as bytes: a damaged name must not stop the walk.
    after: (Vec<u8>, Vec<u8>),
}

impl Forgetting {
    /// Begins a walk if a table's turn has come since the last one.
    pub(super) fn at(&mut self, conn: &Connection, now: Timestamp) -> Result<()> {
        let turn = Turn::at(now);
        if self.cleared == Some(turn) {
            return Ok(());
        }
        if let Some(walk) = self.walk.as_mut().filter(|walk| walk.turn == turn) {
            walk.now = walk.now.max(now);
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
        self.walk = Some(Walk { turn, now, after: (vec![], vec![]) });
        Ok(())
    }

    /// Whether there is more to look at.
    pub(super) fn goes_on(&self) -> bool {
        self.walk.is_some()
    }

    /// Goes on with the walk, for at most so many rows.
    pub(super) fn step(&mut self, conn: &Connection, most: usize) -> Result<()> {
        let Some(walk) = &mut self.walk else { return Ok(()) };
        if walk.step(conn, most)? {
            keep_day(conn, walk.turn.cleared(), walk.turn.day)?;
            self.cleared = Some(walk.turn);
            self.walk = None;
        }
        Ok(())
    }

    /// What a transaction did that was rolled back is begun anew.
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

/// A row that the walk has come to.
struct Seen {
    name: (Vec<u8>, Vec<u8>),
    at: i64,
    bytes: i64,
}

impl Walk {
    /// Removes what is forgotten among the next rows. Returns whether the end was reached.
    fn step(&mut self, conn: &Connection, most: usize) -> Result<bool> {
        let table = TABLES[self.turn.table];
        let rows = self.next(conn, most)?;
        let mut delete = conn.prepare_cached(&format!(
            "delete from {table}
             where tenant = cast(?1 as text)
             and key = cast(?2 as text)"
        ))?;
        let (count, mut bytes) = (rows.len(), 0);
        for Seen { name, at, bytes: size } in rows {
            if bytes >= MOST_BYTES {
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

    /// The next rows in the order of tenant and key: first the rest of the tenant, then other tenants. SQLite would walk all
    /// of the tenant for one comparison of both.
    fn next(&self, conn: &Connection, most: usize) -> Result<Vec<Seen>> {
        let read = |row: &Row<'_>| {
            Ok(Seen { name: (row.get(0)?, row.get(1)?), at: row.get(2)?, bytes: row.get(3)? })
        };
        let mut rows: Vec<Seen> = vec![];
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
