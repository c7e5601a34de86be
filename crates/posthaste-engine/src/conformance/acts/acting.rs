//! What each act does, with its event, its dead letter and its audit row.

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::AuditFilter;
use posthaste_core::notification::{Body, Content, Notification};
use posthaste_core::reason::Reason;
use posthaste_core::state::{Lane, State};

use crate::conformance::scene::{Scene, at, audit, burial, failed_attempt, retry_at};
use crate::conformance::{Broken, Kept, Promise, list, same};
use crate::store::{Act, AuditRow, Change, Claimed, DeadLetterView, End, HistoryEvent, Progress, Settled};

pub(super) const PROMISES: &[Promise] = list![
    a_cancelled_one_keeps_the_attempts_it_made,
    a_request_to_cancel_can_be_made_again,
    retry_now_makes_a_retry_due_at_once_and_never_later,
    a_requeued_one_counts_from_one,
    a_retried_one_goes_on_counting,
    a_retried_dead_letter_is_requeued_and_a_discarded_one_is_not,
    a_discarded_one_fails_and_keeps_its_dead_letter,
    a_restored_one_is_as_it_was_when_it_died,
    acts_at_the_same_time_are_made_once,
    an_event_names_the_actor_and_what_was_seen,
    an_actor_is_named_though_nothing_is_audited,
    what_expired_is_not_reopened,
    what_holds_odd_characters_is_reopened,
    an_audit_row_is_written_with_the_act,
    an_audit_row_says_how_much_of_what_was_asked_was_made,
];

impl Scene {
    async fn letter(&self, notification: &Notification) -> Result<DeadLetterView, Broken> {
        let end = self.view(notification.id).await?.end.and_then(|end| end.dead_letter);
        let dead = match end {
            Some(name) => self.store.dead_letter(name).await?,
            None => None,
        };
        dead.ok_or_else(|| Broken::at_caller(format!("{} has no dead letter", notification.id)))
    }

    /// Claims the notification in that lane, alone, and answers the claimed notification.
    async fn claimed(&mut self, notification: &Notification, lane: Lane) -> Result<Claimed, Broken> {
        let lease = self.lease().await?;
        let mut batch = self.claim(notification, lane, lease, at(999)).await?;
        same("how many", batch.len(), 1)?;
        Ok(batch.remove(0))
    }
}

async fn a_cancelled_one_keeps_the_attempts_it_made(mut scene: Scene) -> Kept {
    for (state, attempt) in [(State::Pending, 0), (State::RetryScheduled, 1)] {
        for (act, ended) in [(Act::Cancel, State::Cancelled), (Act::Expire, State::Expired)] {
            let notification = scene.in_state(state).await?;
            scene.does(&notification, act, None, at(70)).await?;
            let view = scene.view(notification.id).await?;
            same("its state", view.state, ended)?;
            same("its progress", view.progress, Progress { attempt, ..Progress::START })?;
            let made = attempt > 0;
            let end = End {
                at: at(70),
                reason: None,
                text: None,
                dead_letter: None,
                failure_type: made.then_some(FailureType::Temporary),
                status_code: made.then_some(503),
            };
            same("its end", view.end, Some(end))?;
            let facts = scene.facts(notification.id).await?;
            same("its lane", facts.bucket.lane, Lane::Main)?;
            same("its flow", facts.bucket.flow, scene.flow_of(&notification).await?)?;
        }
    }
    Ok(())
}

async fn a_request_to_cancel_can_be_made_again(mut scene: Scene) -> Kept {
    let (notification, _) = scene.held().await?;
    scene.does(&notification, Act::RequestCancel, None, at(5)).await?;
    scene.does(&notification, Act::RequestCancel, Some(audit("cancel")), at(6)).await?;
    same("the mark", scene.facts(notification.id).await?.standing.cancel_requested, true)?;
    let events = scene.store.history(notification.id).await?.events;
    let told: Vec<_> = events.iter().map(|event| (event.at, event.word.as_str())).collect();
    same("the events", told, [(at(5), "cancel"), (at(6), "cancel")])
}

