//! Sending: one task a notification, from the last look before the send to the report of its outcome.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::{Attempt, Outcome, QuickTry};
use posthaste_core::classify::{Overrides, Verdict, classify};
use posthaste_core::policy::{Decision, Policy, is_past, quick};
use posthaste_core::reply::{Fault, Reply};
use posthaste_core::time::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::caught::{Caught, Panicked};
use crate::channel::Delivery;
use crate::engine::Shared;
use crate::node::LeaseGone;
use crate::outcome::Finished;
use crate::planted::Planted;
use crate::settle::{Report, Unsent};
use crate::slots::InSlot;
use crate::store::Job;

/// The longest wait for a channel to become ready. After it the try is made all the same.
const LONGEST_READY: Duration = Duration::from_secs(10);

/// The loop: starts a task for each job and joins those that are done. When it is dropped, so are they.
pub(crate) async fn run(shared: Arc<Shared>, mut jobs: mpsc::UnboundedReceiver<InSlot>) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(joined) = running.join_next(), if !running.is_empty() => {
                if let Err(error) = joined {
                    tracing::error!(%error, "a task that sends was ended");
                }
            }
            next = jobs.recv() => match next {
                Some(next) => drop(running.spawn(work(shared.clone(), next))),
                None => return,
            },
        }
    }
}

/// Works on a notification and gives its slot back. Work that breaks down is a bug of ours: the node forgets the row, and the
/// next comparison of leases gives it back.
async fn work(shared: Arc<Shared>, InSlot { job, slot }: InSlot) {
    let (bytes, lease, id) = (job.bytes(), job.lease, job.notification.id);
    match Caught(Box::pin(report(&shared, job))).await {
        Ok(Some(report)) => {
            match &report {
                Report::Finished(_) => shared.slots.sent(&slot, bytes),
                Report::Release { .. } | Report::Unclear(_) => shared.slots.free(&slot),
            }
            let _ = shared.reports.send(report);
        }
        Ok(None) => {
            tracing::info!(%id, "lease lost before the send");
            shared.slots.free(&slot);
            shared.leases.done(lease, id);
        }
        Err(Panicked) => {
            tracing::error!(%id, "the work on a notification broke down; it is given back");
            shared.slots.free(&slot);
            shared.leases.done(lease, id);
        }
    }
}

/// What to record; none if the lease is gone.
async fn report(shared: &Shared, job: Job) -> Option<Report> {
    let policy = shared.policies.of(&job.notification);
    let step = match Caught(Box::pin(attempt(shared, &job, &policy))).await {
        Ok(step) => step,
        Err(Panicked) => Ok(broken_down(shared, &job)),
    };
    match step {
        Ok(Step::Send(verdict, attempt)) => {
            shared.counts.attempted(&attempt);
            // The attempt took its time; what is decided now goes by the policy of now.
            let policy = shared.policies.of(&job.notification);
            Some(Report::Finished(Box::new(Finished::after(shared, job, policy, verdict, attempt))))
        }
        Ok(Step::End(decision)) => {
            Some(Report::Finished(Box::new(Finished::unsent(shared, job, policy, decision))))
        }
        Ok(Step::GiveBack) => Some(Report::Release { lease: job.lease, rows: vec![Unsent::from(&job)] }),
        Err(LeaseGone) => None,
    }
}

/// How the work on a job went.
enum Step {
    /// It was sent, and this came of it.
    Send(Verdict, Attempt),
    /// It must not be sent any more.
    End(Decision),
    /// The node is stopping and has not sent it.
    GiveBack,
}

async fn attempt(shared: &Shared, job: &Job, policy: &Policy) -> Result<Step, LeaseGone> {
    let mut tries: Vec<QuickTry> = Vec::new();
    let mut waited = Duration::ZERO;
    let mut began = None;
    loop {
        let ready = ready(shared, job).await;
        shared.recording.wait(|on| (on || shared.is_draining()).then_some(())).await;
        if !shared.has(Planted::SendWithoutLease) {
            shared.node.hold(job.lease, policy.timeout.min(shared.settings.surely())).await?;
        }
        if began.is_none() {
            if shared.is_draining() {
                return Ok(Step::GiveBack);
            }
            if let Some(decision) = Finished::before_send(shared, job, policy) {
                return Ok(Step::End(decision));
            }
        }
        let started_at = shared.node.now();
        let began_at = *began.get_or_insert_with(|| {
            shared.counts.began(job.lane, started_at.since(job.due));
            started_at
        });
        let reply = match ready {
            Ok(()) => send(shared, job, policy.timeout).await,
            Err(unsent) => unsent,
        };
        let now = shared.node.now();
        let verdict = shared.judge(job, &reply);
        let made = u32::try_from(tries.len()).unwrap_or(u32::MAX);
        let wait = match verdict {
            Verdict::Delivered => None,
            Verdict::Failed(_) => quick::next(&policy.quick, &reply, made, waited, now, shared.draw()),
        };
        let in_time = |wait: &Duration| !is_past(job.notification.expires_at, now.later(*wait));
        let Some(wait) = wait.filter(in_time) else {
            return Ok(Step::Send(verdict, record(job, began_at, now, verdict, &reply, tries)));
        };
        tries.extend(quick_try(started_at, now, verdict, &reply));
        waited = waited.saturating_add(wait);
        tokio::time::sleep(wait).await;
    }
}

