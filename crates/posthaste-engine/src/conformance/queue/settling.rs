//! What a settle records, and for whom it records nothing.

use std::time::Duration;

use posthaste_core::failure::FailureType;
use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Fence, Lease};
use posthaste_core::reason::Reason;
use posthaste_core::state::{Lane, State};

use crate::conformance::scene::{MONTH, Scene, at, burial, failed_attempt, good_attempt, retry_at};
use crate::conformance::{Kept, Promise, list, refused, same};
use crate::store::{Act, End, Ending, Next, Progress, Settled, Settlement};

pub(super) const PROMISES: &[Promise] = list![
    each_ending_is_kept_with_its_attempt,
    an_end_without_an_attempt_names_the_last_one_made,
    a_failed_attempt_waits_in_the_retry_lane_with_the_next_number,
    attempts_are_read_back_as_they_were_made,
    a_lost_lease_cannot_settle,
    a_lease_given_back_and_taken_again_by_the_same_node_is_another,
    what_nobody_holds_cannot_be_settled,
    a_settle_that_comes_twice_is_recorded_once,
    a_batch_is_answered_in_its_order,
    a_batch_may_hold_outcomes_under_a_lost_and_a_current_lease,
    an_attempt_that_is_known_refuses_the_whole_batch,
    a_request_to_cancel_stops_a_decision_that_did_not_know_it,
    a_request_to_cancel_outlives_the_lease,
];

fn delivered() -> Next {
    Next::End(Ending::Delivered)
}

async fn each_ending_is_kept_with_its_attempt(mut scene: Scene) -> Kept {
    let name = scene.grave();
    let failed = Ending::Failed { reason: Reason::PermanentFailure, text: "no".to_owned() };
    let reason = Reason::MaxAttemptsExceeded;
    let buried = Ending::Buried { dead_letter: name, reason, text: "gave up".to_owned() };
    let table = [
        (Ending::Delivered, None, None, None),
        (Ending::Cancelled, None, None, None),
        (Ending::Expired, None, None, None),
        (failed, Some(Reason::PermanentFailure), Some("no"), None),
        (buried, Some(reason), Some("gave up"), Some(name)),
    ];
    for (ending, reason, text, dead_letter) in table {
        let (notification, lease) = scene.held().await?;
        let state = ending.state();
        scene.fail(&notification, lease, Next::End(ending)).await?;
        let view = scene.view(notification.id).await?;
        same("its state", view.state, state)?;
        same("its progress", view.progress, Progress::START)?;
        same("when it is due", view.due, None)?;
        let text = text.map(str::to_owned);
        let (failure_type, status_code) = (Some(FailureType::Temporary), Some(503));
        let end = End { at: at(10), reason, text, dead_letter, failure_type, status_code };
        same("its end", view.end, Some(end))?;
        let history = scene.store.history(notification.id).await?;
        same("its attempts", history.attempts, [failed_attempt(1, 1)])?;
        let later = scene.lease().await?;
        for lane in Lane::ALL {
            same("what can be claimed", scene.claim(&notification, lane, later, at(999)).await?, [])?;
        }
    }
    Ok(())
}

async fn an_end_without_an_attempt_names_the_last_one_made(mut scene: Scene) -> Kept {
    let (notification, lease) = scene.held().await?;
    let settled = scene.settle(notification.id, lease, None, Next::End(Ending::Expired)).await?;
    same("settle", settled, Settled::Applied)?;
    same("no attempt was made", scene.view(notification.id).await?.progress.attempt, 0)?;
    same("attempts", scene.store.history(notification.id).await?.attempts, [])?;

    let notification = scene.in_state(State::RetryScheduled).await?;
    let lease = scene.lease().await?;
    same("claimed", scene.claim(&notification, Lane::Retry, lease, at(60)).await?.len(), 1)?;
    let settled = scene.settle(notification.id, lease, None, Next::End(Ending::Cancelled)).await?;
    same("settle", settled, Settled::Applied)?;
    same("one attempt was made", scene.view(notification.id).await?.progress.attempt, 1)?;
    same("attempts", scene.store.history(notification.id).await?.attempts, [failed_attempt(1, 1)])
}

