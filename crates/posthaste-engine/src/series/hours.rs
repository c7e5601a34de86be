//! The hours of the busiest destinations, of each tenant and of all: what is or will be written.
//!
//! A row of the store is a place among the busiest ([`Busiest`]) of one hour. So a flood of ever new destinations rewrites the
//! rows that are there and makes no more of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
use posthaste_core::series::{Addressed, Busiest, Figures, Place, Span};
use posthaste_core::time::Timestamp;

use super::GRACE;
use super::fresh::OfFlow;
use crate::store::DestinationHour;

/// The most destinations of one tenant, and of the sum over all, in an hour.
pub(super) const MOST_DESTINATIONS: usize = 1_000;
/// The most destinations of all tenants in an hour, those of the sum not counted.
pub(super) const MOST_IN_ALL: usize = 50_000;
/// A tenant gets at most one part in so many of the places that are left, so that those who come late find some.
const SHARE: usize = 8;
/// The most hours in memory: the running one, and the one before while its clock may be set back or the store is away.
const MOST_HOURS: usize = 2;

/// The start of an hour, and whose it is: a tenant's, or the sum over all.
type TableKey = (Timestamp, Option<Tenant>);

/// The places that one node keeps.
pub(super) struct Hours {
    writer: NodeId,
    tables: BTreeMap<TableKey, Table>,
    /// How many places the tenants of an hour have together.
    taken: BTreeMap<Timestamp, usize>,
}

#[derive(Default)]
struct Table {
    busiest: Busiest,
    /// The count of each place as it is written.
    written: Vec<u64>,
}

impl Table {
    fn is_written(&self, number: usize) -> bool {
        self.written.get(number).is_some_and(|count| *count >= self.busiest.places()[number].count)
    }

    /// The places that are not written in their present form.
    fn unwritten(&self) -> impl Iterator<Item = (usize, &Place)> {
        self.busiest.places().iter().enumerate().filter(|(number, _)| !self.is_written(*number))
    }
}

impl Hours {
    pub(super) const fn new(writer: NodeId) -> Self {
        Self { writer, tables: BTreeMap::new(), taken: BTreeMap::new() }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tables.values().map(|table| table.busiest.places().len()).sum()
    }

    /// Adds what is fresh to the places of its tenant and of all.
    pub(super) fn fold<'f>(&mut self, fresh: impl IntoIterator<Item = (Timestamp, &'f OfFlow)>) {
        let mut seen: BTreeMap<TableKey, Vec<_>> = BTreeMap::new();
        for (minute, of) in fresh {
            for tenant in [None, Some(of.tenant.clone())] {
                let key = (Span::Hour.start(minute), tenant);
                seen.entry(key).or_default().push((&of.addressed, &of.figures));
            }
        }
        for (key, seen) in seen {
            self.add(key, seen);
        }
        self.make_room();
    }

    fn add(&mut self, key: TableKey, mut seen: Vec<(&Addressed, &Figures)>) {
        let taken = self.taken.entry(key.0).or_default();
        let is_sum = key.1.is_none();
        let table = self.tables.entry(key.clone()).or_default();
        // Who has a place comes first and does not lose it before it is counted; then the busiest.
        seen.sort_by_cached_key(|(whose, figures)| {
            (!table.busiest.knows(whose), Reverse(figures.happened()), Addressed::clone(whose))
        });
        for (whose, figures) in seen {
            let before = table.busiest.places().len();
            let left = MOST_IN_ALL.saturating_sub(*taken) / SHARE;
            let most = if is_sum { MOST_DESTINATIONS } else { MOST_DESTINATIONS.min(left) };
            table.busiest.add(whose, figures, most);
            if !is_sum {
                *taken += table.busiest.places().len() - before;
            }
        }
        if table.busiest.places().is_empty() {
            self.tables.remove(&key);
        }
    }

    fn make_room(&mut self) {
        while self.taken.len() > MOST_HOURS {
            let Some((earliest, _)) = self.taken.pop_first() else { return };
            let gone = self.tables.extract_if(.., |(at, _), _| *at == earliest);
            let lost: usize = gone.map(|(_, table)| table.unwritten().count()).sum();
            if lost > 0 {
                tracing::warn!(
                    rows = lost,
                    "figures of destinations are lost: the store did not take them for too long"
                );
            }
        }
    }

    /// The places that are not written yet, in their present form.
    pub(super) fn unwritten(&self) -> Vec<DestinationHour> {
        let of_table = |(key, table): (&TableKey, &Table)| -> Vec<DestinationHour> {
            table.unwritten().map(|(number, place)| self.row(key, number, place)).collect()
        };
        self.tables.iter().flat_map(of_table).collect()
    }

    fn row(&self, (at, tenant): &TableKey, number: usize, place: &Place) -> DestinationHour {
        let (channel, destination) = place.whose.clone();
        DestinationHour {
            tenant: tenant.clone(),
            at: *at,
            node: self.writer,
            place: u16::try_from(number).expect("there are no more than 1,000 places"),
            channel,
            destination,
            count: place.count,
            figures: place.figures.clone(),
        }
    }

    /// These are written.
    pub(super) fn written(&mut self, rows: &[DestinationHour]) {
        for row in rows {
            let Some(table) = self.tables.get_mut(&(row.at, row.tenant.clone())) else { continue };
            let number = usize::from(row.place);
            if table.written.len() <= number {
                table.written.resize(number + 1, 0);
            }
            table.written[number] = table.written[number].max(row.count);
        }
    }

    /// Drops the hours that are over and written.
    pub(super) fn forget(&mut self, now: Timestamp) {
        let is_over = |at: &Timestamp| at.later(Span::Hour.length() + GRACE) <= now;
        self.tables.retain(|(at, _), table| !is_over(at) || table.unwritten().next().is_some());
        let Self { tables, taken, .. } = self;
        taken.retain(|at, _| {
            !is_over(at) || tables.range((*at, None)..).next().is_some_and(|((of, _), _)| of == at)
        });
    }

    /// Puts these places in place of what this node has written.
    pub(super) fn renew(
        &self,
        kept: &mut Vec<DestinationHour>,
        tenant: Option<&Tenant>,
        destination: &Arc<str>,
        (from, until): (Timestamp, Timestamp),
    ) {
        let in_time = self.tables.range((from, None)..).take_while(|((at, _), _)| *at < until);
        for (key, table) in in_time.filter(|((_, whose), _)| whose.as_ref() == tenant) {
            kept.retain(|row| (row.node, row.at) != (self.writer, key.0));
            let places = table.busiest.places().iter().enumerate();
            let own = places.filter(|(_, place)| place.whose.1 == *destination);
            kept.extend(own.map(|(number, place)| self.row(key, number, place)));
        }
    }
}
