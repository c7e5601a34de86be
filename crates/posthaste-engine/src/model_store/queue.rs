//! The hot path: intern, accept, claim, settle, release.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::attempt::Attempt;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::flow::{FlowId, FlowKey, Quota};
use posthaste_core::group::{fingerprint, pattern};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::lease::{Lease, NodeId};
use posthaste_core::notification::Tenant;
use posthaste_core::reason::Reason;
use posthaste_core::state::{Event, Lane};
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::planted::Planted;
use super::tables::{Ended, Key, Row, Tables, corrupt};
use crate::store::{
    Acceptance, Accepted, Arrival, ClaimResult, DeadLetterView, Ending, FirstAnswer, Held, Idempotency,
    KnownFlow, Next, Progress, Queue, Request, Result, Settled, Settlement,
};

#[async_trait]
impl Queue for ModelStore {
    async fn intern(&self, flows: Vec<FlowKey>) -> Result<Vec<FlowId>> {
        Ok(self.lock().intern(flows))
    }

    async fn flows(&self, flows: Vec<FlowId>) -> Result<Vec<KnownFlow>> {
        let wanted: BTreeSet<FlowId> = flows.into_iter().collect();
        let tables = self.lock();
        let known = |id| Some(KnownFlow { id, key: tables.flows.get(&id)?.clone() });
        Ok(wanted.into_iter().filter_map(known).collect())
    }

    async fn accept(&self, requests: Vec<Request>, now: Timestamp) -> Result<Acceptance> {
        self.lock().accept(requests, now)
    }

    async fn claim(&self, quotas: Vec<Quota>, lease: Lease, now: Timestamp) -> Result<ClaimResult> {
        self.lock().claim(quotas, lease, now)
    }

    async fn settle(&self, batch: Vec<Settlement>, now: Timestamp) -> Result<Vec<Settled>> {
        self.lock().settle(batch, now)
    }

    async fn release(&self, lease: Lease, only: Option<Vec<NotificationId>>) -> Result<usize> {
        self.lock().release(lease, only)
    }

    async fn held(&self, node: NodeId, after: Option<NotificationId>, limit: usize) -> Result<Vec<Held>> {
        let held = self.lock().held_by(node);
        let mut held: Vec<Held> =
            held.into_iter().map(|(lease, id)| Held { id, fence: lease.fence }).collect();
        held.retain(|row| after.is_none_or(|after| row.id > after));
        held.sort_unstable();
        held.truncate(limit);
        Ok(held)
    }

    async fn idempotent(&self, tenant: Tenant, key: String, now: Timestamp) -> Result<Option<FirstAnswer>> {
        let tables = self.lock();
        let known = tables.keys.get(&(tenant, key));
        let known = known.filter(|key| now.since(key.first_used) < Idempotency::LIFE);
        Ok(known.map(|key| FirstAnswer { hash: key.hash, answer: key.answer.clone() }))
    }
}

impl Tables {
    fn intern(&mut self, keys: Vec<FlowKey>) -> Vec<FlowId> {
        let number = |key: FlowKey| {
            let next = FlowId(i64::try_from(self.flows.len()).expect("fewer flows than i64::MAX") + 1);
            let flow = *self.flow_numbers.entry(key.clone()).or_insert(next);
            self.flows.entry(flow).or_insert(key);
            flow
        };
        keys.into_iter().map(number).collect()
    }

    fn accept(&mut self, requests: Vec<Request>, now: Timestamp) -> Result<Acceptance> {
        let mut given = BTreeSet::new();
        let mut ids = requests.iter().flat_map(|request| &request.arrivals).map(|new| new.notification.id);
        let may_fail = ids.any(|id| self.notifications.contains_key(&id) || !given.insert(id));
        let mut granted = BTreeSet::new();
        let run = |tables: &mut Self| {
            requests.into_iter().map(|new| tables.take_in(new, now, &mut granted)).collect::<Result<_>>()
        };
        let answers = if may_fail { self.whole_or_nothing(run) } else { run(self) }?;
        Ok(Acceptance { answers, granted: granted.into_iter().collect() })
    }

    pub(super) fn take_in(
        &mut self,
        request: Request,
        now: Timestamp,
        granted: &mut BTreeSet<NodeId>,
    ) -> Result<Accepted> {
        let answer = self.know_key(request.idempotency, now);
        if answer != Accepted::New {
            return Ok(answer);
        }
        for mut arrival in request.arrivals {
            arrival.lease = arrival.lease.filter(|lease| self.may_hold(*lease));
            granted.extend(arrival.lease.map(|lease| lease.node));
            self.enter(first_row(arrival))?;
        }
        Ok(Accepted::New)
    }

