//! Parking costs nothing: what waits behind a destination that is down is not read again and again.

use posthaste_core::destination::{DestinationKey, DestinationKind};
use posthaste_core::flow::Bucket;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{DueCursor, FlowsTo};

use super::{Counted, Look, NOW, PAGE, bucket, destinations, globex, waking};

/// When the rows of the flow that is parked are due.
const DUE: Timestamp = Timestamp::from_micros(1_800);
/// What was first due before that may be too old by its policy.
const OLD: Timestamp = Timestamp::from_micros(1_700);

/// Behind the first flow, which has no quota, `rows` wait. One of them, and one of the second flow, is a retry that was first due
/// before `OLD`, and one says itself how old it may become. As many destinations have a row, and one of another tenant.
const PARKED: &str = "
    insert into flow (id, tenant, channel, destination)
    select 1, 'acme', 0, 'https://down.example:443'
    union all
    select 2, 'globex', 0, 'b'
    union all
    select 3, 'globex', 1, 'pool:email';
    insert into flow (id, tenant, channel, destination)
    with recursive number (n) as (select 1 union all select n + 1 from number where n < $rows)
    select 100 + n, 'acme', 0, printf('https://%08d.example:443', n)
    from number;
    insert into queue (id, flow, lane, priority, due, first_due, delay, node, fence, attempt, base, generation,
        interruptions, cancel, own_policy, own_age)
    with recursive number (n) as (select 1 union all select n + 1 from number where n < $rows)
    select unhex(printf('%032x', n)), 1, n = 2, 2, 1800, iif(n = 2, 1600, 1800), 0, null, null, 1, 0, 1, 0, 0, n = 1, n = 1
    from number
    union all
    select unhex(printf('%032x', 90000000)), 2, 1, 2, 1900, 1600, 0, null, null, 1, 0, 1, 0, 0, 0, 0;
    insert into notification (id, flow, recipient, priority, content)
    select id, flow, 'r', priority, '{\"body\":{\"text\":\"hello\"},\"policy\":{\"maxAge\":60}}'
    from queue
    where own_age = 1;
    insert into destination (tenant, kind, name, id, value, version, changed)
    select tenant, 1, destination, unhex(printf('%032x', id)), '{\"breaker\":{\"state\":\"closed\",\"failures\":null}}', id, 1
    from flow
    where id >= 100 or id = 2;";

const LOOKS: [(&str, Look); 13] = [
    ("what may be too old by its policy", |reader, _| {
        assert_eq!(waking::overdue(reader, NOW, OLD, None, PAGE).unwrap().len(), 2);
    }),
    ("what says itself how old it may become", |reader, _| {
        assert_eq!(waking::overdue_by_own_age(reader, NOW, None, PAGE).unwrap().len(), 1);
    }),
    ("what becomes due, once what is parked was", |reader, _| {
        let wakes = waking::wakes(&reader.conn, DueCursor::after_all_at(DUE), NOW, PAGE).unwrap();
        assert_eq!((wakes.buckets.len(), wakes.more), (1, None));
    }),
    ("the buckets of the sweep", |reader, _| {
        let buckets = waking::buckets(&reader.conn, None, PAGE).unwrap();
        let found: Vec<Bucket> = buckets.into_iter().map(|waiting| waiting.bucket).collect();
        assert_eq!(found, [bucket(1, Lane::Main), bucket(1, Lane::Retry), bucket(2, Lane::Retry)]);
    }),
    ("how many are parked, up to a limit", |reader, _| {
        let of = FlowsTo { tenant: None, destination: "https://down.example:443".into() };
        assert_eq!(destinations::parked(&reader.conn, &of, 100, NOW).unwrap(), 100);
    }),
    ("how many are parked elsewhere", |reader, _| {
        let of = FlowsTo { tenant: globex().tenant, destination: "b".into() };
        assert_eq!(destinations::parked(&reader.conn, &of, 100, NOW).unwrap(), 1);
    }),
    ("a page of destinations", |reader, _| {
        let page = destinations::page(&reader.conn, None, None, PAGE).unwrap();
        assert_eq!(page.rows.len(), PAGE);
    }),
    ("a page of destinations behind those of another tenant", |reader, _| {
        let page = destinations::page(&reader.conn, None, Some(&last_of_acme()), PAGE).unwrap();
        assert_eq!((page.rows.len(), page.next), (1, None));
    }),
    ("a tenant's destinations", |reader, _| {
        let page = destinations::page(&reader.conn, globex().tenant.as_ref(), None, PAGE).unwrap();
        assert_eq!((page.rows.len(), page.next), (1, None));
    }),
    ("known destinations", |reader, _| {
        let page = destinations::known(&reader.conn, None, None, None, PAGE).unwrap();
        assert_eq!(page.rows.len(), PAGE);
    }),
    ("known destinations behind those of another tenant", |reader, _| {
        let page = destinations::known(&reader.conn, None, None, Some(&last_of_acme()), PAGE).unwrap();
        assert_eq!((page.rows.len(), page.next), (1, None));
    }),
    ("a tenant's known destinations", |reader, _| {
        let page = destinations::known(&reader.conn, globex().tenant.as_ref(), None, None, PAGE).unwrap();
        assert_eq!((page.rows.len(), page.next), (1, None));
    }),
    ("a known destination by its name", |reader, _| {
        let page = destinations::known(&reader.conn, None, Some("b"), None, PAGE).unwrap();
        assert_eq!((page.rows.len(), page.next), (1, None));
    }),
];

/// After every other destination of the tenant.
fn last_of_acme() -> DestinationKey {
    let tenant = Some("acme".parse().unwrap());
    DestinationKey { tenant, kind: DestinationKind::Subscription, name: "sub_zzz".into() }
}

#[test]
fn no_look_takes_more_steps_because_more_is_parked() {
    super::compare(&LOOKS, [Counted::filled(PARKED, 200), Counted::filled(PARKED, 100_000)]);
}
