//! The minutes and hours of tenants and channels: what is or will be written.

use std::collections::BTreeMap;

use posthaste_core::channel::Channel;
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
use posthaste_core::series::{Figures, Span};
use posthaste_core::time::Timestamp;

use super::GRACE;
use super::fresh::{ByTenant, MOST_KEYS};
use crate::store::SeriesRow;

/// The most rows in memory: two minutes and two hours of all tenants and channels that are told apart, and their sums. If the
/// store is away for so long that there are more, those of the earliest periods are lost.
pub(super) const MOST_ROWS: usize = 4 * (MOST_KEYS + Channel::ALL.len());

/// Span, start, tenant (none for the sum) and channel of a row.
type RowKey = (Span, Timestamp, Option<Tenant>, Channel);

/// The rows of one node.
pub(super) struct Periods {
    writer: NodeId,
    rows: BTreeMap<RowKey, Row>,
}

#[derive(Default)]
struct Row {
    figures: Figures,
    is_written: bool,
}

impl Periods {
    pub(super) const fn new(writer: NodeId) -> Self {
        Self { writer, rows: BTreeMap::new() }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The rows that are not written yet, in their present form.
    pub(super) fn unwritten(&self) -> Vec<SeriesRow> {
        let open = self.rows.iter().filter(|(_, row)| !row.is_written);
        open.map(|(key, row)| self.row(key, row.figures.clone())).collect()
    }

    fn row(&self, (span, at, tenant, channel): &RowKey, figures: Figures) -> SeriesRow {
        let (span, at, channel) = (*span, *at, *channel);
        SeriesRow { tenant: tenant.clone(), span, at, channel, node: self.writer, figures }
    }

    /// These are written. Nobody else changes rows meanwhile, but for making them anew.
    pub(super) fn written(&mut self, rows: &[SeriesRow], now: Timestamp) {
        for SeriesRow { tenant, span, at, channel, figures, .. } in rows {
            let key = (*span, *at, tenant.clone(), *channel);
            if let Some(row) = self.rows.get_mut(&key) {
                row.is_written = row.figures.weight() == figures.weight();
            }
        }
        self.rows.retain(|(span, at, ..), row| !row.is_written || at.later(span.length() + GRACE) > now);
    }

    /// Puts these rows in place of what this node has written.
    pub(super) fn renew(
        &self,
        kept: &mut Vec<SeriesRow>,
        tenant: Option<&Tenant>,
        span: Span,
        (from, until): (Timestamp, Timestamp),
    ) {
        let of_span = self.rows.range((span, from, None, Channel::ALL[0])..);
        let asked = of_span
            .take_while(|((of, at, ..), _)| *of == span && *at < until)
            .filter(|((_, _, whose, _), _)| whose.as_ref() == tenant);
        let own: Vec<SeriesRow> = asked.map(|(key, row)| self.row(key, row.figures.clone())).collect();
        let is_own = |row: &SeriesRow| {
            row.node == self.writer && own.iter().any(|own| (own.at, own.channel) == (row.at, row.channel))
        };
        kept.retain(|row| !is_own(row));
        kept.extend(own);
    }

    /// Adds what is fresh to the rows of its tenant and of all, by the minute and by the hour.
    pub(super) fn fold(&mut self, fresh: ByTenant) {
        self.make_room(&fresh);
        for ((minute, tenant, channel), figures) in fresh {
            for span in Span::ALL {
                let sum = Some(None);
                for whose in sum.into_iter().chain(tenant.clone().map(Some)) {
                    let key = (span, span.start(minute), whose, channel);
                    // The other rows last: one that left the memory now would be written with too little afterwards.
                    if key.2.is_some() && self.rows.len() >= MOST_ROWS && !self.rows.contains_key(&key) {
                        continue;
                    }
                    let row = self.rows.entry(key).or_default();
                    row.figures.merge(&figures);
                    row.is_written = false;
                }
            }
        }
    }

    /// Drops rows of periods that are over, where what is fresh needs their room: first those that are written.
    fn make_room(&mut self, fresh: &ByTenant) {
        let Some(latest) = fresh.keys().map(|(minute, ..)| *minute).max() else { return };
        // Those of the sums, of which there may be two periods of each span at the most.
        let sums = 2 * Span::ALL.len() * Channel::ALL.len();
        if self.rows.len() + Span::ALL.len() * fresh.len() + sums <= MOST_ROWS {
            return;
        }
        let keys = fresh.keys().flat_map(|(minute, tenant, channel)| {
            Span::ALL.map(|span| (span, span.start(*minute), tenant.clone(), *channel))
        });
        let new = keys.filter(|key| !self.rows.contains_key(key)).count();
        let beyond = (self.rows.len() + new + sums).saturating_sub(MOST_ROWS);
        let over = self.rows.iter().filter(|((span, at, ..), _)| at.later(span.length()) <= latest);
        let mut dropped: Vec<(bool, Timestamp, RowKey)> =
            over.map(|(key, row)| (!row.is_written, key.1, key.clone())).collect();
        dropped.sort_unstable();
        dropped.truncate(beyond);
        let lost = dropped.iter().filter(|(is_lost, ..)| *is_lost).count();
        for (_, _, key) in dropped {
            self.rows.remove(&key);
        }
        if lost > 0 {
            tracing::warn!(rows = lost, "figures are lost: the store did not take them for too long");
        }
    }
}
