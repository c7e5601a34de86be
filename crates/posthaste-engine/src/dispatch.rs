//! Sending: one task a notification, from the last look before the send to the report of its outcome.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::attempt::{Attempt, Outcome, QuickTry};
use posthaste_core::breaker::Health;
use posthaste_core::classify::{Overrides, Verdict, classify};
use posthaste_core::policy::{Decision, Policy, quick};
use posthaste_core::provider::{NoProvider, Route};
use posthaste_core::reply::{Answer, Fault, Reply};
use posthaste_core::slots::Gated;
use posthaste_core::time::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::catch_panic::{CatchPanic, Panicked};
use crate::channel::{Channel, Delivery};
use crate::destinations::{self, May, ProbeInHand};
use crate::engine::Shared;
use crate::journal;
use crate::node::LeaseGone;
use crate::outcome::Finished;
use crate::planted::Planted;
use crate::settle::{Report, Unsent};
use crate::signing::{Signer, Unknown};
use crate::slots::{Held, InSlot};
use crate::store::Claimed;
use crate::vault::Opened;

/// The longest wait for a channel to become ready. After it the try is made all the same.
const LONGEST_READY: Duration = Duration::from_secs(10);

/// The loop: starts a task for each claimed notification and joins those that are done. When it is dropped, so are they.
pub(crate) async fn run(shared: Arc<Shared>, mut claimed: mpsc::UnboundedReceiver<InSlot>) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(joined) = running.join_next(), if !running.is_empty() => {
                if let Err(error) = joined {
                    tracing::error!(%error, "a task that sends was ended");
                }
            }
            next = claimed.recv() => match next {
                Some(next) => drop(running.spawn(work(shared.clone(), next))),
                None => return,
            },
        }
    }
}

/// Works on a notification and gives its slot back. Work that breaks down is a bug of ours: the node forgets the row, and the
/// next comparison of leases gives it back.
async fn work(shared: Arc<Shared>, InSlot { claimed, slot }: InSlot) {
    let (bytes, lease, id) = (claimed.bytes(), claimed.lease, claimed.notification.id);
    let mut held = Held::Slot(slot);
    match CatchPanic(Box::pin(report(&shared, claimed, &mut held))).await {
        Ok(Some(report)) => {
            match &report {
                Report::Finished(_) => shared.slots.sent(&held, bytes),
                Report::Release { .. } | Report::Unclear(_) => shared.slots.free(&held),
            }
            let _ = shared.reports.send(report);
        }
        Ok(None) => {
            tracing::info!(%id, "lease lost before the send");
            shared.slots.free(&held);
            shared.leases.done([(lease, id)]);
        }
        Err(Panicked) => {
            tracing::error!(%id, "the work on a notification broke down; it is given back");
            shared.slots.free(&held);
            shared.leases.done([(lease, id)]);
        }
    }
}

/// What to record; none if the lease is gone.
async fn report(shared: &Shared, claimed: Claimed, held: &mut Held) -> Option<Report> {
    let policy = shared.policies.of(&claimed.notification);
    let step = match CatchPanic(Box::pin(attempt(shared, &claimed, &policy, held))).await {
        Ok(step) => step,
        Err(Panicked) => Ok(broken_down(shared, &claimed, held)),
    };
    match step {
        Ok(Step::Send(verdict, attempt)) => {
            shared.counts.attempted(&attempt);
            // The attempt took its time; what is decided now goes by the policy of now.
            let policy = shared.policies.of(&claimed.notification);
            Some(Report::Finished(Box::new(Finished::after(shared, claimed, policy, verdict, attempt))))
        }
        Ok(Step::End(decision)) => {
            Some(Report::Finished(Box::new(Finished::unsent(shared, claimed, policy, decision))))
        }
        Ok(Step::GiveBack) => {
            Some(Report::Release { lease: claimed.lease, rows: vec![Unsent::from(&claimed)] })
        }
        Err(LeaseGone) => None,
    }
}

