//! Counts the virtual machine steps of each read: they must not grow with the number of other rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use posthaste_core::filter::{AuditFilter, Filter, LetterStatus};
use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::NotificationId;
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Priority;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::DueCursor;
use rusqlite::params;
use tempfile::TempDir;

use super::readers::Reader;
use super::{Options, SqliteStore, Synchronous, blocks, claim, destinations, lists, open, waking};

mod parked;

const DUE: Timestamp = Timestamp::from_micros(1_000);
const NOW: Timestamp = Timestamp::from_micros(2_000);
/// Rows per page.
const PAGE: usize = 20;

/// Two lanes of the first flow have `rows` rows each, and a node holds as many. All of them are due, and
/// expire, at the same time. One row of the second flow waits behind them. Retries have three attempts each.
const FILL: &str = "
    insert into flow (id, tenant, channel, destination)
    values (1, 'acme', 0, 'a'), (2, 'globex', 0, 'b');
    insert into queue (id, flow, lane, priority, due, expires, first_due, delay, node, fence, attempt, base, generation,
        interruptions, cancel)
    with recursive number (n) as (select 1 union all select n + 1 from number where n < 3 * $rows)
    select unhex(printf('%032x', n)), 1, n % 3 = 1, 2, 1000, 1000, 1000, 0, iif(n % 3 = 2, 1, null),
        iif(n % 3 = 2, 7, null), 1, 0, 1, 0, 0
    from number
    union all
    select unhex(printf('%032x', 3 * $rows + 1)), 2, 0, 2, 1500, null, 1500, 0, null, null, 1, 0, 1, 0, 0;
    insert into notification (id, flow, recipient, priority, content)
    select id, flow, 'r', priority, '{\"body\":{\"text\":\"hello\"}}'
    from queue;
    insert into attempt (notification, generation, number, started_at, duration, failure, status_code, error)
    select q.id, 1, n.value, 1, 1, 1, 503, 'e'
    from queue q, json_each('[1, 2, 3]') n
    where q.lane = 1;
    insert into node (id, name, expires, dead) values (1, 'n', 0, 0);";

/// Of the first flow, `rows` notifications failed and their dead letters were requeued, each with an act of
/// its tenant. Before them, one of the second flow was cancelled, one became a dead letter, and one is being
/// retried by the node.
const ENDED: &str = "
    create temp table past as
    with recursive number (n) as (select -3 union all select n + 1 from number where n < $rows)
    select unhex(printf('%032x', 10000000 + n)) as id, iif(n < 0, 2, 1) as flow, n
    from number;
    insert into notification (id, flow, recipient, priority, content)
    select id, flow, 'r', 2, '{\"body\":{\"text\":\"hello\"}}'
    from past;
    insert into ended (id, state, at, generation, base, attempt, tenant)
    select id, case n when -3 then 7 when -2 then 6 else 5 end, 1, 1, 0, 1, iif(n < 0, 'globex', 'acme')
    from past
    where n <> -1;
    insert into queue (id, flow, lane, priority, due, first_due, delay, node, fence, attempt, base, generation,
        interruptions, cancel)
    select id, flow, 1, 2, 3000, 3000, 0, 1, 7, 1, 0, 1, 0, 0
    from past
    where n = -1;
    insert into dead_letter (id, notification, flow, recipient, priority, content, reason, text, attempts, status,
        created_at, tenant)
    select id, id, flow, 'r', 2, '{\"body\":{\"text\":\"hello\"}}', 'DISCARDED', 't', '[]', iif(n < 0, 0, 1), 1,
        iif(n < 0, 'globex', 'acme')
    from past
    where n >= 0 or n = -2;
    insert into audit (tenant, actor, action, target, at, asked, count)
    select iif(n < 0, 'globex', 'acme'), 'a', 'b', 'c', 1, 1, 1
    from past
    where n >= -1;";

struct Counted {
    reader: Reader,
    steps: Arc<AtomicU64>,
    rows: u128,
    _directory: TempDir,
}

impl Counted {
    fn with_rows(rows: u128) -> Self {
        Self::filled(&[FILL, ENDED].concat(), rows)
    }

