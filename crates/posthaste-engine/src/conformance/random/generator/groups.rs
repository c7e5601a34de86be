//! Failure groups: pages, single groups, and pruning.

use std::time::Duration;

use posthaste_core::group::{GroupBy, GroupId};

use super::Generator;
use crate::store::{GroupCursor, groups};

impl Generator {
    pub(super) fn group_call(&mut self, limit: usize) -> groups::Call {
        let by = GroupBy::ALL[self.rng.usize(0..5)];
        let (tenant, now) = (self.some_tenant(), self.now);
        match self.rng.u32(0..6) {
            0 => groups::Call::Get { id: self.some_group(), tenant, now },
            1 => groups::Call::Numbers {},
            2 => groups::Call::Fill { limit },
            3 => {
                let before = now.earlier(Duration::from_secs(self.rng.u64(0..200_000)));
                groups::Call::Prune { before, limit }
            }
            _ => {
                let after =
                    self.rng.bool().then(|| GroupCursor { count: self.rng.u64(0..9), id: self.some_group() });
                groups::Call::List { by, tenant, after, limit, now }
            }
        }
    }

    /// Mostly one that exists.
    pub(super) fn some_group(&mut self) -> GroupId {
        let tenant = super::TENANTS[self.rng.usize(..super::TENANTS.len())];
        match self.rng.u32(0..5) {
            0 => GroupId::of(GroupBy::Tenant, tenant.as_bytes()),
            1 => GroupId::of(GroupBy::Channel, b"1"),
            2 => GroupId::of(GroupBy::Destination, b"https://example.org"),
            3 => match self.some_notification().and_then(|known| known.template.clone()) {
                Some(template) => GroupId::of(GroupBy::Template, template.as_bytes()),
                None => GroupId::from_bytes(self.rng.u128(..).to_be_bytes()),
            },
            _ => GroupId::other(GroupBy::Fingerprint),
        }
    }
}