/// How the work on a claimed notification went.
enum Step {
    /// It was sent, and this came of it.
    Send(Verdict, Attempt),
    /// It must not be sent any more.
    End(Decision),
    /// It is not sent now: the node is stopping, or its destination is closed.
    GiveBack,
}

/// One try, and what came of it.
struct Try {
    started_at: Timestamp,
    ended_at: Timestamp,
    reply: Reply,
    verdict: Verdict,
}

async fn attempt(
    shared: &Shared,
    claimed: &Claimed,
    policy: &Policy,
    held: &mut Held,
) -> Result<Step, LeaseGone> {
    let Some(way) = supplied(shared, claimed, held).await else { return Ok(Step::GiveBack) };
    let place = way.as_ref().ok().map(|way| shared.destinations.place(claimed, &way.route));
    let ready = may_start(shared, claimed, policy, &way).await?;
    let mut began_at = shared.node.now();
    if shared.is_draining() {
        return Ok(Step::GiveBack);
    }
    if let Some(decision) = Finished::before_send(claimed, policy, began_at) {
        return Ok(Step::End(decision));
    }
    let mut probe = None;
    match place.map_or(May::Send, |place| may_send(shared, claimed, place, held)) {
        May::Send => {}
        May::Not if shared.has(Planted::ParkingSpends) => return Ok(broken_down(shared, claimed, held)),
        May::Not => return Ok(Step::GiveBack),
        May::Probe => {
            let Some(in_hand) = may_probe(shared, claimed, policy, place).await? else {
                return Ok(Step::GiveBack);
            };
            probe = Some(in_hand);
            began_at = shared.node.now();
        }
    }
    shared.counts.began(claimed.lane, began_at.since(claimed.due));
    journal::began(shared, claimed, began_at);
    let mut quick_tries: Vec<QuickTry> = Vec::new();
    let mut waited = Duration::ZERO;
    let mut last = make_try(shared, claimed, policy, ready, began_at).await;
    while probe.is_none()
        && let Some(wait) = quick_wait(shared, claimed, policy, &last, &quick_tries, waited)
    {
        // Silence that was asked for begins at once, for everybody.
        note(shared, claimed, policy, (&way, place), began_at, &last, Health::Unknown);
        if !place.is_none_or(|place| shared.is_well(place)) || !pause(shared, claimed, held, wait).await {
            break;
        }
        let ready = may_start(shared, claimed, policy, &way).await?;
        shared.meet_flow_of(claimed.flow, &claimed.notification);
        if !place.is_none_or(|place| shared.may_try_again(place)) || counts_elsewhere(place, held) {
            break;
        }
        quick_tries.extend(quick_try(&last));
        waited = waited.saturating_add(wait);
        last = make_try(shared, claimed, policy, ready, shared.node.now()).await;
    }
    let mut health = health_of(shared, claimed, policy, place, &last);
    if let Some(mut probe) = probe {
        // It is told by itself.
        (probe.health, health) = (health, Health::Unknown);
    }
    note(shared, claimed, policy, (&way, place), began_at, &last, health);
    Ok(Step::Send(last.verdict, record(claimed, way.as_ref().ok(), began_at, &last, quick_tries)))
}

/// What a try says about its destination. A provider serves all tenants, so it is not to blame for a timeout that a tenant or a
/// message made shorter than that of the channel.
fn health_of(
    shared: &Shared,
    claimed: &Claimed,
    policy: &Policy,
    place: Option<Gated>,
    last: &Try,
) -> Health {
    let is_timeout = matches!(last.reply.answer, Answer::Fault(Fault::Timeout));
    let is_shared = matches!(place, Some(Gated::Key(_)));
    if is_timeout
        && is_shared
        && policy.timeout < shared.policies.of_channel(claimed.notification.channel).timeout
    {
        return Health::Unknown;
    }
    Health::of(last.verdict, &last.reply)
}

