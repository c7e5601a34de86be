//! Makes the operations of a run from its seed and from what the stores answered so far.

mod arrivals;
mod destinations;
mod groups;
mod inbound;
mod jobs;
mod operations;
mod outcomes;
mod reads;
mod records;
mod retention;
mod series;

pub(super) use self::destinations::destination_keys;
pub(super) use self::inbound::inbound_keys;

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::flow::{Bucket, FlowId, FlowKey, Quota};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::{Notification, Priority, Tenant};
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;

use crate::store::slice::{Answer, Call};
use crate::store::{Accepted, Ending, Next, Pulse, Settled, Settlement, Store, acts, nodes, queue};

/// What the audit rows say that was done.
pub(super) const AUDITED: [&str; 4] = ["act", "set", "put records", "put destinations"];

/// The jobs of a run.
pub(super) const JOBS: [&str; 2] = ["job 0", "job 1"];

/// Whose notifications a run makes.
pub(super) const TENANTS: [&str; 2] = ["acme", "globex"];
/// Those of rows of figures.
pub(super) const DESTINATIONS: [&str; 2] = ["https://a.example:443", "pool:email"];

/// How many grants are remembered, the stale ones included.
const GRANTS: usize = 100;

/// How many notifications that failed or were acted on are remembered.
const TROUBLED: usize = 40;

/// The tenant of that name.
pub(super) fn tenant(name: &str) -> Tenant {
    name.parse().expect("the suite names its tenants in plain letters")
}

/// What a node was given to work on: maybe still held, maybe not.
#[derive(Debug, Clone, Copy)]
struct Grant {
    id: NotificationId,
    lease: Lease,
    generation: u32,
    attempt: u32,
}

