//! Tables and properties of operations.

use std::time::Duration;

use proptest::prelude::*;

use super::standing::MOST_EVENTS;
use super::*;
use crate::act::{Act, Letter, Standing as ItemStanding};
use crate::attempt::Progress;
use crate::dead_letter::DeadLetterStatus;
use crate::filter::{Filter, LetterStatus, List};
use crate::flow::Gate;
use crate::rate::RateLimit;
use crate::reason::Reason;
use crate::state::State;

mod breaker;

const NODE: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_776_247_200_000 + millis)
}

fn operation(canary: Option<Canary>) -> Operation {
    Operation {
        id: OperationId::new(at(0), 1),
        tenant: None,
        action: Action::Requeue,
        selection: Selection::All,
        cut_off: at(0),
        rate: None,
        canary,
        started_by: "ada".to_owned(),
        key_id: None,
        address: None,
        started_at: at(0),
        standing: Standing::default(),
        runner: None,
    }
}

/// Forwarding, with one batch of so many staged items.
fn forwarding(items: u32, canary: Option<Canary>) -> Operation {
    let mut operation = operation(canary);
    assert!(operation.adopt(NODE, false, at(1)));
    operation.marked(items, 0, None);
    let stage = Decision::Stage { flow: FlowId(1), seen: standing(State::DeadLetter, 1, 3).seen() };
    operation.staged((0..items).map(|_| stage));
    operation
}

fn standing(state: State, generation: u32, attempt: u32) -> ItemStanding {
    let letter = Letter {
        id: DeadLetterId::new(at(0), 9),
        status: DeadLetterStatus::Pending,
        deleted: false,
        reason: Some(Reason::MaxAttemptsExceeded),
        text: String::new(),
    };
    ItemStanding {
        state,
        progress: Progress { generation, attempt, base: 0 },
        due: None,
        expires_at: None,
        cancel_requested: false,
        reason: None,
        dead_letter: (state == State::DeadLetter).then_some(letter),
    }
}

#[test]
fn a_batch_holds_at_most_a_thousand_items_and_the_last_one_what_is_left() {
    let mut operation = operation(None);
    operation.adopt(NODE, false, at(1));
    let first = operation.marked(600, 0, Some("a".to_owned()));
    assert_eq!(first, Some(BatchMark { number: 1, items: 600, held: 600, stage: Stage::Marking }));
    assert_eq!(operation.room_in_batch(), 400);
    let full = operation.marked(399, 1, Some("b".to_owned()));
    assert_eq!(full, Some(BatchMark { number: 1, items: 1_000, held: 999, stage: Stage::Staging }));
    let last = operation.marked(3, 0, None);
    assert_eq!(last, Some(BatchMark { number: 2, items: 3, held: 3, stage: Stage::Staging }));
    assert_eq!((operation.standing.total, operation.standing.batches), (1_003, 2));
    assert_eq!(operation.standing.state, OperationState::Forwarding);
    assert_eq!(operation.held(), 1_002);
}

#[test]
fn an_operation_without_items_can_finish_at_once() {
    let mut operation = operation(None);
    operation.adopt(NODE, false, at(1));
    assert_eq!(operation.change(&OperationChange::Finish { node: NODE }, at(2)), Err(Refused::NotNow));
    assert_eq!(operation.marked(0, 0, None), None);
    assert_eq!(operation.change(&OperationChange::Finish { node: NODE }, at(2)), Ok(()));
    assert_eq!(operation.standing.state, OperationState::Completed);
    assert_eq!((operation.standing.total, operation.standing.batches), (0, 0));
}

#[test]
fn only_its_runner_works_on_it_and_a_dead_one_is_replaced() {
    let mut operation = operation(None);
    assert!(operation.adopt(NODE, false, at(1)) && operation.adopt(NODE, true, at(1)));
    assert!(!operation.adopt(OTHER, true, at(2)));
    assert!(operation.may_mark(NODE, None) && !operation.may_mark(OTHER, None));
    assert!(!operation.may_mark(NODE, Some("x")), "not where the walk stands");
    assert!(operation.adopt(OTHER, false, at(3)));
    assert!(!operation.may_mark(NODE, None) && operation.may_mark(OTHER, None));
    operation.marked(1, 0, None);
    assert!(!operation.may_mark(OTHER, None), "the walk is over");
    assert!(operation.may_forward(OTHER) && !operation.may_forward(NODE));
}