async fn a_failed_attempt_waits_in_the_retry_lane_with_the_next_number(mut scene: Scene) -> Kept {
    let (notification, lease) = scene.held().await?;
    scene.fail(&notification, lease, retry_at(at(60))).await?;
    let view = scene.view(notification.id).await?;
    same("its state", view.state, State::RetryScheduled)?;
    same("its progress", view.progress, Progress { attempt: 2, ..Progress::START })?;
    same("when it is due", view.due, Some(at(60)))?;
    same("its end", view.end, None)?;
    let lease = scene.lease().await?;
    same("in the main lane", scene.claim(&notification, Lane::Main, lease, at(99)).await?, [])?;
    same("too early", scene.claim(&notification, Lane::Retry, lease, at(59)).await?, [])?;
    let batch = scene.claim(&notification, Lane::Retry, lease, at(60)).await?;
    same("in time", batch.len(), 1)?;
    same("the number of the attempt", batch[0].progress.attempt, 2)?;
    let settled = scene.settle(notification.id, lease, Some(failed_attempt(1, 2)), retry_at(at(90))).await?;
    same("settle", settled, Settled::Applied)?;
    same("the third attempt", scene.view(notification.id).await?.progress.attempt, 3)
}

async fn attempts_are_read_back_as_they_were_made(mut scene: Scene) -> Kept {
    let notification = scene.in_state(State::Retrying).await?;
    let facts = scene.facts(notification.id).await?;
    same("what is seen", (facts.standing.seen().generation, facts.standing.seen().attempt), (1, 2))?;
    same("the first attempt", scene.store.history(notification.id).await?.attempts, [failed_attempt(1, 1)])?;

    let (notification, lease) = scene.held().await?;
    let bare = posthaste_core::attempt::Attempt {
        status_code: None,
        provider: None,
        message_id: None,
        ..good_attempt(1, 1)
    };
    let settled = scene.settle(notification.id, lease, Some(bare.clone()), delivered()).await?;
    same("settle", settled, Settled::Applied)?;
    same("an attempt with little", scene.store.history(notification.id).await?.attempts, [bare])
}

async fn a_lost_lease_cannot_settle(mut scene: Scene) -> Kept {
    let (notification, lease) = scene.held().await?;
    let other = scene.store.join("other".to_owned(), MONTH, at(0)).await?.node;
    let strangers = [
        Lease { node: other, fence: lease.fence },
        Lease { node: lease.node, fence: Fence(lease.fence.0 + 1) },
        Lease { node: lease.node, fence: Fence(lease.fence.0 - 1) },
    ];
    let before = scene.all_of(notification.id).await?;
    let name = scene.grave();
    for stranger in strangers {
        for next in [delivered(), retry_at(at(60)), burial(name)] {
            let attempt = Some(failed_attempt(1, 1));
            let settled = scene.settle(notification.id, stranger, attempt, next).await?;
            same("settle", settled, Settled::LeaseLost)?;
        }
    }
    same("what is shown", scene.all_of(notification.id).await?, before)?;
    same("dead letters", scene.store.dead_letter(name).await?, None)?;
    scene.fail(&notification, lease, delivered()).await
}

async fn a_lease_given_back_and_taken_again_by_the_same_node_is_another(mut scene: Scene) -> Kept {
    let (notification, old) = scene.held().await?;
    same("released", scene.store.release(old, None).await?, 1)?;
    let new = scene.lease().await?;
    same("claimed", scene.claim(&notification, Lane::Main, new, at(9)).await?.len(), 1)?;
    let late = scene.settle(notification.id, old, Some(failed_attempt(1, 1)), retry_at(at(60))).await?;
    same("the old lease", late, Settled::LeaseLost)?;
    same("its state", scene.state(&notification).await?, State::Processing)?;
    same("attempts", scene.store.history(notification.id).await?.attempts, [])?;
    let settled = scene.settle(notification.id, new, Some(good_attempt(1, 1)), delivered()).await?;
    same("the new lease", settled, Settled::Applied)
}

