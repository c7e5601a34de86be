//! Figures by the minute and by the hour, those of the busiest destinations, and when retries are due.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::channel::Channel;
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
use posthaste_core::series::{Figures, Points, Span};
use posthaste_core::time::Timestamp;

use super::ModelStore;
use crate::store::{DestinationHour, Prune, Result, RetryLoad, Series, SeriesRow};

/// Rows by tenant, span, start, channel and node.
pub(super) type SeriesTable = BTreeMap<(Option<Tenant>, Span, Timestamp, Channel, NodeId), Figures>;

/// Hours of destinations by start, tenant, node and place.
pub(super) type DestinationHours = BTreeMap<(Timestamp, Option<Tenant>, NodeId, u16), DestinationHour>;

#[async_trait]
impl Series for ModelStore {
    async fn put_series(&self, rows: Vec<SeriesRow>) -> Result<()> {
        let mut tables = self.lock();
        for SeriesRow { tenant, span, at, channel, node, figures } in rows {
            let kept = tables.series.entry((tenant, span, at, channel, node)).or_default();
            if figures.weight() > kept.weight() {
                *kept = figures;
            }
        }
        // A row that says nothing is not kept.
        tables.series.retain(|_, figures| figures.weight() > 0);
        Ok(())
    }

    async fn series(
        &self,
        tenant: Option<Tenant>,
        span: Span,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<SeriesRow>> {
        let tables = self.lock();
        let is_asked = |key: &(Option<Tenant>, Span, Timestamp, Channel, NodeId)| {
            key.0 == tenant && key.1 == span && key.2 >= from && key.2 < until
        };
        let asked = tables.series.iter().filter(|(key, _)| is_asked(key));
        let row = |(key, figures): (&(Option<Tenant>, Span, Timestamp, Channel, NodeId), &Figures)| {
            let (tenant, span, at, channel, node) = key.clone();
            SeriesRow { tenant, span, at, channel, node, figures: figures.clone() }
        };
        Ok(asked.map(row).collect())
    }

    async fn put_destination_hours(&self, rows: Vec<DestinationHour>) -> Result<()> {
        let mut tables = self.lock();
        // A row that says nothing is not kept.
        for row in rows.into_iter().filter(|row| row.count > 0) {
            let key = (row.at, row.tenant.clone(), row.node, row.place);
            let kept = tables.destination_hours.get(&key).map_or(0, |kept| kept.count);
            if row.count > kept {
                tables.destination_hours.insert(key, row);
            }
        }
        Ok(())
    }

    async fn destination_hours(
        &self,
        tenant: Option<Tenant>,
        destination: Arc<str>,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<DestinationHour>> {
        let tables = self.lock();
        let asked = tables.destination_hours.values().filter(|row| {
            row.tenant == tenant && row.destination == destination && row.at >= from && row.at < until
        });
        Ok(asked.cloned().collect())
    }

    async fn retry_load(&self, tenant: Option<Tenant>, points: Points, limit: usize) -> Result<RetryLoad> {
        let tables = self.lock();
        let is_theirs = |owner: &Tenant| tenant.as_ref().is_none_or(|tenant| tenant == owner);
        let mut load = RetryLoad { counts: vec![0; points.count()], complete: true };
        let due = tables.retries.iter().filter(|place| place.due < points.end());
        let theirs = due.filter(|place| is_theirs(&tables.queue[&place.id].notification.tenant));
        let mut found = 0;
        for place in theirs.take(limit) {
            found += 1;
            load.counts[points.place(place.due).unwrap_or(0)] += 1;
        }
        load.complete = found < limit;
        Ok(load)
    }
}

/// The oldest rows, those of minutes first. Returns how many were removed, and whether these were all.
pub(super) fn prune(rows: &mut SeriesTable, prune: Prune) -> (u64, bool) {
    let old = rows.keys().filter(|(_, _, at, ..)| *at < prune.cut_off).cloned();
    let mut old: Vec<_> =
        old.map(|(tenant, span, at, channel, node)| (span, at, tenant, channel, node)).collect();
    old.sort_unstable();
    old.truncate(prune.limit);
    let (removed, done) = (old.len() as u64, old.len() < prune.limit);
    for (span, at, tenant, channel, node) in old {
        rows.remove(&(tenant, span, at, channel, node));
    }
    (removed, done)
}

/// The oldest hours of destinations. Returns how many were removed, and whether these were all.
pub(super) fn prune_destinations(rows: &mut DestinationHours, prune: Prune) -> (u64, bool) {
    let old = rows.keys().take_while(|(at, ..)| *at < prune.cut_off).take(prune.limit);
    let old: Vec<_> = old.cloned().collect();
    for key in &old {
        rows.remove(key);
    }
    (old.len() as u64, old.len() < prune.limit)
}
