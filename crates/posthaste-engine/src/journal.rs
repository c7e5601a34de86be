//! What is logged: one event for each state change, with ids as fields. Never a payload, an address or an error text,
//! which may quote either.

use posthaste_core::channel::Channel;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::reason::Reason;

use crate::acts::Actor;
use crate::slots::Hold;
use crate::store::{Accepted, Act, Arrival, Change, Claimed, Ending, Facts, Next, Overdue, Settlement};

/// A request was answered by the store.
pub(crate) fn accepted(arrivals: &[(Arrival, Hold)], accepted: &Accepted) {
    if *accepted != Accepted::New || !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    for (Arrival { notification, due, .. }, _) in arrivals {
        let Notification { id, tenant, channel, .. } = &**notification;
        tracing::debug!(%id, %tenant, %channel, %due, "accepted");
    }
}

/// An outcome is recorded.
pub(crate) fn settled(claimed: &Claimed, settlement: &Settlement) {
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
}

/// Waiting ones ran out of time.
pub(crate) fn expired(ids: impl Iterator<Item = NotificationId>) {
    for id in ids {
        tracing::debug!(%id, "expired");
    }
}

/// A waiting one was buried.
pub(crate) fn buried_unsent(row: &Overdue, change: &Change) {
    if let Act::Bury { dead_letter, reason, .. } = &change.act {
        let made = change.seen.attempt.saturating_sub(1);
        buried(row.id, &row.tenant, row.channel, *dead_letter, *reason, made);
    }
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
pub(crate) fn acted(facts: &Facts, act: &Act, actor: &Actor) {
    let (id, tenant, was, actor) = (facts.id, &facts.tenant, facts.standing.state.name(), &actor.name);
    tracing::info!(%id, %tenant, was, actor, act = act.word(), "acted on");
}

/// Somebody changed a setting.
pub(crate) fn set(action: &str, target: &str, actor: &Actor) {
    tracing::info!(target_name = target, actor = &actor.name, act = action, "setting changed");
}
