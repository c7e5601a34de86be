//! The one place that every state change passes: it is logged here, and told to whoever listens.
//!
//! What is logged is one event for each change, with ids as fields. Never a payload, an address or an error text, which may
//! quote either.

use std::collections::BTreeSet;
use std::sync::Arc;

use posthaste_core::act::effect;
use posthaste_core::attempt::Progress;
use posthaste_core::channel::Channel;
use posthaste_core::destination::{DestinationEvent, DestinationKey};
use posthaste_core::filter::last_failure;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::operation::Operation;
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use crate::acts::Actor;
use crate::engine::Shared;
use crate::live::{Change, Event, Named, Progressed, Tenants};
use crate::slots::Hold;
use crate::store::{
    self, Accepted, Act, Arrival, Claimed, Ending, ExpiringRow, Facts, Next, Overdue, Settlement,
};

/// A request was answered by the store.
pub(crate) fn answered(shared: &Shared, arrivals: &[(Arrival, Hold)], answer: &Accepted) {
    if *answer == Accepted::New {
        accepted(shared, arrivals.iter().map(|(arrival, _)| arrival));
    }
}

/// These are stored.
pub(crate) fn accepted<'a>(shared: &Shared, arrivals: impl Iterator<Item = &'a Arrival>) {
    if !tracing::enabled!(tracing::Level::DEBUG) && !shared.live.is_heard() {
        return;
    }
    let at = shared.node.now();
    for Arrival { notification, due, .. } in arrivals {
        let Notification { id, tenant, channel, .. } = &**notification;
        tracing::debug!(%id, %tenant, %channel, %due, "accepted");
        let first = Progress::START.attempt;
        shared.live.tell(tenant, || Change::new(at, notification, State::Pending, first));
    }
}

/// An attempt begins. It is logged with its outcome.
pub(crate) fn began(shared: &Shared, claimed: &Claimed, at: Timestamp) {
    let Claimed { notification, progress, .. } = claimed;
    let change = || Change::new(at, notification, claimed.state(), progress.attempt);
    shared.live.tell(&notification.tenant, change);
}

/// An outcome is recorded.
pub(crate) fn settled(shared: &Shared, claimed: &Claimed, settlement: &Settlement) {
    let Notification { id, tenant, channel, .. } = &*claimed.notification;
    let made = claimed.progress.attempt.saturating_sub(u32::from(settlement.attempt.is_none()));
    match &settlement.next {
        Next::Retry { due, .. } => {
            tracing::debug!(%id, %tenant, %channel, attempts = made, %due, "retry scheduled");
        }
        Next::End(Ending::Delivered) => tracing::debug!(%id, %tenant, %channel, attempts = made, "delivered"),
        Next::End(Ending::Cancelled) => tracing::debug!(%id, %tenant, %channel, attempts = made, "cancelled"),
        Next::End(Ending::Expired) => tracing::debug!(%id, %tenant, %channel, attempts = made, "expired"),
        Next::End(Ending::Failed { reason, .. }) => {
            let reason = reason.code();
            tracing::info!(%id, %tenant, %channel, reason, attempts = made, "failed");
        }
        Next::End(Ending::Buried { dead_letter, reason, .. }) => {
            buried(*id, tenant, *channel, *dead_letter, *reason, made);
        }
    }
    shared.live.tell(tenant, || {
        let (state, attempt, (reason, _, dead_letter)) = match &settlement.next {
            Next::Retry { .. } => (State::RetryScheduled, made.saturating_add(1), (None, None, None)),
            Next::End(ending) => (ending.state(), made, ending.parts()),
        };
        let failure = last_failure(settlement.attempt.as_ref());
        let change = Change::new(shared.node.now(), &claimed.notification, state, attempt);
        Change { failure, reason, dead_letter, ..change }
    });
}

/// Waiting ones ran out of time.
pub(crate) fn expired(
    shared: &Shared,
    (named, tenants): (&Named, &Tenants),
    rows: &[ExpiringRow],
    at: Timestamp,
) {
    let mut changes = WaitingChanges::new(shared, named);
    for ExpiringRow { id, seen } in rows {
        tracing::debug!(%id, "expired");
        let made = seen.attempt.saturating_sub(1);
        changes.tell(*id, tenants.get(id), |waited| Change::new(at, waited, State::Expired, made));
    }
    changes.end(at);
}