/// Whether the attempt may begin. The safety net behind the slots: what they did not know of is asked here.
fn may_send(shared: &Shared, claimed: &Claimed, place: Gated, held: &Held) -> May {
    shared.meet_flow_of(claimed.flow, &claimed.notification);
    let (Held::Slot(slot) | Held::Paused(slot)) = held;
    let key = match place {
        Gated::Flow(_) => None,
        Gated::Key(key) => Some(key),
    };
    shared.may_send(place, slot.is_bounded && slot.key == key)
}

/// Whether the slot of a quick try was taken for another provider than the one that all tries of the attempt go to.
fn counts_elsewhere(place: Option<Gated>, held: &Held) -> bool {
    let (Held::Slot(slot) | Held::Paused(slot)) = held;
    match place {
        Some(Gated::Key(key)) => slot.key.is_some_and(|taken| taken != key),
        Some(Gated::Flow(_)) | None => false,
    }
}

/// Asks for the probe, and that the lease outlasts it. None if another node has it, or too little time is left for it.
async fn may_probe<'s>(
    shared: &'s Shared,
    claimed: &Claimed,
    policy: &Policy,
    place: Option<Gated>,
) -> Result<Option<ProbeInHand<'s>>, LeaseGone> {
    let Some(place) = place else { return Ok(None) };
    let Some(in_hand) = destinations::begin(shared, place, policy.timeout).await else { return Ok(None) };
    shared.node.hold(claimed.lease, policy.timeout.min(shared.settings.surely())).await?;
    let is_late = shared.node.latest().later(policy.timeout) > in_hand.until;
    Ok(Some(in_hand).filter(|_| !is_late && !shared.is_draining()))
}

/// Notes what a try says about its destination.
fn note(
    shared: &Shared,
    claimed: &Claimed,
    policy: &Policy,
    (way, place): (&Result<Way, Reply>, Option<Gated>),
    began_at: Timestamp,
    last: &Try,
    health: Health,
) {
    if let (Ok(way), Some(place)) = (way, place) {
        let seen = (last.verdict, &last.reply);
        shared.note(place, (claimed, &way.route), policy, (began_at, last.ended_at), seen, health);
    }
}

/// Where an attempt goes.
struct Way {
    route: Route,
    channel: Arc<dyn Channel>,
    opened: Opened,
    /// What signs its tries; none if nothing does.
    signer: Signer,
}

/// Chooses the way of an attempt: the provider that the slot was taken for, if it was. All its tries take the same. The reply is
/// the outcome of a try that cannot be made.
fn way(shared: &Shared, claimed: &Claimed, held: &Held) -> Result<Way, Reply> {
    let notification = &*claimed.notification;
    let name = notification.channel;
    let none = |none: NoProvider| Reply::fault(Fault::NoProvider, none.to_string());
    let (Held::Slot(slot) | Held::Paused(slot)) = held;
    let route = match slot.key.and_then(|key| shared.destinations.provider(key)) {
        Some(provider) => Route::Provider(provider.clone()),
        None => shared.pools.route(name, &notification.destination).map_err(none)?,
    };
    let channel = shared.channels.get(&name).ok_or_else(|| none(NoProvider::Empty(name)))?;
    Ok(Way { route, channel: channel.clone(), opened: Opened::default(), signer: None })
}

/// The way of an attempt with the secrets that its tries need. None if they cannot be read now: then it is not sent now.
async fn supplied(shared: &Shared, claimed: &Claimed, held: &Held) -> Option<Result<Way, Reply>> {
    let mut way = match way(shared, claimed, held) {
        Ok(way) => way,
        Err(unsendable) => return Some(Err(unsendable)),
    };
    match shared.vault().for_attempt(&claimed.notification).await {
        Ok(opened) => way.opened = opened?,
        Err(unsendable) => return Some(Err(unsendable)),
    }
    match shared.signer(&claimed.notification).await {
        Ok(signer) => way.signer = signer,
        Err(Unknown::Unavailable) => return None,
        Err(Unknown::Damaged(what)) => return Some(Err(Reply::fault(Fault::Broken, what))),
    }
    Some(Ok(way))
}

