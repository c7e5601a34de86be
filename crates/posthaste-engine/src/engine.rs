//! The engine as a whole: what it is started with, its loops, and how it stops.
//!
//! Which signal wakes which loop:
//!
//! | signal | given when | wakes |
//! |---|---|---|
//! | `inbox` | a caller hands in notifications | accept |
//! | `signing.asks` | a webhook is to be signed and the secrets of its tenant were not read lately | signing |
//! | `reservations` | a caller's notifications need times under the inbound limits | inbound |
//! | `slots.deal_now` | a slot is free, a bucket is due, a quick try asks for a slot, outcomes can be recorded again, a heartbeat was answered | claim |
//! | `claimed` | accept or claim has a notification with a slot | dispatch |
//! | `reports` | a notification was sent or goes back unsent, a call was answered as an error | settle |
//! | `due` (alarm) | a row waits for a later time; settling failed | wake |
//! | `expiry` (alarm) | a row that expires waits | expire |
//! | `sweep` | rows may be due that nobody announced | sweep |
//! | `hints` | rows are due that this node has no slot for | tell |
//! | `store.listen` | another node told something | listen |
//! | `node.beat_now` | a try needs a longer lease | heartbeat |
//! | `dead_nodes` | a heartbeat was answered | reclaim |
//! | `recording` | outcomes can be recorded again, or a drain begins | claim, tries that wait to start |
//! | `slots.freed` | a notification is no longer in hand | `drain` |
//! | `jobs` | somebody asked for a run of a job | jobs |
//! | `operations` | an operation was started or changed, a node died | operations |
//! | `destinations.bell` | something was seen of a destination, or another node or a person changed one | destinations |
//! | `ended` | a loop broke down | `broken` |
//!
//! Wake, expire, sweep, heartbeat, jobs and operations also look at fixed times; age, figures and the comparison of leases look only then.

mod chance;
mod loops;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::breaker::BreakerSettings;
use posthaste_core::channel::Channel as ChannelName;
use posthaste_core::classify::Overrides;
use posthaste_core::destination::{DestinationName, SendLimits};
use posthaste_core::fields::BadField;
use posthaste_core::flow::Bucket;
use posthaste_core::id::NotificationId;
use posthaste_core::inbound::InboundLimits;
use posthaste_core::lease::{Lease, NodeId};
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::policy::{Policy, PolicySet};
use posthaste_core::provider::Pools;
use posthaste_core::retention::Periods;
use posthaste_core::simulate::{Asked, Scenario};
use posthaste_core::time::Timestamp;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use self::loops::Queues;
use crate::accept::Incoming;
use crate::alarm::Alarm;
use crate::channel::Channel;
use crate::clock::Clock;
use crate::destinations::Destinations;
use crate::flow_names::FlowNames;
use crate::hints::Hints;
use crate::inbound::Reservation;
use crate::jobs::{JobSettings, KnownRuns, Started};
use crate::leases::Leases;
use crate::live::Live;
use crate::metrics::Counts;
use crate::node::Node;
use crate::outage::Outage;
use crate::planted::Planted;
use crate::policies::Policies;
use crate::queue_limit::QueueLimit;
use crate::reclaim::DeadNodes;
use crate::series::Rollups;
use crate::settle::{Report, Unsent};
use crate::signal::Signal;
use crate::signing::Signing;
use crate::slots::{InSlot, NodeSlots};
use crate::store::{Claimed, NodeView, Store, StoreError};
use crate::sweep::Sweep;
use crate::vault::{self, NotStarted, VaultSettings, VaultState};
use crate::{destinations, jobs, node, series};

/// What an engine needs from outside.
pub struct Parts {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// The ways out. While a channel is missing, attempts over it fail and are retried.
    pub channels: BTreeMap<ChannelName, Arc<dyn Channel>>,
    /// The providers of the channels that have providers.
    pub pools: Pools,
    /// The time at the start.
    pub clock: Arc<dyn Clock>,
    /// The policies of the configuration; those of the store come on top.
    pub policies: PolicySet,
    /// What single status codes mean on a channel, where that differs from the table.
    pub overrides: BTreeMap<ChannelName, Overrides>,
    /// Where chance starts: another number for each process, or two of them make the same ids. The same seed on the same
    /// events makes the same choices.
    pub seed: u64,
}

