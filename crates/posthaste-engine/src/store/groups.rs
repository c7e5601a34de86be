//! Failure groups: kept counts of pending dead letters.

use posthaste_core::failure::FailureType;
use posthaste_core::group::{GroupBy, GroupId, HOURS};
use posthaste_core::id::DeadLetterId;
use posthaste_core::notification::Tenant;
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;

use super::reads::Page;
use super::slice::slice;

slice! {
    /// Failure groups. A dead letter counts in its groups while it is pending, not deleted, and has a fingerprint. The counts
    /// change in the transaction that changes the dead letter. A kind of groups has at most `MAX_GROUPS` of a tenant and of
    /// all tenants together; what would be in further ones counts in the group `other`.
    pub trait Groups {
        /// Groups that have pending dead letters, the largest first: those of a tenant with its part, or the sum over all
        /// tenants. `now` says which hours are shown.
        read List: fn failure_groups(
            by: GroupBy,
            tenant: Option<Tenant>,
            after: Option<GroupCursor>,
            limit: usize,
            now: Timestamp,
        ) -> Page<FailureGroup, GroupCursor>;

        /// A group of a tenant or of all. One without pending dead letters is known until `prune_groups` removes it.
        read Get: fn failure_group(id: GroupId, tenant: Option<Tenant>, now: Timestamp) -> Option<FailureGroup>;

        /// How many groups of each kind have pending dead letters, over all tenants.
        read Numbers: fn group_numbers() -> Vec<(GroupBy, u64)>;

        /// Gives a fingerprint to that many dead letters of nodes from before, which bury without one, and returns how many
        /// got one. Fewer than `limit` mean that none is left.
        write Fill: fn fill_groups(limit: usize) -> usize;

        /// Removes up to `limit` groups that have no pending dead letter and got their last one before that time. Returns how
        /// many were removed. Where `other` counts anything, no group of
        /// that kind and tenant is removed: a dead letter is counted in `other` exactly while its group is not known.
        write Prune: fn prune_groups(before: Timestamp, limit: usize) -> usize;

        /// Removes up to `limit` rows of hours before that time, which nobody is shown any more. Fewer than `limit` mean that
        /// none is left; how many rows an hour has is the store's own affair.
        write PruneHours: fn prune_group_hours(before: Timestamp, limit: usize) -> usize;
    }
}

/// A failure group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureGroup {
    /// The same for every tenant.
    pub id: GroupId,
    /// What it groups by.
    pub by: GroupBy,
    /// What it is, for people.
    pub title: String,
    /// How many dead letters are pending.
    pub count: u64,
    /// When the first dead letter died.
    pub first_seen: Timestamp,
    /// How many of those that are pending died in each of the last hours, the current hour last.
    pub hours: [u64; HOURS],
    /// Why the newest one ended.
    pub reason: Option<Reason>,
    /// How the last attempt of the newest one failed.
    pub failure_type: Option<FailureType>,
    /// The status code of the last attempt of the newest one.
    pub status_code: Option<u16>,
    /// The newest dead letter. It may have been resolved since.
    pub sample: DeadLetterId,
}

impl FailureGroup {
    /// When the last dead letter died.
    pub fn last_seen(&self) -> Timestamp {
        self.sample.made_at()
    }

    /// Where the page after this group begins.
    pub const fn cursor(&self) -> GroupCursor {
        GroupCursor { count: self.count, id: self.id }
    }
}

/// A place in the list of groups: the largest count first, then the greatest id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupCursor {
    /// The count of the last group seen.
    pub count: u64,
    /// That group.
    pub id: GroupId,
}