/// Waits until a try may start: the channel is ready for it, outcomes can be recorded, and the lease outlasts it. Returns the
/// reply instead where the try cannot be made, or the channel was waited for in vain.
async fn may_start<'w>(
    shared: &Shared,
    claimed: &Claimed,
    policy: &Policy,
    way: &'w Result<Way, Reply>,
) -> Result<Result<&'w Way, Reply>, LeaseGone> {
    let ready = match way {
        Ok(way) => ready(shared, claimed, way).await.map(|()| way),
        Err(unsendable) => Err(unsendable.clone()),
    };
    shared.recording.wait(|on| (on || shared.is_draining()).then_some(())).await;
    if !shared.has(Planted::SendWithoutLease) {
        shared.node.hold(claimed.lease, policy.timeout.min(shared.settings.surely())).await?;
    }
    Ok(ready)
}

async fn make_try(
    shared: &Shared,
    claimed: &Claimed,
    policy: &Policy,
    ready: Result<&Way, Reply>,
    started_at: Timestamp,
) -> Try {
    let (reply, verdict, was_sent) = match ready {
        Ok(way) => {
            let reply = send(shared, claimed, way, policy.timeout, started_at).await;
            let verdict = shared.judge(claimed, &way.route, &reply);
            (reply, verdict, true)
        }
        Err(unsent) => {
            let verdict = shared.judge(claimed, &Route::Direct, &unsent);
            (unsent, verdict, false)
        }
    };
    let made = Try { started_at, ended_at: shared.node.now(), reply, verdict };
    if was_sent {
        let took = made.ended_at.since(made.started_at);
        shared.counts.sent(claimed.notification.channel, outcome(made.verdict), took);
    }
    made
}

/// The wait before the next quick try, if there is one.
fn quick_wait(
    shared: &Shared,
    claimed: &Claimed,
    policy: &Policy,
    last: &Try,
    made: &[QuickTry],
    waited: Duration,
) -> Option<Duration> {
    if last.verdict == Verdict::Delivered {
        return None;
    }
    let so_far = quick::SoFar {
        repeats: u32::try_from(made.len()).unwrap_or(u32::MAX),
        waited,
        now: last.ended_at,
        expires_at: claimed.notification.expires_at,
    };
    quick::next(&policy.quick, &last.reply, &so_far, shared.draw())
}

/// Waits for the next quick try, without a slot. Returns false if none was free when the wait was over: then the attempt ends as
/// it stands. A drain does not wait for a slot.
async fn pause(shared: &Shared, claimed: &Claimed, held: &mut Held, wait: Duration) -> bool {
    if !shared.has(Planted::KeepSlotBetweenTries) {
        shared.slots.pause(held, shared.node.now());
    }
    tokio::time::sleep(wait).await;
    if shared.has(Planted::TryWithoutSlot) {
        return true;
    }
    let now = shared.node.now();
    let Some(mut asked) = shared.slots.resume(held, claimed.bucket(), now) else { return true };
    let longest = quick::max_wait_for_slot(now, claimed.notification.expires_at);
    let slot = tokio::select! {
        biased;
        slot = &mut asked => slot.ok(),
        () = tokio::time::sleep(longest) => shared.slots.stop_asking(claimed.bucket(), asked),
        () = shared.draining() => shared.slots.stop_asking(claimed.bucket(), asked),
    };
    let Some(slot) = slot else { return false };
    *held = Held::Slot(slot);
    true
}

/// A channel that panics is a bug of ours and says nothing about the recipient: the attempt counts as failed without a
/// known reason, and the node goes on.
fn broken_down(shared: &Shared, claimed: &Claimed, held: &Held) -> Step {
    let reply = Reply::fault(Fault::Broken, "the delivery broke down");
    let (now, verdict) = (shared.node.now(), shared.judge(claimed, &Route::Direct, &reply));
    let broken = Try { started_at: now, ended_at: now, reply, verdict };
    let way = way(shared, claimed, held).ok();
    Step::Send(verdict, record(claimed, way.as_ref(), now, &broken, Vec::new()))
}