/// How an engine works. Figures that the loops could not work with are held to the nearest that they can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The node's name, for people.
    pub name: String,
    /// The most notifications that a node sends at once. As many more may wait for their outcome to be recorded, and as many
    /// again for their next quick try.
    pub concurrency: u32,
    /// How long a heartbeat holds the node's leases. Another node takes them over this long after the last one.
    pub hold: Duration,
    /// The time between two heartbeats.
    pub beat: Duration,
    /// How often the safety net looks for due work that nobody was woken for.
    pub sweep: Duration,
    /// How often what was parked for too long is looked for.
    pub age_check: Duration,
    /// The most rows in one call to the store.
    pub batch: usize,
    /// When jobs run.
    pub jobs: JobSettings,
    /// How long rows are kept.
    pub retention: Periods,
    /// When breakers open, and for how long.
    pub breaker: BreakerSettings,
    /// What may be sent to single destinations, where nothing is said by the API.
    pub destination_limits: BTreeMap<DestinationName, SendLimits>,
    /// How many notifications a tenant and a module may send within a minute.
    pub inbound: InboundLimits,
    /// How many notifications the main lane may have; 0: as many as there are.
    pub queue_limit: u32,
    /// The master keys, and which headers are secrets.
    pub vault: VaultSettings,
    /// A bug, for a test to find.
    #[cfg(feature = "testing")]
    pub planted: Option<Planted>,
}

impl Settings {
    /// How long a lease lasts for sure when a try begins.
    pub(crate) fn surely(&self) -> Duration {
        self.hold * 5 / 6
    }

    /// The same, held to what the loops can work with: no figure makes them turn on the spot, stand still or overflow.
    #[must_use]
    fn within_bounds(self) -> Self {
        let hold = self.hold.clamp(Duration::from_secs(2), Duration::from_secs(3_600));
        let pause = |wanted: Duration| wanted.clamp(Duration::from_millis(10), Duration::from_secs(86_400));
        Self {
            concurrency: self.concurrency.clamp(1, 100_000),
            batch: self.batch.clamp(1, 10_000),
            hold,
            beat: self.beat.clamp(Duration::from_millis(10), hold / 4),
            sweep: pause(self.sweep),
            age_check: pause(self.age_check),
            ..self
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: "posthaste".to_owned(),
            concurrency: 256,
            hold: Duration::from_secs(12),
            beat: Duration::from_millis(1_500),
            sweep: Duration::from_secs(5),
            age_check: Duration::from_secs(300),
            batch: 500,
            jobs: JobSettings::default(),
            retention: Periods::default(),
            breaker: BreakerSettings::default(),
            destination_limits: BTreeMap::new(),
            inbound: InboundLimits::default(),
            queue_limit: 0,
            vault: VaultSettings::default(),
            #[cfg(feature = "testing")]
            planted: None,
        }
    }
}

/// A running engine. Dropping it ends every task at once, as a crash would; `drain` stops it properly.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    loops: Arc<Mutex<JoinSet<()>>>,
    /// Changes that are being stored, and what follows from them.
    changes: Mutex<JoinSet<()>>,
}

/// What the loops share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) channels: BTreeMap<ChannelName, Arc<dyn Channel>>,
    pub(crate) pools: Pools,
    pub(crate) policies: Policies,
    pub(crate) overrides: BTreeMap<ChannelName, Overrides>,
    pub(crate) settings: Settings,
    pub(crate) node: Node,
    pub(crate) leases: Leases,
    pub(crate) dead_nodes: DeadNodes,
    pub(crate) slots: NodeSlots,
    pub(crate) flow_names: FlowNames,
    pub(crate) destinations: Destinations,
    /// When the next row becomes due.
    pub(crate) due: Alarm,
    /// When the next row expires.
    pub(crate) expiry: Alarm,
    pub(crate) sweep: Sweep,
    pub(crate) hints: Hints,
    pub(crate) live: Live,
    pub(crate) outage: Outage,
    pub(crate) inbox: mpsc::Sender<Incoming>,
    pub(crate) reservations: mpsc::Sender<Reservation>,
    pub(crate) queue_limit: QueueLimit,
    pub(crate) claimed: mpsc::UnboundedSender<InSlot>,
    pub(crate) reports: mpsc::UnboundedSender<Report>,
    /// Notified when an operation may have something to do.
    pub(crate) operations: Notify,
    /// Runs of jobs that somebody asked for.
    pub(crate) jobs: mpsc::UnboundedSender<Started>,
    pub(crate) runs: KnownRuns,
    /// Whether outcomes can be recorded. While they cannot, no new send starts.
    pub(crate) recording: Signal<bool>,
    pub(crate) counts: Counts,
    pub(crate) rollups: Rollups,
    pub(crate) signing: Signing,
    pub(crate) vault: VaultState,
    draining: AtomicBool,
    /// The first loop that ended, which none of them does by itself.
    ended: Signal<Option<&'static str>>,
    chance: Mutex<fastrand::Rng>,
}

/// How many callers may wait for the next batch of arrivals.
const INBOX: usize = 1_024;

