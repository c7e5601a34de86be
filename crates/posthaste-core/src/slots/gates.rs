//! How many more of a flow may be sent: by its own limits and by those of the breaker keys that it shares with others.
//!
//! What is under way is counted per flow and per shared key. Flows of several tenants may have the same key (a provider), and
//! would exceed its limits together if only flows were counted.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::flow::{FlowId, Gate, Limits};
use crate::rate::{RateLimit, Traffic};
use crate::state::Lane;
use crate::time::Timestamp;

/// The small number of a breaker key that several flows share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub i64);

/// What limits apply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gated {
    /// A flow alone.
    Flow(FlowId),
    /// All flows with that key, together.
    Key(KeyId),
}

/// The flow has no room at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoom;

/// Everything that a flow or key is held to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bounds {
    /// What is under way and what is left of rate and budget are counted here, whatever it says of them.
    pub limits: Limits,
    /// So many a second.
    pub rate: Option<f64>,
    /// The retry budget, while it applies. What is counted already goes on.
    pub retries: Option<Traffic>,
}

impl From<Limits> for Bounds {
    fn from(limits: Limits) -> Self {
        Self { limits, rate: None, retries: None }
    }
}

/// The shortest wait for a rate or a budget, so that what a fast one allows is dealt in batches.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);

/// The limits, and the counts of what is under way.
#[derive(Debug)]
pub(super) struct Gates {
    /// The most of one flow at once.
    per_flow: u32,
    /// Entries only for what is under way or limited.
    entries: HashMap<Gated, Entry>,
    /// The shared keys of flows that have any, in the order of preference. One with room is enough.
    keys: HashMap<FlowId, Vec<KeyId>>,
    /// Flows that were found without room since the limits of the key last changed.
    waiting: HashMap<KeyId, BTreeSet<FlowId>>,
    /// When flows that were found without room may have some by time alone, each flow once.
    reopening: BTreeSet<(Timestamp, FlowId)>,
    reopens_at: HashMap<FlowId, Timestamp>,
}

/// What one flow or key is held to, and what of it is under way.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// `in_flight` is the count.
    limits: Limits,
    more: Option<Box<More>>,
}

/// What few flows have.
#[derive(Debug, Default)]
struct More {
    rate: Option<RateLimit>,
    retries: Option<Traffic>,
}

impl Entry {
    pub(crate) fn limits_at(&self, now: Timestamp) -> Limits {
        let Some(more) = &self.more else { return self.limits };
        Limits {
            rate_left: more.rate.map(|rate| rate.room_at(now)),
            retries_left: more.retries.as_ref().map(|retries| retries.room(now)),
            ..self.limits
        }
    }

    fn is_bounded(&self) -> bool {
        self.more.is_some() || Limits { in_flight: 0, ..self.limits } != Limits::default()
    }

    /// Holds it to that from now on. What is under way stays counted, and what was allowed before stays spent.
    pub(crate) fn bind(&mut self, bounds: Bounds, now: Timestamp) {
        let in_flight = self.limits.in_flight;
        self.limits = Limits { in_flight, rate_left: None, retries_left: None, ..bounds.limits };
        let known = self.more.take().map_or_else(More::default, |more| *more);
        let rate = bounds.rate.map(|per_second| match known.rate {
            Some(limit) if limit.rate() == per_second => limit,
            Some(limit) => limit.with_rate(per_second, now),
            None => RateLimit::new(per_second, now),
        });
        let retries = bounds.retries.map(|new| match known.retries {
            Some(known) => known.joined(&new),
            None => new,
        });
        if rate.is_some() || retries.is_some() {
            self.more = Some(Box::new(More { rate, retries }));
        }
    }

    /// One is sent.
    pub(crate) fn take(&mut self, lane: Lane, now: Timestamp) {
        self.limits.in_flight += 1;
        self.spend(lane, now);
    }

    /// So many are not under way any more.
    pub(crate) fn give_back(&mut self, count: u32) {
        self.limits.in_flight = self.limits.in_flight.saturating_sub(count);
    }

    fn spend(&mut self, lane: Lane, now: Timestamp) {
        let is_budgeted = self.limits.is_budgeted(lane);
        let Some(more) = &mut self.more else { return };
        if let Some(rate) = &mut more.rate {
            rate.room(now);
            rate.spend(1);
        }
        match &mut more.retries {
            Some(retries) if is_budgeted => retries.spend(1, now),
            Some(retries) => retries.count(1, now),
            None => {}
        }
    }

