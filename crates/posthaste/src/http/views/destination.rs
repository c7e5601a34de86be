//! How a destination is shown.

use posthaste_core::destination::{
    DestinationEvent, DestinationId, DestinationKind, DestinationState, EventKind, Label,
};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::destinations::{DestinationView as Standing, ParkedBehind};
use serde::Serialize;
use utoipa::ToSchema;

/// A destination as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Destination)]
pub(crate) struct DestinationView {
    pub(crate) id: DestinationId,
    #[schema(value_type = DestinationKind)]
    pub(crate) kind: &'static str,
    /// The origin, the id of the subscription, or the name of the provider.
    pub(crate) name: String,
    /// Null for a provider, which is one for all tenants.
    pub(crate) tenant: Option<Tenant>,
    /// The most notifications a second over all nodes, set by people or by the configuration.
    pub(crate) rate: Option<f64>,
    /// The most notifications at a time over all nodes, set by people or by the configuration.
    pub(crate) concurrency: Option<u32>,
    /// A 429 asked for silence until then.
    pub(crate) paused_until: Option<Timestamp>,
    #[schema(value_type = DestinationState)]
    pub(crate) state: &'static str,
    /// `MONITORING` while failures are counted or it ramps up, `BLOCKED` while nothing but probes is sent, else empty.
    #[schema(value_type = Label)]
    pub(crate) label: &'static str,
    /// Failed attempts in a row.
    pub(crate) failures: u32,
    pub(crate) first_failure_at: Option<Timestamp>,
    pub(crate) last_failure_at: Option<Timestamp>,
    /// Since when nothing but probes is sent.
    pub(crate) blocked_at: Option<Timestamp>,
    /// When the next probe may be sent. Null while a person blocks it: a block ends only by `unblock`.
    pub(crate) blocked_until: Option<Timestamp>,
    /// Who blocked it; null if only its breaker did.
    pub(crate) blocked_by: Option<String>,
    pub(crate) block_reason: Option<String>,
    /// Whether it is closed again, but not at full speed yet.
    pub(crate) ramping: bool,
    pub(crate) last_status_code: Option<u16>,
    pub(crate) last_error: Option<String>,
    /// How many notifications are due and wait for it while nothing is sent there; counted up to 100,000.
    #[schema(maximum = 100_000)]
    pub(crate) parked: u64,
}

impl DestinationView {
    pub(crate) fn of(view: Standing, now: Timestamp) -> Self {
        let (id, standing) = (view.id(), view.value.standing(now));
        let paused_until = view.value.paused(now);
        let (block, failures) = (view.value.block, standing.failures);
        Self {
            id,
            kind: view.key.kind.name(),
            name: view.key.name.to_string(),
            tenant: view.key.tenant,
            rate: view.limits.rate.map(|rate| rate.as_per_second()),
            concurrency: view.limits.concurrency,
            paused_until,
            state: standing.state.name(),
            label: standing.label.name(),
            failures: failures.map_or(0, |known| known.count),
            first_failure_at: failures.map(|known| known.first_at),
            last_failure_at: failures.map(|known| known.last_at),
            blocked_at: standing.blocked_at,
            blocked_until: standing.blocked_until,
            blocked_by: block.as_ref().map(|block| block.by.clone()),
            block_reason: block.and_then(|block| block.reason),
            ramping: standing.is_ramping,
            last_status_code: view.value.last_status_code,
            last_error: view.value.last_error,
            parked: view.parked,
        }
    }
}

/// A destination with what happened to it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DestinationDetail {
    #[serde(flatten)]
    pub(crate) destination: DestinationView,
    /// The last 100 events of 30 days, the newest first.
    #[schema(max_items = 100)]
    pub(crate) history: Vec<DestinationEventView>,
}

/// A destination in a list.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DestinationInList)]
pub(crate) struct DestinationRow {
    #[serde(flatten)]
    pub(crate) destination: DestinationView,
    /// The newest 100 events since `history`, the newest first; null where it is not given.
    #[schema(max_items = 100)]
    pub(crate) history: Option<Vec<DestinationEventView>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DestinationEvent)]
pub(crate) struct DestinationEventView {
    pub(crate) at: Timestamp,
    #[schema(value_type = EventKind)]
    pub(crate) event: &'static str,
    /// Who did it; null if it happened by itself.
    pub(crate) by: Option<String>,
    /// Until when it opened or paused.
    pub(crate) until: Option<Timestamp>,
}

impl DestinationEventView {
    fn all(history: Vec<DestinationEvent>) -> Vec<Self> {
        let show = |event: DestinationEvent| Self {
            at: event.at,
            event: event.event.name(),
            by: event.by,
            until: event.until,
        };
        history.into_iter().map(show).collect()
    }
}

impl DestinationDetail {
    pub(crate) fn of(view: Standing, history: Vec<DestinationEvent>, now: Timestamp) -> Self {
        Self { destination: DestinationView::of(view, now), history: DestinationEventView::all(history) }
    }
}

impl DestinationRow {
    pub(crate) fn of(view: Standing, history: Option<Vec<DestinationEvent>>, now: Timestamp) -> Self {
        let history = history.map(DestinationEventView::all);
        Self { destination: DestinationView::of(view, now), history }
    }
}

/// Why a notification that is due is not sent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Parked)]
pub(crate) struct ParkedView {
    /// The destination that it waits for; of several providers the one that may be sent to first.
    /// Null to a tenant's key if it is a provider.
    pub(crate) destination_id: Option<DestinationId>,
    #[schema(value_type = DestinationKind)]
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// When the next probe may be sent, or a pause ends; null while a person blocks the destination.
    pub(crate) until: Option<Timestamp>,
    /// Who blocked the destination; null to a tenant's key if it is a provider.
    pub(crate) blocked_by: Option<String>,
}

impl ParkedView {
    pub(crate) fn of(parked: ParkedBehind) -> Self {
        Self {
            destination_id: parked.id,
            kind: parked.key.kind.name(),
            name: parked.key.name.to_string(),
            until: parked.until,
            blocked_by: parked.blocked_by,
        }
    }
}
