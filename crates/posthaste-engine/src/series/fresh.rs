//! What happened since the last look, by the flow: all that the hot path touches.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use posthaste_core::channel::Channel;
use posthaste_core::flow::{FlowId, FlowKey};
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::series::{Addressed, Figures, Happened};
use posthaste_core::time::Timestamp;

/// The most flows that are told apart between two looks. Beyond them only tenants and channels are.
const MOST_FLOWS: usize = 20_000;
/// The most tenants and channels that are told apart between two looks. Beyond them only the sum over all tenants counts.
pub(super) const MOST_KEYS: usize = 10_000;

/// Whose figures change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whose<'n> {
    flow: FlowId,
    tenant: &'n Tenant,
    channel: Channel,
    destination: &'n Arc<str>,
}

impl<'n> Whose<'n> {
    pub(crate) fn of(flow: FlowId, notification: &'n Notification) -> Self {
        let Notification { tenant, channel, destination, .. } = notification;
        Self { flow, tenant, channel: *channel, destination }
    }

    pub(crate) fn of_flow(flow: FlowId, key: &'n FlowKey) -> Self {
        let FlowKey { tenant, channel, destination } = key;
        Self { flow, tenant, channel: *channel, destination }
    }
}

/// What happened since the last look.
#[derive(Default)]
pub(super) struct Fresh {
    /// By the minute.
    flows: HashMap<(Timestamp, FlowId), OfFlow>,
    /// By minute, tenant (none for the sum only) and channel: what happened to flows beyond the most.
    others: ByTenant,
}

/// Figures by minute, tenant (none for the sum only) and channel.
pub(super) type ByTenant = HashMap<(Timestamp, Option<Tenant>, Channel), Figures>;

/// What happened to one flow in a minute.
pub(super) struct OfFlow {
    pub(super) tenant: Tenant,
    pub(super) addressed: Addressed,
    pub(super) figures: Figures,
}

impl Fresh {
    pub(super) fn add(&mut self, minute: Timestamp, whose: Whose<'_>, what: Happened) {
        let has_room = self.flows.len() < MOST_FLOWS;
        let figures = match self.flows.entry((minute, whose.flow)) {
            Entry::Occupied(known) => &mut known.into_mut().figures,
            Entry::Vacant(new) if has_room => &mut new.insert(OfFlow::new(whose)).figures,
            Entry::Vacant(_) => of_tenant(&mut self.others, minute, whose.tenant, whose.channel),
        };
        figures.add(what);
    }

    /// The figures of flows with their minutes.
    pub(super) fn flows(&self) -> impl Iterator<Item = (Timestamp, &OfFlow)> {
        self.flows.iter().map(|((minute, _), of)| (*minute, of))
    }

    /// The figures of tenants and channels.
    pub(super) fn by_tenant(self) -> ByTenant {
        let mut all = self.others;
        for ((minute, _), OfFlow { tenant, addressed: (channel, _), figures }) in self.flows {
            of_tenant(&mut all, minute, &tenant, channel).merge(&figures);
        }
        all
    }
}

fn of_tenant<'a>(
    all: &'a mut ByTenant,
    minute: Timestamp,
    tenant: &Tenant,
    channel: Channel,
) -> &'a mut Figures {
    let mut key = (minute, Some(tenant.clone()), channel);
    if all.len() >= MOST_KEYS && !all.contains_key(&key) {
        key.1 = None;
    }
    all.entry(key).or_default()
}

impl OfFlow {
    fn new(whose: Whose<'_>) -> Self {
        Self {
            tenant: whose.tenant.clone(),
            addressed: (whose.channel, whose.destination.clone()),
            figures: Figures::default(),
        }
    }
}