    fn unspend(&mut self, lane: Lane, count: u32) {
        let is_budgeted = self.limits.is_budgeted(lane);
        let Some(more) = &mut self.more else { return };
        if let Some(rate) = &mut more.rate {
            rate.give_back(count);
        }
        match &mut more.retries {
            Some(retries) if is_budgeted => retries.unspend(count),
            Some(retries) => retries.uncount(count),
            None => {}
        }
    }

    /// When it may have room by time alone, if it has none.
    pub(crate) fn reopens_at(&self, lane: Lane, now: Timestamp) -> Option<Timestamp> {
        let limits = self.limits_at(now);
        let pause = limits.paused_until.filter(|until| *until > now);
        let soonest = now.later(SHORTEST_WAIT);
        let more = self.more.as_ref();
        let rate = more.and_then(|more| more.rate).filter(|_| limits.rate_left == Some(0));
        let rate = rate.map(|rate| rate.next_at(now).max(soonest));
        let spent = limits.is_budgeted(lane) && limits.retries_left == Some(0);
        let retries = more.and_then(|more| more.retries.as_ref()).filter(|_| spent);
        let retries = retries.map(|retries| retries.next_at(now).max(soonest));
        [pause, rate, retries].into_iter().flatten().max()
    }
}

impl Gates {
    pub(super) fn new(per_flow: u32) -> Self {
        Self {
            per_flow,
            entries: HashMap::new(),
            keys: HashMap::new(),
            waiting: HashMap::new(),
            reopening: BTreeSet::new(),
            reopens_at: HashMap::new(),
        }
    }

    /// Sets what a flow or key is held to; what is under way stays counted. Returns the flows that may have room now.
    pub(super) fn limit(&mut self, gated: Gated, bounds: Bounds, now: Timestamp) -> BTreeSet<FlowId> {
        let entry = self.entries.entry(gated).or_default();
        entry.bind(bounds, now);
        if !entry.is_bounded() && entry.limits.in_flight == 0 {
            self.entries.remove(&gated);
        }
        self.reopened_by(gated)
    }

    /// Sets the shared keys of a flow; none means that only its own limits count.
    pub(super) fn set_keys(&mut self, flow: FlowId, keys: Vec<KeyId>) {
        if keys.is_empty() {
            self.keys.remove(&flow);
        } else {
            self.keys.insert(flow, keys);
        }
    }

    pub(super) fn keys(&self, flow: FlowId) -> &[KeyId] {
        self.keys.get(&flow).map_or(&[], Vec::as_slice)
    }

    #[cfg(test)]
    pub(super) fn in_flight(&self, gated: Gated) -> u32 {
        self.entries.get(&gated).map_or(0, |entry| entry.limits.in_flight)
    }

    /// How many more of a flow may be taken in that lane.
    pub(super) fn room(&self, flow: FlowId, lane: Lane, now: Timestamp) -> u32 {
        let by_keys = self.keys.get(&flow).map_or(u32::MAX, |keys| {
            keys.iter().fold(0, |sum: u32, key| sum.saturating_add(self.room_of_key(*key, lane, now)))
        });
        self.own_room(flow, lane, now).min(by_keys)
    }

    /// Whether none of the flow may be held in memory: its breaker is not closed, it is paused, or it has no share of a
    /// concurrency.
    pub(super) fn is_held_back(&self, flow: FlowId, now: Timestamp) -> bool {
        let held_back = |gated: Gated| {
            let Some(entry) = self.entries.get(&gated) else { return false };
            entry.limits.gate != Gate::Closed || entry.limits.is_shut(now)
        };
        let by_keys =
            self.keys.get(&flow).is_some_and(|keys| keys.iter().all(|key| held_back(Gated::Key(*key))));
        held_back(Gated::Flow(flow)) || by_keys
    }

    /// The shared key, if the flow has any, that the next one of the flow is counted on.
    pub(super) fn next_key(&self, flow: FlowId, lane: Lane, now: Timestamp) -> Result<Option<KeyId>, NoRoom> {
        if self.own_room(flow, lane, now) == 0 {
            return Err(NoRoom);
        }
        let Some(keys) = self.keys.get(&flow) else { return Ok(None) };
        keys.iter().copied().find(|key| self.room_of_key(*key, lane, now) > 0).map(Some).ok_or(NoRoom)
    }