    fn filled(fill: &str, rows: u128) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("posthaste.db");
        let (synchronous, unsafe_durability) = (Synchronous::Off, true);
        let options = Options { synchronous, unsafe_durability, ..Options::default() };
        drop(SqliteStore::open(&path, options.clone()).unwrap());
        let fill = fill.replace("$rows", &rows.to_string());
        let filled = rusqlite::Connection::open(&path).unwrap();
        filled.execute_batch(&fill).unwrap();
        blocks::fill(&filled).unwrap();
        let mut conn = open::reader(&path, &options).unwrap();
        let steps = Arc::new(AtomicU64::new(0));
        let counter = steps.clone();
        let count = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            false
        };
        conn.progress_handler(1, Some(count)).unwrap();
        Self { reader: Reader::new(conn), steps, rows, _directory: directory }
    }

    /// A row in the middle of those that are due at the same time.
    fn middle(&self) -> NotificationId {
        NotificationId::from_bytes((self.rows * 3 / 2).to_be_bytes())
    }

    /// The first read is not counted: it reads the schema and plans the statements.
    fn steps_of(&mut self, look: Look) -> u64 {
        let middle = self.middle();
        look(&mut self.reader, middle);
        let before = self.steps.load(Ordering::Relaxed);
        look(&mut self.reader, middle);
        self.steps.load(Ordering::Relaxed) - before
    }
}

/// A read that may start at a cursor on the row in the middle.
type Look = fn(&mut Reader, NotificationId);

fn bucket(flow: i64, lane: Lane) -> Bucket {
    Bucket { flow: FlowId(flow), lane, priority: Priority::Normal }
}

/// The rows of tenant globex are behind those of others.
fn globex() -> Filter {
    Filter { tenant: Some("globex".parse().unwrap()), ..Filter::default() }
}

fn page(reader: &mut Reader, filter: &Filter) -> usize {
    lists::page(reader, filter, None, PAGE).unwrap().rows.len()
}

fn in_state(state: State) -> Filter {
    Filter { states: vec![state], ..Filter::default() }
}

const LOOKS: [(&str, Look); 25] = [
    ("a list of retries by id", |reader, _| assert_eq!(page(reader, &in_state(State::RetryScheduled)), PAGE)),
    ("a list of what is sent", |reader, _| assert_eq!(page(reader, &in_state(State::Processing)), PAGE)),
    ("a list of a rare end", |reader, _| assert_eq!(page(reader, &in_state(State::Cancelled)), 1)),
    ("a tenant's failures", |reader, _| {
        let failed = vec![State::Failed, State::DeadLetter];
        assert_eq!(page(reader, &Filter { states: failed, ..globex() }), 1);
    }),
    ("a tenant's retries", |reader, _| {
        assert_eq!(lists::retry_queue(reader, &globex(), None, PAGE).unwrap().rows.len(), 1);
    }),
    ("pending dead letters", |reader, _| {
        let pending = Filter { statuses: vec![LetterStatus::Pending], ..Filter::default() };
        assert_eq!(lists::dead_letters(reader, &pending, None, PAGE).unwrap().rows.len(), 1);
    }),
    ("a tenant's dead letters", |reader, _| {
        assert_eq!(lists::dead_letters(reader, &globex(), None, PAGE).unwrap().rows.len(), 1);
    }),
    ("dead letters of a destination", |reader, _| {
        let to_b = Filter { destinations: vec!["b".to_owned()], ..Filter::default() };
        assert_eq!(lists::dead_letters(reader, &to_b, None, PAGE).unwrap().rows.len(), 1);
    }),
    ("a tenant's audit", |reader, _| {
        let of_globex = AuditFilter::of(globex().tenant);
        assert_eq!(lists::audit(reader, &of_globex, None, PAGE).unwrap().rows.len(), 1);
    }),
    ("all buckets", |reader, _| {
        assert_eq!(waking::buckets(&reader.conn, None, PAGE).unwrap().len(), 3);
    }),
    ("the buckets after a full one", |reader, _| {
        let after = Some(bucket(1, Lane::Main));
        assert_eq!(waking::buckets(&reader.conn, after, PAGE).unwrap().len(), 2);
    }),
    ("the buckets after the last full one", |reader, _| {
        let after = Some(bucket(1, Lane::Retry));
        assert_eq!(waking::buckets(&reader.conn, after, PAGE).unwrap().len(), 1);
    }),
    ("a first page of wakes", |reader, _| {
        let after = DueCursor::after_all_at(Timestamp::MIN);
        assert!(waking::wakes(&reader.conn, after, NOW, PAGE).unwrap().more.is_some());
    }),
    ("a page of wakes in the middle of one moment", |reader, middle| {
        assert!(
            waking::wakes(&reader.conn, DueCursor { due: DUE, id: middle }, NOW, PAGE)
                .unwrap()
                .more
                .is_some()
        );
    }),
    ("wakes after everything of a moment", |reader, _| {
        let wakes = waking::wakes(&reader.conn, DueCursor::after_all_at(DUE), NOW, PAGE).unwrap();
        assert_eq!((wakes.buckets.len(), wakes.more), (1, None));
    }),
    ("wakes of a moment at which nothing is due", |reader, _| {
        let before = Timestamp::from_micros(1);
        let wakes = waking::wakes(&reader.conn, DueCursor::after_all_at(before), before, PAGE).unwrap();
        assert_eq!((wakes.buckets.len(), wakes.next), (0, Some(DUE)));
    }),
    ("what is overdue", |reader, _| {
        assert_eq!(waking::overdue(reader, NOW, NOW, None, PAGE).unwrap().len(), PAGE);
    }),
    ("what is overdue in the middle of one moment", |reader, middle| {
        assert_eq!(
            waking::overdue(reader, NOW, NOW, Some(DueCursor { due: DUE, id: middle }), PAGE).unwrap().len(),
            PAGE
        );
    }),
    ("what is overdue after everything of a moment", |reader, _| {
        let after = Some(DueCursor::after_all_at(DUE));
        assert_eq!(waking::overdue(reader, NOW, NOW, after, PAGE).unwrap().len(), 1);
    }),
    ("what expires", |reader, _| {
        assert_eq!(waking::expiring(&reader.conn, NOW, PAGE).unwrap().rows.len(), PAGE);
    }),
    ("what expires before anything does", |reader, _| {
        let found = waking::expiring(&reader.conn, Timestamp::from_micros(1), PAGE).unwrap();
        assert_eq!((found.rows.len(), found.next), (0, Some(DUE)));
    }),
    ("the rows of a claim", |reader, _| {
        let mut select = reader.conn.prepare_cached(claim::DUE).unwrap();
        let (lane, priority) = (Lane::Main.code(), Priority::Normal.code());
        let mut rows =
            select.query(params![1, lane, priority, NOW.as_micros(), i64::try_from(PAGE).unwrap()]).unwrap();
        let mut count = 0;
        while rows.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, PAGE);
    }),
    ("what a node holds, from the middle", |reader, middle| {
        assert_eq!(claim::held(&reader.conn, NodeId(1), Some(middle), PAGE).unwrap().len(), PAGE);
    }),
    ("the first page of retries", |reader, _| {
        let page = lists::retry_queue(reader, &Filter::default(), None, PAGE).unwrap();
        assert_eq!(page.rows.iter().filter(|row| row.last_error.is_some()).count(), PAGE);
    }),
    ("a page of retries in the middle of one moment", |reader, middle| {
        let page =
            lists::retry_queue(reader, &Filter::default(), Some(DueCursor { due: DUE, id: middle }), PAGE)
                .unwrap();
        assert_eq!(page.rows.len(), PAGE);
    }),
];

