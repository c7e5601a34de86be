//! Settlements that bury, made by a store without a server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use posthaste::clock::SystemClock;
use posthaste_core::attempt::{Attempt, Outcome};
use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::flow::FlowKey;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::{Body, Content, Notification};
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock as _;
use posthaste_engine::store::{Arrival, Ending, Next, Request, Settled, Settlement, Store};
use tokio::time::Instant;

/// Dead letters of one settlement.
pub(crate) const BATCH: u64 = 1_000;

/// Where the dead letters of one settlement were to go.
#[derive(Clone, Copy)]
pub(crate) enum Spreading {
    /// To four destinations, always the same.
    Few,
    /// Each to a destination of its own that is new.
    Many,
}

impl Spreading {
    pub(crate) const ALL: [Self; 2] = [Self::Few, Self::Many];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Few => "4 destinations",
            Self::Many => "as many new destinations",
        }
    }
}

/// A node that buries.
pub(crate) struct Burials {
    store: Arc<dyn Store>,
    node: NodeId,
    now: Timestamp,
    rounds: u64,
}

impl Burials {
    pub(crate) async fn new(store: Arc<dyn Store>) -> anyhow::Result<Self> {
        let now = SystemClock.now();
        let node = store.join("scale".to_owned(), Duration::from_secs(86_400), now).await?.node;
        Ok(Self { store, node, now, rounds: 0 })
    }

    /// How long a settlement takes whose notifications all become dead letters.
    pub(crate) async fn settle(&mut self, spreading: Spreading) -> anyhow::Result<Duration> {
        self.rounds += 1;
        let lease = Lease { node: self.node, fence: Fence(i64::try_from(self.rounds)?) };
        let arrivals = self.arrivals(spreading, lease).await?;
        let batch: Vec<Settlement> =
            arrivals.iter().map(|arrival| settlement(arrival.notification.id, lease, self.now)).collect();
        self.store.accept(vec![Request { idempotency: None, arrivals }], self.now).await?;
        let begun = Instant::now();
        let settled = self.store.settle(batch, self.now).await?;
        let took = begun.elapsed();
        ensure!(settled.iter().all(|one| *one == Settled::Applied), "a lease was lost");
        Ok(took)
    }

    /// Notifications that are leased to this node.
    async fn arrivals(&self, spreading: Spreading, lease: Lease) -> anyhow::Result<Vec<Arrival>> {
        let first = self.rounds * BATCH;
        let destination = |number: u64| match spreading {
            Spreading::Few => format!("https://f{}.example:443", number % 4),
            Spreading::Many => format!("https://m{number}.example:443"),
        };
        let tenant: posthaste_core::notification::Tenant = "t1".parse()?;
        let key = |number: u64| FlowKey {
            tenant: tenant.clone(),
            channel: Channel::Webhook,
            destination: destination(number).into(),
        };
        let keys: Vec<FlowKey> = (first..first + BATCH).map(key).collect();
        let mut distinct = keys.clone();
        distinct.sort();
        distinct.dedup();
        let flows = self.store.intern(distinct.clone()).await?;
        let arrival = |(key, number): (FlowKey, u64)| {
            let id = NotificationId::new(self.now, u128::from(number));
            let flow = flows[distinct.partition_point(|other| *other < key)];
            let content = Content::of(Body::Text("hello".to_owned()));
            let notification = Notification::new(id, key, "https://m.example/".to_owned(), content);
            Arrival { notification: Arc::new(notification), flow, due: self.now, lease: Some(lease) }
        };
        Ok(keys.into_iter().zip(first..).map(arrival).collect())
    }
}

fn settlement(id: NotificationId, lease: Lease, now: Timestamp) -> Settlement {
    let number = u128::from_be_bytes(id.to_bytes());
    let text = format!("answered 503: upstream connect error {}", number % 1_000);
    let attempt = Attempt {
        generation: 1,
        number: 1,
        started_at: now,
        duration: Duration::from_millis(5),
        outcome: Outcome::Failed(FailureType::Temporary),
        status_code: Some(503),
        error: Some(text.clone()),
        quick_tries: vec![],
        last_try_at: None,
        provider: None,
        message_id: None,
        response: None,
    };
    let ending = Ending::Buried {
        dead_letter: DeadLetterId::new(now, number),
        reason: Reason::MaxAttemptsExceeded,
        text,
    };
    Settlement { id, lease, cancel_seen: false, attempt: Some(attempt), next: Next::End(ending) }
}
