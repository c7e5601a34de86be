//! What stopped programs left in their store, read with plain SQL, and the promises that it has to keep.
//!
//! A file and a database are read by the same statements, and every value as text: ids in hexadecimal digits, null as none.
//! The numbers are those of the table of invariants in `docs/testing.md`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::str::FromStr;

use posthaste_core::group::{GroupBy, GroupId};
use posthaste_core::id::NotificationId;
use posthaste_core::state::State;
use posthaste_store::postgres::own::OwnServer;
use posthaste_wire::sink::Sink;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::load::{CANCELLED, Ledger, MOST_ATTEMPTS};

/// Everything that is kept about notifications.
pub(crate) struct Kept {
    /// By id.
    pub(crate) all: BTreeMap<NotificationId, One>,
    /// Counters and failure groups that differ from a recount, in words.
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
    /// How many dead letters there are of it.
    dead_letters: u32,
    /// Attempts by generation and number.
    pub(crate) attempts: BTreeMap<(u32, u32), Attempt>,
    /// How often an attempt of that number was interrupted.
    pub(crate) interrupted: BTreeMap<u32, u32>,
}

/// One row of the attempts.
#[derive(Debug)]
pub(crate) struct Attempt {
    delivered: bool,
}

impl One {
    /// Whether the attempts of each generation are numbered from 1, as they are after a requeue, without a gap.
    fn is_dense(&self) -> bool {
        (1..=self.generations()).all(|generation| {
            let numbers =
                self.attempts.range((generation, 0)..=(generation, u32::MAX)).map(|((_, number), _)| *number);
            let count = u32::try_from(numbers.clone().count()).unwrap();
            numbers.eq(1..=count) && count <= MOST_ATTEMPTS
        })
    }

    /// How many generations have an attempt.
    fn generations(&self) -> u32 {
        self.attempts.last_key_value().map_or(1, |((generation, _), _)| *generation)
    }
}

impl Kept {
    /// Reads the file of a program that is gone.
    pub(crate) fn read(file: &Path) -> Self {
        let conn = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
        let whole: String = conn.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(whole, "ok");
        Self::of(&|sql| rows_of_file(&conn, sql))
    }

    /// Reads a database whose programs are at rest.
    pub(crate) fn read_database(server: &OwnServer, database: &str) -> Self {
        Self::of(&|sql| rows_of_database(server, database, sql))
    }

    fn of(rows: &dyn Fn(&str) -> Vec<Values>) -> Self {
        let mut all: BTreeMap<NotificationId, One> = BTreeMap::new();
        for row in rows("select id, correlation_id from notification") {
            let one = One { correlation: row.0[1].clone(), ..One::default() };
            assert!(all.insert(row.id(), one).is_none());
        }
        for row in rows("select id from queue") {
            all.get_mut(&row.id()).expect("what is queued was accepted").live = true;
        }
        for row in rows("select id, state, reason from ended") {
            let one = all.get_mut(&row.id()).expect("what ended was accepted");
            assert!(one.end.is_none());
            one.end = Some(State::ALL[row.number::<usize>(1)]);
            one.reason = row.0[2].clone();
        }
        for row in rows("select notification from dead_letter") {
            all.get_mut(&row.id()).expect("what died was accepted").dead_letters += 1;
        }
        for row in rows("select notification, number, failure, generation from attempt") {
            let one = all.get_mut(&row.id()).expect("what was attempted was accepted");
            let attempt = Attempt { delivered: row.0[2].is_none() };
            assert!(one.attempts.insert((row.number(3), row.number(1)), attempt).is_none());
        }
        for row in rows("select notification, attempt from event where word = 'interrupted'") {
            let one = all.get_mut(&row.id()).expect("what was interrupted was accepted");
            *one.interrupted.entry(row.number(1)).or_default() += 1;
        }
        let mut wrong = miscounted(rows);
        wrong.extend(miscounted_groups(rows));
        Self { all, miscounted: wrong }
    }

