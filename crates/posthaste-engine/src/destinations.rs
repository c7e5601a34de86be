//! Destinations: what this node knows of their health and limits, what it holds them to, and what people see and do.
//!
//! While nothing is wrong anywhere and nothing is limited, a send and its outcome cost one atomic load each.

mod figures;
mod keep;
mod lists;
mod memory;
mod people;
mod probe;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use posthaste_core::breaker::Health;
use posthaste_core::channel::Channel;
use posthaste_core::classify::Verdict;
use posthaste_core::destination::{DestinationKey, StoredDestination};
use posthaste_core::flow::{FlowId, FlowKey, Gate};
use posthaste_core::notification::Notification;
use posthaste_core::policy::{Policy, silence_until};
use posthaste_core::provider::{Pools, Provider, Route, pinned};
use posthaste_core::rate::Share;
use posthaste_core::reply::Reply;
use posthaste_core::slots::{Gated, KeyId};
use posthaste_core::time::Timestamp;
use tokio::sync::Notify;

pub use self::figures::DestinationFigures;
pub(crate) use self::keep::{run, start};
pub use self::lists::ParkedBehind;
pub(crate) use self::memory::May;
use self::memory::{Memory, Seen};
pub use self::people::{DestinationError, DestinationTarget, DestinationView, PARKED_COUNTED};
pub(crate) use self::probe::{ProbeInHand, begin};
use crate::engine::{Settings, Shared};
use crate::planted::Planted;
use crate::store::{Claimed, DESTINATIONS_LEVEL, Result};

/// The most flows over providers whose keys are set; beyond it they are set anew.
const MOST_KEYED: usize = 100_000;

/// What this node knows. The lock is never held across an await; the slots are locked inside of it, never the other way round.
#[derive(Debug)]
pub(crate) struct Destinations {
    memory: Mutex<Memory>,
    /// Whether every live node obeys. Before that nothing is counted and nobody is held to anything.
    is_on: AtomicBool,
    /// Whether anything is known of any destination.
    is_any: AtomicBool,
    /// Whether anything is known of a provider, which many flows share.
    is_any_shared: AtomicBool,
    /// Whether a row was read whose flow has no number here yet.
    is_any_unplaced: AtomicBool,
    /// Whether the configuration limits any.
    has_file: bool,
    /// The shared ones; their numbers are their places here.
    providers: Vec<Arc<Provider>>,
    keyed: Mutex<HashSet<FlowId>>,
    /// Rung when there is something to read or to write at once.
    bell: Notify,
    to_read: AtomicBool,
}