async fn what_nobody_holds_cannot_be_settled(mut scene: Scene) -> Kept {
    let lease = scene.lease().await?;
    let unheld = State::ALL.into_iter().filter(|state| !state.is_leased());
    for state in unheld {
        let notification = scene.in_state(state).await?;
        let before = scene.all_of(notification.id).await?;
        let settled = scene.settle(notification.id, lease, Some(good_attempt(1, 9)), delivered()).await?;
        same("settle", settled, Settled::LeaseLost)?;
        same("what is shown", scene.all_of(notification.id).await?, before)?;
    }
    let unknown = NotificationId::new(at(77), 77);
    same("an unknown id", scene.settle(unknown, lease, None, delivered()).await?, Settled::LeaseLost)
}

async fn a_settle_that_comes_twice_is_recorded_once(mut scene: Scene) -> Kept {
    let ends = [delivered(), retry_at(at(60)), burial(scene.grave())];
    for next in ends {
        let (notification, lease) = scene.held().await?;
        scene.fail(&notification, lease, next.clone()).await?;
        let once = scene.all_of(notification.id).await?;
        let again = scene.settle(notification.id, lease, Some(failed_attempt(1, 1)), next).await?;
        same("the second time", again, Settled::LeaseLost)?;
        same("what is shown", scene.all_of(notification.id).await?, once)?;
    }
    Ok(())
}

async fn a_batch_is_answered_in_its_order(mut scene: Scene) -> Kept {
    let lease = scene.lease().await?;
    let mut batch = vec![];
    for next in [delivered(), retry_at(at(60)), burial(scene.grave())] {
        let notification = scene.draft();
        scene.accept(&notification, at(0), Some(lease)).await?;
        let attempt = Some(failed_attempt(1, 1));
        batch.push(Settlement { id: notification.id, lease, cancel_seen: false, attempt, next });
    }
    let states = [State::Succeeded, State::RetryScheduled, State::DeadLetter];
    let ids: Vec<NotificationId> = batch.iter().map(|item| item.id).collect();
    batch.insert(1, Settlement { id: NotificationId::new(at(77), 77), ..batch[0].clone() });
    batch.push(batch[0].clone());
    let (good, lost) = (Settled::Applied, Settled::LeaseLost);
    same("settle", scene.store.settle(batch, at(10)).await?, [good, lost, good, good, lost])?;
    for (id, state) in ids.into_iter().zip(states) {
        same("its state", scene.view(id).await?.state, state)?;
    }
    same("settle of nothing", scene.store.settle(vec![], at(10)).await?, [])
}

/// A node that was declared dead and joined again may hand in both together.
async fn a_batch_may_hold_outcomes_under_a_lost_and_a_current_lease(mut scene: Scene) -> Kept {
    for lost_first in [true, false] {
        let (notification, old) = scene.held().await?;
        same("released", scene.store.release(old, None).await?, 1)?;
        let new = scene.lease().await?;
        same("claimed", scene.claim(&notification, Lane::Main, new, at(9)).await?.len(), 1)?;
        let outcome = |lease, attempt, next| Settlement {
            id: notification.id,
            lease,
            cancel_seen: false,
            attempt: Some(attempt),
            next,
        };
        let mut batch = [
            (outcome(old, good_attempt(1, 1), delivered()), Settled::LeaseLost),
            (outcome(new, failed_attempt(1, 1), retry_at(at(60))), Settled::Applied),
        ];
        if !lost_first {
            batch.reverse();
        }
        let (batch, answers): (Vec<Settlement>, Vec<Settled>) = batch.into_iter().unzip();
        same("settle", scene.store.settle(batch, at(10)).await?, answers)?;
        same("its state", scene.state(&notification).await?, State::RetryScheduled)?;
        let history = scene.store.history(notification.id).await?;
        same("its attempts", history.attempts, [failed_attempt(1, 1)])?;
    }
    Ok(())
}

