//! Acts of people and programs, and their audit rows.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::act::{Effect, Letter, Resolution, Standing, effect};
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::flow::Bucket;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::planted::Planted;
use super::tables::{Ended, Row, Tables, corrupt};
use crate::store::{
    Accepted, Act, Acts, Audit, AuditRow, Change, DeadLetterView, Facts, HistoryEvent, LetterFacts, Progress,
    Replacement, Result, Seen,
};

#[async_trait]
impl Acts for ModelStore {
    async fn facts(&self, ids: Vec<NotificationId>) -> Result<Vec<Facts>> {
        let tables = self.lock();
        Ok(ids.into_iter().filter_map(|id| tables.facts_of(id)).collect())
    }

    async fn notification_of(&self, dead_letter: DeadLetterId) -> Result<Option<NotificationId>> {
        Ok(self.lock().dead_letters.get(&dead_letter).map(|dead| dead.notification.id))
    }

    async fn letter_facts(&self, dead_letters: Vec<DeadLetterId>) -> Result<Vec<Option<LetterFacts>>> {
        let tables = self.lock();
        let facts = |letter: &DeadLetterView| LetterFacts {
            notification: letter.notification.id,
            status: letter.status,
            deleted: letter.deleted_at.is_some(),
        };
        Ok(dead_letters.iter().map(|id| tables.dead_letters.get(id).map(facts)).collect())
    }