/// Waiting ones were buried.
pub(crate) fn buried_unsent(
    shared: &Shared,
    named: &Named,
    rows: &[(&Overdue, store::Change)],
    at: Timestamp,
) {
    let mut changes = WaitingChanges::new(shared, named);
    for (row, change) in rows {
        if let Act::Bury { dead_letter, reason, .. } = &change.act {
            let made = change.seen.attempt.saturating_sub(1);
            buried(row.id, &row.tenant, row.channel, *dead_letter, *reason, made);
            changes.tell(row.id, Some(&row.tenant), |waited| Change {
                reason: Some(*reason),
                dead_letter: Some(*dead_letter),
                ..Change::new(at, waited, State::DeadLetter, made)
            });
        }
    }
    changes.end(at);
}

/// Changes of what waited, of which some are not named. Those of a tenant are told as one gap.
struct WaitingChanges<'a> {
    shared: &'a Shared,
    named: &'a Named,
    /// Whose changes are not named; none where that is not known either.
    gaps: BTreeSet<Option<&'a Tenant>>,
}

impl<'a> WaitingChanges<'a> {
    fn new(shared: &'a Shared, named: &'a Named) -> Self {
        Self { shared, named, gaps: BTreeSet::new() }
    }

    fn tell(
        &mut self,
        id: NotificationId,
        tenant: Option<&'a Tenant>,
        change: impl FnOnce(&Arc<Notification>) -> Change,
    ) {
        match self.named.get(&id) {
            Some(waited) => self.shared.live.tell(&waited.tenant, || change(waited)),
            None => {
                self.gaps.insert(tenant);
            }
        }
    }

    fn end(self, at: Timestamp) {
        for tenant in self.gaps {
            match tenant {
                Some(tenant) => self.shared.live.gap(tenant, at),
                None => self.shared.live.gap_for_all(at),
            }
        }
    }
}

/// Leases were taken or given back by their number: which notifications wait again is not known.
pub(crate) fn gave_up_leases(shared: &Shared) {
    shared.live.gap_for_all(shared.node.now());
}

fn buried(
    id: NotificationId,
    tenant: &Tenant,
    channel: Channel,
    dead_letter: DeadLetterId,
    reason: Reason,
    attempts: u32,
) {
    tracing::info!(%id, %tenant, %channel, %dead_letter, reason = reason.code(), attempts, "dead letter");
}

/// Somebody acted on a notification.
pub(crate) fn acted(shared: &Shared, named: &Named, facts: &Facts, act: &Act, actor: &Actor) {
    let (id, tenant, was, actor) = (facts.id, &facts.tenant, facts.standing.state.name(), &actor.name);
    tracing::info!(%id, %tenant, was, actor, act = act.word(), "acted on");
    if !shared.live.hears(tenant) {
        return;
    }
    let at = shared.node.now();
    match (named.get(&id), effect(&facts.standing, act, at)) {
        (Some(acted_on), Ok(effect)) => {
            if let Some(change) = Change::by_act(at, acted_on, &facts.standing, &effect) {
                shared.live.tell(tenant, || change);
            }
        }
        (None, _) | (_, Err(_)) => shared.live.gap(tenant, at),
    }
}

/// An operation is in another state, or further than it was. Its end is logged by its runner.
pub(crate) fn progressed(shared: &Shared, operation: &Operation) {
    let event = || Event::Operation(Progressed::new(shared.node.now(), operation));
    shared.live.tell_of(operation.tenant.as_ref(), event);
}

/// Somebody changed a setting.
pub(crate) fn set(action: &str, target: &str, actor: &Actor) {
    tracing::info!(target_name = target, actor = &actor.name, act = action, "setting changed");
}

/// The breaker of a destination opened, was probed or closed, or it asked for silence.
pub(crate) fn destination(key: &DestinationKey, event: &DestinationEvent) {
    let (id, tenant) = (key.id(), key.tenant.as_ref().map_or("", Tenant::as_str));
    let (what, until) = (event.event.name(), event.until.map(tracing::field::display));
    tracing::info!(destination = %id, tenant, until, "destination {what}");
}
