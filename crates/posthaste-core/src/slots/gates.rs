//! How many more of a flow may be sent: by its own limits and by those of the breaker keys that it shares with others.
//!
//! What is under way is counted per flow and per shared key. Flows of several tenants may have the same key (a provider), and
//! would exceed its limits together if only flows were counted.

use std::collections::{BTreeSet, HashMap};

use crate::flow::{FlowId, Limits};
use crate::time::Timestamp;

/// The small number of a breaker key that several flows share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub i64);

/// What limits apply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gated {
    /// A flow alone.
    Flow(FlowId),
    /// All flows with that key, together.
    Key(KeyId),
}

/// The flow has no room at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoom;

/// The limits, and the counts of what is under way.
#[derive(Debug)]
pub(super) struct Gates {
    /// The most of one flow at once.
    per_flow: u32,
    /// Entries only for what is under way or limited. `in_flight` is the count.
    limits: HashMap<Gated, Limits>,
    /// The shared keys of flows that have any, in the order of preference. One with room is enough.
    keys: HashMap<FlowId, Vec<KeyId>>,
    /// Flows that were found without room since the limits of the key last changed.
    waiting: HashMap<KeyId, BTreeSet<FlowId>>,
    /// Flows that were found without room because of a pause, by its end.
    paused: BTreeSet<(Timestamp, FlowId)>,
}

impl Gates {
    pub(super) fn new(per_flow: u32) -> Self {
        Self {
            per_flow,
            limits: HashMap::new(),
            keys: HashMap::new(),
            waiting: HashMap::new(),
            paused: BTreeSet::new(),
        }
    }

