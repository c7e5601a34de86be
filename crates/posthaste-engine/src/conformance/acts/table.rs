//! Every act on every state: it fits or it changes nothing, and it is made only on what was seen.

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::filter::AuditFilter;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::Notification;
use posthaste_core::reason::Reason;
use posthaste_core::state::State;

use crate::conformance::scene::{Scene, at, audit};
use crate::conformance::{Broken, Kept, Promise, list, same};
use crate::store::{Act, Change, Seen};

pub(super) const PROMISES: &[Promise] = list![
    an_act_is_made_on_the_states_it_fits_and_on_no_other,
    an_act_is_made_only_on_what_was_seen,
    an_act_on_an_unknown_id_is_not_made,
    changes_of_one_call_are_made_in_their_order,
];

/// A notification in one of the nine states, or one that was discarded: failed, with a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Situation {
    In(State),
    Discarded,
}

const SITUATIONS: [Situation; 10] = [
    Situation::In(State::Pending),
    Situation::In(State::Processing),
    Situation::In(State::Succeeded),
    Situation::In(State::RetryScheduled),
    Situation::In(State::Retrying),
    Situation::In(State::Failed),
    Situation::In(State::DeadLetter),
    Situation::In(State::Cancelled),
    Situation::In(State::Expired),
    Situation::Discarded,
];

impl Situation {
    const fn state(self) -> State {
        match self {
            Self::In(state) => state,
            Self::Discarded => State::Failed,
        }
    }
}

/// What the act leads to from there; none where it does not fit.
fn outcome(act: &Act, from: Situation) -> Option<State> {
    use Situation::{Discarded, In};
    match (act, from) {
        (Act::Cancel, In(State::Pending | State::RetryScheduled)) => Some(State::Cancelled),
        (Act::Expire, In(State::Pending | State::RetryScheduled)) => Some(State::Expired),
        (Act::Bury { .. }, In(State::Pending | State::RetryScheduled)) => Some(State::DeadLetter),
        (Act::RequestCancel, In(held @ (State::Processing | State::Retrying))) => Some(held),
        (Act::RetryNow, In(State::RetryScheduled)) => Some(State::RetryScheduled),
        (Act::Requeue, In(State::DeadLetter)) => Some(State::Pending),
        (Act::Retry, In(State::DeadLetter | State::Failed) | Discarded) => Some(State::Pending),
        (Act::Discard | Act::Delete | Act::Replace { .. }, In(State::DeadLetter)) => Some(State::Failed),
        (Act::Restore, Discarded) => Some(State::DeadLetter),
        _ => None,
    }
}

impl Scene {
    fn every_act(&mut self) -> [Act; 11] {
        let (dead_letter, text) = (self.grave(), "waited for too long".to_owned());
        [
            Act::Cancel,
            Act::RequestCancel,
            Act::RetryNow,
            Act::Expire,
            Act::Bury { dead_letter, reason: Reason::MaxAgeExceeded, text },
            Act::Requeue,
            Act::Retry,
            Act::Discard,
            Act::Delete,
            Act::Replace { by: NotificationId::new(at(0), 5) },
            Act::Restore,
        ]
    }

    async fn bring(&mut self, to: Situation) -> Result<Notification, Broken> {
        match to {
            Situation::In(state) => self.in_state(state).await,
            Situation::Discarded => self.discarded().await,
        }
    }
}

async fn an_act_is_made_on_the_states_it_fits_and_on_no_other(mut scene: Scene) -> Kept {
    for from in SITUATIONS {
        for act in scene.every_act() {
            let what = format!("{act:?} on {from:?}");
            let notification = scene.bring(from).await?;
            let before = scene.all_of(notification.id).await?;
            let rows = scene.store.audit(AuditFilter::default(), None, 1).await?.rows;
            same(&what, before.0.state, from.state())?;
            let made = scene.act(&notification, act.clone(), Some(audit("act")), at(70)).await?;
            let after = scene.all_of(notification.id).await?;
            let Some(state) = outcome(&act, from) else {
                same(&what, made, false)?;
                same(&what, after, before)?;
                same(&what, scene.store.audit(AuditFilter::default(), None, 1).await?.rows, rows)?;
                continue;
            };
            same(&what, made, true)?;
            same(&what, after.0.state, state)?;
            same(&what, after.0.end.is_some(), state.is_end())?;
            let newest = scene.store.audit(AuditFilter::default(), None, 1).await?.rows;
            same(&what, newest.first().map(|row| row.count), Some(1))?;
            let events = after.1.events.len() - before.1.events.len();
            same(&what, events, usize::from(act.word().is_some()))?;
        }
    }
    Ok(())
}

