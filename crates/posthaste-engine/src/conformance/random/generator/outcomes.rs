//! Outcomes of attempts, acts on notifications, and settings.

use std::time::Duration;

use posthaste_core::attempt::{Attempt, Outcome, QuickTry, Response};
use posthaste_core::failure::FailureType;
use posthaste_core::id::KeyId;
use posthaste_core::lease::{Fence, Lease};
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use super::{Generator, Grant, TENANTS, tenant};
use crate::store::slice::Call;
use crate::store::{
    Act, Audit, Change, Ending, Facts, KeyUse, Next, Replacement, Seen, Settlement, Store, acts, key_uses,
    settings,
};

impl Generator {
    pub(super) fn settlements(&mut self) -> Vec<Settlement> {
        let count = self.rng.usize(1..6);
        let mut batch: Vec<Settlement> = vec![];
        for _ in 0..count {
            if let Some(grant) = self.some_grant() {
                let item = self.settlement(grant);
                batch.push(item);
            }
        }
        batch
    }

    fn settlement(&mut self, grant: Grant) -> Settlement {
        let Lease { node, fence } = grant.lease;
        let lease = match self.rng.u32(0..20) {
            0 => Lease { node, fence: Fence(fence.0 + 1) },
            1 => Lease { node: self.some_node(), fence },
            _ => grant.lease,
        };
        let next = self.next();
        let made = self.rng.u32(0..10) > 0;
        let attempt = made.then(|| self.attempt(grant, &next));
        let cancel_seen = self.rng.u32(0..3) == 0;
        Settlement { id: grant.id, lease, cancel_seen, attempt, next }
    }

    fn next(&mut self) -> Next {
        let text = format!("because {}", self.rng.u32(0..100));
        let reason = [Reason::MaxAttemptsExceeded, Reason::PermanentFailure][self.rng.usize(0..2)];
        match self.rng.u32(0..12) {
            0..5 => {
                let delay = Duration::from_micros(self.rng.u64(0..40_000_000));
                Next::Retry { due: self.now.later(delay), delay }
            }
            5..7 => Next::End(Ending::Delivered),
            7 => Next::End(Ending::Failed { reason, text }),
            8 => Next::End(Ending::Cancelled),
            9 => Next::End(Ending::Expired),
            _ => Next::End(Ending::Buried { dead_letter: self.new_grave(), reason, text }),
        }
    }

    fn attempt(&mut self, grant: Grant, next: &Next) -> Attempt {
        let delivered = *next == Next::End(Ending::Delivered);
        let failure = FailureType::ALL[self.rng.usize(..FailureType::ALL.len())];
        let quick_tries: Vec<QuickTry> = (0..self.rng.usize(..3)).map(|_| self.quick_try()).collect();
        let knows_last = !quick_tries.is_empty() && self.rng.bool();
        Attempt {
            generation: grant.generation,
            number: grant.attempt,
            started_at: self.now,
            duration: Duration::from_micros(self.rng.u64(0..9_000_000)),
            outcome: if delivered { Outcome::Delivered } else { Outcome::Failed(failure) },
            status_code: self.rng.bool().then(|| self.rng.u16(100..600)),
            error: self.rng.bool().then(|| format!("error {}", self.rng.u32(..))),
            quick_tries,
            last_try_at: knows_last.then_some(self.now),
            provider: self.rng.bool().then(|| format!("provider {}", self.rng.u32(0..3))),
            message_id: self.rng.bool().then(|| format!("<{}@provider>", self.rng.u32(..))),
            response: self.rng.bool().then(|| self.response()),
        }
    }

    fn quick_try(&mut self) -> QuickTry {
        QuickTry {
            started_at: self.now,
            duration_ms: self.rng.u64(..9_000),
            failure_type: FailureType::ALL[self.rng.usize(..FailureType::ALL.len())],
            status_code: self.rng.bool().then(|| self.rng.u16(100..600)),
            error: format!("error {}", self.rng.u32(..)),
        }
    }

    fn response(&mut self) -> Response {
        let content_type = self.rng.bool().then(|| "text/plain".to_owned());
        Response::new(content_type.as_deref(), &format!("answer {}", self.rng.u32(..)))
    }

    pub(super) async fn transition(&mut self, store: &dyn Store) -> acts::Call {
        let ids = self.some_ids(4);
        // A store that cannot answer shows its difference in the next step.
        let facts = store.facts(ids).await.unwrap_or_default();
        let changes = facts.iter().map(|facts| self.change(facts)).collect();
        let actor = self.rng.bool().then(|| "random".to_owned());
        let audit = self.rng.bool().then(|| self.audit("act"));
        acts::Call::Transition { changes, actor, audit, now: self.now }
    }