    /// Sets the limits of a flow or key; what is under way stays counted. Returns the flows that may have room now.
    pub(super) fn limit(&mut self, gated: Gated, limits: Limits) -> BTreeSet<FlowId> {
        let in_flight = self.in_flight(gated);
        self.set(gated, Limits { in_flight, ..limits });
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

    pub(super) fn in_flight(&self, gated: Gated) -> u32 {
        self.limits.get(&gated).map_or(0, |limits| limits.in_flight)
    }

    /// How many more of a flow may be taken.
    pub(super) fn room(&self, flow: FlowId, now: Timestamp) -> u32 {
        let by_keys = self.keys.get(&flow).map_or(u32::MAX, |keys| {
            keys.iter().fold(0, |sum: u32, key| sum.saturating_add(self.room_of_key(*key, now)))
        });
        self.own_room(flow, now).min(by_keys)
    }

    /// The shared key, if the flow has any, that the next one of the flow is counted on.
    pub(super) fn next_key(&self, flow: FlowId, now: Timestamp) -> Result<Option<KeyId>, NoRoom> {
        if self.own_room(flow, now) == 0 {
            return Err(NoRoom);
        }
        let Some(keys) = self.keys.get(&flow) else { return Ok(None) };
        keys.iter().copied().find(|key| self.room_of_key(*key, now) > 0).map(Some).ok_or(NoRoom)
    }

    /// Counts one of the flow, on that key.
    pub(super) fn take(&mut self, flow: FlowId, key: Option<KeyId>) {
        for gated in [Some(Gated::Flow(flow)), key.map(Gated::Key)].into_iter().flatten() {
            let limits = self.limits.entry(gated).or_default();
            limits.in_flight += 1;
            limits.rate_left = limits.rate_left.map(|left| left.saturating_sub(1));
        }
    }

    /// So many of the flow are not under way any more. Returns other flows that may have room now.
    pub(super) fn give_back(&mut self, flow: FlowId, key: Option<KeyId>, count: u32) -> BTreeSet<FlowId> {
        for gated in [Some(Gated::Flow(flow)), key.map(Gated::Key)].into_iter().flatten() {
            let Some(limits) = self.limits.get_mut(&gated) else { continue };
            limits.in_flight = limits.in_flight.saturating_sub(count);
            if *limits == Limits::default() {
                self.limits.remove(&gated);
            }
        }
        key.map(|key| self.reopened_by(Gated::Key(key))).unwrap_or_default()
    }

    /// A flow without room waits until something changes.
    pub(super) fn wait(&mut self, flow: FlowId, now: Timestamp) {
        let keys = self.keys.get(&flow).map_or(&[][..], Vec::as_slice);
        let gated = keys.iter().copied().map(Gated::Key).chain([Gated::Flow(flow)]);
        let pauses = gated.filter_map(|gated| self.limits.get(&gated)?.paused_until);
        self.paused.extend(pauses.filter(|until| *until > now).map(|until| (until, flow)));
        for key in keys {
            self.waiting.entry(*key).or_default().insert(flow);
        }
    }

    /// The flows whose pause has ended.
    pub(super) fn reopened(&mut self, now: Timestamp) -> Vec<FlowId> {
        let mut flows = vec![];
        while self.paused.first().is_some_and(|(until, _)| *until <= now) {
            flows.extend(self.paused.pop_first().map(|(_, flow)| flow));
        }
        flows
    }

    fn own_room(&self, flow: FlowId, now: Timestamp) -> u32 {
        let Some(limits) = self.limits.get(&Gated::Flow(flow)) else { return self.per_flow };
        let most = limits.concurrency.map_or(self.per_flow, |most| most.min(self.per_flow));
        Limits { concurrency: Some(most), ..*limits }.room(now)
    }

    fn room_of_key(&self, key: KeyId, now: Timestamp) -> u32 {
        self.limits.get(&Gated::Key(key)).map_or(u32::MAX, |limits| limits.room(now))
    }

    fn set(&mut self, gated: Gated, limits: Limits) {
        if limits == Limits::default() {
            self.limits.remove(&gated);
        } else {
            self.limits.insert(gated, limits);
        }
    }

    fn reopened_by(&mut self, gated: Gated) -> BTreeSet<FlowId> {
        match gated {
            Gated::Flow(flow) => BTreeSet::from([flow]),
            Gated::Key(key) => self.waiting.remove(&key).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Gate;
    use proptest::prelude::*;

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
        gates.limit(Gated::Key(SHARED), at_most(3));
        gates
    }

    #[test]
    fn a_flow_without_keys_has_its_own_limit_and_leaves_no_entry_behind() {
        let mut gates = Gates::new(2);
        assert_eq!((gates.room(ONE, NOW), gates.next_key(ONE, NOW)), (2, Ok(None)));
        gates.take(ONE, None);
        gates.take(ONE, None);
        assert_eq!((gates.room(ONE, NOW), gates.room(TWO, NOW)), (0, 2));
        assert_eq!(gates.next_key(ONE, NOW), Err(NoRoom));
        gates.give_back(ONE, None, 2);
        assert!(gates.limits.is_empty());
    }

    #[test]
    fn two_flows_together_do_not_exceed_the_limit_of_their_key() {
        let mut gates = sharing();
        gates.take(ONE, Some(SHARED));
        gates.take(TWO, Some(SHARED));
        assert_eq!((gates.room(ONE, NOW), gates.room(TWO, NOW)), (1, 1));
        gates.take(ONE, Some(SHARED));
        assert_eq!((gates.next_key(ONE, NOW), gates.next_key(TWO, NOW)), (Err(NoRoom), Err(NoRoom)));
        gates.wait(TWO, NOW);
        assert_eq!(gates.give_back(ONE, Some(SHARED), 1), BTreeSet::from([TWO]), "the other flow is told");
        assert_eq!(gates.next_key(TWO, NOW), Ok(Some(SHARED)));
    }

    #[test]
    fn a_flow_with_several_keys_has_room_while_one_of_them_has() {
        let mut gates = sharing();
        gates.set_keys(ONE, vec![SHARED, OTHER]);
        gates.limit(Gated::Key(OTHER), at_most(1));
        assert_eq!(gates.room(ONE, NOW), 4);
        gates.limit(Gated::Key(SHARED), Limits { gate: Gate::Open, ..Limits::default() });
        assert_eq!((gates.room(ONE, NOW), gates.next_key(ONE, NOW)), (1, Ok(Some(OTHER))));
        assert_eq!(gates.room(TWO, NOW), 0);
    }

    #[test]
    fn the_gate_of_a_flow_and_that_of_its_key_must_both_be_open() {
        let mut gates = sharing();
        gates.limit(Gated::Flow(ONE), Limits { gate: Gate::Open, ..Limits::default() });
        assert_eq!((gates.room(ONE, NOW), gates.room(TWO, NOW)), (0, 3));
        assert_eq!(gates.limit(Gated::Flow(ONE), Limits::default()), BTreeSet::from([ONE]));
        assert_eq!(gates.room(ONE, NOW), 3);
    }

    #[test]
    fn a_pause_ends_by_itself_and_a_rate_is_used_up() {
        let mut gates = sharing();
        gates.limit(Gated::Key(SHARED), Limits { paused_until: Some(LATER), ..Limits::default() });
        assert_eq!((gates.room(ONE, NOW), gates.room(ONE, LATER)), (0, 10));
        gates.wait(ONE, NOW);
        assert!(gates.reopened(NOW).is_empty());
        assert_eq!(gates.reopened(LATER), [ONE]);
        assert!(gates.reopened(LATER).is_empty());
        gates.limit(Gated::Key(SHARED), Limits { rate_left: Some(1), ..Limits::default() });
        gates.take(ONE, Some(SHARED));
        gates.give_back(ONE, Some(SHARED), 1);
        assert_eq!(gates.room(ONE, NOW), 0, "what was sent counts, also after its end");
    }

    proptest! {
        #[test]
        fn what_is_under_way_keeps_every_limit_and_comes_back_to_nothing(
            steps in prop::collection::vec((0i64..6, any::<bool>()), 1..200),
            limits in prop::collection::vec(1u32..6, 3), per_flow in 1u32..6
        ) {
            let mut gates = Gates::new(per_flow);
            for (key, most) in limits.iter().enumerate() {
                gates.limit(Gated::Key(KeyId(key as i64)), at_most(*most));
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
                } else if let Ok(key) = gates.next_key(FlowId(flow), NOW) {
                    prop_assert!(gates.room(FlowId(flow), NOW) > 0);
                    gates.take(FlowId(flow), key);
                    under_way.push((FlowId(flow), key));
                } else {
                    prop_assert_eq!(gates.room(FlowId(flow), NOW), 0);
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
            prop_assert_eq!(gates.limits.len(), limits.len(), "only the limits are left");
        }
    }
}