    /// Counts one of the flow, on that key. Returns whether the flow or the key is held to anything.
    pub(super) fn take(&mut self, flow: FlowId, key: Option<KeyId>, lane: Lane, now: Timestamp) -> bool {
        let mut is_bounded = false;
        for gated in each(flow, key) {
            let entry = self.entries.entry(gated).or_default();
            is_bounded |= entry.is_bounded();
            entry.take(lane, now);
        }
        is_bounded
    }

    /// One that is under way is sent once more.
    pub(super) fn spend(&mut self, flow: FlowId, key: Option<KeyId>, now: Timestamp) {
        for gated in each(flow, key) {
            if let Some(entry) = self.entries.get_mut(&gated) {
                entry.spend(Lane::Main, now);
            }
        }
    }

    /// So many of the flow did not go after all.
    pub(super) fn unspend(&mut self, flow: FlowId, key: Option<KeyId>, lane: Lane, count: u32) {
        for gated in each(flow, key) {
            if let Some(entry) = self.entries.get_mut(&gated) {
                entry.unspend(lane, count);
            }
        }
    }

    /// So many of the flow are not under way any more. Returns other flows that may have room now.
    pub(super) fn give_back(&mut self, flow: FlowId, key: Option<KeyId>, count: u32) -> BTreeSet<FlowId> {
        for gated in each(flow, key) {
            let Some(entry) = self.entries.get_mut(&gated) else { continue };
            entry.give_back(count);
            if entry.limits.in_flight == 0 && !entry.is_bounded() {
                self.entries.remove(&gated);
            }
        }
        key.map(|key| self.reopened_by(Gated::Key(key))).unwrap_or_default()
    }

    /// A flow without room in that lane waits until something changes.
    pub(super) fn wait(&mut self, flow: FlowId, lane: Lane, now: Timestamp) {
        let keys = self.keys.get(&flow).map_or(&[][..], Vec::as_slice);
        let of = |gated: Gated| self.entries.get(&gated)?.reopens_at(lane, now);
        let by_keys = keys.iter().filter_map(|key| of(Gated::Key(*key))).min();
        let at = of(Gated::Flow(flow)).into_iter().chain(by_keys).max();
        for key in keys {
            self.waiting.entry(*key).or_default().insert(flow);
        }
        let Some(at) = at else { return };
        let known = self.reopens_at.get(&flow).copied();
        if known.is_none_or(|known| at < known) {
            if let Some(known) = known {
                self.reopening.remove(&(known, flow));
            }
            self.reopens_at.insert(flow, at);
            self.reopening.insert((at, flow));
        }
    }

    /// The flows that may have room by now.
    pub(super) fn reopened(&mut self, now: Timestamp) -> Vec<FlowId> {
        let mut flows = vec![];
        while self.reopening.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, flow)) = self.reopening.pop_first() {
                self.reopens_at.remove(&flow);
                flows.push(flow);
            }
        }
        flows
    }

    /// When the next flow may have room by time alone.
    pub(super) fn reopens_at(&self) -> Option<Timestamp> {
        self.reopening.first().map(|(at, _)| *at)
    }

    fn own_room(&self, flow: FlowId, lane: Lane, now: Timestamp) -> u32 {
        let Some(entry) = self.entries.get(&Gated::Flow(flow)) else { return self.per_flow };
        let limits = entry.limits_at(now);
        let most = limits.concurrency.map_or(self.per_flow, |most| most.min(self.per_flow));
        Limits { concurrency: Some(most), ..limits }.room_in(lane, now)
    }

    fn room_of_key(&self, key: KeyId, lane: Lane, now: Timestamp) -> u32 {
        let entry = self.entries.get(&Gated::Key(key));
        entry.map_or(u32::MAX, |entry| entry.limits_at(now).room_in(lane, now))
    }

    fn reopened_by(&mut self, gated: Gated) -> BTreeSet<FlowId> {
        match gated {
            Gated::Flow(flow) => BTreeSet::from([flow]),
            Gated::Key(key) => self.waiting.remove(&key).unwrap_or_default(),
        }
    }
}

/// The flow, and the key if there is one.
fn each(flow: FlowId, key: Option<KeyId>) -> impl Iterator<Item = Gated> {
    [Some(Gated::Flow(flow)), key.map(Gated::Key)].into_iter().flatten()
}