#[test]
fn a_paused_operation_goes_on_where_it_was() {
    let mut operation = operation(None);
    let (pause, resume) =
        (OperationChange::Pause { by: "ada".to_owned() }, OperationChange::Resume { by: "bo".to_owned() });
    operation.change(&pause, at(1)).unwrap();
    operation.change(&resume, at(1)).unwrap();
    assert_eq!(operation.standing.state, OperationState::Waiting);
    operation.adopt(NODE, false, at(1));
    operation.change(&pause, at(1)).unwrap();
    assert_eq!(operation.standing.paused_by.as_deref(), Some("ada"));
    assert!(!operation.may_mark(NODE, None));
    operation.change(&resume, at(1)).unwrap();
    assert!(operation.may_mark(NODE, None) && operation.standing.paused_by.is_none());
    operation.marked(1, 0, None);
    operation.change(&pause, at(1)).unwrap();
    assert!(!operation.may_forward(NODE));
    operation.change(&resume, at(1)).unwrap();
    assert!(operation.may_forward(NODE));
}

#[test]
fn what_is_cancelled_forwards_nothing_more_and_is_finished_when_nothing_is_held() {
    let mut operation = forwarding(10, None);
    operation.forwarded(4, &BTreeMap::new(), 0);
    let cancel = OperationChange::Cancel { by: "ada".to_owned() };
    operation.change(&cancel, at(5)).unwrap();
    assert!(!operation.may_forward(NODE) && !operation.is_finished());
    assert_eq!(operation.skips_rest(), Some(Skip::Cancelled));
    assert_eq!(operation.change(&cancel, at(5)), Err(Refused::Finished));
    let finish = OperationChange::Finish { node: NODE };
    assert_eq!(operation.change(&finish, at(6)), Err(Refused::NotNow));
    operation.forwarded(0, &BTreeMap::from([(Skip::Cancelled, 6)]), 1);
    assert_eq!(operation.change(&finish, at(6)), Ok(()));
    assert_eq!(operation.standing.state, OperationState::Cancelled);
    assert_eq!(operation.standing.stopped_by.as_deref(), Some("ada"));
    assert_eq!(operation.standing.finished_at, Some(at(6)));
    for change in [cancel, finish, OperationChange::Resume { by: "bo".to_owned() }] {
        assert!(operation.change(&change, at(7)).is_err(), "{change:?}");
    }
}

#[test]
fn the_first_items_wait_for_the_verdict() {
    let canary = Canary { size: 10, max_failure_percent: 20 };
    let mut operation = forwarding(100, Some(canary));
    assert_eq!(operation.room_before_verdict(), 10);
    operation.forwarded(7, &BTreeMap::new(), 0);
    assert_eq!(operation.room_before_verdict(), 3);
    let judged = |verdict| OperationChange::Canary { node: NODE, verdict };
    let mut passed = operation.clone();
    passed.change(&judged(Verdict::Passed { failed: 2 }), at(9)).unwrap();
    assert_eq!(passed.room_before_verdict(), u32::MAX);
    operation.change(&judged(Verdict::Failed { failed: 3 }), at(9)).unwrap();
    assert_eq!(operation.standing.stopped_by.as_deref(), Some(CANARY));
    assert_eq!(operation.standing.state, OperationState::Cancelled);
}

#[test]
fn a_canary_is_judged_by_the_share_of_first_attempts_that_fail() {
    use FirstAttempt::{Awaited, Delivered, Failed, NotMade};
    let canary = Canary { size: 10, max_failure_percent: 20 };
    let list = |failed, delivered, awaited| {
        [vec![Failed; failed], vec![Delivered; delivered], vec![Awaited; awaited]].concat()
    };
    let table = [
        (list(0, 10, 0), true, Verdict::Passed { failed: 0 }),
        (list(2, 8, 0), true, Verdict::Passed { failed: 2 }),
        (list(3, 0, 7), false, Verdict::Failed { failed: 3 }),
        (list(2, 7, 1), true, Verdict::Wait { failed: 2 }),
        (list(1, 1, 0), false, Verdict::Wait { failed: 1 }),
        (list(1, 1, 0), true, Verdict::Failed { failed: 1 }),
        (vec![NotMade; 10], true, Verdict::Passed { failed: 0 }),
        (vec![], true, Verdict::Passed { failed: 0 }),
    ];
    for (attempts, complete, verdict) in table {
        assert_eq!(judge(canary, &attempts, complete), verdict, "{attempts:?}");
    }
}

