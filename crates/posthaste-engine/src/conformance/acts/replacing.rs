//! An edited copy and the dead letter that it replaces: both are written, or neither.

use posthaste_core::act::replaced_by;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::filter::AuditFilter;
use posthaste_core::notification::{Content, Notification};
use posthaste_core::reason::Reason;
use posthaste_core::state::{Lane, State};

use crate::conformance::scene::{Scene, at, audit, tenant};
use crate::conformance::{Broken, Kept, Promise, list, same};
use crate::store::{Accepted, Act, Idempotency, Replacement, Seen};

pub(super) const PROMISES: &[Promise] = list![
    a_copy_is_stored_and_the_original_names_it,
    nothing_is_stored_in_place_of_what_changed_meanwhile,
    of_two_copies_at_the_same_time_one_is_stored,
    a_repeat_of_a_replacement_gets_its_first_answer,
    a_copy_that_cannot_be_stored_replaces_nothing,
];

impl Scene {
    /// A copy of the notification with another recipient, and what it is to replace.
    async fn edited(&mut self, original: &Notification) -> Result<(Notification, Replacement), Broken> {
        let draft = self.draft();
        let content = Content { edit_of: Some(original.id), ..original.content.clone() };
        let copy = Notification { content, ..draft };
        let seen = self.facts(original.id).await?.standing.seen();
        let arrival = self.arrival(&copy, at(20), None).await?;
        Ok((copy, Replacement { id: original.id, seen, copy: arrival, idempotency: None }))
    }

    async fn replace(&self, replacement: Replacement) -> Result<Option<Accepted>, Broken> {
        let (actor, audit) = (Some("ada".to_owned()), Some(audit("edit-and-retry")));
        Ok(self.store.replace(replacement, actor, audit, at(20)).await?)
    }
}

async fn a_copy_is_stored_and_the_original_names_it(mut scene: Scene) -> Kept {
    let original = scene.in_state(State::DeadLetter).await?;
    let before = scene.view(original.id).await?.end;
    let (copy, replacement) = scene.edited(&original).await?;
    same("replaced", scene.replace(replacement).await?, Some(Accepted::New))?;
    let view = scene.view(original.id).await?;
    let end = view.end.ok_or_else(|| Broken::at_caller("the original has no end"))?;
    same("its state", (view.state, end.reason), (State::Failed, Some(Reason::Replaced)))?;
    same("its copy", replaced_by(end.reason, end.text.as_deref()), Some(copy.id))?;
    same("when it ended", Some(end.at), before.as_ref().map(|end| end.at))?;
    same("its dead letter", end.dead_letter, before.and_then(|end| end.dead_letter))?;
    let letter = scene.facts(original.id).await?.standing.letter();
    same("its status", letter.map(|(_, status)| status), Some(DeadLetterStatus::Cancelled))?;
    let resolved = match letter {
        Some((id, _)) => scene.store.dead_letter(id).await?,
        None => None,
    };
    let resolved = resolved.map(|dead| (dead.resolved_at, dead.resolved_by));
    same("who resolved it", resolved, Some((Some(at(20)), Some("ada".to_owned()))))?;
    for id in [original.id, copy.id] {
        let events = scene.store.history(id).await?.events;
        let told: Vec<_> = events
            .iter()
            .map(|event| (event.word.as_str(), event.actor.as_deref(), event.at, event.attempt))
            .collect();
        same("the history", told, [("edit-and-retry", Some("ada"), at(20), 1)])?;
    }
    let rows = scene.store.audit(AuditFilter::default(), None, 9).await?.rows;
    same("the audit", rows.iter().map(|row| (row.asked, row.count)).collect::<Vec<_>>(), [(1, 1)])?;
    let lease = scene.lease().await?;
    let claimed = scene.claim(&copy, Lane::Main, lease, at(20)).await?;
    same("what is sent", claimed.first().map(|one| (*one.notification).clone()), Some(copy))?;
    same("restored", scene.act(&original, Act::Restore, None, at(30)).await?, false)
}

