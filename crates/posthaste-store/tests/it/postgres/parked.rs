//! Parking costs nothing: what waits behind a destination that is down is not read again and again.

use posthaste_core::destination::{DestinationKey, DestinationKind};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Destinations, DueCursor, FlowsTo, Waking};
use posthaste_store::postgres::{PostgresOptions, PostgresStore};

use super::plans::read_so_far;
use super::server::{Server, callers_time};

/// Behind the first flow, which has no quota, 100,000 rows wait. One of them, and one of the second flow, is a retry that was first
/// due before 1700, and one says itself how old it may become. 20,000 destinations have a row, one of them is of another tenant.
const FILL: &str = "
    insert into flow (tenant, channel, destination)
    values ('acme', 0, 'https://down.example:443'), ('globex', 0, 'b');
    insert into flow (tenant, channel, destination)
    select 'acme', 0, 'https://' || lpad(n::text, 8, '0') || '.example:443'
    from generate_series(1, 20000) as n;
    insert into queue (id, flow, lane, priority, due, first_due, delay, node, fence, attempt, base, generation,
        interruptions, cancel, own_policy, own_age)
    select lpad(to_hex(n), 32, '0')::uuid, 1, (n = 2)::int, 2, 1800, case when n = 2 then 1600 else 1800 end, 0,
        null::bigint, null::bigint, 1, 0, 1, 0, false, n = 1, n = 1
    from generate_series(1, 100000) as n
    union all
    select lpad(to_hex(900000), 32, '0')::uuid, 2, 1, 2, 1900, 1600, 0, null, null, 1, 0, 1, 0, false, false, false;
    insert into notification (id, flow, recipient, priority, content)
    select id, flow, 'r', priority, '{\"body\":{\"text\":\"hello\"},\"policy\":{\"maxAge\":60}}'
    from queue
    where own_age;
    insert into destination (tenant, kind, name, id, value, version, changed)
    select tenant, 1, destination, lpad(to_hex(id), 32, '0')::uuid,
        '{\"breaker\":{\"state\":\"closed\",\"failures\":null}}', id, 1
    from flow
    where id > 1";

async fn look_everywhere(store: &PostgresStore) {
    const PAGE: usize = 20;
    let [now, due, old] = [2_000, 1_800, 1_700].map(Timestamp::from_micros);
    assert_eq!(store.overdue(now, old, None, PAGE).await.unwrap().len(), 2);
    assert_eq!(store.overdue_by_own_age(now, None, PAGE).await.unwrap().len(), 1);
    let wakes = store.wakes(DueCursor::after_all_at(due), now, PAGE).await.unwrap();
    assert_eq!((wakes.buckets.len(), wakes.more), (1, None));
    assert_eq!(store.buckets(None, PAGE).await.unwrap().len(), 3);
    let (acme, globex) = ("acme".parse().unwrap(), Some("globex".parse().unwrap()));
    let down = FlowsTo { tenant: None, destination: "https://down.example:443".into() };
    let other = FlowsTo { tenant: globex.clone(), destination: "b".into() };
    assert_eq!(store.parked(vec![down, other], 100, now).await.unwrap(), [100, 1]);
    let last =
        DestinationKey { tenant: Some(acme), kind: DestinationKind::Subscription, name: "sub_zzz".into() };
    let page = store.destination_page(None, None, PAGE).await.unwrap();
    assert_eq!(page.rows.len(), PAGE);
    for (tenant, after) in [(None, Some(last.clone())), (globex.clone(), None)] {
        let page = store.destination_page(tenant.clone(), after.clone(), PAGE).await.unwrap();
        assert_eq!((page.rows.len(), page.next), (1, None));
        let page = store.known_destinations(tenant, None, after, PAGE).await.unwrap();
        assert_eq!((page.rows.len(), page.next), (1, None));
    }
    assert_eq!(store.known_destinations(None, None, None, PAGE).await.unwrap().rows.len(), PAGE);
    let named = store.known_destinations(None, Some("b".into()), None, PAGE).await.unwrap();
    assert_eq!((named.rows.len(), named.next), (1, None));
    assert_eq!(store.destinations_since(20_001, PAGE).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_look_reads_more_because_more_is_parked() {
    const ROUNDS: u64 = 8;
    let server = Server::shared();
    // What the planner takes the tables for when it plans: unknown, and well known.
    for known in ["unknown", "known"] {
        let database = server.database();
        server.sql(&database, FILL);
        if known == "known" {
            server.sql(&database, "analyze");
        }
        let before = read_so_far(server, &database);
        let options = PostgresOptions { connections: 1, ..callers_time() };
        let store = PostgresStore::connect(&server.url(&database), options).await.unwrap();
        for _ in 0..ROUNDS {
            look_everywhere(&store).await;
        }
        drop(store);
        let read = (read_so_far(server, &database) - before) / ROUNDS;
        // 101 rows that are counted, and a dozen looks of at most 20 rows.
        assert!(read < 1_500, "{read} rows and entries were read in a round, tables {known}");
    }
}