    /// Keeps a key that is new; tells the answer of one that is known.
    pub(super) fn know_key(&mut self, idempotency: Option<Idempotency>, now: Timestamp) -> Accepted {
        let Some(idempotency) = idempotency else { return Accepted::New };
        let name = (idempotency.tenant, idempotency.key);
        let known = self.keys.get(&name).filter(|key| now.since(key.first_used) < Idempotency::LIFE);
        match known {
            Some(key) if key.hash != idempotency.hash => return Accepted::Conflict,
            Some(key) if !self.has(Planted::TwinStoredTwice) => return Accepted::Twin(key.answer.clone()),
            Some(_) | None => {}
        }
        let Idempotency { hash, answer, .. } = idempotency;
        self.keys.insert(name, Key { first_used: now, hash, answer });
        Accepted::New
    }

    fn claim(&mut self, quotas: Vec<Quota>, lease: Lease, now: Timestamp) -> Result<ClaimResult> {
        // The model has no damaged rows, so nothing is ever set aside.
        let mut claimed = ClaimResult::default();
        if !self.may_hold(lease) {
            return Ok(claimed);
        }
        for quota in quotas {
            for id in self.claimable(quota, now) {
                let mut row = self.queue[&id].clone();
                row.lease = Some(lease);
                claimed.claimed.push(row.claimed(lease));
                if self.has(Planted::ClaimIgnoresLease) {
                    self.replace(row);
                } else {
                    self.change(Event::Claim, row)?;
                }
            }
        }
        Ok(claimed)
    }

    /// Whether a lease can be granted: to a node that is gone it could not, for nobody would ever take it back.
    fn may_hold(&self, lease: Lease) -> bool {
        self.has(Planted::GrantsToTheDead) || self.nodes.get(&lease.node).is_some_and(|node| !node.dead)
    }

    /// Rows of the bucket that nobody holds and that are due, the longest due first.
    fn claimable(&self, quota: Quota, now: Timestamp) -> Vec<NotificationId> {
        let limit = usize::try_from(quota.limit).unwrap_or(usize::MAX);
        let until = if self.has(Planted::ClaimIgnoresDue) { Timestamp::MAX } else { now };
        if self.has(Planted::ClaimIgnoresLease) {
            let fits = |row: &&Row| row.bucket() == quota.bucket && row.due <= until;
            let mut rows: Vec<&Row> = self.queue.values().filter(fits).collect();
            rows.sort_by_key(|row| (row.due, row.notification.id));
            return rows.into_iter().take(limit).map(|row| row.notification.id).collect();
        }
        let due = (quota.bucket, Timestamp::MIN, NotificationId::FIRST)
            ..=(quota.bucket, until, NotificationId::LAST);
        self.waiting.range(due).take(limit).map(|(_, _, id)| *id).collect()
    }

    fn settle(&mut self, batch: Vec<Settlement>, now: Timestamp) -> Result<Vec<Settled>> {
        let repeats = batch.iter().any(|item| self.has_attempt(item));
        let may_fail = repeats || self.any_taken(batch.iter().filter_map(buried_as));
        let run = |tables: &mut Self| batch.into_iter().map(|item| tables.settle_one(item, now)).collect();
        if may_fail { self.whole_or_nothing(run) } else { run(self) }
    }

    fn settle_one(&mut self, item: Settlement, now: Timestamp) -> Result<Settled> {
        let Some(row) = self.queue.get(&item.id).filter(|row| self.may_settle(row, item.lease)) else {
            return Ok(Settled::LeaseLost);
        };
        if row.cancel && !item.cancel_seen && !self.has(Planted::CancelFlagIgnored) {
            return Ok(Settled::CancelRequested);
        }
        let mut row = row.clone();
        let last_made = item.attempt.as_ref().map_or(row.attempts_made(), |attempt| attempt.number);
        self.keep_attempt(&item)?;
        match item.next {
            Next::Retry { due, delay } => {
                row.lane = Lane::Retry;
                row.lease = None;
                row.due = due;
                row.delay = delay;
                row.interruptions = 0;
                row.cancel = false;
                if !self.has(Planted::RetryKeepsAttemptNumber) {
                    row.progress.attempt += 1;
                }
                self.change(Event::ScheduleRetry, row)?;
            }
            Next::End(ending) => {
                let event = ending_event(&ending);
                let progress = Progress { attempt: last_made, ..row.progress };
                self.end_as(item.id, event, ending, progress, now)?;
            }
        }
        Ok(Settled::Applied)
    }

    fn release(&mut self, lease: Lease, only: Option<Vec<NotificationId>>) -> Result<usize> {
        let is_named = |id: &NotificationId| only.as_ref().is_none_or(|only| only.contains(id));
        let grant = self
            .held
            .range((lease, NotificationId::FIRST)..=(lease, NotificationId::LAST))
            .map(|(_, id)| *id);
        let ids: Vec<NotificationId> = grant.filter(is_named).collect();
        for id in &ids {
            self.give_back(*id)?;
        }
        Ok(ids.len())
    }

