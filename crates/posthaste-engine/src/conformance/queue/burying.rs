//! Dead letters: they appear in the transaction in which their notification ends, with payload and attempts.

use posthaste_core::attempt::Attempt;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::AuditFilter;
use posthaste_core::group::fingerprint;
use posthaste_core::reason::Reason;
use posthaste_core::state::{Lane, State};

use crate::conformance::scene::{Scene, at, audit, burial, failed_attempt, retry_at};
use crate::conformance::{Kept, Promise, list, refused, same};
use crate::store::{Act, Change, DeadLetterView, LetterFacts, Settled, Settlement};

pub(super) const PROMISES: &[Promise] = list![
    a_dead_letter_has_its_own_payload_and_attempts,
    a_waiting_one_is_buried_with_the_attempts_it_had,
    a_dead_letter_holds_only_the_attempts_of_its_generation,
    a_notification_that_dies_twice_leaves_two_dead_letters,
    a_dead_letter_with_a_taken_name_refuses_the_whole_call,
    an_unknown_dead_letter_is_not_there,
];

async fn a_dead_letter_has_its_own_payload_and_attempts(mut scene: Scene) -> Kept {
    let (notification, lease, name) = (scene.full_draft(), scene.lease().await?, scene.grave());
    scene.accept(&notification, at(0), Some(lease)).await?;
    scene.fail(&notification, lease, burial(name)).await?;
    let wanted = DeadLetterView {
        id: name,
        notification: notification.clone().into(),
        reason: Reason::MaxAttemptsExceeded,
        text: "gave up after 1".to_owned(),
        attempts: vec![failed_attempt(1, 1).without_response()],
        status: DeadLetterStatus::Pending,
        created_at: name.made_at(),
        resolved_at: None,
        resolved_by: None,
        failure_type: Some(FailureType::Temporary),
        status_code: Some(503),
        fingerprint: Some(fingerprint(
            Reason::MaxAttemptsExceeded,
            Some(FailureType::Temporary),
            Some(503),
            "gave up after …",
        )),
        deleted_at: None,
        restored_at: None,
    };
    same("the dead letter", scene.store.dead_letter(name).await?, Some(wanted))?;
    same("its notification", scene.store.notification_of(name).await?, Some(notification.id))?;
    let facts = scene.facts(notification.id).await?;
    same("the facts", facts.standing.letter(), Some((name, DeadLetterStatus::Pending)))?;
    same("the reason", facts.standing.reason, Some(Reason::MaxAttemptsExceeded))
}

async fn a_waiting_one_is_buried_with_the_attempts_it_had(mut scene: Scene) -> Kept {
    for (state, made) in [(State::Pending, 0), (State::RetryScheduled, 1)] {
        let (notification, name) = (scene.in_state(state).await?, scene.grave());
        let (reason, text) = (Reason::MaxAgeExceeded, "waited for too long".to_owned());
        let act = Act::Bury { dead_letter: name, reason, text: text.clone() };
        scene.does(&notification, act, None, at(70)).await?;
        let wanted = DeadLetterView {
            id: name,
            notification: notification.clone().into(),
            reason,
            text: text.clone(),
            attempts: (1..=made).map(|number| failed_attempt(1, number).without_response()).collect(),
            status: DeadLetterStatus::Pending,
            created_at: name.made_at(),
            resolved_at: None,
            resolved_by: None,
            failure_type: (made > 0).then_some(FailureType::Temporary),
            status_code: (made > 0).then_some(503),
            fingerprint: Some(fingerprint(
                reason,
                (made > 0).then_some(FailureType::Temporary),
                (made > 0).then_some(503),
                &text,
            )),
            deleted_at: None,
            restored_at: None,
        };
        same("the dead letter", scene.store.dead_letter(name).await?, Some(wanted))?;
        let view = scene.view(notification.id).await?;
        same("its state", view.state, State::DeadLetter)?;
        same("the last attempt", view.progress.attempt, made)?;
        same("its end", view.end.and_then(|end| end.dead_letter), Some(name))?;
        same("its events", scene.store.history(notification.id).await?.events, [])?;
    }
    Ok(())
}

