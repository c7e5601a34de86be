//! Stored form of destinations, of their histories, and pages of them.

use posthaste_core::destination::{
    Destination, DestinationChange, DestinationEvent, DestinationId, DestinationKey, DestinationKind,
    DestinationPut, EventKind, StoredDestination,
};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::Page;

use super::damage::{Damaged, Result};
use super::records::NO_TENANT;
use super::values;

pub(crate) fn key_from(tenant: &str, code: u8, name: &str) -> Result<DestinationKey> {
    let kind = DestinationKind::from_code(code)
        .ok_or_else(|| Damaged(format!("there is no kind of destination {code}")))?;
    let tenant = if tenant == NO_TENANT { None } else { Some(values::tenant(tenant)?) };
    Ok(DestinationKey { tenant, kind, name: name.into() })
}

pub(crate) fn value_from(text: Option<&str>) -> Result<Option<Destination>> {
    let read = |text| {
        Destination::from_json(text).ok_or_else(|| Damaged("what is known of a destination".to_owned()))
    };
    text.map(read).transpose()
}

pub(crate) fn event_from(
    at: Timestamp,
    code: u8,
    by: Option<String>,
    until: Option<Timestamp>,
) -> Result<DestinationEvent> {
    let event = EventKind::from_code(code)
        .ok_or_else(|| Damaged(format!("there is no event {code} of a destination")))?;
    Ok(DestinationEvent { at, event, by, until })
}

/// The events of the changes that were made.
pub(crate) fn new_events<'c>(
    changes: &'c [DestinationChange],
    put: &[DestinationPut],
) -> Vec<(DestinationId, &'c DestinationEvent)> {
    let made = changes.iter().zip(put).filter(|(_, put)| put.is_made());
    let events = made.flat_map(|(change, _)| {
        let id = change.key.id();
        change.events.iter().map(move |event| (id, event))
    });
    events.collect()
}

/// Builds a page from the readable rows among `looked_at`. A page whose rows are all damaged has no `next`.
pub(crate) fn page_of(
    found: Vec<StoredDestination>,
    looked_at: usize,
    limit: usize,
) -> Page<StoredDestination, DestinationKey> {
    let next = found.last().filter(|_| looked_at == limit).map(|row| row.key.clone());
    Page { rows: found.into_iter().filter(|row| row.value.is_some()).collect(), next }
}

/// The same for the destinations of flows.
pub(crate) fn known_page(
    rows: Vec<DestinationKey>,
    looked_at: usize,
    limit: usize,
) -> Page<DestinationKey, DestinationKey> {
    let next = rows.last().filter(|_| looked_at == limit).cloned();
    Page { rows, next }
}
