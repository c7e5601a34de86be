//! An operation that waits for destinations that are open or blocked.

use super::*;

const WAIT: OperationChange = OperationChange::WaitForBreaker { node: NODE };
const GO_ON: OperationChange = OperationChange::GoOn { node: NODE };

fn by(name: &str) -> [OperationChange; 3] {
    let by = || name.to_owned();
    [
        OperationChange::Pause { by: by() },
        OperationChange::Resume { by: by() },
        OperationChange::Cancel { by: by() },
    ]
}

fn paused_by(operation: &Operation) -> (OperationState, Option<&str>) {
    (operation.standing.state, operation.standing.paused_by.as_deref())
}

#[test]
fn what_waits_for_destinations_is_paused_by_the_breaker_and_goes_on_by_itself() {
    let mut operation = forwarding(10, None);
    assert_eq!(
        operation.change(&OperationChange::WaitForBreaker { node: OTHER }, at(2)),
        Err(Refused::NotNow)
    );
    operation.change(&WAIT, at(2)).unwrap();
    operation.change(&WAIT, at(3)).unwrap();
    assert_eq!(paused_by(&operation), (OperationState::Paused, Some("breaker")));
    assert_eq!(operation.standing.changed_at, Some(at(2)), "the second time changes nothing");
    assert!(operation.may_forward(NODE), "what is to be the probe");
    operation.change(&GO_ON, at(4)).unwrap();
    operation.change(&GO_ON, at(5)).unwrap();
    assert_eq!(paused_by(&operation), (OperationState::Forwarding, None));
    let events: Vec<_> = operation.standing.events.iter().map(|event| event.event.as_str()).collect();
    assert_eq!(events, ["paused", "resumed"]);
}

#[test]
fn a_persons_pause_is_not_lifted_by_the_breaker_whatever_the_person_is_called() {
    for name in ["ada", "breaker"] {
        let [pause, resume, _] = by(name);
        let mut operation = forwarding(10, None);
        operation.change(&pause, at(1)).unwrap();
        assert_eq!(operation.change(&WAIT, at(2)), Err(Refused::NotNow));
        assert_eq!(operation.change(&GO_ON, at(2)), Err(Refused::NotNow));
        operation.change(&resume, at(3)).unwrap();
        operation.change(&WAIT, at(4)).unwrap();
        // Also where it waited for destinations before.
        operation.change(&pause, at(5)).unwrap();
        assert_eq!(paused_by(&operation), (OperationState::Paused, Some(name)));
        assert_eq!(operation.change(&GO_ON, at(6)), Err(Refused::NotNow));
        assert!(!operation.may_forward(NODE));
    }
}

#[test]
fn what_waits_for_destinations_can_be_resumed_cancelled_and_finished() {
    let [_, resume, cancel] = by("ada");
    let mut operation = forwarding(10, None);
    operation.change(&WAIT, at(2)).unwrap();
    operation.change(&resume, at(3)).unwrap();
    assert_eq!(paused_by(&operation), (OperationState::Forwarding, None));
    operation.change(&WAIT, at(4)).unwrap();
    let mut cancelled = operation.clone();
    cancelled.change(&cancel, at(5)).unwrap();
    assert_eq!(paused_by(&cancelled), (OperationState::Cancelled, None));
    assert!(!cancelled.may_forward(NODE) && cancelled.skips_rest() == Some(Skip::Cancelled));
    // The last one was the probe.
    let finish = OperationChange::Finish { node: NODE };
    assert_eq!(operation.change(&finish, at(6)), Err(Refused::NotNow));
    operation.forwarded(10, &BTreeMap::new(), 1);
    operation.change(&finish, at(6)).unwrap();
    assert_eq!(paused_by(&operation), (OperationState::Completed, None));
}

#[test]
fn a_pause_by_the_breaker_is_kept_and_one_from_before_is_read() {
    let mut operation = forwarding(10, None);
    operation.change(&WAIT, at(2)).unwrap();
    let kept = serde_json::to_value(&operation.standing).unwrap();
    assert_eq!(serde_json::from_value::<Standing>(kept.clone()).unwrap(), operation.standing);
    let mut before = kept;
    before.as_object_mut().unwrap().remove("waits_for_breaker").unwrap();
    assert!(!serde_json::from_value::<Standing>(before).unwrap().waits_for_breaker);
}

#[test]
fn a_destination_that_is_shut_gets_no_item_but_one_that_is_to_be_the_probe() {
    let window = Window::default();
    assert_eq!((window.room(Gate::Closed, 30), window.room(Gate::Ramp(1), 30)), (70, 70));
    assert_eq!((window.room(Gate::Open, 0), window.room(Gate::Open, 30)), (0, 0));
    assert_eq!((window.room(Gate::Probe, 0), window.room(Gate::Probe, 1)), (1, 0));
}

#[test]
fn of_several_destinations_the_one_that_lets_most_pass_counts() {
    let all = [Gate::Open, Gate::Probe, Gate::Ramp(1), Gate::Ramp(2), Gate::Closed];
    for (place, gate) in all.iter().enumerate() {
        assert_eq!(Gate::widest(all[..=place].iter().copied()), Some(*gate));
        assert_eq!(gate.is_shut(), place < 2);
    }
    assert_eq!(Gate::widest([]), None);
}