async fn a_dead_letter_holds_only_the_attempts_of_its_generation(mut scene: Scene) -> Kept {
    let notification = scene.in_state(State::DeadLetter).await?;
    scene.does(&notification, Act::Requeue, Some(audit("requeue")), at(20)).await?;
    let lease = scene.lease().await?;
    same("claimed", scene.claim(&notification, Lane::Main, lease, at(20)).await?.len(), 1)?;
    let first = scene.settle(notification.id, lease, Some(failed_attempt(2, 1)), retry_at(at(30))).await?;
    same("the first attempt", first, Settled::Applied)?;
    let lease = scene.lease().await?;
    same("claimed", scene.claim(&notification, Lane::Retry, lease, at(30)).await?.len(), 1)?;
    let name = scene.grave();
    let second = scene.settle(notification.id, lease, Some(failed_attempt(2, 2)), burial(name)).await?;
    same("the second attempt", second, Settled::Applied)?;
    let wanted = vec![failed_attempt(2, 1), failed_attempt(2, 2)];
    let dead = scene.store.dead_letter(name).await?;
    let kept = wanted.iter().cloned().map(Attempt::without_response).collect::<Vec<_>>();
    same("the attempts of the dead letter", dead.map(|dead| dead.attempts), Some(kept))?;
    let all = [vec![failed_attempt(1, 1)], wanted].concat();
    same("the attempts of the notification", scene.store.history(notification.id).await?.attempts, all)
}

async fn a_notification_that_dies_twice_leaves_two_dead_letters(mut scene: Scene) -> Kept {
    let (notification, lease, first) = (scene.draft(), scene.lease().await?, scene.grave());
    scene.accept(&notification, at(0), Some(lease)).await?;
    scene.fail(&notification, lease, burial(first)).await?;
    scene.does(&notification, Act::Requeue, Some(audit("requeue")), at(20)).await?;
    let second = scene.grave();
    let act = Act::Bury { dead_letter: second, reason: Reason::Suppressed, text: "no".to_owned() };
    scene.does(&notification, act, None, at(30)).await?;
    let old = scene.store.dead_letter(first).await?.map(|dead| (dead.status, dead.resolved_at));
    same("the first", old, Some((DeadLetterStatus::Requeued, Some(at(20)))))?;
    let new = scene.store.dead_letter(second).await?.map(|dead| (dead.status, dead.attempts));
    same("the second", new, Some((DeadLetterStatus::Pending, vec![])))?;
    for name in [first, second] {
        same("whose it is", scene.store.notification_of(name).await?, Some(notification.id))?;
    }
    let names = vec![second, scene.grave(), first, second];
    let own = |status| Some(LetterFacts { notification: notification.id, status, deleted: false });
    let (new, old) = (own(DeadLetterStatus::Pending), own(DeadLetterStatus::Requeued));
    same("whose they are", scene.store.letter_facts(names).await?, [new, None, old, new])?;
    let facts = scene.facts(notification.id).await?;
    same("the facts", facts.standing.letter(), Some((second, DeadLetterStatus::Pending)))
}

async fn a_dead_letter_with_a_taken_name_refuses_the_whole_call(mut scene: Scene) -> Kept {
    let dead = scene.in_state(State::DeadLetter).await?;
    let Some((taken, _)) = scene.facts(dead.id).await?.standing.letter() else {
        return same("the dead letter", None, Some(dead.id));
    };
    let lease = scene.lease().await?;
    let (beside, torn) = (scene.draft(), scene.draft());
    let mut batch = vec![];
    for (notification, name) in [(&beside, scene.grave()), (&torn, taken)] {
        scene.accept(notification, at(0), Some(lease)).await?;
        let (id, attempt) = (notification.id, Some(failed_attempt(1, 1)));
        batch.push(Settlement { id, lease, cancel_seen: false, attempt, next: burial(name) });
    }
    let before = (scene.all_of(beside.id).await?, scene.all_of(torn.id).await?);
    refused("settle", scene.store.settle(batch, at(11)).await)?;
    same("after the settle", (scene.all_of(beside.id).await?, scene.all_of(torn.id).await?), before)?;

    let (beside, torn) = (scene.waiting().await?, scene.waiting().await?);
    let before = (scene.all_of(beside.id).await?, scene.all_of(torn.id).await?);
    let bury = Act::Bury { dead_letter: taken, reason: Reason::MaxAgeExceeded, text: "old".to_owned() };
    let seen = scene.facts(torn.id).await?.standing.seen();
    let changes =
        vec![Change { id: beside.id, seen, act: Act::Cancel }, Change { id: torn.id, seen, act: bury }];
    refused(
        "transition",
        scene.store.transition(changes, Some("ada".to_owned()), Some(audit("x")), at(12)).await,
    )?;
    same("after the act", (scene.all_of(beside.id).await?, scene.all_of(torn.id).await?), before)?;
    same("the audit", scene.store.audit(AuditFilter::default(), None, 10).await?.rows, [])
}

async fn an_unknown_dead_letter_is_not_there(mut scene: Scene) -> Kept {
    let name = scene.grave();
    same("the dead letter", scene.store.dead_letter(name).await?, None)?;
    same("its notification", scene.store.notification_of(name).await?, None)
}
