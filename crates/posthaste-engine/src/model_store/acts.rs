//! Acts of people and programs, and their audit rows.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::flow::Bucket;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::reason::Reason;
use posthaste_core::state::{Event, Lane, State};
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::planted::Planted;
use super::tables::{Ended, Row, Tables};
use crate::store::{
    Act, Acts, Audit, AuditRow, Change, DeadLetterView, Ending, Facts, HistoryEvent, Progress, Result, Seen,
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

    async fn transition(
        &self,
        changes: Vec<Change>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Vec<bool>> {
        self.lock().transition(changes, audit, now)
    }
}

impl Tables {
    fn facts_of(&self, id: NotificationId) -> Option<Facts> {
        let kept = self.notifications.get(&id)?;
        let (row, ended) = (self.queue.get(&id), self.ended.get(&id));
        let lane = row.map_or(Lane::Main, |row| row.lane);
        Some(Facts {
            id,
            tenant: kept.notification.tenant.clone(),
            bucket: Bucket { flow: kept.flow, lane, priority: kept.notification.priority },
            seen: self.seen(id)?,
            expires_at: kept.notification.expires_at,
            cancel_requested: row.is_some_and(|row| row.cancel),
            reason: ended.and_then(|ended| ended.reason),
            dead_letter: ended.and_then(|ended| self.letter_of(ended)).map(|dead| (dead.id, dead.status)),
        })
    }

    fn transition(
        &mut self,
        changes: Vec<Change>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> Result<Vec<bool>> {
        let may_fail = self.any_taken(changes.iter().filter_map(buried_as));
        let asked = changes.len();
        let actor = audit.as_ref().map(|audit| audit.actor.clone());
        let run = |tables: &mut Self| -> Result<Vec<bool>> {
            let one = |change| tables.act(change, actor.as_deref(), now);
            changes.into_iter().map(one).collect()
        };
        let made = if may_fail { self.whole_or_nothing(run) } else { run(self) }?;
        let count = made.iter().filter(|made| **made).count();
        if let Some(audit) = audit.filter(|_| count > 0) {
            self.write_audit(audit, asked, count);
        }
        Ok(made)
    }

    /// Makes one change if the notification is still as it was seen and the act fits its state.
    fn act(&mut self, change: Change, actor: Option<&str>, now: Timestamp) -> Result<bool> {
        let Change { id, seen, act } = change;
        let blind = self.has(Planted::ActWithoutLooking) && self.seen(id).is_some();
        if self.seen(id) != Some(seen) && !blind {
            return Ok(false);
        }
        let word = act.word();
        let made = match act {
            Act::Cancel => self.end_waiting(id, Event::Cancel, Ending::Cancelled, now)?,
            Act::Expire => self.end_waiting(id, Event::Expire, Ending::Expired, now)?,
            Act::Bury { dead_letter, reason, text } => {
                self.end_waiting(id, Event::Bury, Ending::Buried { dead_letter, reason, text }, now)?
            }
            Act::RequestCancel => self.request_cancel(id)?,
            Act::RetryNow => self.retry_now(id, now)?,
            Act::Requeue => self.requeue(id, actor, now)?,
            Act::Retry => self.retry(id, actor, now)?,
            Act::Discard => self.discard(id, actor, now)?,
            Act::Restore => self.restore(id)?,
        };
        if let Some(word) = word.filter(|_| made) {
            let Seen { generation, attempt, .. } = seen;
            let actor = actor.map(str::to_owned);
            let event = HistoryEvent { at: now, word: word.to_owned(), actor, generation, attempt };
            self.events.entry(id).or_default().push(event);
        }
        Ok(made)
    }

    fn end_waiting(&mut self, id: NotificationId, event: Event, how: Ending, now: Timestamp) -> Result<bool> {
        let Some(row) = self.queue.get(&id).filter(|row| row.lease.is_none()) else { return Ok(false) };
        let progress = Progress { attempt: row.attempts_made(), ..row.progress };
        self.end_as(id, event, how, progress, now)?;
        Ok(true)
    }

    fn request_cancel(&mut self, id: NotificationId) -> Result<bool> {
        let Some(row) = self.queue.get(&id).filter(|row| row.lease.is_some()) else { return Ok(false) };
        self.keep_state(Row { cancel: true, ..row.clone() })?;
        Ok(true)
    }

    fn retry_now(&mut self, id: NotificationId, now: Timestamp) -> Result<bool> {
        let scheduled = self.queue.get(&id).filter(|row| row.state() == State::RetryScheduled);
        let Some(row) = scheduled else { return Ok(false) };
        self.keep_state(Row { due: row.due.min(now), ..row.clone() })?;
        Ok(true)
    }

    fn requeue(&mut self, id: NotificationId, actor: Option<&str>, now: Timestamp) -> Result<bool> {
        let Some(ended) = self.ended_in(id, &[State::DeadLetter]) else { return Ok(false) };
        let progress = Progress { generation: ended.progress.generation + 1, attempt: 1, base: 0 };
        let row = self.new_generation(id, progress, now);
        self.reopen(Event::Requeue, row)?;
        if !self.has(Planted::RequeueKeepsDeadLetterPending) {
            self.resolve(&ended, DeadLetterStatus::Requeued, actor, now);
        }
        Ok(true)
    }

    fn retry(&mut self, id: NotificationId, actor: Option<&str>, now: Timestamp) -> Result<bool> {
        let Some(ended) = self.ended_in(id, &[State::DeadLetter, State::Failed]) else { return Ok(false) };
        let last = if self.has(Planted::RetryNumbersFromOne) { 0 } else { ended.progress.attempt };
        let generation = ended.progress.generation + 1;
        let row = self.new_generation(id, Progress { generation, attempt: last + 1, base: last }, now);
        self.reopen(Event::Retry, row)?;
        if self.letter_of(&ended).is_some_and(|dead| dead.status == DeadLetterStatus::Pending) {
            self.resolve(&ended, DeadLetterStatus::Requeued, actor, now);
        }
        Ok(true)
    }

    fn discard(&mut self, id: NotificationId, actor: Option<&str>, now: Timestamp) -> Result<bool> {
        let Some(ended) = self.ended_in(id, &[State::DeadLetter]) else { return Ok(false) };
        let given_up = Ended {
            state: State::Failed,
            reason: Some(Reason::Discarded),
            text: Some(Reason::Discarded.words().to_owned()),
            ..ended.clone()
        };
        self.amend(id, Event::Discard, given_up)?;
        self.resolve(&ended, DeadLetterStatus::Cancelled, actor, now);
        Ok(true)
    }

    fn restore(&mut self, id: NotificationId) -> Result<bool> {
        let failed = self.ended_in(id, &[State::Failed]);
        let Some(ended) = failed.filter(|ended| ended.reason == Some(Reason::Discarded)) else {
            return Ok(false);
        };
        let letter = ended.dead_letter.and_then(|name| self.dead_letters.get_mut(&name));
        let Some(dead) = letter.filter(|dead| dead.status == DeadLetterStatus::Cancelled) else {
            return Ok(false);
        };
        dead.status = DeadLetterStatus::Pending;
        dead.resolved_at = None;
        dead.resolved_by = None;
        let (reason, text) = (Some(dead.reason), Some(dead.text.clone()));
        self.amend(id, Event::Restore, Ended { state: State::DeadLetter, reason, text, ..ended })?;
        Ok(true)
    }

    fn ended_in(&self, id: NotificationId, states: &[State]) -> Option<Ended> {
        self.ended.get(&id).filter(|ended| states.contains(&ended.state)).cloned()
    }

    fn letter_of(&self, ended: &Ended) -> Option<&DeadLetterView> {
        ended.dead_letter.and_then(|name| self.dead_letters.get(&name))
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

    fn resolve(&mut self, ended: &Ended, status: DeadLetterStatus, actor: Option<&str>, now: Timestamp) {
        if let Some(dead) = ended.dead_letter.and_then(|name| self.dead_letters.get_mut(&name)) {
            dead.status = status;
            dead.resolved_at = Some(now);
            dead.resolved_by = Some(actor.unwrap_or(Audit::ITSELF).to_owned());
        }
    }

    pub(super) fn write_audit(&mut self, audit: Audit, asked: usize, count: usize) {
        let number = i64::try_from(self.audit.len()).expect("fewer audit rows than i64::MAX") + 1;
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
        | Act::Restore => None,
    }
}
