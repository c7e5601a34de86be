//! Inbound limits: no minute has more reservations than its limit, whatever is lost, and nothing is sent before it may be.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::inbound::{InboundKey, InboundLimits, Reserved, WINDOW, Wanted};
use posthaste_core::notification::Notification;
use posthaste_core::time::Timestamp;
use posthaste_engine::accept::AcceptError;
use posthaste_engine::engine::{Engine, Settings};
use posthaste_engine::store::{Accepted, Idempotency};

use super::checks::{Check, hold};
use super::world::World;

/// So few that much has to wait, and so many that all of it is sent within `LONGEST`.
pub(super) const LIMITS: InboundLimits = InboundLimits { per_tenant: 30, per_module: 12 };

/// How much longer a run takes to come to rest.
pub(super) const LONGEST: Duration = Duration::from_secs(1_800);

pub(super) fn settings(settings: Settings) -> Settings {
    Settings { inbound: LIMITS, ..settings }
}

/// The modules of senders.
pub(super) fn module(chance: &mut fastrand::Rng) -> Option<String> {
    ["", "billing", "news"].get(chance.usize(0..3)).filter(|name| !name.is_empty()).map(ToString::to_string)
}

/// What is known of reservations.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// The times that the store gave, whether or not anybody learned of them.
    times: BTreeMap<InboundKey, Vec<Timestamp>>,
    /// Until when clients were told that a notification is deferred.
    pub(super) deferred: BTreeMap<NotificationId, Timestamp>,
}

impl Slots {
    /// The store gave these times.
    pub(super) fn reserved(&mut self, wanted: &[Wanted], reserved: &[Reserved]) -> Check {
        for (wanted, reserved) in wanted.iter().zip(reserved) {
            if wanted.expires_at.is_some_and(|expiry| expiry <= reserved.at) {
                continue;
            }
            for key in wanted.keys(LIMITS) {
                let limit = if key.module.is_some() { LIMITS.per_module } else { LIMITS.per_tenant };
                let times = self.times.entry(key.clone()).or_default();
                times.push(reserved.at);
                let within = |begin: Timestamp| {
                    times.iter().filter(|at| **at >= begin && **at < begin.later(WINDOW)).count()
                };
                let most = times.iter().map(|begin| within(*begin)).max().unwrap_or(0);
                hold(most <= limit as usize, || format!("{key:?} has {most} within a minute"))?;
            }
        }
        Ok(())
    }

    /// A first attempt begins.
    pub(super) fn begins(&self, id: NotificationId, number: (u32, u32), now: Timestamp) -> Check {
        let until = self.deferred.get(&id).filter(|_| number == (1, 1));
        hold(until.is_none_or(|until| *until <= now), || {
            format!("I6: {id} is sent at {now}, deferred until {until:?}")
        })
    }
}

/// Hands notifications in, as a door does that tells its client until when they are deferred.
pub(super) async fn hand_in(
    world: &World,
    engine: &Engine,
    idempotency: Option<Idempotency>,
    notifications: Vec<Notification>,
) -> Result<Accepted, AcceptError> {
    let admitted = engine.admit(notifications).await?;
    let deferred = admitted.iter().filter_map(|one| Some((one.notification.id, one.deferred_until?)));
    world.ledger.lock().unwrap().slots.deferred.extend(deferred);
    engine.accept_admitted(idempotency, admitted).await
}
