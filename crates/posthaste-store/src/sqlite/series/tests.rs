//! Counts the virtual machine steps of figures over time: they must not grow with the rows of others, nor with older ones.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::sqlite::migrate::MIGRATIONS;

const DAY: i64 = 86_400_000_000;
/// When the day that is asked for begins.
const FROM: Timestamp = Timestamp::from_micros(100 * DAY);
const UNTIL: Timestamp = Timestamp::from_micros(101 * DAY);

/// What the tenant `acme` has, over the last $days days: minutes and hours of two channels and two nodes, and hours of a
/// destination on two nodes. And so do $others other tenants, and as many other destinations of the same tenant.
const FILL: &str = "
    create temp table day as
    with recursive d (n) as (select 0 union all select n + 1 from d where n < $days - 1)
    select 100 - n as n from d;
    create temp table whose as
    with recursive t (n) as (select 0 union all select n + 1 from t where n < $others)
    select n, iif(n = 0, 'acme', 't' || n) as name from t;
    create temp table part as
    with recursive m (n) as (select 0 union all select n + 1 from m where n < 1439)
    select n from m;
    insert into series (tenant, span, at, channel, node, weight, figures)
    select w.name, 0, day.n * 86400000000 + part.n * 60000000, c.value, n.value, 1, '0:1'
    from whose w, day, part, json_each('[0, 1]') c, json_each('[1, 2]') n;
    insert into series (tenant, span, at, channel, node, weight, figures)
    select w.name, 1, day.n * 86400000000 + part.n * 60000000, c.value, n.value, 1, '0:1'
    from whose w, day, part, json_each('[0, 1]') c, json_each('[1, 2]') n
    where part.n % 60 = 0;
    insert into destination_hour (at, tenant, node, place, channel, destination, count, figures)
    select day.n * 86400000000 + part.n * 60000000, w.name, n.value, 0, 0, 'd', 1, '0:1'
    from whose w, day, part, json_each('[1, 2]') n
    where part.n % 60 = 0;
    insert into destination_hour (at, tenant, node, place, channel, destination, count, figures)
    select day.n * 86400000000 + part.n * 60000000, 'acme', n.value, w.n, 0, 'd' || w.n, 1, '0:1'
    from whose w, day, part, json_each('[1, 2]') n
    where part.n % 60 = 0
    and w.n > 0;";

/// The tenant has three retries, and each other one a thousand.
const RETRIES: &str = "
    insert into flow (id, tenant, channel, destination) select n + 1, name, 0, 'd' from whose;
    insert into queue (id, flow, lane, priority, due, first_due, delay, attempt, base, generation, interruptions, cancel)
    select unhex(printf('%016x%016x', w.n, part.n)), w.n + 1, 1, 2, $due + part.n, 0, 0, 1, 0, 1, 0, 0
    from whose w, part
    where part.n < iif(w.n = 0, 3, 1000);";

fn filled(others: u32, days: u32) -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    for (_, step) in MIGRATIONS {
        conn.execute_batch(step).unwrap();
    }
    let fill = [FILL, RETRIES].concat().replace("$due", &FROM.as_micros().to_string());
    let fill = fill.replace("$others", &others.to_string()).replace("$days", &days.to_string());
    conn.execute_batch(&fill).unwrap();
    conn
}

/// Looks, and returns how many rows it found.
type Look = fn(&Connection) -> usize;

fn acme() -> Tenant {
    "acme".parse().unwrap()
}

const LOOKS: [(&str, usize, Look); 5] = [
    ("a day of minutes", 1_440 * 4, |conn| {
        get(conn, Some(&acme()), Span::Minute, FROM, UNTIL).unwrap().len()
    }),
    ("a day of hours", 24 * 4, |conn| get(conn, Some(&acme()), Span::Hour, FROM, UNTIL).unwrap().len()),
    ("nothing of the sums", 0, |conn| get(conn, None, Span::Minute, FROM, UNTIL).unwrap().len()),
    ("a day of a destination", 24 * 2, |conn| {
        hours::get(conn, Some(&acme()), &"d".into(), (FROM, UNTIL)).unwrap().len()
    }),
    ("the load of a tenant", 3, |conn| {
        let points = Points::new(FROM, UNTIL, Span::Hour.length()).unwrap();
        let load = load(conn, Some(&acme()), points, 100_000).unwrap();
        assert!(load.complete);
        usize::try_from(load.counts.iter().sum::<u64>()).unwrap()
    }),
];

/// The first look plans the statements and is not counted.
fn steps(conn: &mut Connection, wanted: usize, look: Look) -> u64 {
    assert_eq!(look(conn), wanted);
    let taken = Arc::new(AtomicU64::new(0));
    let counted = taken.clone();
    let count = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        false
    };
    conn.progress_handler(1, Some(count)).unwrap();
    look(conn);
    conn.progress_handler(0, None::<fn() -> bool>).unwrap();
    taken.load(Ordering::Relaxed)
}

#[test]
fn a_day_costs_the_rows_of_that_day_whatever_else_is_kept() {
    let (mut few, mut many) = (filled(1, 1), filled(8, 5));
    for (what, rows, look) in LOOKS {
        let (few, many) = (steps(&mut few, rows, look), steps(&mut many, rows, look));
        assert!(few > 0, "{what}: the steps are counted");
        assert!(
            many <= few + few / 10 + 20,
            "{what}: {few} steps, and {many} beside more of others and of before"
        );
        assert!(many < 20 * (rows as u64 + 10), "{what}: {many} steps for {rows} rows");
    }
}

#[test]
fn the_load_of_all_looks_at_no_more_retries_than_it_may() {
    let (mut few, mut many) = (filled(1, 1), filled(8, 1));
    let look: Look = |conn| {
        let points = Points::new(FROM, UNTIL, Span::Hour.length()).unwrap();
        let load = load(conn, None, points, 500).unwrap();
        assert!(!load.complete);
        usize::try_from(load.counts.iter().sum::<u64>()).unwrap()
    };
    let (few, many) = (steps(&mut few, 500, look), steps(&mut many, 500, look));
    assert!(many <= few + 20, "{few} steps, and {many} with eight times as many retries");
}
