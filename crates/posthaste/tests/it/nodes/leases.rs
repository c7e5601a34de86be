//! The book of leases: who held what from when to when, written by triggers of the tests in the database itself, and
//! the promise that no two hold the same.
//!
//! The sink and the database go by the clock of one machine, so an arrival has its place in the book: within a lease, and
//! the only one within it.

use std::collections::BTreeMap;

use posthaste_core::id::NotificationId;
use posthaste_core::time::Timestamp;
use posthaste_wire::sink::Sink;
use tokio::task::block_in_place;

use super::super::kept::rows_of_database;
use super::{Cluster, DATABASE};

/// Every change of holder with its moment. A row that was interrupted tells until when its holder was thought to live.
const TRIGGERS: &str = "
    create table lease_book (
        number bigint generated always as identity primary key,
        at bigint not null,
        id uuid not null,
        was_node bigint,
        was_fence bigint,
        node bigint,
        fence bigint,
        interrupted boolean not null,
        lived_until bigint
    );
    create function note_lease() returns trigger language plpgsql as $$
    declare
        before queue;
        after queue;
    begin
        if tg_op <> 'INSERT' then before := old; end if;
        if tg_op <> 'DELETE' then after := new; end if;
        if (before.node, before.fence) is distinct from (after.node, after.fence) then
            insert into lease_book (at, id, was_node, was_fence, node, fence, interrupted, lived_until)
            select (extract(epoch from clock_timestamp()) * 1000000)::bigint, coalesce(before.id, after.id),
                before.node, before.fence, after.node, after.fence,
                coalesce(after.interruptions > before.interruptions, false),
                (select expires from node where id = before.node);
        end if;
        return null;
    end $$;
    create trigger note_lease after insert or update or delete on queue
    for each row execute function note_lease();";

/// A lease as the book tells of it.
#[derive(Debug)]
pub(super) struct Lease {
    node: i64,
    fence: i64,
    from: i64,
    until: i64,
    /// Whether it was taken back.
    interrupted: bool,
}

/// The leases of each notification, the oldest first.
pub(super) struct Book {
    of: BTreeMap<NotificationId, Vec<Lease>>,
}

/// Where the arrivals stand in the book.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Strays {
    /// Those that came while nobody held the notification, or somebody whose send had arrived already: sent under a lease
    /// that was over, as only a node can that stood still between its look at the lease and the send.
    pub(super) late: u32,
}

impl Book {
    /// From now on every lease is noted.
    pub(super) fn open(cluster: &Cluster) {
        cluster.sql(TRIGGERS);
    }

    /// I4: reads the book at rest. No lease was granted while another stood, none was given up but by its holder, and none
    /// was taken back before its time was over.
    pub(super) fn read(cluster: &Cluster) -> Self {
        let sql = "select id, at, was_node, was_fence, node, fence, interrupted::integer, lived_until
            from lease_book
            order by number";
        let mut of: BTreeMap<NotificationId, Vec<Lease>> = BTreeMap::new();
        for row in block_in_place(|| rows_of_database(&cluster.server, DATABASE, sql)) {
            let (id, at) = (row.id(), row.number(1));
            let leases = of.entry(id).or_default();
            let stood = leases.last_mut().filter(|lease| lease.until == i64::MAX);
            let was = row.maybe::<i64>(2).zip(row.maybe::<i64>(3));
            assert_eq!(
                stood.as_ref().map(|lease| (lease.node, lease.fence)),
                was,
                "I4: the book of {id} has a gap"
            );
            let now = row.maybe::<i64>(4).zip(row.maybe::<i64>(5));
            assert!(was.is_none() || now.is_none(), "I4: {id} was leased to {now:?} while {was:?} held it");
            if let Some(lease) = stood {
                lease.until = at;
                lease.interrupted = row.number::<u8>(6) == 1;
                let lived_until: Option<i64> = row.maybe(7);
                assert!(
                    !lease.interrupted || lived_until.is_some_and(|until| until <= at),
                    "I4: {id} was taken at {at} from a node that lived until {lived_until:?}"
                );
            }
            if let Some((node, fence)) = now {
                leases.push(Lease { node, fence, from: at, until: i64::MAX, interrupted: false });
            }
        }
        for (id, leases) in &of {
            assert!(leases.iter().all(|lease| lease.until != i64::MAX), "I4: {id} is still held: {leases:?}");
        }
        Self { of }
    }

    /// How many leases were granted.
    pub(super) fn len(&self) -> usize {
        self.of.values().map(Vec::len).sum()
    }

    /// When the lease ended under which something arrived.
    pub(super) fn held_until(&self, id: NotificationId, arrived: Timestamp) -> Timestamp {
        let at = arrived.as_micros();
        let lease = self.of[&id].iter().find(|lease| lease.from <= at && at <= lease.until);
        Timestamp::from_micros(lease.expect("it arrived under a lease").until)
    }

    /// Every arrival is one of a lease that stood, and the only one of it; answers which are not.
    pub(super) fn strays(&self, sink: &Sink) -> Strays {
        let mut strays = Strays::default();
        let mut arrived: BTreeMap<(NotificationId, usize), u32> = BTreeMap::new();
        for arrival in sink.arrivals() {
            let id: NotificationId =
                arrival.id.expect("every delivery names its notification").parse().unwrap();
            let at = arrival.at.as_micros();
            let leases = self.of.get(&id).map(Vec::as_slice).unwrap_or_default();
            match leases.iter().position(|lease| lease.from <= at && at <= lease.until) {
                Some(place) => *arrived.entry((id, place)).or_default() += 1,
                None => {
                    eprintln!("{id} arrived at {at}: {leases:?}");
                    strays.late += 1;
                }
            }
        }
        for ((id, place), count) in arrived.iter().filter(|(_, count)| **count > 1) {
            eprintln!("{id} arrived {count} times under {:?}: {:?}", self.of[id][*place], self.of[id]);
            strays.late += count - 1;
        }
        strays
    }
}
