//! How many more of a flow may be sent: by its own limits and by those of the breaker keys that it shares with others.
//!
//! What is under way is counted per flow and per shared key. Flows of several tenants may have the same key (a provider), and
//! would exceed its limits together if only flows were counted.

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAIN: Lane = Lane::Main;

    const NOW: Timestamp = Timestamp::from_millis(10_000);
    const LATER: Timestamp = Timestamp::from_millis(20_000);
    const ONE: FlowId = FlowId(1);
    const TWO: FlowId = FlowId(2);
    const SHARED: KeyId = KeyId(1);
    const OTHER: KeyId = KeyId(2);

    fn at_most(concurrency: u32) -> Limits {
        Limits { concurrency: Some(concurrency), ..Limits::default() }
    }

    /// Two flows with the same key, which allows three at once.
    fn sharing() -> Gates {
        let mut gates = Gates::new(10);
        gates.set_keys(ONE, vec![SHARED]);
        gates.set_keys(TWO, vec![SHARED]);
        gates.limit(Gated::Key(SHARED), at_most(3).into(), NOW);
        gates
    }

    #[test]
    fn a_flow_without_keys_has_its_own_limit_and_leaves_no_entry_behind() {
        let mut gates = Gates::new(2);
        assert_eq!((gates.room(ONE, MAIN, NOW), gates.next_key(ONE, MAIN, NOW)), (2, Ok(None)));
        gates.take(ONE, None, MAIN, NOW);
        gates.take(ONE, None, MAIN, NOW);
        assert_eq!((gates.room(ONE, MAIN, NOW), gates.room(TWO, MAIN, NOW)), (0, 2));
        assert_eq!(gates.next_key(ONE, MAIN, NOW), Err(NoRoom));
        gates.give_back(ONE, None, 2);
        assert!(gates.entries.is_empty());
    }

    #[test]
    fn two_flows_together_do_not_exceed_the_limit_of_their_key() {
        let mut gates = sharing();
        gates.take(ONE, Some(SHARED), MAIN, NOW);
        gates.take(TWO, Some(SHARED), MAIN, NOW);
        assert_eq!((gates.room(ONE, MAIN, NOW), gates.room(TWO, MAIN, NOW)), (1, 1));
        gates.take(ONE, Some(SHARED), MAIN, NOW);
        assert_eq!(
            (gates.next_key(ONE, MAIN, NOW), gates.next_key(TWO, MAIN, NOW)),
            (Err(NoRoom), Err(NoRoom))
        );
        gates.wait(TWO, MAIN, NOW);
        assert_eq!(gates.give_back(ONE, Some(SHARED), 1), BTreeSet::from([TWO]), "the other flow is told");
        assert_eq!(gates.next_key(TWO, MAIN, NOW), Ok(Some(SHARED)));
    }

    #[test]
    fn a_flow_with_several_keys_has_room_while_one_of_them_has() {
        let mut gates = sharing();
        gates.set_keys(ONE, vec![SHARED, OTHER]);
        gates.limit(Gated::Key(OTHER), at_most(1).into(), NOW);
        assert_eq!(gates.room(ONE, MAIN, NOW), 4);
        gates.limit(Gated::Key(SHARED), Limits { gate: Gate::Open, ..Limits::default() }.into(), NOW);
        assert_eq!((gates.room(ONE, MAIN, NOW), gates.next_key(ONE, MAIN, NOW)), (1, Ok(Some(OTHER))));
        assert_eq!(gates.room(TWO, MAIN, NOW), 0);
    }

    #[test]
    fn the_gate_of_a_flow_and_that_of_its_key_must_both_be_open() {
        let mut gates = sharing();
        gates.limit(Gated::Flow(ONE), Limits { gate: Gate::Open, ..Limits::default() }.into(), NOW);
        assert_eq!((gates.room(ONE, MAIN, NOW), gates.room(TWO, MAIN, NOW)), (0, 3));
        assert_eq!(gates.limit(Gated::Flow(ONE), Limits::default().into(), NOW), BTreeSet::from([ONE]));
        assert_eq!(gates.room(ONE, MAIN, NOW), 3);
    }

    #[test]
    fn a_pause_ends_by_itself() {
        let mut gates = sharing();
        gates.limit(
            Gated::Key(SHARED),
            Limits { paused_until: Some(LATER), ..Limits::default() }.into(),
            NOW,
        );
        assert_eq!((gates.room(ONE, MAIN, NOW), gates.room(ONE, MAIN, LATER)), (0, 10));
        gates.wait(ONE, MAIN, NOW);
        assert!(gates.reopened(NOW).is_empty());
        assert_eq!(gates.reopened(LATER), [ONE]);
        assert!(gates.reopened(LATER).is_empty());
    }

    #[test]
    fn a_rate_is_spent_by_what_goes_and_tells_when_the_next_one_may() {
        let mut gates = sharing();
        let ten = Bounds { rate: Some(10.0), ..at_most(3).into() };
        gates.limit(Gated::Key(SHARED), ten.clone(), NOW);
        assert!(gates.take(ONE, Some(SHARED), MAIN, NOW), "it is bounded");
        assert!(gates.give_back(ONE, Some(SHARED), 1).is_empty());
        assert_eq!(gates.room(TWO, MAIN, NOW), 0, "what was sent counts, also after its end");
        gates.limit(Gated::Key(SHARED), ten, NOW);
        assert_eq!(gates.room(TWO, MAIN, NOW), 0, "and when the same is said again");
        gates.wait(TWO, MAIN, NOW);
        gates.wait(TWO, MAIN, NOW.later(Duration::from_millis(50)));
        let next = gates.reopens_at().unwrap();
        assert_eq!(next.as_millis(), NOW.as_millis() + 100);
        assert_eq!((gates.reopened(next), gates.room(TWO, MAIN, next)), (vec![TWO], 1));
        gates.take(TWO, Some(SHARED), MAIN, next);
        gates.unspend(TWO, Some(SHARED), MAIN, 1);
        gates.give_back(TWO, Some(SHARED), 1);
        assert_eq!(gates.room(ONE, MAIN, next), 1, "what did not go is not spent");
    }

    #[test]
    fn retries_stay_within_their_budget_while_new_ones_go() {
        let mut gates = Gates::new(10);
        let budget = Bounds { retries: Some(Traffic::default()), ..Bounds::default() };
        gates.limit(Gated::Flow(ONE), budget.clone(), NOW);
        assert_eq!(gates.room(ONE, Lane::Retry, NOW), 1);
        gates.take(ONE, None, Lane::Retry, NOW);
        gates.limit(Gated::Flow(ONE), budget, NOW);
        assert_eq!((gates.room(ONE, Lane::Retry, NOW), gates.room(ONE, MAIN, NOW)), (0, 9));
        gates.wait(ONE, Lane::Retry, NOW);
        assert_eq!(gates.reopens_at(), Some(NOW.later(Duration::from_secs(10))));
        gates.limit(Gated::Flow(ONE), Bounds::default(), NOW);
        assert_eq!(gates.room(ONE, Lane::Retry, NOW), 9, "it is over");
    }

    #[test]
    fn nothing_of_a_flow_waits_in_memory_while_it_cannot_go() {
        let mut gates = sharing();
        assert!(!gates.is_held_back(ONE, NOW));
        for limits in [
            Limits { gate: Gate::Ramp(3), ..Limits::default() },
            Limits { paused_until: Some(LATER), ..Limits::default() },
            at_most(0),
        ] {
            for gated in [Gated::Flow(ONE), Gated::Key(SHARED)] {
                gates.limit(gated, limits.into(), NOW);
                assert!(gates.is_held_back(ONE, NOW), "{limits:?}");
                gates.limit(gated, Bounds::default(), NOW);
            }
        }
        gates.limit(Gated::Key(SHARED), at_most(1).into(), NOW);
        gates.take(ONE, Some(SHARED), MAIN, NOW);
        assert!(!gates.is_held_back(TWO, NOW), "it only waits for the other one");
    }

    proptest! {
        #[test]
        fn what_is_under_way_keeps_every_limit_and_comes_back_to_nothing(
            steps in prop::collection::vec((0i64..6, any::<bool>()), 1..200),
            limits in prop::collection::vec(1u32..6, 3), per_flow in 1u32..6
        ) {
            let mut gates = Gates::new(per_flow);
            for (key, most) in limits.iter().enumerate() {
                gates.limit(Gated::Key(KeyId(key as i64)), at_most(*most).into(), NOW);
            }
            // Flow 0 has no key, flows 1 to 3 have one, flows 4 and 5 have two of them.
            let keys = |flow: i64| match flow {
                0 => vec![],
                1..=3 => vec![KeyId(flow - 1)],
                _ => vec![KeyId(flow - 4), KeyId(flow - 3)],
            };
            (0..6).for_each(|flow| gates.set_keys(FlowId(flow), keys(flow)));
            let mut under_way: Vec<(FlowId, Option<KeyId>)> = vec![];
            for (flow, ends) in steps {
                if ends && !under_way.is_empty() {
                    let (flow, key) = under_way.remove(0);
                    gates.give_back(flow, key, 1);
                } else if let Ok(key) = gates.next_key(FlowId(flow), MAIN, NOW) {
                    prop_assert!(gates.room(FlowId(flow), MAIN, NOW) > 0);
                    gates.take(FlowId(flow), key, MAIN, NOW);
                    under_way.push((FlowId(flow), key));
                } else {
                    prop_assert_eq!(gates.room(FlowId(flow), MAIN, NOW), 0);
                }
                for (key, most) in limits.iter().enumerate() {
                    let key = KeyId(key as i64);
                    let on_key = under_way.iter().filter(|(_, on)| *on == Some(key)).count() as u32;
                    prop_assert!(on_key <= *most && gates.in_flight(Gated::Key(key)) == on_key);
                }
                for flow in (0..6).map(FlowId) {
                    let of_flow = under_way.iter().filter(|(of, _)| *of == flow).count() as u32;
                    prop_assert!(of_flow <= per_flow && gates.in_flight(Gated::Flow(flow)) == of_flow);
                }
            }
            for (flow, key) in under_way {
                gates.give_back(flow, key, 1);
            }
            prop_assert_eq!(gates.entries.len(), limits.len(), "only the limits are left");
        }
    }
}