impl Shared {
    fn judge(&self, claimed: &Claimed, route: &Route, reply: &Reply) -> Verdict {
        let (none, channel) = (Overrides::default(), claimed.notification.channel);
        classify(channel, route, reply, self.overrides.get(&channel).unwrap_or(&none))
    }
}

/// Waits until the channel can make the try at once. That is no part of the try's time, and a drain does not wait for it.
async fn ready(shared: &Shared, claimed: &Claimed, way: &Way) -> Result<(), Reply> {
    let ready = tokio::time::timeout(LONGEST_READY, way.channel.ready(&claimed.notification));
    tokio::select! {
        biased;
        ready = ready => ready.unwrap_or(Ok(())),
        () = shared.draining() => Ok(()),
    }
}

/// One try, ended by our own deadline if the channel does not keep it. A long one may begin under a lease that does not
/// outlast it, for heartbeats make the lease last; if they fail, the try ends with the lease, for then another node may send it.
async fn send(shared: &Shared, claimed: &Claimed, way: &Way, timeout: Duration, at: Timestamp) -> Reply {
    let delivery = Delivery {
        notification: claimed.notification.clone(),
        opened: way.opened.clone(),
        route: way.route.clone(),
        attempt: claimed.progress.attempt,
        at,
        timeout,
        signer: way.signer.clone(),
    };
    let ended = async {
        if timeout <= shared.settings.surely() {
            std::future::pending().await
        } else {
            shared.node.lapsed(claimed.lease).await
        }
    };
    let text = tokio::select! {
        biased;
        reply = tokio::time::timeout(timeout, way.channel.send(delivery)) => match reply {
            Ok(reply) => return without_secrets(shared, claimed, way, reply),
            Err(_) => format!("no answer within {timeout:?}"),
        },
        () = ended => "cut off without an answer: this node could not reach its store for too long".to_owned(),
    };
    Reply::fault(Fault::Timeout, text)
}

/// A receiver may send back what it was sent.
fn without_secrets(shared: &Shared, claimed: &Claimed, way: &Way, reply: Reply) -> Reply {
    match shared.vault().redactor(&claimed.notification, &way.opened) {
        Some(redactor) => redactor.redact_reply(reply),
        None => reply,
    }
}

fn record(
    claimed: &Claimed,
    way: Option<&Way>,
    began_at: Timestamp,
    last: &Try,
    quick_tries: Vec<QuickTry>,
) -> Attempt {
    let (error, response) = match last.verdict {
        Verdict::Delivered => (None, None),
        Verdict::Failed(_) => (Some(Attempt::excerpt(&last.reply.words())), last.reply.response()),
    };
    let provider = way.and_then(|way| way.route.provider());
    Attempt {
        generation: claimed.progress.generation,
        number: claimed.progress.attempt,
        started_at: began_at,
        duration: last.ended_at.since(began_at),
        outcome: outcome(last.verdict),
        status_code: last.reply.status_code(),
        error,
        last_try_at: (!quick_tries.is_empty()).then_some(last.started_at),
        quick_tries,
        provider: provider.map(|provider| provider.name.to_string()),
        message_id: last.reply.message_id.as_deref().map(Attempt::message_id),
        response,
    }
}

const fn outcome(verdict: Verdict) -> Outcome {
    match verdict {
        Verdict::Delivered => Outcome::Delivered,
        Verdict::Failed(failure) => Outcome::Failed(failure.failure_type),
    }
}

fn quick_try(made: &Try) -> Option<QuickTry> {
    let Verdict::Failed(failure) = made.verdict else { return None };
    Some(QuickTry {
        started_at: made.started_at,
        duration_ms: u64::try_from(made.ended_at.since(made.started_at).as_millis()).unwrap_or(u64::MAX),
        failure_type: failure.failure_type,
        status_code: made.reply.status_code(),
        error: Attempt::excerpt(&made.reply.words()),
    })
}