#[test]
fn the_first_attempt_is_the_one_after_the_act() {
    let seen = standing(State::DeadLetter, 1, 3).seen();
    let table = [
        (State::Pending, 2, 1, FirstAttempt::Awaited),
        (State::Processing, 2, 1, FirstAttempt::Awaited),
        (State::RetryScheduled, 2, 2, FirstAttempt::Failed),
        (State::Succeeded, 2, 1, FirstAttempt::Delivered),
        (State::Succeeded, 2, 2, FirstAttempt::Failed),
        (State::DeadLetter, 2, 1, FirstAttempt::Failed),
        (State::Cancelled, 2, 0, FirstAttempt::NotMade),
        (State::Cancelled, 2, 1, FirstAttempt::Failed),
        (State::Pending, 3, 1, FirstAttempt::Failed),
    ];
    for (state, generation, attempt, wanted) in table {
        let found = first_attempt(Action::Requeue, seen, &standing(state, generation, attempt));
        assert_eq!(found, wanted, "{state} {generation} {attempt}");
    }
    let scheduled = standing(State::RetryScheduled, 1, 2).seen();
    for (state, attempt, wanted) in [
        (State::RetryScheduled, 2, FirstAttempt::Awaited),
        (State::Retrying, 2, FirstAttempt::Awaited),
        (State::RetryScheduled, 3, FirstAttempt::Failed),
        (State::Succeeded, 2, FirstAttempt::Delivered),
    ] {
        assert_eq!(first_attempt(Action::RetryNow, scheduled, &standing(state, 1, attempt)), wanted);
    }
}

#[test]
fn an_item_is_staged_only_if_its_act_would_change_it() {
    let letter = DeadLetterId::new(at(0), 9);
    let selected = |dead_letter| Selected { notification: NotificationId::new(at(0), 1), dead_letter };
    let dead = standing(State::DeadLetter, 1, 3);
    let expired = ItemStanding { expires_at: Some(at(1)), ..dead.clone() };
    let stage = |standing: &ItemStanding| Decision::Stage { flow: FlowId(4), seen: standing.seen() };
    let retry = standing(State::RetryScheduled, 1, 2);
    let table = [
        (Action::Requeue, Some(letter), Some(&dead), stage(&dead)),
        (Action::Requeue, None, Some(&dead), stage(&dead)),
        (Action::Discard, Some(letter), Some(&dead), stage(&dead)),
        (
            Action::Requeue,
            Some(DeadLetterId::new(at(0), 8)),
            Some(&dead),
            Decision::Skip(Skip::AlreadyResolved),
        ),
        (Action::Requeue, Some(letter), Some(&expired), Decision::Skip(Skip::Expired)),
        (Action::Discard, Some(letter), Some(&expired), stage(&expired)),
        (Action::Requeue, None, Some(&retry), Decision::Skip(Skip::AlreadyResolved)),
        (Action::Requeue, None, None, Decision::Skip(Skip::ChangedMeanwhile)),
        (Action::Restore, None, Some(&dead), Decision::Skip(Skip::AlreadyResolved)),
        (Action::RetryNow, None, Some(&retry), stage(&retry)),
        (Action::Cancel, None, Some(&retry), stage(&retry)),
        (Action::RetryNow, None, Some(&dead), Decision::Skip(Skip::AlreadyResolved)),
        (Action::Cancel, None, Some(&dead), Decision::Skip(Skip::AlreadyResolved)),
    ];
    for (action, dead_letter, standing, wanted) in table {
        let found = standing.map(|standing| Looked { flow: FlowId(4), standing, hidden: false });
        assert_eq!(decide(action, selected(dead_letter), found, at(5)), wanted, "{action} {standing:?}");
    }
    let running = standing(State::Processing, 1, 1);
    let found = Looked { flow: FlowId(4), standing: &running, hidden: false };
    assert_eq!(decide(Action::Cancel, selected(None), Some(found), at(5)), stage(&running));
}