    /// An edited copy in place of something, mostly of a dead letter.
    pub(super) async fn replace(&mut self, store: &dyn Store) -> Call {
        let facts = store.facts(self.some_ids(12)).await.unwrap_or_default();
        let dead = facts.iter().find(|facts| facts.standing.state == State::DeadLetter);
        let Some(facts) = dead.or(facts.first()) else { return self.transition(store).await.into() };
        let Change { id, seen, .. } = self.change(facts);
        let lease = self.new_lease();
        let copy = self.arrival(lease);
        let idempotency = self.idempotency();
        let actor = self.rng.bool().then(|| "random".to_owned());
        let audit = self.rng.bool().then(|| self.audit("act"));
        let replacement = Replacement { id, seen, copy, idempotency };
        acts::Call::Replace { replacement, actor, audit, now: self.now }.into()
    }

    fn change(&mut self, facts: &Facts) -> Change {
        let act =
            if self.rng.u32(0..4) == 0 { self.any_act() } else { self.fitting_act(facts.standing.state) };
        let seen = match self.rng.u32(0..20) {
            0 => Seen { attempt: facts.standing.seen().attempt + 1, ..facts.standing.seen() },
            1 => Seen { generation: facts.standing.seen().generation + 1, ..facts.standing.seen() },
            2 => Seen { state: State::ALL[self.rng.usize(0..9)], ..facts.standing.seen() },
            _ => facts.standing.seen(),
        };
        Change { id: facts.id, seen, act }
    }

    fn fitting_act(&mut self, state: State) -> Act {
        let turn = self.rng.usize(0..3);
        match state {
            State::Pending => [Act::Cancel, Act::Expire, self.bury()][turn].clone(),
            State::RetryScheduled => [Act::RetryNow, Act::Cancel, self.bury()][turn].clone(),
            State::Processing | State::Retrying => Act::RequestCancel,
            State::DeadLetter => match self.rng.bool() {
                true => [Act::Requeue, Act::Retry, Act::Discard][turn].clone(),
                false => Act::Delete,
            },
            State::Failed => [Act::Retry, Act::Restore, Act::Restore][turn].clone(),
            State::Succeeded | State::Cancelled | State::Expired => self.any_act(),
        }
    }

    fn any_act(&mut self) -> Act {
        match self.rng.u32(0..10) {
            0 => Act::Cancel,
            1 => Act::RequestCancel,
            2 => Act::RetryNow,
            3 => Act::Expire,
            4 => self.bury(),
            5 => Act::Requeue,
            6 => Act::Retry,
            7 => Act::Discard,
            8 => Act::Delete,
            _ => Act::Restore,
        }
    }

    fn bury(&mut self) -> Act {
        let taken = (self.rng.u32(0..50) == 0).then(|| self.some_grave()).flatten();
        let dead_letter = taken.unwrap_or_else(|| self.new_grave());
        Act::Bury { dead_letter, reason: Reason::MaxAgeExceeded, text: "waited for too long".to_owned() }
    }

    pub(super) fn audit(&mut self, action: &str) -> Audit {
        let whose = TENANTS[self.rng.usize(..TENANTS.len())];
        Audit {
            tenant: self.rng.bool().then(|| tenant(whose)),
            actor: format!("actor {}", self.rng.u32(0..3)),
            action: action.to_owned(),
            target: "random".to_owned(),
            at: self.now,
            key_id: self.rng.bool().then(|| format!("key_{}", self.rng.u32(0..3))),
            address: self.rng.bool().then(|| "192.0.2.7".to_owned()),
        }
    }

    pub(super) fn put_setting(&mut self) -> Call {
        let name = format!("setting {}", self.rng.u32(0..4));
        // Few values, so that swaps meet the one that they expect.
        let value = self.rng.u32(0..3).to_string();
        match self.rng.u32(0..6) {
            0 => settings::Call::Put { name, value: None, audit: self.audit("set") }.into(),
            1 | 2 => settings::Call::Put { name, value: Some(value), audit: self.audit("set") }.into(),
            3 | 4 => {
                let from = (self.rng.u32(0..4) > 0).then(|| self.rng.u32(0..3).to_string());
                settings::Call::Swap { name, from, to: value, audit: self.audit("swap") }.into()
            }
            _ => self.note_key_uses().into(),
        }
    }

    fn note_key_uses(&mut self) -> key_uses::Call {
        let key = |rng: &mut fastrand::Rng| KeyId::new(Timestamp::from_millis(0), rng.u128(0..6));
        let (uses, gone) = (self.rng.usize(0..4), self.rng.usize(0..2));
        let uses = (0..uses).map(|_| KeyUse { key: key(&mut self.rng), at: self.some_time() });
        let uses = uses.collect();
        key_uses::Call::Note { uses, gone: (0..gone).map(|_| key(&mut self.rng)).collect() }
    }
}
