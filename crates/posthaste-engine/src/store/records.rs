//! What people define: templates, contacts, suppressions, subscriptions, views, notes.

use posthaste_core::notification::Tenant;
use posthaste_core::record::{Record, RecordChange, RecordKey, RecordKind};
use posthaste_core::time::Timestamp;

use super::acts::Audit;
use super::reads::Page;
use super::slice::slice;

slice! {
    /// Records by (kind, tenant, name). Unlike settings they may be many, and a node reads only what it needs.
    pub trait Records {
        /// Makes each change whose record is as expected, in their order. Returns the new version for each that was made. If any
        /// was made and `audit` is given, its row is written with the numbers of changes asked for and made.
        write Put: fn put_records(
            changes: Vec<RecordChange>,
            audit: Option<Audit>,
            now: Timestamp,
        ) -> Vec<Option<i64>>;

        /// The records of these keys, each once, in the order of the keys. What was removed is left out.
        read Get: fn records(keys: Vec<RecordKey>) -> Vec<Record>;

        /// The records of a kind in the order of their keys after `after`: those of one tenant, or all of them, those of no
        /// tenant first. Looks at up to `limit` records. What was removed is left out, so a page may be short and still have
        /// a next.
        read Page: fn record_page(
            kind: RecordKind,
            tenant: Option<Tenant>,
            after: Option<RecordKey>,
            limit: usize,
        ) -> Page<Record, RecordKey>;

        /// The records of a kind that changed after that version, in the order of their versions, with those that were removed.
        /// Fewer than `limit` mean that there are no more. A version is never seen before a lower one.
        read Since: fn records_since(kind: RecordKind, version: i64, limit: usize) -> Vec<Record>;
    }
}
