//! Bounds of what the stores look at to answer `Store::stats`, so that its cost does not grow with what is kept.

/// The most held rows that are counted. One node with the default `engine.concurrency` of 256 never holds more: each place
/// has at most 16 rows waiting in memory, one under way and one to be recorded.
pub(crate) const MOST_HELD: i64 = 5_000;

/// The most due rows of all tenants, longest due first, among which the oldest of one tenant is looked for.
pub(crate) const MOST_DUE: i64 = 1_000;

/// The most flows of a tenant whose buckets are looked at if it has none among those rows.
pub(crate) const MOST_FLOWS: i64 = 500;