async fn nothing_is_stored_in_place_of_what_changed_meanwhile(mut scene: Scene) -> Kept {
    let mut others = vec![scene.discarded().await?];
    for state in State::ALL.into_iter().filter(|state| *state != State::DeadLetter) {
        others.push(scene.in_state(state).await?);
    }
    let dead = scene.in_state(State::DeadLetter).await?;
    let mut asked = vec![];
    for other in &others {
        asked.push((scene.edited(other).await?, other.id));
    }
    let (copy, mut seen_otherwise) = scene.edited(&dead).await?;
    seen_otherwise.seen = Seen { generation: 2, ..seen_otherwise.seen };
    asked.push(((copy, seen_otherwise), dead.id));
    for ((copy, mut replacement), original) in asked {
        let before = scene.all_of(original).await?;
        replacement.idempotency = Some(key([1; 32]));
        same("replaced", scene.replace(replacement).await?, None)?;
        same("what is shown", scene.all_of(original).await?, before)?;
        same("the copy", scene.store.get(copy.id).await?, None)?;
    }
    same("the key", scene.store.idempotent(tenant("acme"), "again".to_owned(), at(20)).await?, None)?;
    same("audit rows", scene.store.audit(AuditFilter::default(), None, 9).await?.rows, [])
}

async fn of_two_copies_at_the_same_time_one_is_stored(mut scene: Scene) -> Kept {
    let original = scene.in_state(State::DeadLetter).await?;
    let (one, first) = scene.edited(&original).await?;
    let (two, second) = scene.edited(&original).await?;
    let (left, right) = tokio::join!(scene.replace(first), scene.replace(second));
    let (left, right) = (left?, right?);
    let made = usize::from(left.is_some()) + usize::from(right.is_some());
    same("how many were stored", made, 1)?;
    let stored = [scene.store.get(one.id).await?.is_some(), scene.store.get(two.id).await?.is_some()];
    same("which", stored, [left.is_some(), right.is_some()])
}

fn key(hash: [u8; 32]) -> Idempotency {
    Idempotency { tenant: tenant("acme"), key: "again".to_owned(), hash, answer: b"first".to_vec() }
}

async fn a_repeat_of_a_replacement_gets_its_first_answer(mut scene: Scene) -> Kept {
    let original = scene.in_state(State::DeadLetter).await?;
    let (_, mut replacement) = scene.edited(&original).await?;
    replacement.idempotency = Some(key([1; 32]));
    same("replaced", scene.replace(replacement).await?, Some(Accepted::New))?;
    let known = scene.store.idempotent(tenant("acme"), "again".to_owned(), at(21)).await?;
    same("the key", known.map(|first| first.answer), Some(b"first".to_vec()))?;
    let other = scene.in_state(State::DeadLetter).await?;
    let before = scene.all_of(other.id).await?;
    for (hash, answer) in [([1; 32], Accepted::Twin(b"first".to_vec())), ([2; 32], Accepted::Conflict)] {
        let (copy, mut replacement) = scene.edited(&other).await?;
        replacement.idempotency = Some(key(hash));
        same("the answer", scene.replace(replacement).await?, Some(answer))?;
        same("the copy", scene.store.get(copy.id).await?, None)?;
        same("what is shown", scene.all_of(other.id).await?, before.clone())?;
    }
    Ok(())
}

async fn a_copy_that_cannot_be_stored_replaces_nothing(mut scene: Scene) -> Kept {
    let (original, taken) = (scene.in_state(State::DeadLetter).await?, scene.waiting().await?);
    let before = scene.all_of(original.id).await?;
    let (_, mut replacement) = scene.edited(&original).await?;
    replacement.copy = scene.arrival(&taken, at(20), None).await?;
    replacement.idempotency = Some(key([1; 32]));
    same("refused", scene.replace(replacement).await.is_err(), true)?;
    same("what is shown", scene.all_of(original.id).await?, before)?;
    same("the key", scene.store.idempotent(tenant("acme"), "again".to_owned(), at(20)).await?, None)
}
