//! Every act on every standing.

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn letter_id() -> DeadLetterId {
    DeadLetterId::new(NOW, 7)
}

fn standing(state: State) -> Standing {
    Standing {
        state,
        progress: Progress { generation: 2, attempt: 5, base: 3 },
        due: (!state.is_end()).then_some(Timestamp::from_millis(2_000_000)),
        expires_at: None,
        cancel_requested: false,
        reason: None,
        dead_letter: None,
    }
}

/// What died, with a dead letter of that status.
fn dead(state: State, status: DeadLetterStatus) -> Standing {
    let reason = Some(Reason::MaxAttemptsExceeded);
    let letter = Letter { id: letter_id(), status, deleted: false, reason, text: "503".to_owned() };
    Standing { reason, dead_letter: Some(letter), ..standing(state) }
}

fn discarded() -> Standing {
    Standing { reason: Some(Reason::Discarded), ..dead(State::Failed, DeadLetterStatus::Cancelled) }
}

/// What was pending for too long.
fn deleted() -> Standing {
    let mut standing =
        Standing { reason: Some(Reason::Discarded), ..dead(State::Failed, DeadLetterStatus::Pending) };
    standing.dead_letter.as_mut().unwrap().deleted = true;
    standing
}

fn all_standings() -> Vec<Standing> {
    let mut all: Vec<Standing> = State::ALL.into_iter().map(standing).collect();
    for status in [DeadLetterStatus::Pending, DeadLetterStatus::Requeued, DeadLetterStatus::Cancelled] {
        all.push(dead(State::DeadLetter, status));
        all.push(dead(State::Failed, status));
    }
    all.push(discarded());
    all.push(deleted());
    all
}

fn copy_id() -> NotificationId {
    NotificationId::new(NOW, 8)
}

fn all_acts() -> [Act; 11] {
    [
        Act::Cancel,
        Act::RequestCancel,
        Act::RetryNow,
        Act::Expire,
        Act::Bury { dead_letter: letter_id(), reason: Reason::MaxAgeExceeded, text: "old".to_owned() },
        Act::Requeue,
        Act::Retry,
        Act::Discard,
        Act::Delete,
        Act::Replace { by: copy_id() },
        Act::Restore,
    ]
}

#[test]
fn every_effect_takes_an_arrow_or_keeps_the_state() {
    let mut possible = 0;
    for standing in all_standings() {
        for act in all_acts() {
            let Ok(effect) = effect(&standing, &act, NOW) else { continue };
            possible += 1;
            let to = effect.state(standing.state);
            match act.event() {
                Some(event) => assert_eq!(standing.state.next(event), Ok(to), "{act:?} on {standing:?}"),
                None => assert_eq!(to, standing.state, "{act:?} on {standing:?}"),
            }
        }
    }
    assert!(possible > 20, "{possible}");
}

#[test]
fn what_waits_ends_with_the_attempts_that_were_made() {
    for state in [State::Pending, State::RetryScheduled] {
        let progress = Progress { generation: 2, attempt: 4, base: 3 };
        let buried = Ending::Buried {
            dead_letter: letter_id(),
            reason: Reason::MaxAgeExceeded,
            text: "old".to_owned(),
        };
        let [cancel, _, _, expire, bury, ..] = all_acts();
        for (act, ending) in [(cancel, Ending::Cancelled), (expire, Ending::Expired), (bury, buried)] {
            assert_eq!(effect(&standing(state), &act, NOW), Ok(Effect::End { ending, progress }), "{act:?}");
        }
    }
}

#[test]
fn what_a_node_holds_can_only_be_marked() {
    for state in [State::Processing, State::Retrying] {
        for act in all_acts() {
            let wanted = if act == Act::RequestCancel { Ok(Effect::MarkCancel) } else { Err(Refused::State) };
            assert_eq!(effect(&standing(state), &act, NOW), wanted, "{act:?} on {state}");
        }
    }
}

#[test]
fn a_retry_is_made_due_now_and_never_later_than_it_was() {
    let due =
        |millis| Standing { due: Some(Timestamp::from_millis(millis)), ..standing(State::RetryScheduled) };
    assert_eq!(effect(&due(2_000_000), &Act::RetryNow, NOW), Ok(Effect::MakeDue(NOW)));
    let past = Timestamp::from_millis(500);
    assert_eq!(effect(&due(500), &Act::RetryNow, NOW), Ok(Effect::MakeDue(past)));
}

#[test]
fn a_requeue_counts_from_one_and_a_retry_goes_on_counting() {
    let requeued = Some(Resolution { id: letter_id(), status: DeadLetterStatus::Requeued, deleted_at: None });
    let from_one = Progress { generation: 3, attempt: 1, base: 0 };
    let going_on = Progress { generation: 3, attempt: 6, base: 5 };
    let pending = dead(State::DeadLetter, DeadLetterStatus::Pending);
    let reopen = |progress, letter| Ok(Effect::Reopen { progress, letter });
    assert_eq!(effect(&pending, &Act::Requeue, NOW), reopen(from_one, requeued));
    assert_eq!(effect(&pending, &Act::Retry, NOW), reopen(going_on, requeued));
    assert_eq!(effect(&discarded(), &Act::Retry, NOW), reopen(going_on, None), "it stays discarded");
    assert_eq!(effect(&standing(State::Failed), &Act::Retry, NOW), reopen(going_on, None));
    assert_eq!(effect(&standing(State::Failed), &Act::Requeue, NOW), Err(Refused::State));
}