async fn an_attempt_that_is_known_refuses_the_whole_batch(mut scene: Scene) -> Kept {
    let notification = scene.in_state(State::RetryScheduled).await?;
    let lease = scene.lease().await?;
    same("claimed", scene.claim(&notification, Lane::Retry, lease, at(60)).await?.len(), 1)?;
    let beside = scene.draft();
    scene.accept(&beside, at(0), Some(lease)).await?;
    let item = |id| {
        let attempt = Some(good_attempt(1, 1));
        Settlement { id, lease, cancel_seen: false, attempt, next: delivered() }
    };
    let before = (scene.all_of(beside.id).await?, scene.all_of(notification.id).await?);
    refused("settle", scene.store.settle(vec![item(beside.id), item(notification.id)], at(70)).await)?;
    let after = (scene.all_of(beside.id).await?, scene.all_of(notification.id).await?);
    same("what is shown", after, before)
}

async fn a_request_to_cancel_stops_a_decision_that_did_not_know_it(mut scene: Scene) -> Kept {
    for state in [State::Processing, State::Retrying] {
        for next in [delivered(), retry_at(at(90)), Next::End(Ending::Cancelled)] {
            let (lease, lane) = (scene.lease().await?, Lane::ALL[usize::from(state == State::Retrying)]);
            let waits = [State::Pending, State::RetryScheduled][usize::from(lane == Lane::Retry)];
            let notification = scene.in_state(waits).await?;
            let batch = scene.claim(&notification, lane, lease, at(60)).await?;
            same("claimed", batch.len(), 1)?;
            scene.does(&notification, Act::RequestCancel, None, at(61)).await?;
            let before = scene.all_of(notification.id).await?;
            same("the mark", before.0.cancel_requested, true)?;
            let attempt = Some(good_attempt(1, batch[0].progress.attempt));
            let item =
                Settlement { id: notification.id, lease, cancel_seen: false, attempt, next: next.clone() };
            let unaware = scene.store.settle(vec![item.clone()], at(62)).await?;
            same("a decision that did not know", unaware, [Settled::CancelRequested])?;
            same("what is shown", scene.all_of(notification.id).await?, before)?;
            let aware = Settlement { cancel_seen: true, ..item };
            same("a decision that knew", scene.store.settle(vec![aware], at(63)).await?, [Settled::Applied])?;
            same("the mark afterwards", scene.view(notification.id).await?.cancel_requested, false)?;
        }
    }
    let (notification, lease) = scene.held().await?;
    let (attempt, next) = (Some(good_attempt(1, 1)), delivered());
    let wary = Settlement { id: notification.id, lease, cancel_seen: true, attempt, next };
    same("a mark that is not there", scene.store.settle(vec![wary], at(63)).await?, [Settled::Applied])
}

async fn a_request_to_cancel_outlives_the_lease(mut scene: Scene) -> Kept {
    let (notification, lease) = scene.held().await?;
    scene.does(&notification, Act::RequestCancel, None, at(5)).await?;
    same("released", scene.store.release(lease, None).await?, 1)?;
    let view = scene.view(notification.id).await?;
    same("its state and mark", (view.state, view.cancel_requested), (State::Pending, true))?;
    let lease = scene.lease().await?;
    let batch = scene.claim(&notification, Lane::Main, lease, at(6)).await?;
    same("how many", batch.len(), 1)?;
    same("what is claimed", batch[0].cancel_requested, true)?;
    same("the facts", scene.facts(notification.id).await?.standing.cancel_requested, true)?;

    let node = scene.store.join("short".to_owned(), Duration::from_secs(1), at(0)).await?.node;
    let taken_back = scene.draft();
    scene.accept(&taken_back, at(0), Some(Lease { node, fence: Fence(1) })).await?;
    scene.does(&taken_back, Act::RequestCancel, None, at(1)).await?;
    same("taken back", scene.store.reclaim(node, 9, at(9)).await?, 1)?;
    let view = scene.view(taken_back.id).await?;
    same("its state and mark", (view.state, view.cancel_requested), (State::Pending, true))
}