async fn retry_now_makes_a_retry_due_at_once_and_never_later(mut scene: Scene) -> Kept {
    let notification = scene.in_state(State::RetryScheduled).await?;
    scene.does(&notification, Act::RetryNow, None, at(20)).await?;
    same("when it is due", scene.view(notification.id).await?.due, Some(at(20)))?;
    scene.does(&notification, Act::RetryNow, None, at(25)).await?;
    same("when it was due before", scene.view(notification.id).await?.due, Some(at(20)))?;
    let claimed = scene.claimed(&notification, Lane::Retry).await?;
    same("when it was due", (claimed.due, claimed.first_due), (at(20), at(0)))?;
    same("its attempt", claimed.progress, Progress { attempt: 2, ..Progress::START })
}

async fn a_requeued_one_counts_from_one(mut scene: Scene) -> Kept {
    let notification = scene.in_state(State::DeadLetter).await?;
    let dead = scene.letter(&notification).await?;
    scene.does(&notification, Act::Requeue, Some(audit("requeue")), at(20)).await?;
    let progress = Progress { generation: 2, attempt: 1, base: 0 };
    let view = scene.view(notification.id).await?;
    same("what is shown", (view.state, view.progress, view.due), (State::Pending, progress, Some(at(20))))?;
    same("its end", view.end, None)?;
    same("the facts", scene.facts(notification.id).await?.standing.letter(), None)?;
    let resolved = DeadLetterView {
        status: DeadLetterStatus::Requeued,
        resolved_at: Some(at(20)),
        resolved_by: Some("ada".to_owned()),
        ..dead.clone()
    };
    same("its dead letter", scene.store.dead_letter(dead.id).await?, Some(resolved))?;
    let claimed = scene.claimed(&notification, Lane::Main).await?;
    same("what was claimed", (claimed.progress, claimed.first_due, claimed.due), (progress, at(20), at(20)))?;
    same("its delay", (claimed.delay, claimed.interruptions), (std::time::Duration::ZERO, 0))?;
    let attempt = Some(failed_attempt(2, 1));
    let settled = scene.settle(notification.id, claimed.lease, attempt, retry_at(at(60))).await?;
    same("settle", settled, Settled::Applied)?;
    let history = scene.store.history(notification.id).await?;
    same("its attempts", history.attempts, [failed_attempt(1, 1), failed_attempt(2, 1)])
}

async fn a_retried_one_goes_on_counting(mut scene: Scene) -> Kept {
    let states = [State::DeadLetter, State::Failed];
    for state in states {
        let notification = scene.in_state(state).await?;
        scene.does(&notification, Act::Retry, Some(audit("retry")), at(20)).await?;
        let progress = Progress { generation: 2, attempt: 2, base: 1 };
        let view = scene.view(notification.id).await?;
        same(
            "what is shown",
            (view.state, view.progress, view.due),
            (State::Pending, progress, Some(at(20))),
        )?;
        let claimed = scene.claimed(&notification, Lane::Main).await?;
        same(
            "what is claimed",
            (claimed.progress, claimed.first_due, claimed.lane),
            (progress, at(20), Lane::Main),
        )?;
        let name = scene.grave();
        let attempt = Some(failed_attempt(2, 2));
        let settled = scene.settle(notification.id, claimed.lease, attempt, burial(name)).await?;
        same("settle", settled, Settled::Applied)?;
        let dead = scene.store.dead_letter(name).await?;
        same(
            "what died",
            dead.map(|dead| dead.attempts),
            Some(vec![failed_attempt(2, 2).without_response()]),
        )?;
        let ended = scene.view(notification.id).await?.progress;
        same("at the end", ended, Progress { generation: 2, attempt: 2, base: 1 })?;
        scene.does(&notification, Act::Retry, None, at(30)).await?;
        let third = Progress { generation: 3, attempt: 3, base: 2 };
        same("the third generation", scene.view(notification.id).await?.progress, third)?;
    }
    Ok(())
}

async fn a_retried_dead_letter_is_requeued_and_a_discarded_one_is_not(mut scene: Scene) -> Kept {
    let pending = scene.in_state(State::DeadLetter).await?;
    let dead = scene.letter(&pending).await?;
    scene.does(&pending, Act::Retry, None, at(20)).await?;
    let resolved = DeadLetterView {
        status: DeadLetterStatus::Requeued,
        resolved_at: Some(at(20)),
        resolved_by: Some("posthaste".to_owned()),
        ..dead.clone()
    };
    same("what was pending", scene.store.dead_letter(dead.id).await?, Some(resolved))?;

    let discarded = scene.discarded().await?;
    let dead = scene.letter(&discarded).await?;
    scene.does(&discarded, Act::Retry, Some(audit("retry")), at(30)).await?;
    same("what was discarded", scene.store.dead_letter(dead.id).await?, Some(dead))?;
    let progress = Progress { generation: 2, attempt: 2, base: 1 };
    same("where it stands", scene.view(discarded.id).await?.progress, progress)
}