async fn an_act_is_made_only_on_what_was_seen(mut scene: Scene) -> Kept {
    for from in SITUATIONS {
        for act in scene.every_act() {
            if outcome(&act, from).is_none() {
                continue;
            }
            let notification = scene.bring(from).await?;
            let before = scene.all_of(notification.id).await?;
            let seen = before.2.standing.seen();
            let mut wrong = vec![
                Seen { generation: seen.generation + 1, ..seen },
                Seen { attempt: seen.attempt + 1, ..seen },
                Seen { attempt: seen.attempt.wrapping_sub(1), ..seen },
            ];
            let others = State::ALL.into_iter().filter(|state| *state != seen.state);
            wrong.extend(others.map(|state| Seen { state, ..seen }));
            let change = |seen| Change { id: notification.id, seen, act: act.clone() };
            let changes: Vec<Change> = wrong.into_iter().map(change).collect();
            let none = vec![false; changes.len()];
            let made =
                scene.store.transition(changes, Some("ada".to_owned()), Some(audit("act")), at(70)).await?;
            same(&format!("{act:?} on {from:?}, seen otherwise"), made, none)?;
            same("what is shown", scene.all_of(notification.id).await?, before)?;
        }
    }
    let rows = scene.store.audit(AuditFilter::default(), None, 1).await?.rows;
    same("audit rows where nothing was made", rows, [])
}

async fn an_act_on_an_unknown_id_is_not_made(mut scene: Scene) -> Kept {
    let id = NotificationId::new(at(77), 77);
    for act in scene.every_act() {
        let seen = Seen { state: State::Pending, generation: 1, attempt: 1 };
        let made = scene
            .store
            .transition(vec![Change { id, seen, act }], Some("ada".to_owned()), Some(audit("act")), at(70))
            .await?;
        same("made", made, [false])?;
    }
    same("audit rows", scene.store.audit(AuditFilter::default(), None, 9).await?.rows, [])?;
    let made = scene.store.transition(vec![], Some("ada".to_owned()), Some(audit("act")), at(70)).await?;
    same("no changes", made.len(), 0)?;
    same("audit rows", scene.store.audit(AuditFilter::default(), None, 9).await?.rows, [])
}

async fn changes_of_one_call_are_made_in_their_order(mut scene: Scene) -> Kept {
    let dead = scene.in_state(State::DeadLetter).await?;
    let waiting = scene.waiting().await?;
    let seen = Seen { state: State::DeadLetter, generation: 1, attempt: 1 };
    let fresh = Seen { state: State::Pending, generation: 1, attempt: 1 };
    let discarded = Seen { state: State::Failed, ..seen };
    let requeued = Seen { state: State::Pending, generation: 2, attempt: 1 };
    let change = |of: &Notification, seen, act| Change { id: of.id, seen, act };
    let changes = vec![
        change(&dead, seen, Act::Discard),
        change(&dead, seen, Act::Requeue),
        change(&waiting, fresh, Act::Cancel),
        change(&dead, discarded, Act::Restore),
        change(&waiting, fresh, Act::Cancel),
        change(&dead, seen, Act::Requeue),
        change(&dead, requeued, Act::Expire),
    ];
    let made = scene.store.transition(changes, Some("ada".to_owned()), Some(audit("many")), at(70)).await?;
    same("made", made, [true, false, true, true, false, true, true])?;
    same("the dead one", scene.state(&dead).await?, State::Expired)?;
    same("the waiting one", scene.state(&waiting).await?, State::Cancelled)?;
    let row = scene.store.audit(AuditFilter::default(), None, 9).await?.rows;
    same("the audit counts what was made", row.iter().map(|row| row.count).collect::<Vec<_>>(), [5])?;
    let events = scene.store.history(dead.id).await?.events;
    let words: Vec<&str> = events.iter().map(|event| event.word.as_str()).collect();
    same("the history", words, ["discard", "restore", "requeue"])?;
    let page = scene.store.dead_letters(Default::default(), None, 9).await?;
    let statuses: Vec<DeadLetterStatus> = page.rows.iter().map(|dead| dead.status).collect();
    same("the dead letter", statuses, [DeadLetterStatus::Requeued])
}
