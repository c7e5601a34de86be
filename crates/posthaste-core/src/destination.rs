//! Destinations: what can be down as a whole, so what a breaker guards and a limit bounds.
//!
//! Only what is unhealthy, blocked, paused or limited has a row in the store; about all others there is nothing to say.

mod bounds;
mod event;
mod name;
mod sighting;
mod standing;
mod stored;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::event::{DestinationEvent, EVENTS_KEPT, EventKind, MAX_EVENTS};
pub use self::name::{BadName, DestinationName};
pub use self::sighting::Sighting;
pub use self::standing::{DestinationState, Hindrance, Label, Standing};
pub use self::stored::{
    DestinationChange, DestinationPut, REMOVED_AT_ONCE, REMOVED_KEPT, StoredDestination, change_destinations,
};
use crate::breaker::{Breaker, BreakerEvent, BreakerSettings};
use crate::channel::Channel;
use crate::flow::{FlowKey, Gate};
pub use crate::id::DestinationId;
use crate::notification::Tenant;
use crate::provider;
use crate::rate::Rate;
use crate::time::Timestamp;

/// What a destination is. The codes are stored, the names are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DestinationKind {
    /// The origin of direct webhooks of a tenant.
    Webhook = 1,
    Subscription = 2,
    /// One for all tenants.
    Provider = 3,
}

impl DestinationKind {
    pub const ALL: [Self; 3] = [Self::Webhook, Self::Subscription, Self::Provider];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Subscription => "subscription",
            Self::Provider => "provider",
        }
    }

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Which destination. Keys are ordered as stores list them: by tenant, those of none first, then by kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationKey {
    /// None for a provider.
    pub tenant: Option<Tenant>,
    pub kind: DestinationKind,
    /// The origin, the id of the subscription, or the name of the provider.
    pub name: Arc<str>,
}

impl DestinationKey {
    pub fn provider(name: &str) -> Self {
        Self { tenant: None, kind: DestinationKind::Provider, name: name.into() }
    }

    /// The one destination of a flow of webhooks. What goes over providers has theirs, and in-app notifications have none.
    pub fn of_flow(flow: &FlowKey) -> Option<Self> {
        if flow.channel != Channel::Webhook {
            return None;
        }
        let kind = if flow.destination.starts_with("sub_") {
            DestinationKind::Subscription
        } else {
            DestinationKind::Webhook
        };
        Some(Self { tenant: Some(flow.tenant.clone()), kind, name: flow.destination.clone() })
    }

    /// The flow that it is the one destination of. A provider has many.
    pub fn flow(&self) -> Option<FlowKey> {
        Some(FlowKey {
            tenant: self.tenant.clone()?,
            channel: Channel::Webhook,
            destination: self.name.clone(),
        })
    }

    /// A hash of the key, so it exists before the first failure.
    pub fn id(&self) -> DestinationId {
        let mut digest = Sha256::new();
        digest.update([self.kind.code()]);
        digest.update(self.tenant.as_ref().map_or("", Tenant::as_str));
        digest.update([0]);
        digest.update(&*self.name);
        let whole: [u8; 32] = digest.finalize().into();
        let mut first = [0; 16];
        first.copy_from_slice(&whole[..16]);
        DestinationId::from_bytes(first)
    }
}

/// The provider that a destination of a flow names, if the sender pinned one.
pub fn pinned_provider(flow: &FlowKey) -> Option<DestinationKey> {
    provider::pinned(&flow.destination).map(DestinationKey::provider)
}

/// The highest concurrency of a destination.
pub const MAX_CONCURRENCY: u32 = 1_000_000;

/// What may be sent to it, over all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SendLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
}

impl SendLimits {
    /// These, where they say something, else those.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { rate: self.rate.or(other.rate), concurrency: self.concurrency.or(other.concurrency) }
    }
}

/// Who blocked it, and why. A block does not lapse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub by: String,
    pub reason: Option<String>,
    #[serde(with = "crate::micros")]
    pub at: Timestamp,
}

