//! From what a channel saw to what the store writes down. The decision itself is core's.

use std::sync::Arc;

use posthaste_core::attempt::Attempt;
use posthaste_core::classify::Verdict;
use posthaste_core::id::DeadLetterId;
use posthaste_core::policy::{BeforeSend, Decision, Policy, Situation, decide, decide_before_send};
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;

use crate::engine::Shared;
use crate::store::{Ending, Job, Next, Settlement};

/// What was made of a job.
#[derive(Debug)]
enum Made {
    /// An attempt.
    Sent(Verdict, Attempt),
    /// Nothing, because this was decided before it was sent.
    Unsent(Decision),
}

/// A job that is done, with everything needed to decide, and to decide again should a request to cancel turn up.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) job: Job,
    policy: Arc<Policy>,
    made: Made,
    dead_letter: DeadLetterId,
    now: Timestamp,
    draw: f64,
}

impl Finished {
    /// A job that was sent.
    pub(crate) fn after(
        shared: &Shared,
        job: Job,
        policy: Arc<Policy>,
        verdict: Verdict,
        attempt: Attempt,
    ) -> Self {
        Self::new(shared, job, policy, Made::Sent(verdict, attempt))
    }

    /// A job that must not be sent any more.
    pub(crate) fn unsent(shared: &Shared, job: Job, policy: Arc<Policy>, decision: Decision) -> Self {
        Self::new(shared, job, policy, Made::Unsent(decision))
    }

    fn new(shared: &Shared, job: Job, policy: Arc<Policy>, made: Made) -> Self {
        let now = shared.node.latest();
        let dead_letter = DeadLetterId::new(now, shared.random());
        Self { job, policy, made, dead_letter, now, draw: shared.draw() }
    }

    /// What to do with a job instead of sending it, if it must not be sent.
    pub(crate) fn before_send(job: &Job, policy: &Policy, now: Timestamp) -> Option<Decision> {
        decide_before_send(policy, &before_send(job, now))
    }

    /// What the store is told.
    pub(crate) fn settlement(&self) -> Settlement {
        let (decision, attempt) = match &self.made {
            Made::Sent(verdict, attempt) => {
                (decide(&self.policy, &self.situation(), verdict), Some(attempt.clone()))
            }
            Made::Unsent(decided) => {
                let again = decide_before_send(&self.policy, &before_send(&self.job, self.now));
                (again.unwrap_or(*decided), None)
            }
        };
        Settlement {
            id: self.job.notification.id,
            lease: self.job.lease,
            cancel_seen: self.job.cancel_requested,
            attempt,
            next: self.next(decision),
        }
    }

    fn situation(&self) -> Situation {
        Situation {
            attempt: self.job.progress.attempt_in_generation(),
            now: self.now,
            first_due: self.job.first_due,
            expires_at: self.job.notification.expires_at,
            cancel_requested: self.job.cancel_requested,
            previous_delay: self.job.delay,
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

fn before_send(job: &Job, now: Timestamp) -> BeforeSend {
    BeforeSend {
        now,
        first_due: job.first_due,
        expires_at: job.notification.expires_at,
        cancel_requested: job.cancel_requested,
        interruptions: job.interruptions,
    }
}
