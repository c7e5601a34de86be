//! What is known of destinations that are unhealthy, blocked, paused or limited, and their short histories.

use std::sync::Arc;

use posthaste_core::destination::{
    DestinationChange, DestinationEvent, DestinationId, DestinationKey, DestinationPut, StoredDestination,
};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;

use super::acts::Audit;
use super::reads::Page;
use super::slice::slice;

slice! {
    /// The state of destinations, which all nodes share, and what waits for them.
    pub trait Destinations {
        /// Makes each change whose row is as expected, in their order, and tells the other nodes if any was made. Then `audit`, if
        /// it is given, is written too, with the numbers of changes asked for and made. Of the history of a destination the last
        /// `MAX_EVENTS` stay. Rows without a value that are older than `REMOVED_KEPT` are removed, some at each call.
        write Put: fn put_destinations(
            changes: Vec<DestinationChange>,
            audit: Option<Audit>,
            now: Timestamp,
        ) -> Vec<DestinationPut>;

        /// The rows of these keys, each once, in the order of the keys. What was removed is left out.
        read Get: fn destinations(keys: Vec<DestinationKey>) -> Vec<StoredDestination>;

        /// The row of an id. What was removed is left out.
        read Find: fn destination(id: DestinationId) -> Option<StoredDestination>;

        /// The rows in the order of their keys after `after`: those of one tenant, or all of them, those of no tenant first. Looks
        /// at up to `limit` rows. What was removed is left out, so a page may be short and still have a next.
        read Page: fn destination_page(
            tenant: Option<Tenant>,
            after: Option<DestinationKey>,
            limit: usize,
        ) -> Page<StoredDestination, DestinationKey>;

        /// The rows that changed after that version, in the order of their versions, with those that were removed. Fewer than
        /// `limit` mean that there are no more. A version is never seen before a lower one.
        read Since: fn destinations_since(version: i64, limit: usize) -> Vec<StoredDestination>;

        /// The histories of destinations in the order of `of`: of each the events at or after `since`, up to `limit`, the last one
        /// first. What is older than `EVENTS_KEPT` may be gone.
        read Events: fn destination_events(
            of: Vec<DestinationId>,
            since: Timestamp,
            limit: usize,
        ) -> Vec<Vec<DestinationEvent>>;

        /// The destinations that there are flows of, in the order of tenant and name after those of `after`: those of one tenant
        /// or of all, and of one name or of every name. Looks at up to `limit` flows, those to origins before those of
        /// subscriptions, as keys are ordered. What goes over providers is not listed.
        read Known: fn known_destinations(
            tenant: Option<Tenant>,
            name: Option<Arc<str>>,
            after: Option<DestinationKey>,
            limit: usize,
        ) -> Page<DestinationKey, DestinationKey>;

        /// How many rows that are due at `now` and that nobody holds wait in each of these flows, counted up to `most`.
        read Parked: fn parked(of: Vec<FlowsTo>, most: u64, now: Timestamp) -> Vec<u64>;
    }
}

/// The flows of a tenant, or of all tenants, to what is named so in flows: an origin, a subscription, a pool, a pinned provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowsTo {
    /// None for those of all tenants.
    pub tenant: Option<Tenant>,
    /// As flows have it: `https://host:443`, `sub_..`, `pool:email`, `provider:name`.
    pub destination: Arc<str>,
}