/// A discarded one is pending again; a soft-deleted one comes back as it was.
#[test]
fn what_is_restored_by_an_operation_is_what_a_single_act_restores() {
    use DeadLetterStatus::{Cancelled, Pending};
    let (own, other) = (DeadLetterId::new(at(0), 9), DeadLetterId::new(at(0), 8));
    let item = |dead_letter| Selected { notification: NotificationId::new(at(0), 1), dead_letter };
    let failed = |status, deleted| {
        let letter = Letter { id: own, status, deleted, reason: None, text: String::new() };
        let (reason, dead_letter) = (Some(Reason::Discarded), Some(letter));
        ItemStanding { reason, dead_letter, ..standing(State::Failed, 1, 3) }
    };
    let (act, show) = (|| Some(Deed::Act(Act::Restore)), |letter| Some(Deed::Show(letter)));
    let delivered = standing(State::Succeeded, 2, 1);
    let table = [
        (item(Some(own)), failed(Cancelled, false), false, act()),
        (item(None), failed(Cancelled, false), false, act()),
        (item(Some(own)), failed(Pending, true), false, act()),
        (item(Some(own)), failed(Cancelled, true), false, show(own)),
        (item(None), failed(Cancelled, true), false, show(own)),
        (item(Some(own)), delivered.clone(), true, show(own)),
        (item(Some(other)), failed(Cancelled, false), true, show(other)),
        (item(Some(other)), failed(Cancelled, false), false, None),
        (item(Some(own)), standing(State::DeadLetter, 1, 3), false, None),
        (item(Some(own)), delivered.clone(), false, None),
        (item(None), delivered, false, None),
    ];
    for (item, standing, hidden, wanted) in table {
        let found = Some(Looked { flow: FlowId(4), standing: &standing, hidden });
        let decision = decide(Action::Restore, item, found, at(5));
        let Some(wanted) = wanted else {
            assert_eq!(decision, Decision::Skip(Skip::AlreadyResolved), "{item:?} {standing:?}");
            continue;
        };
        let seen = standing.seen();
        assert_eq!(decision, Decision::Stage { flow: FlowId(4), seen }, "{item:?} {standing:?}");
        let deed = forwardable(Action::Restore, item.dead_letter, seen, Some(&standing), at(5));
        assert_eq!(deed, Ok(wanted), "{item:?} {standing:?}");
    }
}

#[test]
fn an_act_is_done_only_while_the_item_is_as_it_was_seen() {
    let dead = standing(State::DeadLetter, 1, 3);
    let expired = ItemStanding { expires_at: Some(at(1)), ..dead.clone() };
    let again = standing(State::DeadLetter, 2, 3);
    let table = [
        (Some(&dead), Ok(Deed::Act(Act::Requeue))),
        (Some(&expired), Err(Skip::Expired)),
        (Some(&again), Err(Skip::ChangedMeanwhile)),
        (None, Err(Skip::ChangedMeanwhile)),
    ];
    for (found, wanted) in table {
        assert_eq!(forwardable(Action::Requeue, None, dead.seen(), found, at(5)), wanted, "{found:?}");
    }
    let other = forwardable(Action::RetryNow, None, dead.seen(), Some(&dead), at(5));
    assert_eq!(other, Err(Skip::ChangedMeanwhile));
}

