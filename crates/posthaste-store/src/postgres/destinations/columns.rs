//! The columns of what is written, one array each.

use posthaste_core::destination::{
    Destination, DestinationEvent, DestinationId, DestinationKey, StoredDestination,
};
use uuid::Uuid;

use super::super::tx::{Bound, bind};
use crate::kept::records::tenant_text;
use crate::kept::values;

pub(super) struct KeyColumns<'k> {
    tenants: Vec<&'k str>,
    kinds: Vec<i16>,
    names: Vec<&'k str>,
}

impl<'k> KeyColumns<'k> {
    pub(super) fn of(keys: impl Iterator<Item = &'k DestinationKey>) -> Self {
        let mut columns = Self { tenants: vec![], kinds: vec![], names: vec![] };
        for key in keys {
            columns.tenants.push(tenant_text(key.tenant.as_ref()));
            columns.kinds.push(i16::from(key.kind.code()));
            columns.names.push(&key.name);
        }
        columns
    }

    pub(super) fn bound(&self) -> Vec<Bound<'_>> {
        let bound: &[Bound<'_>] =
            bind![self.tenants => TEXT_ARRAY, self.kinds => INT2_ARRAY, self.names => TEXT_ARRAY];
        bound.to_vec()
    }
}

pub(super) struct RowColumns<'r> {
    keys: KeyColumns<'r>,
    ids: Vec<Uuid>,
    values: Vec<Option<String>>,
    versions: Vec<i64>,
    changed: Vec<i64>,
}

impl<'r> RowColumns<'r> {
    pub(super) fn of(rows: impl Iterator<Item = &'r StoredDestination> + Clone) -> Self {
        Self {
            keys: KeyColumns::of(rows.clone().map(|row| &row.key)),
            ids: rows.clone().map(|row| Uuid::from_bytes(row.key.id().to_bytes())).collect(),
            values: rows.clone().map(|row| row.value.as_ref().map(Destination::to_json)).collect(),
            versions: rows.clone().map(|row| row.version).collect(),
            changed: rows.map(|row| row.changed.as_micros()).collect(),
        }
    }

    pub(super) fn bound(&self) -> Vec<Bound<'_>> {
        let rest: &[Bound<'_>] = bind![
            self.ids => UUID_ARRAY,
            self.values => TEXT_ARRAY,
            self.versions => INT8_ARRAY,
            self.changed => INT8_ARRAY,
        ];
        [self.keys.bound(), rest.to_vec()].concat()
    }
}

pub(super) struct EventColumns<'e> {
    pub(super) ids: Vec<Uuid>,
    at: Vec<i64>,
    codes: Vec<i16>,
    actors: Vec<Option<&'e str>>,
    until: Vec<Option<i64>>,
}

impl<'e> EventColumns<'e> {
    pub(super) fn of(events: &[(DestinationId, &'e DestinationEvent)]) -> Self {
        Self {
            ids: events.iter().map(|(id, _)| Uuid::from_bytes(id.to_bytes())).collect(),
            at: events.iter().map(|(_, event)| event.at.as_micros()).collect(),
            codes: events.iter().map(|(_, event)| i16::from(event.event.code())).collect(),
            actors: events.iter().map(|(_, event)| event.by.as_deref()).collect(),
            until: events.iter().map(|(_, event)| values::maybe_micros(event.until)).collect(),
        }
    }

    pub(super) fn bound(&self) -> Vec<Bound<'_>> {
        let bound: &[Bound<'_>] = bind![
            self.ids => UUID_ARRAY,
            self.at => INT8_ARRAY,
            self.codes => INT2_ARRAY,
            self.actors => TEXT_ARRAY,
            self.until => INT8_ARRAY,
        ];
        bound.to_vec()
    }
}