impl Engine {
    /// Joins the cluster and starts the loops on the current runtime.
    pub async fn start(parts: Parts, settings: Settings) -> Result<Self, NotStarted> {
        let settings = settings.within_bounds();
        let asked = node::instant(&*parts.clock);
        let joined = parts.store.join(settings.name.clone(), settings.hold, parts.clock.now()).await?;
        let node = Node::joined(parts.clock, joined.node, joined.now, asked, settings.hold);
        let policies = Policies::load(parts.policies, &*parts.store).await?;
        let (inbox, arrivals) = mpsc::channel(INBOX);
        let (reservations, to_reserve) = mpsc::channel(INBOX);
        let (claimed, to_send) = mpsc::unbounded_channel();
        let (reports, to_settle) = mpsc::unbounded_channel();
        let (jobs, to_run) = mpsc::unbounded_channel();
        let (asks, to_sign) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            store: parts.store,
            channels: parts.channels,
            policies,
            overrides: parts.overrides,
            node,
            leases: Leases::default(),
            dead_nodes: DeadNodes::default(),
            slots: NodeSlots::new(settings.concurrency),
            flow_names: FlowNames::default(),
            destinations: Destinations::new(&settings, &parts.pools),
            due: Alarm::default(),
            expiry: Alarm::default(),
            sweep: Sweep::default(),
            hints: Hints::default(),
            live: Live::default(),
            outage: Outage::default(),
            inbox,
            reservations,
            queue_limit: QueueLimit::new(settings.queue_limit.into()),
            claimed,
            reports,
            operations: Notify::new(),
            jobs,
            runs: KnownRuns::default(),
            recording: Signal::new(true),
            counts: Counts::default(),
            rollups: Rollups::new(joined.node),
            signing: Signing::new(asks),
            vault: VaultState::new(&settings.vault),
            draining: AtomicBool::new(false),
            ended: Signal::new(None),
            chance: Mutex::new(fastrand::Rng::with_seed(parts.seed)),
            pools: parts.pools,
            settings,
        });
        if let Err(refused) = vault::start(&shared).await {
            vault::leave(&shared).await;
            let _ = shared.store.leave(joined.node).await;
            return Err(refused);
        }
        jobs::plan(&shared).await?;
        destinations::start(&shared).await?;
        let loops = Arc::new(Mutex::new(JoinSet::new()));
        loops::start(&shared, &loops, Queues { arrivals, to_reserve, to_send, to_settle, to_run, to_sign });
        Ok(Self { shared, loops, changes: Mutex::default() })
    }

    /// A new id for a notification that is about to be accepted.
    pub fn notification_id(&self) -> NotificationId {
        let random = self.shared.random();
        NotificationId::new(self.now(), random)
    }

    /// The time of the cluster.
    pub fn now(&self) -> Timestamp {
        self.shared.node.now()
    }

    /// The latest that the time of the cluster can be: that of what has just ended, such as of a dead letter.
    pub fn latest(&self) -> Timestamp {
        self.shared.node.latest()
    }

    /// The policies in force.
    pub fn policies(&self) -> &Policies {
        &self.shared.policies
    }

    /// What is asked to be simulated, as this node would send it: by its breaker, its slots and its rules for single codes.
    pub fn scenario(&self, asked: Asked, policy: Policy, channel: ChannelName) -> Result<Scenario, BadField> {
        let overrides = self.shared.overrides.get(&channel).cloned().unwrap_or_default();
        let settings = &self.shared.settings;
        asked.scenario(policy, (channel, overrides), settings.breaker, settings.concurrency)
    }

    /// The providers of this node.
    pub fn pools(&self) -> &Pools {
        &self.shared.pools
    }

    /// The id of this node. It changes if the others have declared the node dead meanwhile.
    pub fn node_id(&self) -> NodeId {
        self.shared.node.id()
    }

    /// Every node of the cluster that is not forgotten, and which of them this one is.
    pub async fn nodes(&self) -> Result<(NodeId, Vec<NodeView>), StoreError> {
        let all = self.shared.store.nodes(self.now()).await?;
        Ok((self.shared.node.id(), all))
    }

    /// The lowest level (`store::LEVEL`) among the nodes that lived at the last heartbeat; 0 before the first. A feature that an
    /// older node would do wrong starts once this has reached its level.
    pub fn cluster_level(&self) -> u32 {
        self.shared.node.cluster_level()
    }

    /// Asks for the level now, so that features need not wait for the first heartbeat.
    pub async fn learn_level(&self) -> Result<(), StoreError> {
        let (_, nodes) = self.nodes().await?;
        let alive = nodes.iter().filter(|node| node.alive);
        if let Some(lowest) = alive.map(|node| node.level).min() {
            self.shared.node.set_cluster_level(lowest);
        }
        Ok(())
    }

    /// How many notifications the node has in its hands.
    pub fn busy(&self) -> u32 {
        self.shared.slots.busy()
    }

    /// Whether outcomes can be recorded at present.
    pub fn is_recording(&self) -> bool {
        self.shared.recording.get()
    }

    /// Whether every loop still runs. An engine that is not whole any more does not mend itself: it is to be started anew.
    pub fn is_whole(&self) -> bool {
        self.failed_loop().is_none()
    }

    /// The first loop that broke down, if one did; `store` if a part of the store did.
    pub fn failed_loop(&self) -> Option<&'static str> {
        self.shared.ended.get()
    }

    /// Waits until a loop has ended, or a part of the store without which it cannot serve, and returns its name. Every other
    /// loop has been told to end by then, heartbeats among them, so that other nodes take over. The process must be restarted.
    pub async fn broken(&self) -> &'static str {
        self.shared.ended.wait(|name| name).await
    }

    /// Makes a change with all that follows from it, even if the caller stops waiting: a change that is stored and that
    /// this node does not know of would wait for the next sweep.
    pub(crate) async fn to_its_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        {
            let mut changes = self.changes.lock().expect("no code panics while it starts a change");
            // Those that have ended are let go here, so that they do not pile up.
            while changes.try_join_next().is_some() {}
            let change = async move {
                let _ = answer.send(change.await);
            };
            // Its log lines name the request that asked for it.
            changes.spawn(change.in_current_span());
        }
        let stopped = || StoreError::Unavailable {
            what: "this node stopped before it answered".to_owned(),
            source: None,
        };
        answered.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Stops: takes nothing new, gives back what is unsent, waits up to `patience` for what is under way, and leaves
    /// the cluster. Returns how many were still under way; those are taken back by others once the node's time is up.
    pub async fn drain(&self, patience: Duration) -> Result<u32, StoreError> {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.shared.recording.ring();
        let until = Instant::now() + patience.min(Duration::from_secs(86_400));
        // Requests that came before the stop get a true answer about what is stored.
        let _ = tokio::time::timeout_at(until, self.let_in()).await;
        loop {
            // Each time: a claim that was under way may have brought more.
            self.shared.give_back(self.shared.slots.take_prefetched());
            let freed = self.shared.slots.freed.notified();
            if self.shared.slots.busy() == 0 || tokio::time::timeout_at(until, freed).await.is_err() {
                break;
            }
        }
        let left = self.shared.slots.busy();
        let taken = |tasks: &Mutex<JoinSet<()>>| {
            std::mem::take(&mut *tasks.lock().expect("no code panics while it takes the tasks"))
        };
        let mut changes = taken(&self.changes);
        let _ = tokio::time::timeout_at(until, async { while changes.join_next().await.is_some() {} }).await;
        changes.shutdown().await;
        taken(&self.loops).shutdown().await;
        series::end(&self.shared).await;
        if left == 0 || self.shared.has(Planted::LeaveWhileSending) {
            vault::leave(&self.shared).await;
            self.shared.store.leave(self.shared.node.id()).await?;
        }
        // What was given back is somebody else's now, at once.
        self.shared.hints.anywhere();
        if let Err(error) = self.shared.hints.tell(&self.shared).await {
            tracing::debug!(%error, "the other nodes could not be told that this one stopped");
        }
        Ok(left)
    }
}