/// The state of a run.
pub(super) struct Generator {
    rng: fastrand::Rng,
    now: Timestamp,
    flows: Vec<(FlowKey, FlowId)>,
    nodes: Vec<NodeId>,
    gone: Vec<NodeId>,
    fence: i64,
    notifications: Vec<Arc<Notification>>,
    grants: Vec<Grant>,
    graves: Vec<DeadLetterId>,
    /// What failed or was acted on: more can happen to it than to the rest.
    troubled: Vec<NotificationId>,
    /// What has to be asked next, to know what the last operation did.
    follow_up: Option<Call>,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            now: Timestamp::from_micros(1_776_247_200_000_123),
            flows: vec![],
            nodes: vec![],
            gone: vec![],
            fence: 0,
            notifications: vec![],
            grants: vec![],
            graves: vec![],
            troubled: vec![],
            follow_up: None,
        }
    }

    /// The time of the run.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Every notification that was ever handed in, also where it was not taken.
    pub(super) fn ids(&self) -> Vec<NotificationId> {
        self.notifications.iter().map(|notification| notification.id).collect()
    }

    /// The next call. `store` is asked how things stand, so that most acts are made on what is there.
    pub(super) async fn call(&mut self, store: &dyn Store) -> Call {
        if let Some(next) = self.follow_up.take() {
            return next;
        }
        if self.flows.is_empty() {
            return queue::Call::Intern { flows: all_flows() }.into();
        }
        if self.nodes.is_empty() {
            return self.join().into();
        }
        self.pass_time();
        match self.rng.u32(0..100) {
            0..22 => queue::Call::Accept { requests: self.requests(), now: self.now }.into(),
            22..38 => self.claim().into(),
            38..56 => queue::Call::Settle { batch: self.settlements(), now: self.now }.into(),
            56..60 => self.release().into(),
            60..74 => self.transition(store).await.into(),
            74..76 => self.replace(store).await,
            76..84 => self.node_call().into(),
            84 => self.put_setting(),
            85 => self.put_destinations(store).await.into(),
            86 => self.put_records().into(),
            87..89 => self.job_call().into(),
            89..92 => self.retention_call().into(),
            92 if self.rng.bool() => self.inbound_call().into(),
            92 => self.series_call().into(),
            93..98 => self.operation_call(store).await.into(),
            _ => self.read(),
        }
    }

    /// Takes note of what the stores answered.
    pub(super) fn learn(&mut self, call: &Call, answer: Option<&Answer>) {
        match (call, answer) {
            (Call::Queue(call), Some(Answer::Queue(answer))) => self.learn_queue(call, answer),
            (Call::Nodes(call), Some(Answer::Nodes(answer))) => self.learn_nodes(call, answer),
            (Call::Acts(acts::Call::Transition { changes, .. }), Some(Answer::Acts(answer))) => {
                let acts::Answer::Transition(made) = answer else { return };
                let changed = changes.iter().zip(made).filter(|(_, made)| **made);
                self.troubled.extend(changed.map(|(change, _)| change.id));
            }
            (Call::Acts(acts::Call::Replace { replacement, .. }), Some(Answer::Acts(answer)))
                if *answer == acts::Answer::Replace(Some(Accepted::New)) =>
            {
                self.troubled.extend([replacement.id, replacement.copy.notification.id]);
            }
            _ => {}
        }
        let (grants, troubled) = (self.grants.len(), self.troubled.len());
        self.grants.drain(..grants.saturating_sub(GRANTS));
        self.troubled.drain(..troubled.saturating_sub(TROUBLED));
    }

    fn learn_queue(&mut self, call: &queue::Call, answer: &queue::Answer) {
        match (call, answer) {
            (queue::Call::Intern { flows: keys }, queue::Answer::Intern(flows)) => {
                self.flows = keys.iter().cloned().zip(flows.iter().copied()).collect();
            }
            (queue::Call::Accept { requests, .. }, queue::Answer::Accept(accepted)) => {
                let new = requests.iter().zip(&accepted.answers).filter(|(_, how)| **how == Accepted::New);
                let leased = new.flat_map(|(request, _)| &request.arrivals).filter_map(|arrival| {
                    let (id, lease) = (arrival.notification.id, arrival.lease?);
                    Some(Grant { id, lease, generation: 1, attempt: 1 })
                });
                self.grants.extend(leased);
            }
            (_, queue::Answer::Claim(claimed)) => {
                self.grants.extend(claimed.claimed.iter().map(|claimed| Grant {
                    id: claimed.notification.id,
                    lease: claimed.lease,
                    generation: claimed.progress.generation,
                    attempt: claimed.progress.attempt,
                }));
            }
            (queue::Call::Settle { batch, .. }, queue::Answer::Settle(settled)) => {
                self.learn_settled(batch, settled);
            }
            _ => {}
        }
    }

    fn learn_nodes(&mut self, call: &nodes::Call, answer: &nodes::Answer) {
        match (call, answer) {
            (_, nodes::Answer::Join(joined)) => self.nodes.push(joined.node),
            (nodes::Call::Leave { node }, _)
            | (nodes::Call::Heartbeat { node, .. }, nodes::Answer::Heartbeat(Pulse::Lost)) => {
                self.nodes.retain(|known| known != node);
                self.gone.push(*node);
            }
            _ => {}
        }
    }

    /// Most grants that were settled are forgotten; the others are tried again, though they are stale.
    fn learn_settled(&mut self, batch: &[Settlement], settled: &[Settled]) {
        let applied = batch.iter().zip(settled).filter(|(_, how)| **how == Settled::Applied);
        for (item, _) in applied {
            if self.rng.u32(0..4) > 0 {
                self.grants.retain(|grant| (grant.id, grant.lease) != (item.id, item.lease));
            }
            if item.next != Next::End(Ending::Delivered) {
                self.troubled.push(item.id);
            }
        }
    }

    fn pass_time(&mut self) {
        let micros = match self.rng.u32(0..1_000) {
            0..400 => 0,
            400..900 => self.rng.u64(0..3_000_000),
            900..990 => self.rng.u64(0..120_000_000),
            990..998 => self.rng.u64(0..7_200_000_000),
            _ => self.rng.u64(0..50_000_000_000),
        };
        self.now = self.now.later(Duration::from_micros(micros));
    }

    fn claim(&mut self) -> queue::Call {
        let lease = self.new_lease();
        let quotas = (0..self.rng.usize(1..8)).map(|_| Quota {
            bucket: self.bucket(),
            limit: [0, 1, 2, 3, 10, u32::MAX][self.rng.usize(0..6)],
        });
        queue::Call::Claim { quotas: quotas.collect(), lease, now: self.now }
    }

    fn release(&mut self) -> queue::Call {
        let Some(grant) = self.some_grant() else { return self.claim() };
        let only = self.rng.bool().then(|| {
            let mut ids = self.some_ids(3);
            ids.push(grant.id);
            ids
        });
        queue::Call::Release { lease: grant.lease, only }
    }

    fn join(&mut self) -> nodes::Call {
        nodes::Call::Join { name: "random".to_owned(), hold: self.hold(), now: self.now }
    }

    fn node_call(&mut self) -> nodes::Call {
        let (node, hold, now) = (self.some_node(), self.hold(), self.now);
        match self.rng.u32(0..10) {
            0..2 if self.nodes.len() < 4 => nodes::Call::Join { name: "random".to_owned(), hold, now },
            2 => nodes::Call::Leave { node },
            3..6 => {
                // Whether the node is dead now, so that it leases nothing more, shows in its next heartbeat.
                self.follow_up = Some(nodes::Call::Heartbeat { node, hold: Duration::ZERO, now }.into());
                nodes::Call::Reclaim { node, limit: self.rng.usize(1..5), now }
            }
            6 if !self.gone.is_empty() => {
                let node = self.gone[self.rng.usize(..self.gone.len())];
                nodes::Call::Reclaim { node, limit: self.rng.usize(1..5), now }
            }
            _ => nodes::Call::Heartbeat { node, hold, now },
        }
    }

    fn hold(&mut self) -> Duration {
        Duration::from_secs([1, 10, 60, 3_600][self.rng.usize(0..4)])
    }

    /// A grant that no one had before, now and then of a node that is gone.
    fn new_lease(&mut self) -> Lease {
        self.fence += 1;
        let late = !self.gone.is_empty() && self.rng.u8(0..20) == 0;
        let node = if late { self.gone[self.rng.usize(..self.gone.len())] } else { self.some_node() };
        Lease { node, fence: Fence(self.fence) }
    }

    fn some_node(&mut self) -> NodeId {
        self.nodes[self.rng.usize(..self.nodes.len())]
    }

    fn bucket(&mut self) -> Bucket {
        let flow = self.flows[self.rng.usize(..self.flows.len())].1;
        Bucket { flow, lane: Lane::ALL[self.rng.usize(0..2)], priority: self.priority() }
    }

    /// Only two, so that buckets fill.
    fn priority(&mut self) -> Priority {
        [Priority::High, Priority::Normal][self.rng.usize(0..2)]
    }

    /// The newer half of what was given out, where most is still held, more often than the older one.
    fn some_grant(&mut self) -> Option<Grant> {
        let half = self.grants.len() / 2;
        let from = if self.rng.u32(0..10) < 8 { half } else { 0 };
        let places = from..self.grants.len();
        (!places.is_empty()).then(|| self.grants[self.rng.usize(places)])
    }

    fn some_ids(&mut self, most: usize) -> Vec<NotificationId> {
        let count = self.rng.usize(0..=most);
        let mut ids = vec![];
        for _ in 0..count {
            let troubled = self.troubled.len();
            if troubled > 0 && self.rng.u32(0..3) > 0 {
                ids.push(self.troubled[self.rng.usize(..troubled)]);
            } else {
                ids.extend(self.some_notification().map(|known| known.id));
            }
        }
        ids
    }

    fn some_notification(&mut self) -> Option<Arc<Notification>> {
        let recent = self.notifications.len().saturating_sub(30);
        let from = if self.rng.bool() { recent } else { 0 };
        let places = from..self.notifications.len();
        (!places.is_empty()).then(|| self.notifications[self.rng.usize(places)].clone())
    }

    /// The name of a dead letter that is to be.
    fn new_grave(&mut self) -> DeadLetterId {
        let name = DeadLetterId::new(self.now, self.rng.u128(..));
        self.graves.push(name);
        name
    }
}

fn all_flows() -> Vec<FlowKey> {
    let channels = [Channel::Webhook, Channel::Email];
    let keys = TENANTS.iter().flat_map(|name| {
        channels.into_iter().map(|channel| FlowKey {
            tenant: tenant(name),
            channel,
            destination: "https://example.org".into(),
        })
    });
    keys.collect()
}