async fn a_discarded_one_fails_and_keeps_its_dead_letter(mut scene: Scene) -> Kept {
    let notification = scene.in_state(State::DeadLetter).await?;
    let dead = scene.letter(&notification).await?;
    scene.does(&notification, Act::Discard, Some(audit("discard")), at(20)).await?;
    let view = scene.view(notification.id).await?;
    let (reason, text) = (Some(Reason::Discarded), Some("discarded".to_owned()));
    let (failure_type, status_code) = (Some(FailureType::Temporary), Some(503));
    let end = End { at: at(10), reason, text, dead_letter: Some(dead.id), failure_type, status_code };
    same("its state", view.state, State::Failed)?;
    same("its end", view.end, Some(end))?;
    same("its progress", view.progress, Progress::START)?;
    let facts = scene.facts(notification.id).await?;
    same("the facts", facts.standing.letter(), Some((dead.id, DeadLetterStatus::Cancelled)))?;
    let resolved = DeadLetterView {
        status: DeadLetterStatus::Cancelled,
        resolved_at: Some(at(20)),
        resolved_by: Some("ada".to_owned()),
        ..dead.clone()
    };
    same("its dead letter", scene.store.dead_letter(dead.id).await?, Some(resolved))
}

async fn a_restored_one_is_as_it_was_when_it_died(mut scene: Scene) -> Kept {
    let notification = scene.in_state(State::DeadLetter).await?;
    let (view, dead) = (scene.view(notification.id).await?, scene.letter(&notification).await?);
    scene.does(&notification, Act::Discard, Some(audit("discard")), at(20)).await?;
    scene.does(&notification, Act::Restore, Some(audit("restore")), at(30)).await?;
    same("what is shown", scene.view(notification.id).await?, view)?;
    let restored = DeadLetterView { restored_at: Some(at(30)), ..dead.clone() };
    same("its dead letter", scene.store.dead_letter(dead.id).await?, Some(restored))?;
    scene.does(&notification, Act::Requeue, None, at(40)).await?;
    same("requeued in the end", scene.state(&notification).await?, State::Pending)
}

async fn acts_at_the_same_time_are_made_once(mut scene: Scene) -> Kept {
    let notification = scene.in_state(State::DeadLetter).await?;
    let seen = scene.facts(notification.id).await?.standing.seen();
    let act = |act: Act| {
        let change = Change { id: notification.id, seen, act };
        scene.store.transition(vec![change], Some("ada".to_owned()), Some(audit("act")), at(20))
    };
    let (one, two, three, four) =
        tokio::join!(act(Act::Requeue), act(Act::Retry), act(Act::Requeue), act(Act::Discard));
    let made = [one?, two?, three?, four?].concat();
    same("how many were made", made.iter().filter(|made| **made).count(), 1)?;
    same("how many events", scene.store.history(notification.id).await?.events.len(), 1)?;
    same("how many audit rows", scene.store.audit(AuditFilter::default(), None, 9).await?.rows.len(), 1)
}

async fn an_event_names_the_actor_and_what_was_seen(mut scene: Scene) -> Kept {
    let notification = scene.in_state(State::RetryScheduled).await?;
    scene.does(&notification, Act::RetryNow, Some(audit("x")), at(20)).await?;
    scene.does(&notification, Act::Cancel, None, at(21)).await?;
    let event = |second, word: &str, actor: Option<&str>, generation, attempt| HistoryEvent {
        at: at(second),
        word: word.to_owned(),
        actor: actor.map(str::to_owned),
        generation,
        attempt,
    };
    let wanted = [event(20, "retry-now", Some("ada"), 1, 2), event(21, "cancel", None, 1, 2)];
    same("events", scene.store.history(notification.id).await?.events, wanted)?;

    let notification = scene.in_state(State::DeadLetter).await?;
    scene.does(&notification, Act::Discard, Some(audit("x")), at(20)).await?;
    scene.does(&notification, Act::Restore, Some(audit("x")), at(21)).await?;
    scene.does(&notification, Act::Retry, Some(audit("x")), at(22)).await?;
    let wanted = [("discard", 20), ("restore", 21), ("retry", 22)]
        .map(|(word, second)| event(second, word, Some("ada"), 1, 1));
    same("events", scene.store.history(notification.id).await?.events, wanted)
}