#[test]
fn a_selection_means_what_the_action_acts_on() {
    let parse = |list, query: &[(&'static str, &'static str)]| {
        Filter::parse(list, query.iter().copied(), at(0)).unwrap()
    };
    let letters = |status: Option<&'static str>| {
        let query: Vec<_> = status.map(|status| ("status", status)).into_iter().collect();
        parse(List::DeadLetters, &query)
    };
    use LetterStatus::{Deleted, Discarded, Pending};
    let table = [
        (Action::Requeue, None, Some(vec![Pending])),
        (Action::Requeue, Some("pending"), Some(vec![Pending])),
        (Action::Requeue, Some("discarded"), None),
        (Action::Requeue, Some("pending,discarded"), None),
        (Action::Discard, Some("requeued"), None),
        (Action::Restore, None, Some(vec![Discarded, Deleted])),
        (Action::Restore, Some("discarded"), Some(vec![Discarded])),
        (Action::Restore, Some("deleted"), Some(vec![Deleted])),
        (Action::Restore, Some("discarded,deleted"), Some(vec![Discarded, Deleted])),
        (Action::Restore, Some("pending"), None),
        (Action::Restore, Some("deleted,requeued"), None),
    ];
    for (action, status, wanted) in table {
        let mut filter = letters(status);
        let found = narrow(action, &mut filter, status.is_some()).ok().map(|()| filter.statuses);
        assert_eq!(found, wanted, "{action} {status:?}");
    }
    // What is kept means the same when it is read again.
    let kept = |status: &str| Selection::Filter([("status".to_owned(), status.to_owned())].into());
    for (selection, wanted) in [
        (kept("deleted"), vec![Deleted]),
        (kept("discarded,deleted"), vec![Discarded, Deleted]),
        (Selection::All, vec![Discarded, Deleted]),
    ] {
        let filter = selected(Action::Restore, &selection, None, at(5)).unwrap().unwrap();
        assert_eq!(filter.statuses, wanted, "{selection:?}");
    }
    let live = |action, status: &'static str| {
        let mut filter = parse(List::Notifications, &[("status", status)]);
        narrow(action, &mut filter, true).map(|()| filter.states).ok()
    };
    assert_eq!(live(Action::RetryNow, "retrying"), Some(vec![State::RetryScheduled]));
    assert_eq!(live(Action::RetryNow, "queued"), None);
    assert_eq!(live(Action::Cancel, "queued"), Some(vec![State::Pending]));
    assert_eq!(live(Action::Cancel, "queued,delivered"), None);
    let mut all = Filter::default();
    narrow(Action::Cancel, &mut all, false).unwrap();
    assert_eq!(all.states.len(), 4);
}

#[test]
fn a_selection_is_cut_off_when_it_was_asked_for() {
    let tenant: Tenant = "acme".parse().unwrap();
    let parameters =
        |until: &str| Selection::Filter(BTreeMap::from([("until".to_owned(), until.to_owned())]));
    let until = |selection| selected(Action::Requeue, &selection, Some(&tenant), at(5)).unwrap().unwrap();
    assert_eq!(until(Selection::All).until, Some(at(6)), "what died in the same millisecond is selected");
    assert_eq!(until(parameters(&at(3).to_string())).until, Some(at(3)));
    assert_eq!(until(parameters(&at(9).to_string())).until, Some(at(6)));
    assert_eq!(until(Selection::All).tenant, Some(tenant.clone()));
    assert_eq!(selected(Action::Requeue, &Selection::Ids([].into()), None, at(5)), Ok(None));
}

#[test]
fn what_is_kept_is_read_back() {
    let mut operation = forwarding(10, Some(Canary { size: 3, max_failure_percent: 1 }));
    operation.forwarded(2, &BTreeMap::from([(Skip::Expired, 1), (Skip::Ejected, 2)]), 0);
    operation.standing.finished_at = Some(Timestamp::from_micros(7));
    let standing = serde_json::to_string(&operation.standing).unwrap();
    assert_eq!(serde_json::from_str::<Standing>(&standing).unwrap(), operation.standing);
    let kept = serde_json::to_string(&operation).unwrap();
    let read: Operation = serde_json::from_str(&kept).unwrap();
    assert_eq!(read.cut_off, operation.cut_off);
    assert_eq!(
        Operation { standing: operation.standing.clone(), runner: operation.runner, ..read },
        operation
    );
}

#[test]
fn the_history_keeps_its_first_and_its_last_events() {
    let mut standing = Standing::default();
    for number in 0..250 {
        standing.note(number.to_string(), None, at(number));
    }
    assert_eq!(standing.events.len(), MOST_EVENTS);
    assert_eq!(standing.events[0].event, "0");
    assert_eq!(standing.events[MOST_EVENTS - 1].event, "249");
}

#[test]
fn a_rate_is_kept_over_a_second() {
    let mut limit = RateLimit::new(500.0, at(0));
    let mut gone = 0;
    for millis in 0..1_000 {
        let room = limit.room(at(millis));
        limit.spend(room);
        gone += room;
    }
    assert!((495..=501).contains(&gone), "{gone}");
    // What was not used is not saved up.
    let room = limit.room(at(100_000));
    assert!(room <= 50, "{room}");
    assert_eq!(RateLimit::new(1.0, at(0)).room(at(0).later(Duration::from_secs(9))), 1);
}

