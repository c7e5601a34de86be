//! What the tests send through a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::{Attempt, Outcome};
use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::flow::{Bucket, FlowId, FlowKey, Quota};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::{Body, Content, Notification, Priority};
use posthaste_core::reason::Reason;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Arrival, Claimed, DueCursor, Ending, Next, Request, Settlement, Store};
use posthaste_store::sqlite::{Options, SqliteStore};
use tempfile::TempDir;

/// How long a node lives in these tests.
pub(crate) const HOLD: Duration = Duration::from_secs(30);

/// A store in a directory of its own, which is gone with it.
pub(crate) struct Scene {
    pub(crate) store: SqliteStore,
    directory: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("posthaste.db"), options).unwrap();
        Self { store, directory }
    }

    /// The same file, opened anew.
    pub(crate) fn reopen(self) -> Self {
        self.reopen_after(|_| ())
    }

    /// The same file, opened anew after something else wrote to it.
    pub(crate) fn reopen_after(self, write: impl FnOnce(&rusqlite::Connection)) -> Self {
        let path = self.path();
        let Self { store, directory } = self;
        drop(store);
        beside(&path, write);
        let store = SqliteStore::open(directory.path().join("posthaste.db"), Options::default()).unwrap();
        Self { store, directory }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("posthaste.db")
    }
}

/// The seconds of these tests.
pub(crate) fn at(secs: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + secs * 1_000)
}

pub(crate) fn id(number: u128) -> NotificationId {
    NotificationId::new(at(0), number)
}

pub(crate) fn key(tenant: &str, destination: &str) -> FlowKey {
    FlowKey { tenant: tenant.parse().unwrap(), channel: Channel::Webhook, destination: destination.into() }
}

pub(crate) fn notification(id: NotificationId, key: &FlowKey) -> Notification {
    let content = Content::of(Body::Json("{\"order\":7}".to_owned()));
    let plain = Notification::new(id, key.clone(), "https://example.com/hook".to_owned(), content);
    Notification { event_key: Some("order.paid".to_owned()), ..plain }
}

pub(crate) fn request(id: NotificationId, key: &FlowKey, flow: FlowId, lease: Option<Lease>) -> Request {
    let arrival = Arrival { notification: Arc::new(notification(id, key)), flow, due: at(0), lease };
    Request { idempotency: None, arrivals: vec![arrival] }
}

/// One flow with that many waiting notifications, numbered from `first`.
pub(crate) async fn fill(store: &dyn Store, key: &FlowKey, first: u128, count: u128) -> FlowId {
    let flow = store.intern(vec![key.clone()]).await.unwrap()[0];
    let requests = (first..first + count).map(|number| request(id(number), key, flow, None)).collect();
    store.accept(requests, at(0)).await.unwrap();
    flow
}

/// One flow with that many waiting notifications that expire then, numbered from 0.
pub(crate) async fn fill_expiring(
    store: &dyn Store,
    key: &FlowKey,
    count: u128,
    expires: Timestamp,
) -> FlowId {
    let flow = store.intern(vec![key.clone()]).await.unwrap()[0];
    let arrival = |number| {
        let notification = Notification { expires_at: Some(expires), ..notification(id(number), key) };
        Arrival { notification: Arc::new(notification), flow, due: at(0), lease: None }
    };
    let request = Request { idempotency: None, arrivals: (0..count).map(arrival).collect() };
    store.accept(vec![request], at(0)).await.unwrap();
    flow
}

/// The rows that a store says have expired, by their numbers, and when the next one does.
pub(crate) async fn expired(
    store: &dyn Store,
    until: Timestamp,
    limit: usize,
) -> (Vec<NotificationId>, Option<Timestamp>) {
    let found = store.expiring(until, limit).await.unwrap();
    (found.rows.into_iter().map(|row| row.id).collect(), found.next)
}

/// Of four flows only the last can be understood, and only its rows are told by the looks of the waking loop:
/// the lane of the first makes no sense, the second is not known, the tenant of the third makes no sense.
pub(crate) async fn only_what_makes_sense_wakes(store: &dyn Store, flows: [FlowId; 4]) {
    let good = quota(flows[3], Lane::Main, 1).bucket;
    // What is left out takes no place: a short answer would mean that there are no more.
    let buckets = store.buckets(None, 1).await.unwrap();
    assert_eq!(buckets.iter().map(|waiting| waiting.bucket).collect::<Vec<_>>(), [good]);
    assert_eq!(store.buckets(Some(good), 1).await.unwrap(), []);
    for limit in 1..10 {
        let (mut after, mut told) = (DueCursor::after_all_at(Timestamp::MIN), vec![]);
        loop {
            let wakes = store.wakes(after, at(9), limit).await.unwrap();
            told.extend(wakes.buckets.iter().map(|woken| woken.bucket));
            let Some(last) = wakes.more else { break };
            assert!(last > after, "it goes on");
            after = last;
        }
        told.dedup();
        assert_eq!(told, [good], "pages of {limit}");
    }
    let known = store.flows(flows.to_vec()).await.unwrap();
    assert_eq!(known.iter().map(|flow| flow.id).collect::<Vec<_>>(), [flows[0], flows[3]]);
    let node = store.join("one".to_owned(), HOLD, at(1)).await.unwrap().node;
    let quotas = flows.map(|flow| quota(flow, Lane::Main, 9)).to_vec();
    let claimed = store.claim(quotas, lease(node, 1), at(1)).await.unwrap();
    assert_eq!(
        claimed.claimed.iter().map(|claimed| claimed.notification.id).collect::<Vec<_>>(),
        [30, 31].map(id)
    );
    assert_eq!(claimed.set_aside, [10, 11, 20, 21].map(id));
}

pub(crate) fn lease(node: NodeId, fence: i64) -> Lease {
    Lease { node, fence: Fence(fence) }
}

pub(crate) fn quota(flow: FlowId, lane: Lane, limit: u32) -> Quota {
    Quota { bucket: Bucket { flow, lane, priority: Priority::Normal }, limit }
}

pub(crate) fn settlement(claimed: &Claimed, outcome: Outcome, next: Next) -> Settlement {
    let attempt = Attempt {
        generation: claimed.progress.generation,
        number: claimed.progress.attempt,
        started_at: at(1),
        duration: Duration::from_millis(120),
        outcome,
        status_code: Some(200),
        error: None,
        quick_tries: vec![],
        last_try_at: None,
        provider: None,
        message_id: None,
        response: None,
    };
    Settlement {
        id: claimed.notification.id,
        lease: claimed.lease,
        cancel_seen: true,
        attempt: Some(attempt),
        next,
    }
}

pub(crate) fn delivered(claimed: &Claimed) -> Settlement {
    settlement(claimed, Outcome::Delivered, Next::End(Ending::Delivered))
}

pub(crate) fn buried(claimed: &Claimed, name: DeadLetterId) -> Settlement {
    let (reason, text) = (Reason::PermanentFailure, "gone".to_owned());
    let ending = Ending::Buried { dead_letter: name, reason, text };
    settlement(claimed, Outcome::Failed(FailureType::Permanent), Next::End(ending))
}

pub(crate) fn retried(claimed: &Claimed, due: Timestamp) -> Settlement {
    let next = Next::Retry { due, delay: Duration::from_secs(5) };
    settlement(claimed, Outcome::Failed(FailureType::Temporary), next)
}

/// Runs something on the file beside the store.
pub(crate) fn beside<T>(path: &Path, look: impl FnOnce(&rusqlite::Connection) -> T) -> T {
    look(&rusqlite::Connection::open(path).unwrap())
}
