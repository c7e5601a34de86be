//! Fills a store with waiting, finished and dead notifications before it is measured.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::{Attempt, Outcome};
use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::flow::{FlowId, FlowKey};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::{Body, Content, Notification};
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock as _;
use posthaste_engine::store::{Arrival, Ending, Next, Request, Settlement, Store};
use posthaste_store::postgres::{PostgresOptions, PostgresStore};
use posthaste_store::sqlite::{Options, SqliteStore, Synchronous};

use super::place::Place;
use crate::clock::SystemClock;
use crate::keys;

/// Notifications per call to the store.
const CHUNK: u64 = 5_000;
/// Number of tenants, and of destinations of each.
const EACH: usize = 10;
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The first attempt is due in a year.
    Waiting,
    /// Delivered by the first attempt.
    Finished,
    /// A dead letter after the first attempt.
    Dead,
}

/// Inserts `rows` notifications of each kind. Some of the waiting ones belong to `measured`, the flow that
/// the bench then sends to. `progress` gets the number of each kind so far.
pub(super) async fn fill(
    place: &Place,
    rows: u64,
    measured: FlowKey,
    body: &str,
    progress: impl Fn(u64),
) -> anyhow::Result<()> {
    let store = open(place).await?;
    let mut keys: Vec<FlowKey> = (0..EACH * EACH).map(other_flow).collect();
    keys.push(measured);
    let numbers = store.intern(keys.clone()).await?;
    // They arrived one per millisecond, the last of them now.
    let start = SystemClock.now().earlier(Duration::from_millis(rows * 3));
    let node = store.join("fill".to_owned(), YEAR, start).await?.node;
    let flows = numbers.into_iter().zip(keys).collect();
    let mut filler = Filler { store, flows, node, start, made: 0, fence: 0, body };
    for first in (0..rows).step_by(CHUNK as usize) {
        let count = CHUNK.min(rows - first);
        for kind in [Kind::Waiting, Kind::Finished, Kind::Dead] {
            filler.chunk(kind, count).await?;
        }
        progress(first + count);
    }
    filler.store.leave(node).await?;
    Ok(())
}

/// Filling needs no durability; the measurement does.
async fn open(place: &Place) -> anyhow::Result<Box<dyn Store>> {
    Ok(match place {
        Place::File(path) => {
            let fast =
                Options { synchronous: Synchronous::Off, unsafe_durability: true, ..Options::default() };
            Box::new(SqliteStore::open(path, fast)?)
        }
        Place::Database(database) => {
            let fast = PostgresOptions { unsafe_durability: true, ..PostgresOptions::default() };
            let url = format!("{}?options=-c%20synchronous_commit%3Doff", database.url);
            Box::new(PostgresStore::connect(&url, fast).await?)
        }
    })
}

fn other_flow(number: usize) -> FlowKey {
    FlowKey {
        tenant: format!("tenant-{}", number / EACH).parse().expect("a plain name"),
        channel: Channel::Webhook,
        destination: format!("https://hooks-{number}.example.com:443").into(),
    }
}

struct Filler<'a> {
    store: Box<dyn Store>,
    /// The last one is the measured flow.
    flows: Vec<(FlowId, FlowKey)>,
    node: NodeId,
    start: Timestamp,
    made: u64,
    fence: i64,
    body: &'a str,
}

impl Filler<'_> {
    async fn chunk(&mut self, kind: Kind, count: u64) -> anyhow::Result<()> {
        self.fence += 1;
        let lease = Lease { node: self.node, fence: Fence(self.fence) };
        let requests: Vec<Request> = (0..count).map(|_| self.request(kind, lease)).collect();
        let settled = match kind {
            Kind::Waiting => vec![],
            Kind::Finished | Kind::Dead => {
                requests.iter().map(|request| settlement(kind, &request.arrivals[0], lease)).collect()
            }
        };
        let now = self.now();
        self.store.accept(requests, now).await?;
        if !settled.is_empty() {
            self.store.settle(settled, now).await?;
        }
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.start.later(Duration::from_millis(self.made))
    }

    fn request(&mut self, kind: Kind, lease: Lease) -> Request {
        self.made += 1;
        let (now, number) = (self.now(), self.made);
        // One in ten belongs to the measured flow.
        let place = number as usize % (self.flows.len() + EACH);
        let (flow, key) = &self.flows[place.min(self.flows.len() - 1)];
        let not_before = (kind == Kind::Waiting).then(|| now.later(YEAR));
        let id = NotificationId::new(now, u128::from_be_bytes(keys::random()));
        let (to, body) = (format!("{}/orders/{number}", key.destination), Body::Json(self.body.to_owned()));
        let notification = Notification {
            event_key: Some("order.paid".to_owned()),
            correlation_id: Some(format!("order-{number}")),
            not_before,
            ..Notification::new(id, key.clone(), to, Content::of(body))
        };
        let arrival = Arrival {
            notification: Arc::new(notification),
            flow: *flow,
            due: not_before.unwrap_or(now),
            lease: (kind != Kind::Waiting).then_some(lease),
        };
        Request { idempotency: None, arrivals: vec![arrival] }
    }
}

fn settlement(kind: Kind, arrival: &Arrival, lease: Lease) -> Settlement {
    let id = arrival.notification.id;
    let refused = "the endpoint answered 400 Bad Request";
    let is_dead = kind == Kind::Dead;
    let attempt = Attempt {
        generation: 1,
        number: 1,
        started_at: id.made_at(),
        duration: Duration::from_millis(48),
        outcome: if is_dead { Outcome::Failed(FailureType::Permanent) } else { Outcome::Delivered },
        status_code: Some(if is_dead { 400 } else { 200 }),
        error: is_dead.then(|| refused.to_owned()),
        quick_tries: vec![],
        provider: None,
        message_id: None,
        response: None,
    };
    let ending = if is_dead {
        Ending::Buried {
            dead_letter: DeadLetterId::new(id.made_at(), u128::from_be_bytes(keys::random())),
            reason: Reason::PermanentFailure,
            text: refused.to_owned(),
        }
    } else {
        Ending::Delivered
    };
    Settlement { id, lease, cancel_seen: true, attempt: Some(attempt), next: Next::End(ending) }
}