/// A channel that panics is a bug of ours and says nothing about the recipient: the attempt counts as failed without a
/// known reason, and the node goes on.
fn broken_down(shared: &Shared, job: &Job) -> Step {
    let reply = Reply::Fault { fault: Fault::Broken, text: "the delivery broke down".to_owned() };
    let (now, verdict) = (shared.node.now(), shared.judge(job, &reply));
    Step::Send(verdict, record(job, now, now, verdict, &reply, Vec::new()))
}

impl Shared {
    fn judge(&self, job: &Job, reply: &Reply) -> Verdict {
        let none = Overrides::default();
        classify(reply, self.overrides.get(&job.notification.channel).unwrap_or(&none))
    }
}

/// Waits until the channel can make the try at once. That is no part of the try's time, and a drain does not wait for it.
async fn ready(shared: &Shared, job: &Job) -> Result<(), Reply> {
    let Some(channel) = shared.channels.get(&job.notification.channel) else { return Ok(()) };
    let ready = tokio::time::timeout(LONGEST_READY, channel.ready(&job.notification));
    tokio::select! {
        biased;
        ready = ready => ready.unwrap_or(Ok(())),
        () = shared.recording.wait(|_| shared.is_draining().then_some(())) => Ok(()),
    }
}

/// One try, ended by our own deadline if the channel does not keep it. A long one may begin under a lease that does not
/// outlast it, for heartbeats make the lease last; if they fail, the try ends with the lease, for then another node may send it.
async fn send(shared: &Shared, job: &Job, timeout: Duration) -> Reply {
    let Some(channel) = shared.channels.get(&job.notification.channel) else {
        let text = format!("no provider is configured for {}", job.notification.channel);
        return Reply::Fault { fault: Fault::Unsendable, text };
    };
    let delivery = Delivery {
        notification: job.notification.clone(),
        attempt: job.progress.attempt,
        at: shared.node.now(),
        timeout,
    };
    let ended = async {
        if timeout <= shared.settings.surely() {
            std::future::pending().await
        } else {
            shared.node.lapsed(job.lease).await
        }
    };
    let text = tokio::select! {
        biased;
        reply = tokio::time::timeout(timeout, channel.send(delivery)) => match reply {
            Ok(reply) => return reply,
            Err(_) => format!("no answer within {timeout:?}"),
        },
        () = ended => "cut off without an answer: this node could not reach its store for too long".to_owned(),
    };
    Reply::Fault { fault: Fault::Timeout, text }
}

fn record(
    job: &Job,
    started_at: Timestamp,
    now: Timestamp,
    verdict: Verdict,
    reply: &Reply,
    quick_tries: Vec<QuickTry>,
) -> Attempt {
    let (outcome, error) = match verdict {
        Verdict::Delivered => (Outcome::Delivered, None),
        Verdict::Failed(failure) => {
            (Outcome::Failed(failure.failure_type), Some(Attempt::excerpt(&reply.words())))
        }
    };
    Attempt {
        generation: job.progress.generation,
        number: job.progress.attempt,
        started_at,
        duration: now.since(started_at),
        outcome,
        status_code: reply.status_code(),
        error,
        quick_tries,
        provider: None,
        message_id: None,
        response: None,
    }
}

fn quick_try(started_at: Timestamp, now: Timestamp, verdict: Verdict, reply: &Reply) -> Option<QuickTry> {
    let Verdict::Failed(failure) = verdict else { return None };
    Some(QuickTry {
        started_at,
        duration_ms: u64::try_from(now.since(started_at).as_millis()).unwrap_or(u64::MAX),
        failure_type: failure.failure_type,
        status_code: reply.status_code(),
        error: Some(Attempt::excerpt(&reply.words())),
    })
}
