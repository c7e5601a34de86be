//! From what a channel saw to what the store writes down. The decision itself is core's.

use std::sync::Arc;

use posthaste_core::attempt::Attempt;
use posthaste_core::classify::Verdict;
use posthaste_core::id::DeadLetterId;
use posthaste_core::policy::{BeforeSend, Decision, Policy, Situation, decide, decide_before_send};
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;

use crate::engine::Shared;
use crate::store::{Claimed, Ending, Next, Settlement};

/// What was made of a claimed notification.
#[derive(Debug)]
enum Made {
    /// An attempt.
    Sent(Verdict, Attempt),
    /// Nothing, because this was decided before it was sent.
    Unsent(Decision),
}

/// A claimed notification that is done, with everything needed to decide, and to decide again should a request to cancel turn up.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) claimed: Claimed,
    policy: Arc<Policy>,
    made: Made,
    dead_letter: DeadLetterId,
    now: Timestamp,
    draw: f64,
}

impl Finished {
    /// A claimed notification that was sent.
    pub(crate) fn after(
        shared: &Shared,
        claimed: Claimed,
        policy: Arc<Policy>,
        verdict: Verdict,
        attempt: Attempt,
    ) -> Self {
        Self::new(shared, claimed, policy, Made::Sent(verdict, attempt))
    }

    /// A claimed notification that must not be sent any more.
    pub(crate) fn unsent(shared: &Shared, claimed: Claimed, policy: Arc<Policy>, decision: Decision) -> Self {
        Self::new(shared, claimed, policy, Made::Unsent(decision))
    }

    fn new(shared: &Shared, claimed: Claimed, policy: Arc<Policy>, made: Made) -> Self {
        let now = shared.node.latest();
        let dead_letter = DeadLetterId::new(now, shared.random());
        Self { claimed, policy, made, dead_letter, now, draw: shared.draw() }
    }

    /// What to do with a claimed notification instead of sending it, if it must not be sent.
    pub(crate) fn before_send(claimed: &Claimed, policy: &Policy, now: Timestamp) -> Option<Decision> {
        decide_before_send(policy, &before_send(claimed, now))
    }

    /// The settlement for the store.
    pub(crate) fn settlement(&self) -> Settlement {
        let (decision, attempt) = match &self.made {
            Made::Sent(verdict, attempt) => {
                (decide(&self.policy, &self.situation(), verdict), Some(attempt.clone()))
            }
            Made::Unsent(decided) => {
                let again = decide_before_send(&self.policy, &before_send(&self.claimed, self.now));
                (again.unwrap_or(*decided), None)
            }
        };
        Settlement {
            id: self.claimed.notification.id,
            lease: self.claimed.lease,
            cancel_seen: self.claimed.cancel_requested,
            attempt,
            next: self.next(decision),
        }
    }

    fn situation(&self) -> Situation {
        Situation {
            attempt: self.claimed.progress.attempt_in_generation(),
            now: self.now,
            first_due: self.claimed.first_due,
            expires_at: self.claimed.notification.expires_at,
            cancel_requested: self.claimed.cancel_requested,
            previous_delay: self.claimed.delay,
            draw: self.draw,
        }
    }

    fn next(&self, decision: Decision) -> Next {
        match decision {
            Decision::Complete => Next::End(Ending::Delivered),
            Decision::Cancel => Next::End(Ending::Cancelled),
            Decision::Expire => Next::End(Ending::Expired),
            Decision::RetryAt { due, delay } => Next::Retry { due, delay },
            Decision::Fail(reason) => Next::End(Ending::Failed { reason, text: self.text(reason) }),
            Decision::Bury(reason) => {
                Next::End(Ending::Buried { dead_letter: self.dead_letter, reason, text: self.text(reason) })
            }
        }
    }

    /// The last error in words; where there was no attempt, the reason.
    fn text(&self, reason: Reason) -> String {
        let error = match &self.made {
            Made::Sent(_, attempt) => attempt.error.clone(),
            Made::Unsent(_) => None,
        };
        error.unwrap_or_else(|| reason.words().to_owned())
    }
}

fn before_send(claimed: &Claimed, now: Timestamp) -> BeforeSend {
    BeforeSend {
        now,
        first_due: claimed.first_due,
        expires_at: claimed.notification.expires_at,
        cancel_requested: claimed.cancel_requested,
        interruptions: claimed.interruptions,
    }
}