    async fn transition(
        &self,
        changes: Vec<Change>,
        actor: Option<String>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Vec<bool>> {
        self.lock().transition(changes, actor.as_deref(), audit, now)
    }

    async fn replace(
        &self,
        replacement: Replacement,
        actor: Option<String>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Option<Accepted>> {
        self.lock().whole_or_nothing(|tables| tables.replace_by(replacement, actor.as_deref(), audit, now))
    }
}

impl Tables {
    pub(super) fn facts_of(&self, id: NotificationId) -> Option<Facts> {
        let kept = self.notifications.get(&id)?;
        let lane = self.queue.get(&id).map_or(Lane::Main, |row| row.lane);
        Some(Facts {
            id,
            tenant: kept.notification.tenant.clone(),
            bucket: Bucket { flow: kept.flow, lane, priority: kept.notification.priority },
            standing: self.standing(id)?,
        })
    }

    fn standing(&self, id: NotificationId) -> Option<Standing> {
        let expires_at = self.notifications.get(&id)?.notification.expires_at;
        if let Some(row) = self.queue.get(&id) {
            return Some(Standing {
                state: row.state(),
                progress: row.progress,
                due: Some(row.due),
                expires_at,
                cancel_requested: row.cancel,
                reason: None,
                dead_letter: None,
            });
        }
        let ended = self.ended.get(&id)?;
        let letter = ended.dead_letter.and_then(|name| self.dead_letters.get(&name));
        Some(Standing {
            state: ended.state,
            progress: ended.progress,
            due: None,
            expires_at,
            cancel_requested: false,
            reason: ended.reason,
            dead_letter: letter.map(|dead| Letter {
                id: dead.id,
                status: dead.status,
                deleted: dead.deleted_at.is_some(),
                reason: Some(dead.reason),
                text: dead.text.clone(),
            }),
        })
    }

    fn transition(
        &mut self,
        changes: Vec<Change>,
        actor: Option<&str>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Vec<bool>> {
        let may_fail = self.any_taken(changes.iter().filter_map(buried_as));
        let asked = changes.len();
        let run = |tables: &mut Self| -> Result<Vec<bool>> {
            let one = |change| tables.act(change, actor, now);
            changes.into_iter().map(one).collect()
        };
        let made = if may_fail { self.whole_or_nothing(run) } else { run(self) }?;
        let count = made.iter().filter(|made| **made).count();
        if let Some(audit) = audit.filter(|_| count > 0) {
            self.write_audit(audit, asked, count);
        }
        Ok(made)
    }

    fn replace_by(
        &mut self,
        replacement: Replacement,
        actor: Option<&str>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Option<Accepted>> {
        let (change, copy) = (replacement.change(), replacement.copy.notification.id);
        let word = change.act.word();
        if self.possible(&change, now).is_none() {
            return Ok(None);
        }
        let accepted = self.take_in(replacement.request(), now, &mut BTreeSet::new())?;
        if accepted == Accepted::New {
            self.act(change, actor, now)?;
            self.note_act(copy, word, actor, Replacement::COPY, now);
            if let Some(audit) = audit {
                self.write_audit(audit, 1, 1);
            }
        }
        Ok(Some(accepted))
    }

    /// What a change does, if the notification is still as it was seen and the act fits.
    fn possible(&self, change: &Change, now: Timestamp) -> Option<Effect> {
        let standing = self.standing(change.id)?;
        if standing.seen() != change.seen && !self.has(Planted::ActWithoutLooking) {
            return None;
        }
        effect(&standing, &change.act, now).ok()
    }

    /// Makes one change if the notification is still as it was seen and the act fits.
    pub(super) fn act(&mut self, change: Change, actor: Option<&str>, now: Timestamp) -> Result<bool> {
        let Some(effect) = self.possible(&change, now) else { return Ok(false) };
        let Change { id, seen, act } = change;
        self.write_effect(id, &act, effect, actor, now)?;
        self.note_act(id, act.word(), actor, seen, now);
        Ok(true)
    }

    /// The act in the history of a notification.
    fn note_act(
        &mut self,
        id: NotificationId,
        word: Option<&str>,
        actor: Option<&str>,
        Seen { generation, attempt, .. }: Seen,
        at: Timestamp,
    ) {
        if let Some(word) = word {
            let (word, actor) = (word.to_owned(), actor.map(str::to_owned));
            let event = HistoryEvent { at, word, actor, generation, attempt };
            self.events.entry(id).or_default().push(event);
        }
    }

    fn write_effect(
        &mut self,
        id: NotificationId,
        act: &Act,
        effect: Effect,
        actor: Option<&str>,
        now: Timestamp,
    ) -> Result<()> {
        let arrow = || act.event().ok_or_else(|| corrupt(format!("{act:?} takes no arrow")));
        let row = |tables: &Self| {
            tables.queue.get(&id).cloned().ok_or_else(|| corrupt(format!("{id} is not in the queue")))
        };
        match effect {
            Effect::End { ending, progress } => self.end_as(id, arrow()?, ending, progress, now),
            Effect::MarkCancel => self.keep_state(Row { cancel: true, ..row(self)? }),
            Effect::MakeDue(due) => self.keep_state(Row { due, ..row(self)? }),
            Effect::Reopen { mut progress, letter } => {
                if *act == Act::Retry && self.has(Planted::RetryNumbersFromOne) {
                    progress = Progress { attempt: 1, base: 0, ..progress };
                }
                self.reopen(arrow()?, self.new_generation(id, progress, now))?;
                if !self.has(Planted::RequeueKeepsDeadLetterPending) {
                    self.resolve(letter, actor, now);
                }
                Ok(())
            }
            Effect::Amend { state, reason, text, letter } => {
                let before = self.ended.get(&id).cloned();
                let before = before.ok_or_else(|| corrupt(format!("{id} has not ended")))?;
                self.amend(id, arrow()?, Ended { state, reason, text, ..before })?;
                self.resolve(letter, actor, now);
                Ok(())
            }
        }
    }

    /// The first row of a new generation, due at once.
    fn new_generation(&self, id: NotificationId, progress: Progress, now: Timestamp) -> Row {
        let kept = &self.notifications[&id];
        Row {
            notification: kept.notification.clone(),
            flow: kept.flow,
            lane: Lane::Main,
            due: now,
            first_due: now,
            delay: Duration::ZERO,
            lease: None,
            progress,
            interruptions: 0,
            cancel: false,
        }
    }

    fn resolve(&mut self, letter: Option<Resolution>, actor: Option<&str>, now: Timestamp) {
        let Some(Resolution { id, status, deleted_at }) = letter else { return };
        let Some(dead) = self.dead_letters.get(&id).cloned() else { return };
        let resolved = status != DeadLetterStatus::Pending;
        let restored = !resolved && deleted_at.is_none();
        self.put_letter(DeadLetterView {
            status,
            deleted_at,
            restored_at: if restored { Some(now) } else { dead.restored_at },
            resolved_at: resolved.then_some(now),
            resolved_by: resolved.then(|| actor.unwrap_or(Audit::ITSELF).to_owned()),
            ..dead
        });
    }

    pub(super) fn write_audit(&mut self, audit: Audit, asked: usize, count: usize) {
        self.last_audit += 1;
        let number = self.last_audit;
        let [asked, count] =
            [asked, count].map(|n| u64::try_from(n).expect("a number of changes fits 64 bits"));
        self.audit.push(AuditRow { number, audit, asked, count });
    }
}

fn buried_as(change: &Change) -> Option<DeadLetterId> {
    match &change.act {
        Act::Bury { dead_letter, .. } => Some(*dead_letter),
        Act::Cancel
        | Act::RequestCancel
        | Act::RetryNow
        | Act::Expire
        | Act::Requeue
        | Act::Retry
        | Act::Discard
        | Act::Delete
        | Act::Replace { .. }
        | Act::Restore => None,
    }
}