    /// I1: every acknowledged id that is not there.
    pub(crate) fn missing(&self, ledger: &Ledger) -> Vec<NotificationId> {
        ledger.acknowledged.keys().filter(|id| !self.all.contains_key(id)).copied().collect()
    }

    /// I1, I2, I3, I9, I10 and I17, at rest.
    pub(crate) fn check(&self, ledger: &Ledger) {
        assert_eq!(self.missing(ledger), [], "I1: acknowledged and lost");
        for (id, one) in &self.all {
            assert!(!one.live && one.end.is_some(), "I2: {id} has not ended: {one:?}");
            assert!(one.is_dense(), "I3: {id}: {one:?}");
            let delivered: Vec<bool> = one.attempts.values().map(|attempt| attempt.delivered).collect();
            let (last, earlier) = delivered.split_last().unwrap_or((&false, &[]));
            assert!(!earlier.contains(&true), "I2: {id} went on after it was delivered: {one:?}");
            assert_eq!(one.end == Some(State::Succeeded), *last, "I2: {id}: {one:?}");
            // A generation after the first was opened for a dead letter.
            let dead = one.generations() - u32::from(one.end != Some(State::DeadLetter));
            assert_eq!(one.dead_letters, dead, "I10: {id}: {one:?}");
        }
        for (id, path) in &ledger.acknowledged {
            let one = &self.all[id];
            let (end, reason) = match path.as_str() {
                "/status/400" => (State::DeadLetter, Some("PERMANENT_FAILURE")),
                CANCELLED => (State::Cancelled, None),
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
            let rows = one.attempts.keys().filter(|(_, its)| its == number).count();
            let known = u32::try_from(rows).unwrap() + one.interrupted.get(number).copied().unwrap_or(0);
            assert!(*count <= known, "I7: attempt {number} of {id} arrived {count} times: {one:?}");
        }
        for (id, one) in &self.all {
            for (_, number) in one.attempts.keys() {
                assert!(arrived.contains_key(&(*id, *number)), "I7: attempt {number} of {id} never arrived");
            }
        }
        let attempts: usize = self.all.values().map(|one| one.attempts.len()).sum();
        arrived.values().sum::<u32>().saturating_sub(u32::try_from(attempts).unwrap())
    }

    /// How many leases were taken back.
    pub(crate) fn interruptions(&self) -> u32 {
        self.all.values().flat_map(|one| one.interrupted.values()).sum()
    }
}

/// A row, each value as text.
pub(crate) struct Values(pub(crate) Vec<Option<String>>);

impl Values {
    /// The id in the first column.
    pub(crate) fn id(&self) -> NotificationId {
        let digits = self.0[0].as_deref().expect("an id is never null").replace('-', "");
        NotificationId::from_bytes(u128::from_str_radix(&digits, 16).unwrap().to_be_bytes())
    }

    /// The text in a column that is never null.
    pub(crate) fn text(&self, column: usize) -> String {
        self.0[column].clone().expect("the column is never null")
    }

    /// The number in a column that is never null.
    pub(crate) fn number<T: FromStr<Err: Debug>>(&self, column: usize) -> T {
        self.text(column).parse().unwrap()
    }

    /// The number in a column that may be null.
    pub(crate) fn maybe<T: FromStr<Err: Debug>>(&self, column: usize) -> Option<T> {
        self.0[column].as_ref().map(|text| text.parse().unwrap())
    }
}

pub(crate) fn rows_of_file(conn: &Connection, sql: &str) -> Vec<Values> {
    let text = |value: ValueRef<'_>| match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
        ValueRef::Blob(bytes) => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        ValueRef::Real(_) => panic!("no column holds fractions: {sql}"),
    };
    let mut select = conn.prepare(sql).unwrap();
    let columns = select.column_count();
    let read = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get_ref(at).map(text)).collect();
    select.query_map([], read).unwrap().map(|values| Values(values.unwrap())).collect()
}

