//! Limits on the rows that figures are read from, so that their cost does not grow with the size of the store.

/// Maximum number of held rows that are counted. One node with the default `engine.concurrency` of 256 never
/// holds more: for each slot at most 16 notifications are prefetched, one is being sent and one is being
/// settled.
pub(crate) const MAX_HELD: i64 = 5_000;

/// Maximum number of due rows of all tenants, longest due first, that are searched for the oldest of one
/// tenant.
pub(crate) const MAX_DUE: i64 = 1_000;

/// Maximum number of flows of a tenant whose buckets are read if the tenant has none of those rows.
pub(crate) const MAX_FLOWS: i64 = 500;

/// Maximum number of flows of a tenant whose retries are counted by the time that they are due.
pub(crate) const MAX_LOAD_FLOWS: i64 = 10_000;
