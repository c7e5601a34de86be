//! Rooms, limits, pauses and budgets of flows and of what they share.

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
    assert_eq!((gates.next_key(ONE, MAIN, NOW), gates.next_key(TWO, MAIN, NOW)), (Err(NoRoom), Err(NoRoom)));
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
    gates.limit(Gated::Key(SHARED), Limits { paused_until: Some(LATER), ..Limits::default() }.into(), NOW);
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