/// The rows as `psql` shows them. No text that the tests store holds a line break or a bar, and none is empty.
pub(crate) fn rows_of_database(server: &OwnServer, database: &str, sql: &str) -> Vec<Values> {
    let shown = server.sql(database, sql).unwrap();
    let value = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    shown.lines().map(|line| Values(line.split('|').map(value).collect())).collect()
}

/// The kept sums beside the same sums counted anew. It is written here once more, so that it can differ from the
/// store's own.
fn miscounted(rows: &dyn Fn(&str) -> Vec<Values>) -> Vec<String> {
    let mut sums: BTreeMap<(String, u8, u8, i64), (i64, i64)> = BTreeMap::new();
    // The sums over all tenants are kept under the empty name.
    let kept = "select coalesce(nullif(tenant, ''), '(all)'), channel, kind, hour, sum(n) from counter group by 1, 2, 3, 4";
    for row in rows(kept) {
        let key = (row.text(0), row.number(1), row.number(2), row.number(3));
        sums.entry(key).or_default().0 = row.number(4);
    }
    let mut count = |row: &Values, kind: u8, hour: i64| {
        for tenant in [row.text(0), "(all)".to_owned()] {
            sums.entry((tenant, row.number(1), kind, hour)).or_default().1 += 1;
        }
    };
    for row in rows("select tenant, channel, lane from queue join flow on flow.id = flow") {
        count(&row, row.number(2), 0);
    }
    let ended = "select flow.tenant, channel, state, at / 3600000000
         from ended
         join notification using (id)
         join flow on flow.id = flow";
    for row in rows(ended) {
        let (state, hour): (u8, i64) = (row.number(2), row.number(3));
        count(&row, 4, hour);
        if state == State::Succeeded as u8 {
            count(&row, 3, hour);
        }
        if state == State::DeadLetter as u8 {
            count(&row, 2, 0);
        }
    }
    let wrong = sums.into_iter().filter(|(_, (kept, counted))| kept != counted);
    wrong.map(|(key, (kept, counted))| format!("{key:?}: kept {kept}, counted {counted}")).collect()
}

/// The kept counts of failure groups beside a recount of the pending dead letters. The tests make few groups, so none is counted
/// among others.
fn miscounted_groups(rows: &dyn Fn(&str) -> Vec<Values>) -> Vec<String> {
    let digits = |row: &Values, column: usize| row.text(column).replace('-', "");
    let mut sums: BTreeMap<(u8, String, String), (i64, i64)> = BTreeMap::new();
    let kept =
        "select kind, coalesce(nullif(tenant, ''), '(all)'), id, sum(n) from failure_group group by 1, 2, 3";
    for row in rows(kept) {
        sums.entry((row.number(0), row.text(1), digits(&row, 2))).or_default().0 = row.number(3);
    }
    let pending = "select d.fingerprint, f.tenant, f.channel, f.destination, d.template
         from dead_letter d
         join flow f on f.id = d.flow
         where d.status = 0
         and d.deleted_at is null
         and d.fingerprint is not null";
    for row in rows(pending) {
        let tenant = row.text(1);
        let print = u128::from_str_radix(&digits(&row, 0), 16).unwrap().to_be_bytes().to_vec();
        let keys =
            [Some(print), row.0[3].clone().map(String::into_bytes), row.0[4].clone().map(String::into_bytes)];
        let keys =
            keys.into_iter().chain([Some(row.text(2).into_bytes()), Some(tenant.clone().into_bytes())]);
        for (by, key) in GroupBy::ALL.into_iter().zip(keys) {
            let Some(key) = key else { continue };
            let id = format!("{:032x}", u128::from_be_bytes(GroupId::of(by, &key).to_bytes()));
            for whose in [tenant.as_str(), "(all)"] {
                sums.entry((by.code(), whose.to_owned(), id.clone())).or_default().1 += 1;
            }
        }
    }
    let wrong = sums.into_iter().filter(|(_, (kept, counted))| kept != counted);
    wrong.map(|(key, (kept, counted))| format!("group {key:?}: kept {kept}, counted {counted}")).collect()
}