#[test]
fn no_look_takes_more_steps_because_more_is_waiting() {
    compare(&LOOKS, [Counted::with_rows(200), Counted::with_rows(20_000)]);
}

/// No look takes more steps in the larger file.
fn compare(looks: &[(&str, Look)], [mut few, mut many]: [Counted; 2]) {
    let mut grown = vec![];
    for (what, look) in looks.iter().copied() {
        let steps = (few.steps_of(look), many.steps_of(look));
        assert!(steps.0 > 0, "{what}: the steps are counted");
        if steps.1 > steps.0 + 5 {
            grown.push(format!("{what}: {} steps with few rows, {} with many", steps.0, steps.1));
        }
    }
    assert!(grown.is_empty(), "\n{}\n", grown.join("\n"));
}

#[test]
fn a_quiet_tenants_list_and_that_of_a_destination_pass_over_the_rows_of_others() {
    /// What is open has no block and is gone through: fewer rows than this, with at most eight steps each.
    const OPEN: u64 = 6_000;
    let looks: [(&str, Look); 2] = [
        ("a tenant's list", |reader, _| {
            let page = lists::page(reader, &globex(), None, PAGE).unwrap();
            assert_eq!((page.rows.len(), page.next), (4, None));
        }),
        ("the list of a destination", |reader, _| {
            let to_b = Filter { destinations: vec!["b".to_owned()], ..Filter::default() };
            let page = lists::page(reader, &to_b, None, PAGE).unwrap();
            assert_eq!((page.rows.len(), page.next), (4, None));
        }),
    ];
    let mut counted = Counted::with_rows(20_000);
    for (what, look) in looks {
        let steps = counted.steps_of(look);
        assert!(steps < 8 * OPEN, "{what}: {steps} steps behind 80,000 rows");
    }
}