async fn an_audit_row_is_written_with_the_act(mut scene: Scene) -> Kept {
    let (one, two) = (scene.waiting().await?, scene.waiting().await?);
    scene.does(&one, Act::Cancel, None, at(20)).await?;
    same("without an audit", scene.store.audit(AuditFilter::default(), None, 9).await?.rows, [])?;
    let said = crate::store::Audit { tenant: None, ..audit("cancel") };
    scene.does(&two, Act::Cancel, Some(said.clone()), at(20)).await?;
    let wanted = [AuditRow { number: 1, audit: said, asked: 1, count: 1 }];
    same("with an audit", scene.store.audit(AuditFilter::default(), None, 9).await?.rows, wanted)
}

async fn an_audit_row_says_how_much_of_what_was_asked_was_made(mut scene: Scene) -> Kept {
    let mut waiting = vec![];
    for _ in 0..4 {
        let notification = scene.waiting().await?;
        let seen = scene.facts(notification.id).await?.standing.seen();
        waiting.push(Change { id: notification.id, seen, act: Act::Cancel });
    }
    let cancel = async |changes: &[Change]| {
        scene.store.transition(changes.to_vec(), Some("ada".to_owned()), Some(audit("cancel")), at(20)).await
    };
    same("all", cancel(&waiting[..2]).await?, [true, true])?;
    same("some", cancel(&waiting[1..]).await?, [false, true, true])?;
    same("none", cancel(&waiting).await?, [false; 4])?;
    let rows = scene.store.audit(AuditFilter::default(), None, 9).await?.rows;
    let told: Vec<_> = rows.iter().map(|row| (row.number, row.asked, row.count, row.outcome())).collect();
    same("the audit", told, [(2, 3, 2, "partly"), (1, 2, 2, "done")])
}

/// A retry operation writes one audit row for thousands of acts, each of which names its actor.
async fn an_actor_is_named_though_nothing_is_audited(mut scene: Scene) -> Kept {
    let dead = scene.in_state(State::DeadLetter).await?;
    let seen = scene.facts(dead.id).await?.standing.seen();
    let change = Change { id: dead.id, seen, act: Act::Discard };
    let made = scene.store.transition(vec![change], Some("grace".to_owned()), None, at(60)).await?;
    same("made", made, [true])?;
    same("who resolved it", scene.letter(&dead).await?.resolved_by.as_deref(), Some("grace"))?;
    let events = scene.store.history(dead.id).await?.events;
    same("the history", events.last().and_then(|event| event.actor.as_deref()), Some("grace"))?;
    same("the audit", scene.store.audit(AuditFilter::default(), None, 9).await?.rows, [])
}

async fn what_expired_is_not_reopened(mut scene: Scene) -> Kept {
    let notification = Notification { expires_at: Some(at(50)), ..scene.draft() };
    let lease = scene.lease().await?;
    scene.accept(&notification, at(0), Some(lease)).await?;
    let name = scene.grave();
    scene.fail(&notification, lease, burial(name)).await?;
    for act in [Act::Requeue, Act::Retry] {
        same("when it has expired", scene.act(&notification, act, None, at(50)).await?, false)?;
    }
    same("in time", scene.act(&notification, Act::Requeue, None, at(49)).await?, true)
}

async fn what_holds_odd_characters_is_reopened(mut scene: Scene) -> Kept {
    let content = Content {
        html: Some("\0\u{1f980}".to_owned()),
        ..Content::of(Body::Text("a\0b \"policy\": c".to_owned()))
    };
    let notification = Notification { content, ..scene.draft() };
    let lease = scene.lease().await?;
    scene.accept(&notification, at(0), Some(lease)).await?;
    let name = scene.grave();
    scene.fail(&notification, lease, burial(name)).await?;
    same("requeued", scene.act(&notification, Act::Requeue, None, at(20)).await?, true)?;
    let lease = scene.lease().await?;
    let claimed = scene.claim(&notification, Lane::Main, lease, at(20)).await?;
    same("what is sent", claimed.first().map(|claimed| (*claimed.notification).clone()), Some(notification))
}