impl Shared {
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Waits until the engine stops. `drain` notifies the tasks that wait for the recording.
    pub(crate) async fn draining(&self) {
        self.recording.wait(|_| self.is_draining().then_some(())).await;
    }

    /// Whether a lease taken now could be worked on.
    pub(crate) fn may_take_work(&self) -> bool {
        !self.is_draining() && self.recording.get() && self.node.left() > self.settings.beat
    }

    /// Gives rows back that were leased and not sent.
    pub(crate) fn give_back(&self, batch: Vec<Claimed>) {
        let mut grants: BTreeMap<Lease, Vec<Unsent>> = BTreeMap::new();
        for claimed in batch {
            grants.entry(claimed.lease).or_default().push(Unsent::from(&claimed));
        }
        for (lease, rows) in grants {
            let _ = self.reports.send(Report::Release { lease, rows });
        }
    }

    /// Makes known that a row waits: it is claimed when it is due, and ended when it expires.
    pub(crate) fn announce(&self, notification: &Notification, bucket: Bucket, due: Timestamp) {
        if due <= self.node.now() {
            self.ready(&notification.tenant, bucket);
        } else {
            self.due.set(due);
        }
        if let Some(expiry) = notification.expires_at {
            self.expiry.set(expiry);
        }
    }

    /// Makes known, here and to the other nodes, that a bucket holds due rows.
    pub(crate) fn ready(&self, tenant: &Tenant, bucket: Bucket) {
        self.slots.ready([(tenant, bucket)]);
        // Nobody could send it.
        if !self.is_shut(bucket.flow) {
            self.hints.due(bucket);
        }
    }
}