#[test]
fn what_expired_is_not_reopened() {
    for (act, state) in [(Act::Requeue, State::DeadLetter), (Act::Retry, State::Failed)] {
        let until = |expires_at| Standing { expires_at: Some(expires_at), ..standing(state) };
        assert_eq!(effect(&until(NOW), &act, NOW), Err(Refused::Expired(NOW)));
        let later = NOW.later(std::time::Duration::from_micros(1));
        assert!(effect(&until(later), &act, NOW).is_ok());
    }
}

#[test]
fn a_discarded_one_is_restored_as_it_was_and_nothing_else_is() {
    let resolution = |status| Some(Resolution { id: letter_id(), status, deleted_at: None });
    let discard = Effect::Amend {
        state: State::Failed,
        reason: Some(Reason::Discarded),
        text: Some(Reason::Discarded.words().to_owned()),
        letter: resolution(DeadLetterStatus::Cancelled),
    };
    let pending = dead(State::DeadLetter, DeadLetterStatus::Pending);
    assert_eq!(effect(&pending, &Act::Discard, NOW), Ok(discard));
    let restore = Effect::Amend {
        state: State::DeadLetter,
        reason: Some(Reason::MaxAttemptsExceeded),
        text: Some("503".to_owned()),
        letter: resolution(DeadLetterStatus::Pending),
    };
    assert_eq!(effect(&discarded(), &Act::Restore, NOW), Ok(restore.clone()));
    assert_eq!(effect(&deleted(), &Act::Restore, NOW), Ok(restore));
    for other in all_standings().into_iter().filter(|other| ![discarded(), deleted()].contains(other)) {
        assert_eq!(effect(&other, &Act::Restore, NOW), Err(Refused::State), "{other:?}");
    }
}

#[test]
fn a_pending_one_that_is_deleted_keeps_its_status() {
    let pending = dead(State::DeadLetter, DeadLetterStatus::Pending);
    let Ok(Effect::Amend { state, reason, letter, .. }) = effect(&pending, &Act::Delete, NOW) else {
        panic!("it is refused")
    };
    let wanted = Resolution { id: letter_id(), status: DeadLetterStatus::Pending, deleted_at: Some(NOW) };
    assert_eq!((state, reason, letter), (State::Failed, Some(Reason::Discarded), Some(wanted)));
    for other in all_standings().into_iter().filter(|other| other.state != State::DeadLetter) {
        assert_eq!(effect(&other, &Act::Delete, NOW), Err(Refused::State), "{other:?}");
    }
    let again = effect(&deleted(), &Act::Retry, NOW);
    let Ok(Effect::Reopen { letter, .. }) = again else { panic!("{again:?}") };
    assert_eq!(letter, Some(Resolution { status: DeadLetterStatus::Requeued, deleted_at: None, ..wanted }));
}

#[test]
fn a_deleted_one_comes_back_as_it_was() {
    use DeadLetterStatus::{Cancelled, Pending, Requeued};
    for (status, deleted, wanted) in [
        (Pending, true, Restoration::Revive),
        (Pending, false, Restoration::Revive),
        (Requeued, true, Restoration::Show),
        (Requeued, false, Restoration::Revive),
        (Cancelled, true, Restoration::Show),
        (Cancelled, false, Restoration::Revive),
    ] {
        assert_eq!(restoration(status, deleted), wanted, "{status:?} {deleted}");
    }
}

#[test]
fn a_replaced_one_fails_names_its_copy_and_cannot_be_restored() {
    let pending = dead(State::DeadLetter, DeadLetterStatus::Pending);
    let replace = Act::Replace { by: copy_id() };
    let Ok(Effect::Amend { state, reason, text, letter }) = effect(&pending, &replace, NOW) else {
        panic!("a dead letter can be replaced");
    };
    assert_eq!((state, reason), (State::Failed, Some(Reason::Replaced)));
    assert_eq!(
        letter,
        Some(Resolution { id: letter_id(), status: DeadLetterStatus::Cancelled, deleted_at: None })
    );
    assert_eq!(replaced_by(reason, text.as_deref()), Some(copy_id()));
    let replaced = Standing { reason, ..dead(State::Failed, DeadLetterStatus::Cancelled) };
    assert_eq!(effect(&replaced, &Act::Restore, NOW), Err(Refused::State));
    assert_eq!(effect(&replaced, &replace, NOW), Err(Refused::State));
    // What expired can be replaced: the copy has an expiry of its own.
    let expired = Standing { expires_at: Some(NOW), ..pending };
    assert!(effect(&expired, &replace, NOW).is_ok());
}

#[test]
fn only_a_replaced_end_names_a_copy() {
    let text = format!("replaced by {}", copy_id());
    assert_eq!(replaced_by(Some(Reason::Replaced), Some(&text)), Some(copy_id()));
    assert_eq!(replaced_by(Some(Reason::PermanentFailure), Some(&text)), None, "an error of the receiver");
    assert_eq!(replaced_by(Some(Reason::Replaced), Some("replaced by nobody")), None);
    assert_eq!(replaced_by(Some(Reason::Replaced), None), None);
}
