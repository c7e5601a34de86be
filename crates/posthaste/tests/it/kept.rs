//! What a stopped program left in its file, read with plain SQL, and the promises that it has to keep.
//!
//! The numbers are those of the table of invariants in `docs/testing.md`.

use std::collections::BTreeMap;
use std::path::Path;

use posthaste_core::id::NotificationId;
use posthaste_core::state::State;
use posthaste_wire::sink::Sink;
use rusqlite::{Connection, OpenFlags, Row};

use super::load::{Ledger, MOST_ATTEMPTS};

/// Everything that is kept about notifications.
pub(crate) struct Kept {
    /// By id.
    pub(crate) all: BTreeMap<NotificationId, One>,
    /// Counters that differ from a recount, in words.
    pub(crate) miscounted: Vec<String>,
}

/// What is kept about one notification.
#[derive(Debug, Default)]
pub(crate) struct One {
    /// What the caller gave as correlation id.
    pub(crate) correlation: Option<String>,
    /// Whether it is in the queue.
    pub(crate) live: bool,
    /// The state that it ended in.
    pub(crate) end: Option<State>,
    /// Why it ended so.
    pub(crate) reason: Option<String>,
    /// Attempts by number; the tests that read this open no second generation.
    pub(crate) attempts: BTreeMap<u32, Attempt>,
    /// How often an attempt of that number was interrupted.
    pub(crate) interrupted: BTreeMap<u32, u32>,
}

/// One row of the attempts.
#[derive(Debug)]
pub(crate) struct Attempt {
    delivered: bool,
}

impl Kept {
    /// Reads the file of a program that is gone.
    pub(crate) fn read(file: &Path) -> Self {
        let conn = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
        let whole: String = conn.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(whole, "ok");
        let mut all: BTreeMap<NotificationId, One> = BTreeMap::new();
        each(&conn, "select id, correlation_id from notification", |row| {
            let one = One { correlation: row.get(1)?, ..One::default() };
            assert!(all.insert(id(row)?, one).is_none());
            Ok(())
        });
        each(&conn, "select id from queue", |row| {
            all.get_mut(&id(row)?).expect("what is queued was accepted").live = true;
            Ok(())
        });
        each(&conn, "select id, state, reason from ended", |row| {
            let one = all.get_mut(&id(row)?).expect("what ended was accepted");
            one.end = Some(State::ALL[usize::from(row.get::<_, u8>(1)?)]);
            one.reason = row.get(2)?;
            Ok(())
        });
        each(&conn, "select notification, number, failure, generation from attempt", |row| {
            assert_eq!(row.get::<_, u32>(3)?, 1);
            let one = all.get_mut(&id(row)?).expect("what was attempted was accepted");
            let attempt = Attempt { delivered: row.get::<_, Option<u8>>(2)?.is_none() };
            assert!(one.attempts.insert(row.get(1)?, attempt).is_none());
            Ok(())
        });
        each(&conn, "select notification, attempt from event where word = 'interrupted'", |row| {
            let one = all.get_mut(&id(row)?).expect("what was interrupted was accepted");
            *one.interrupted.entry(row.get(1)?).or_default() += 1;
            Ok(())
        });
        Self { all, miscounted: miscounted(&conn) }
    }

    /// I1: every acknowledged id that is not there.
    pub(crate) fn missing(&self, ledger: &Ledger) -> Vec<NotificationId> {
        ledger.acknowledged.keys().filter(|id| !self.all.contains_key(id)).copied().collect()
    }