impl Destinations {
    pub(crate) fn new(settings: &Settings, pools: &Pools) -> Self {
        let providers = Channel::ALL.into_iter().flat_map(|channel| pools.of(channel)).cloned().collect();
        Self {
            memory: Mutex::new(Memory::new(settings.breaker)),
            is_on: AtomicBool::new(false),
            is_any: AtomicBool::new(false),
            is_any_shared: AtomicBool::new(false),
            is_any_unplaced: AtomicBool::new(false),
            has_file: !settings.destination_limits.is_empty(),
            providers,
            keyed: Mutex::default(),
            bell: Notify::new(),
            to_read: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no code panics while it notes what it knows of destinations")
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// A heartbeat was answered.
    pub(crate) fn beat(&self, level: u32, share: Share, newest: i64) {
        let mut memory = self.lock();
        let is_new = memory.share != share;
        memory.set_share(share);
        memory.newest = memory.newest.max(newest);
        let behind = memory.newest > memory.version;
        drop(memory);
        if level >= DESTINATIONS_LEVEL {
            self.is_on.store(true, Ordering::Relaxed);
        }
        if behind {
            self.ask_to_read();
        } else if is_new {
            self.bell.notify_one();
        }
    }

    /// Another node may have changed something.
    pub(crate) fn ask_to_read(&self) {
        self.to_read.store(true, Ordering::Relaxed);
        self.bell.notify_one();
    }

    fn key_of(&self, provider: &Provider) -> Option<KeyId> {
        let index = self.providers.iter().position(|one| one.name == provider.name)?;
        i64::try_from(index).ok().map(KeyId)
    }

    /// The provider that a slot was taken for.
    pub(crate) fn provider(&self, key: KeyId) -> Option<&Arc<Provider>> {
        self.providers.get(usize::try_from(key.0).ok()?)
    }

    /// The destination of a try.
    pub(crate) fn place(&self, claimed: &Claimed, route: &Route) -> Gated {
        match route {
            Route::Direct => Gated::Flow(claimed.flow),
            Route::Provider(provider) => self.key_of(provider).map_or(Gated::Flow(claimed.flow), Gated::Key),
        }
    }
}

impl Shared {
    /// Whether a try may be made in the slot now.
    pub(crate) fn may_send(&self, place: Gated, slot_is_bounded: bool) -> May {
        if !self.destinations.is_any() || self.has(Planted::SendsWhileOpen) {
            return May::Send;
        }
        let is_bounded = slot_is_bounded || self.has(Planted::NoRamp);
        self.destinations.lock().may_send(place, is_bounded, self.node.now())
    }

    /// Whether a quick try may be waited for: none starts while anything is wrong with the destination.
    pub(crate) fn is_well(&self, place: Gated) -> bool {
        !self.destinations.is_any() || self.destinations.lock().is_well(place, self.node.now())
    }

    /// Whether a quick try may be made.
    pub(crate) fn may_try_again(&self, place: Gated) -> bool {
        let now = self.node.now();
        self.is_well(place) && !(self.destinations.is_any() && self.destinations.lock().is_paused(place, now))
    }

    /// Whether nothing but a probe goes to the one destination of a flow.
    pub(crate) fn is_shut(&self, flow: FlowId) -> bool {
        self.destinations.is_any() && self.destinations.lock().is_shut(Gated::Flow(flow), self.node.now())
    }

    /// What the destinations of a flow let pass, over all nodes.
    pub(crate) fn gate_of(&self, flow: FlowId) -> Gate {
        if !self.destinations.is_any() || self.has(Planted::OperationsIgnoreBreakers) {
            return Gate::Closed;
        }
        let (keys, now) = (self.slots.keys(flow), self.node.now());
        let memory = self.destinations.lock();
        let by_keys = Gate::widest(keys.into_iter().map(|key| memory.gate(Gated::Key(key), now)));
        by_keys.unwrap_or_else(|| memory.gate(Gated::Flow(flow), now))
    }

    /// Flows that this node may not have met yet get what is known of their destinations. `met` are those that were looked at
    /// before.
    pub(crate) async fn meet_flows(&self, flows: &[FlowId], met: &mut HashSet<FlowId>) -> Result<()> {
        let known = &self.destinations;
        let is_unplaced = known.is_any_unplaced.load(Ordering::Relaxed);
        if !is_unplaced && !known.is_any_shared.load(Ordering::Relaxed) {
            return Ok(());
        }
        let new = flows.iter().filter(|flow| is_unplaced || !met.contains(flow));
        let new: Vec<FlowId> = new.copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        for flow in self.store.flows(new.clone()).await? {
            if DestinationKey::of_flow(&flow.key).is_some_and(|key| self.place(flow.id, &key)) {
                self.apply_bounds();
            }
            self.meet(flow.id, &flow.key);
        }
        met.extend(new);
        Ok(())
    }

    /// The flow of a notification is met: what the configuration says of it counts from now on, and the limits of its providers.
    pub(crate) fn meet_flow_of(&self, flow: FlowId, notification: &Notification) {
        let known = &self.destinations;
        let is_unplaced = known.is_any_unplaced.load(Ordering::Relaxed);
        let may_matter = known.has_file || known.is_any_shared.load(Ordering::Relaxed) || is_unplaced;
        if !may_matter || !known.is_on() {
            return;
        }
        let key = FlowKey::of(notification);
        if is_unplaced
            && let Some(destination) = DestinationKey::of_flow(&key)
            && self.place(flow, &destination)
        {
            self.apply_bounds();
        }
        self.meet(flow, &key);
    }

    /// Notes rows whose flows have no number here yet.
    fn place_later(&self, rows: impl Iterator<Item = StoredDestination>) {
        let known = &self.destinations;
        let mut memory = known.lock();
        memory.place_later(rows);
        known.is_any_unplaced.store(memory.has_unplaced(), Ordering::Relaxed);
    }

    /// The number of a flow is known: what was read of its destination counts from now on. False if nothing was.
    fn place(&self, flow: FlowId, key: &DestinationKey) -> bool {
        let known = &self.destinations;
        let mut memory = known.lock();
        let Some(row) = memory.take_unplaced(key) else { return false };
        known.is_any_unplaced.store(memory.has_unplaced(), Ordering::Relaxed);
        let file = self.settings.file_limits(&row.key);
        memory.learn(Gated::Flow(flow), row, file, self.node.id(), self.node.now());
        true
    }

    fn meet(&self, flow: FlowId, key: &FlowKey) {
        let known = &self.destinations;
        if key.channel.has_providers() {
            if known.is_any_shared.load(Ordering::Relaxed) && !self.has(Planted::LimitOfEachFlow) {
                self.set_keys(flow, key);
            }
            return;
        }
        if !known.has_file || known.lock().knows(Gated::Flow(flow)) {
            return;
        }
        let Some(destination) = DestinationKey::of_flow(key) else { return };
        let limits = self.settings.file_limits(&destination);
        if limits != Default::default() {
            known.lock().meet(Gated::Flow(flow), destination, limits);
            self.apply_bounds();
        }
    }

    fn set_keys(&self, flow: FlowId, key: &FlowKey) {
        let known = &self.destinations;
        let mut keyed = known.keyed.lock().expect("no code panics while it notes a flow");
        if keyed.contains(&flow) {
            return;
        }
        if keyed.len() >= MOST_KEYED {
            keyed.clear();
        }
        keyed.insert(flow);
        drop(keyed);
        let named = pinned(&key.destination);
        let pool = self.pools.of(key.channel).iter();
        let chosen = pool.filter(|provider| named.is_none_or(|name| *provider.name == *name));
        self.slots.set_keys(flow, chosen.filter_map(|provider| known.key_of(provider)).collect());
    }

    /// Notes what a try or an attempt said about its destination. `health` is unknown where it does not count, or is told otherwise.
    pub(crate) fn note(
        &self,
        place: Gated,
        (claimed, route): (&Claimed, &Route),
        policy: &Policy,
        (began_at, at): (Timestamp, Timestamp),
        (verdict, reply): (Verdict, &Reply),
        health: Health,
    ) {
        let known = &self.destinations;
        let pause = silence_until(policy, &verdict, at);
        let matters = health == Health::Down || pause.is_some() || known.is_any();
        if !matters || !known.is_on() {
            return;
        }
        let error = match verdict {
            Verdict::Delivered => None,
            Verdict::Failed(_) => Some((reply.status_code(), reply.words())),
        };
        let key = || {
            let key = match route {
                Route::Direct => DestinationKey::of_flow(&FlowKey::of(&claimed.notification))?,
                Route::Provider(provider) => DestinationKey::provider(&provider.name),
            };
            let file = self.settings.file_limits(&key);
            Some((key, file))
        };
        let mut memory = known.lock();
        memory.note(place, Seen { health, began_at, at, error, pause }, key);
        let (urgent, dirty) = (memory.urgent, memory.is_dirty());
        known.is_any.store(!memory.is_empty(), Ordering::Relaxed);
        drop(memory);
        if urgent {
            self.apply_bounds();
        }
        if urgent || dirty {
            known.bell.notify_one();
        }
    }

    /// Holds destinations to what changed since the last time. What waits in memory for one that is closed goes back.
    pub(crate) fn apply_bounds(&self) {
        let now = self.node.now();
        let mut memory = self.destinations.lock();
        let mut back = vec![];
        for (place, mut bounds) in memory.bounds(now) {
            let is_ramp = matches!(bounds.limits.gate, Gate::Ramp(_));
            if self.has(Planted::SendsWhileOpen) || (is_ramp && self.has(Planted::NoRamp)) {
                bounds = Default::default();
            }
            if bounds.limits.gate == Gate::Probe && self.has(Planted::NeverProbes) {
                bounds.limits.gate = Gate::Open;
            }
            if matches!(place, Gated::Key(_)) && self.has(Planted::LimitOfEachFlow) {
                continue;
            }
            back.extend(self.slots.limit(place, bounds, now));
        }
        self.destinations.is_any.store(!memory.is_empty(), Ordering::Relaxed);
        self.destinations.is_any_shared.store(memory.has_shared(), Ordering::Relaxed);
        drop(memory);
        self.give_back(back);
    }
}