/// What is known of a destination. It is kept as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    pub breaker: Breaker,
    #[serde(default)]
    pub limits: SendLimits,
    #[serde(default)]
    pub block: Option<Block>,
    /// A 429 asked for silence until then.
    #[serde(default, with = "crate::micros::maybe")]
    pub paused_until: Option<Timestamp>,
    #[serde(default)]
    pub last_status_code: Option<u16>,
    #[serde(default)]
    pub last_error: Option<String>,
}

/// The most bytes of an error and of a reason that are kept.
pub const MAX_TEXT: usize = 500;

impl Destination {
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and times are always written")
    }

    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// What the breaker and a block say.
    pub fn gate(&self, now: Timestamp) -> Gate {
        if self.block.is_some() { Gate::Open } else { self.breaker.gate(now) }
    }

    /// Until when a pause lasts, if there is one.
    pub fn paused(&self, now: Timestamp) -> Option<Timestamp> {
        self.paused_until.filter(|until| *until > now)
    }

    /// Whether nothing of it has to be kept.
    pub fn is_over(&self, settings: &BreakerSettings, now: Timestamp) -> bool {
        self.block.is_none()
            && self.limits == SendLimits::default()
            && self.paused(now).is_none()
            && self.breaker.forgotten_at(settings) <= now
    }

    /// A person blocks it. None if it is blocked already.
    pub fn blocked(
        &self,
        by: &str,
        reason: Option<String>,
        now: Timestamp,
    ) -> Option<(Self, DestinationEvent)> {
        if self.block.is_some() {
            return None;
        }
        let block = Block { by: by.to_owned(), reason, at: now };
        Some((Self { block: Some(block), ..self.clone() }, DestinationEvent::of(EventKind::Blocked, by, now)))
    }

    /// A person lifts the block. None if it is not blocked.
    pub fn unblocked(&self, by: &str, now: Timestamp) -> Option<(Self, DestinationEvent)> {
        self.block.as_ref()?;
        Some((Self { block: None, ..self.clone() }, DestinationEvent::of(EventKind::Unblocked, by, now)))
    }

    /// A person closes the breaker and ends a pause, at full speed. A block stays.
    pub fn reset(&self, by: &str, now: Timestamp) -> (Self, DestinationEvent) {
        let reset = Self {
            breaker: Breaker::default(),
            paused_until: None,
            last_status_code: None,
            last_error: None,
            ..self.clone()
        };
        (reset, DestinationEvent::of(EventKind::Reset, by, now))
    }

    /// A person sets its limits.
    pub fn limited(&self, limits: SendLimits, by: &str, now: Timestamp) -> (Self, DestinationEvent) {
        (Self { limits, ..self.clone() }, DestinationEvent::of(EventKind::Limited, by, now))
    }

    /// It asked for silence. None if it is paused for as long already.
    pub fn pause(&self, until: Timestamp, now: Timestamp) -> Option<(Self, DestinationEvent)> {
        if until <= now || self.paused_until.is_some_and(|known| known >= until) {
            return None;
        }
        let event = DestinationEvent { at: now, event: EventKind::Paused, by: None, until: Some(until) };
        Some((Self { paused_until: Some(until), ..self.clone() }, event))
    }

    /// What a failed attempt said last.
    #[must_use]
    pub fn with_error(self, status: Option<u16>, error: Option<&str>) -> Self {
        let error = error.map(|text| {
            let cut = text
                .char_indices()
                .map(|(at, c)| at + c.len_utf8())
                .take_while(|end| *end <= MAX_TEXT)
                .last();
            text[..cut.unwrap_or(0)].to_owned()
        });
        Self { last_status_code: status, last_error: error, ..self }
    }
}

impl DestinationEvent {
    fn of(event: EventKind, by: &str, at: Timestamp) -> Self {
        Self { at, event, by: Some(by.to_owned()), until: None }
    }

    /// What the breaker did by itself.
    pub fn of_breaker(event: BreakerEvent, at: Timestamp) -> Self {
        let (event, until) = match event {
            BreakerEvent::Opened { until } => (EventKind::Opened, Some(until)),
            BreakerEvent::Probed => (EventKind::Probed, None),
            BreakerEvent::Closed => (EventKind::Closed, None),
        };
        Self { at, event, by: None, until }
    }
}