    /// I1, I2, I3, I9 and I17, at rest.
    pub(crate) fn check(&self, ledger: &Ledger) {
        assert_eq!(self.missing(ledger), [], "I1: acknowledged and lost");
        for (id, one) in &self.all {
            assert!(!one.live && one.end.is_some(), "I2: {id} has not ended: {one:?}");
            let dense = one.attempts.keys().copied().eq(1..=u32::try_from(one.attempts.len()).unwrap());
            assert!(dense && one.attempts.len() <= MOST_ATTEMPTS as usize, "I3: {id}: {one:?}");
            let delivered: Vec<bool> = one.attempts.values().map(|attempt| attempt.delivered).collect();
            let (last, earlier) = delivered.split_last().expect("nothing ends without an attempt here");
            assert!(!earlier.contains(&true), "I2: {id} went on after it was delivered: {one:?}");
            assert_eq!(one.end == Some(State::Succeeded), *last, "I2: {id}: {one:?}");
        }
        for (id, path) in &ledger.acknowledged {
            let one = &self.all[id];
            let (end, reason) = match path.as_str() {
                "/status/400" => (State::DeadLetter, Some("PERMANENT_FAILURE")),
                _ => (State::Succeeded, None),
            };
            assert_eq!((one.end, one.reason.as_deref()), (Some(end), reason), "I2: {id} for {path}: {one:?}");
        }
        let mut stored: BTreeMap<&str, u32> = BTreeMap::new();
        for key in self.all.values().filter_map(|one| one.correlation.as_deref()) {
            *stored.entry(key).or_default() += 1;
        }
        for (key, count) in stored {
            assert_eq!(count, 1, "I9: {key} was stored {count} times");
        }
        assert_eq!(self.miscounted, Vec::<String>::new(), "I17");
    }

    /// I7, and how many arrivals there were more than one of an attempt.
    pub(crate) fn duplicates(&self, sink: &Sink) -> u32 {
        let mut arrived: BTreeMap<(NotificationId, u32), u32> = BTreeMap::new();
        for arrival in sink.arrivals() {
            let id = arrival.id.expect("every delivery names its notification").parse().unwrap();
            *arrived.entry((id, arrival.attempt.expect("every delivery names its attempt"))).or_default() +=
                1;
        }
        for ((id, number), count) in &arrived {
            let one = self.all.get(id).unwrap_or_else(|| panic!("I7: {id} arrived and is not kept"));
            let rows = u32::from(one.attempts.contains_key(number));
            let known = rows + one.interrupted.get(number).copied().unwrap_or(0);
            assert!(*count <= known, "I7: attempt {number} of {id} arrived {count} times: {one:?}");
        }
        for (id, one) in &self.all {
            for number in one.attempts.keys() {
                assert!(arrived.contains_key(&(*id, *number)), "I7: attempt {number} of {id} never arrived");
            }
        }
        arrived.values().map(|count| count - 1).sum()
    }

    /// How many leases were taken back.
    pub(crate) fn interruptions(&self) -> u32 {
        self.all.values().flat_map(|one| one.interrupted.values()).sum()
    }
}

fn id(row: &Row<'_>) -> rusqlite::Result<NotificationId> {
    row.get(0).map(NotificationId::from_bytes)
}

fn each(conn: &Connection, sql: &str, mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<()>) {
    let mut select = conn.prepare(sql).unwrap();
    let mut rows = select.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        read(row).unwrap();
    }
}

/// The kept sums beside the same sums counted anew. It is written here once more, so that it can differ from the
/// store's own.
fn miscounted(conn: &Connection) -> Vec<String> {
    let mut sums: BTreeMap<(String, u8, u8, i64), (i64, i64)> = BTreeMap::new();
    each(conn, "select tenant, channel, kind, hour, n from counter", |row| {
        sums.entry((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)).or_default().0 = row.get(4)?;
        Ok(())
    });
    let mut count = |tenant: String, channel: u8, kind: u8, hour: i64| {
        sums.entry((tenant, channel, kind, hour)).or_default().1 += 1;
        sums.entry((String::new(), channel, kind, hour)).or_default().1 += 1;
    };
    each(conn, "select tenant, channel, lane from queue join flow on flow.id = flow", |row| {
        count(row.get(0)?, row.get(1)?, row.get(2)?, 0);
        Ok(())
    });
    let ended = "select tenant, channel, state, at / 3600000000
         from ended
         join notification using (id)
         join flow on flow.id = flow";
    each(conn, ended, |row| {
        let (state, hour): (u8, i64) = (row.get(2)?, row.get(3)?);
        count(row.get(0)?, row.get(1)?, 4, hour);
        if state == State::Succeeded as u8 {
            count(row.get(0)?, row.get(1)?, 3, hour);
        }
        if state == State::DeadLetter as u8 {
            count(row.get(0)?, row.get(1)?, 2, 0);
        }
        Ok(())
    });
    let wrong = sums.into_iter().filter(|(_, (kept, counted))| kept != counted);
    wrong.map(|(key, (kept, counted))| format!("{key:?}: kept {kept}, counted {counted}")).collect()
}