    fn may_settle(&self, row: &Row, lease: Lease) -> bool {
        row.lease == Some(lease) || (self.has(Planted::SettleWithoutFence) && row.lease.is_some())
    }

    fn has_attempt(&self, item: &Settlement) -> bool {
        let Some(attempt) = &item.attempt else { return false };
        let attempts = self.attempts.get(&item.id);
        attempts.is_some_and(|known| known.contains_key(&(attempt.generation, attempt.number)))
    }

    fn keep_attempt(&mut self, item: &Settlement) -> Result<()> {
        let Some(attempt) = &item.attempt else { return Ok(()) };
        if self.has_attempt(item) {
            let (generation, number) = (attempt.generation, attempt.number);
            return Err(corrupt(format!("{} has attempt {generation}.{number} already", item.id)));
        }
        if !self.has(Planted::AttemptRowLost) {
            let attempts = self.attempts.entry(item.id).or_default();
            attempts.insert((attempt.generation, attempt.number), attempt.clone());
        }
        Ok(())
    }

    /// A row leaves the queue; if it is buried, its dead letter appears in the same step.
    pub(super) fn end_as(
        &mut self,
        id: NotificationId,
        event: Event,
        ending: Ending,
        progress: Progress,
        now: Timestamp,
    ) -> Result<()> {
        let state = ending.state();
        let (reason, text, dead_letter) = match ending {
            Ending::Delivered | Ending::Cancelled | Ending::Expired => (None, None, None),
            Ending::Failed { reason, text } => (Some(reason), Some(text), None),
            Ending::Buried { dead_letter, reason, text } => (Some(reason), Some(text), Some(dead_letter)),
        };
        if let (Some(name), Some(reason), Some(text)) = (dead_letter, reason, &text)
            && !self.has(Planted::LostDeadLetter)
        {
            self.bury(name, id, progress.generation, (reason, text))?;
        }
        let last = self.attempts.get(&id).and_then(|made| made.values().next_back());
        let failure_type = last.and_then(|attempt| attempt.outcome.failure_type());
        let status_code = last.and_then(|attempt| attempt.status_code);
        let ended = Ended { state, at: now, progress, reason, text, dead_letter, failure_type, status_code };
        self.end(id, event, ended)
    }

    fn bury(
        &mut self,
        name: DeadLetterId,
        id: NotificationId,
        generation: u32,
        (reason, text): (Reason, &str),
    ) -> Result<()> {
        if self.dead_letters.contains_key(&name) {
            return Err(corrupt(format!("{name} exists already")));
        }
        let made = self.attempts.get(&id).into_iter().flat_map(|made| made.values());
        let made = made.filter(|attempt| attempt.generation == generation).cloned();
        let attempts: Vec<Attempt> = made.map(Attempt::without_response).collect();
        let last = attempts.last();
        let failure_type = last.and_then(|attempt| attempt.outcome.failure_type());
        let status_code = last.and_then(|attempt| attempt.status_code);
        let print = fingerprint(reason, failure_type, status_code, &pattern(text));
        let dead_letter = DeadLetterView {
            id: name,
            notification: self.notifications[&id].notification.clone(),
            reason,
            text: text.to_owned(),
            failure_type,
            status_code,
            attempts,
            status: DeadLetterStatus::Pending,
            created_at: name.made_at(),
            resolved_at: None,
            resolved_by: None,
            fingerprint: Some(print),
            deleted_at: None,
            restored_at: None,
        };
        self.put_letter(dead_letter);
        Ok(())
    }
}

fn first_row(arrival: Arrival) -> Row {
    Row {
        notification: arrival.notification,
        flow: arrival.flow,
        lane: Lane::Main,
        due: arrival.due,
        first_due: arrival.due,
        delay: Duration::ZERO,
        lease: arrival.lease,
        progress: Progress::START,
        interruptions: 0,
        cancel: false,
    }
}

fn buried_as(item: &Settlement) -> Option<DeadLetterId> {
    match &item.next {
        Next::End(Ending::Buried { dead_letter, .. }) => Some(*dead_letter),
        Next::End(_) | Next::Retry { .. } => None,
    }
}

const fn ending_event(ending: &Ending) -> Event {
    match ending {
        Ending::Delivered => Event::Deliver,
        Ending::Cancelled => Event::Cancel,
        Ending::Expired => Event::Expire,
        Ending::Failed { .. } => Event::Fail,
        Ending::Buried { .. } => Event::Bury,
    }
}