#[test]
fn no_flow_takes_the_whole_chunk_while_others_have_room() {
    let table: [(&[u32], u32, &[u32]); 8] = [
        (&[1_000, 1_000, 1_000, 1_000], 100, &[25, 25, 25, 25]),
        (&[u32::MAX], 100, &[100]),
        (&[10, 1_000, 5, 1_000], 100, &[10, 60, 5, 25]),
        (&[0, 3, 0], 100, &[0, 3, 0]),
        (&[9, 9, 9], 2, &[1, 1, 0]),
        (&[0, 0], 100, &[0, 0]),
        (&[5, 5], 0, &[0, 0]),
        (&[], 100, &[]),
    ];
    for (rooms, chunk, wanted) in table {
        assert_eq!(shares(rooms, chunk), wanted, "{rooms:?} {chunk}");
    }
}

proptest! {
    #[test]
    fn a_chunk_is_dealt_out_as_far_as_there_is_room(
        rooms in prop::collection::vec(0u32..300, 0..60),
        chunk in 0u32..600,
    ) {
        let shares = shares(&rooms, chunk);
        prop_assert!(shares.iter().zip(&rooms).all(|(share, room)| share <= room));
        prop_assert_eq!(shares.iter().sum::<u32>(), chunk.min(rooms.iter().sum()));
    }

    #[test]
    fn no_window_lets_more_wait_than_the_limit(looks in prop::collection::vec(0u32..5_000, 0..60)) {
        let mut window = Window::default();
        for waiting in looks {
            window = window.after(waiting);
            prop_assert!(window.room(Gate::Closed, waiting) + waiting.min(Window::MOST) <= Window::MOST);
            prop_assert!(window.room(Gate::Closed, 0) >= 1, "it never closes for good");
        }
    }

    /// Whatever the order of steps: selected = forwarded + skipped + held, and nothing is held at the end.
    #[test]
    fn progress_adds_up_after_any_steps(steps in prop::collection::vec((0u8..10, 0u32..400), 1..60)) {
        let mut operation = operation(None);
        operation.adopt(NODE, false, at(0));
        let mut cursor = 0u32;
        for (step, number) in steps {
            let held = u32::try_from(operation.held()).unwrap();
            match step {
                0..=2 if operation.may_mark(NODE, operation.standing.cursor.clone().as_deref()) => {
                    let count = number.min(operation.room_in_batch());
                    cursor += 1;
                    let next = (step < 2).then(|| cursor.to_string());
                    operation.marked(count - count / 3, count / 3, next);
                }
                3 | 4 if operation.may_forward(NODE) => {
                    let count = number.min(held);
                    operation.forwarded(count / 2, &BTreeMap::from([(Skip::Expired, count - count / 2)]), 0);
                }
                5 => { let _ = operation.change(&OperationChange::Cancel { by: "ada".to_owned() }, at(1)); }
                6 => { let _ = operation.change(&OperationChange::Pause { by: "ada".to_owned() }, at(1)); }
                7 => { let _ = operation.change(&OperationChange::WaitForBreaker { node: NODE }, at(1)); }
                8 => { let _ = operation.change(&OperationChange::GoOn { node: NODE }, at(1)); }
                _ => { let _ = operation.change(&OperationChange::Resume { by: "ada".to_owned() }, at(1)); }
            }
            let standing = &operation.standing;
            prop_assert_eq!(standing.total, standing.forwarded + standing.all_skipped() + operation.held());
            prop_assert!(standing.batches_done <= standing.batches);
            prop_assert!(u64::from(standing.batches) * u64::from(BATCH) >= standing.total);
        }
        let _ = operation.change(&OperationChange::Cancel { by: "ada".to_owned() }, at(2));
        let held = u32::try_from(operation.held()).unwrap();
        operation.forwarded(0, &BTreeMap::from([(Skip::Cancelled, held)]), 0);
        prop_assert_eq!(operation.change(&OperationChange::Finish { node: NODE }, at(3)), Ok(()));
        prop_assert_eq!(operation.standing.total, operation.standing.forwarded + operation.standing.all_skipped());
    }
}
