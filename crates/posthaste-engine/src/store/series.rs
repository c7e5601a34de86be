//! Figures by the minute and by the hour, those of the busiest destinations, and when retries are due.

use std::sync::Arc;

use posthaste_core::channel::Channel;
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
use posthaste_core::series::{Figures, Points, Span};
use posthaste_core::time::Timestamp;

use super::slice::slice;

slice! {
    /// Roll-ups. They are not counters: each node writes rows of its own at most once a second, after what they tell of, so
    /// what happened in the second before a crash may be missing.
    pub trait Series {
        /// Keeps rows, each in place of the one with the same key if it has more in it. A write that is repeated, or happens
        /// late, changes nothing.
        write Put: fn put_series(rows: Vec<SeriesRow>) -> ();

        /// The rows of a tenant, or of the sums over all tenants, whose periods start from `from` to before `until`, in the
        /// order of time, channel and node.
        read Get: fn series(
            tenant: Option<Tenant>,
            span: Span,
            from: Timestamp,
            until: Timestamp,
        ) -> Vec<SeriesRow>;

        /// Keeps hours of destinations, each in place of the one with the same key if its count is greater. A write that is
        /// repeated, or happens late, changes nothing.
        write PutDestinations: fn put_destination_hours(rows: Vec<DestinationHour>) -> ();

        /// The hours of a destination of a tenant, or of the sums over all tenants, that start from `from` to before `until`,
        /// in the order of time, node and place.
        read GetDestination: fn destination_hours(
            tenant: Option<Tenant>,
            destination: Arc<str>,
            from: Timestamp,
            until: Timestamp,
        ) -> Vec<DestinationHour>;

        /// How many retries are due in each of the points, of one tenant or of all. What is overdue is in the first. At most
        /// `limit` rows are looked at, those of all tenants soonest first.
        read Load: fn retry_load(tenant: Option<Tenant>, points: Points, limit: usize) -> RetryLoad;
    }
}

/// What one node saw in one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesRow {
    /// Whose; none for the sum over all tenants.
    pub tenant: Option<Tenant>,
    /// How long the period is.
    pub span: Span,
    /// Its start.
    pub at: Timestamp,
    /// Over which channel.
    pub channel: Channel,
    /// The node that counted: nobody else writes this row.
    pub node: NodeId,
    /// What happened so far.
    pub figures: Figures,
}

/// What one node saw of one of the busiest destinations in one hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationHour {
    /// Whose; none for the sum over all tenants.
    pub tenant: Option<Tenant>,
    /// The start of the hour.
    pub at: Timestamp,
    /// The node that counted: nobody else writes this row.
    pub node: NodeId,
    /// The number of the place among the busiest. Another destination may take it over, so there are only so many rows.
    pub place: u16,
    /// Over which channel.
    pub channel: Channel,
    /// Where to.
    pub destination: Arc<str>,
    /// Grows with each use of the place.
    pub count: u64,
    /// What happened since the destination has the place.
    pub figures: Figures,
}

/// When retries are due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryLoad {
    /// One number for each point.
    pub counts: Vec<u64>,
    /// Whether fewer rows than the limit were found, so that all are counted.
    pub complete: bool,
}
