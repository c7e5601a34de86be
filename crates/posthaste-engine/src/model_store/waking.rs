//! What becomes due, what expires and what has waited for long, among the rows that nobody holds.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use posthaste_core::flow::Bucket;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;

use super::tables::Tables;
use crate::store::{Expiring, Overdue, Waiting, Wakes};

impl Tables {
    pub(super) fn wakes(&self, after: (Timestamp, NotificationId), until: Timestamp, limit: usize) -> Wakes {
        let limit = limit.max(1);
        let mut found = BTreeMap::new();
        let mut read = 0;
        for (due, id) in self.due.range((Excluded(after), Unbounded)) {
            if *due > until {
                return Wakes { buckets: found.into_iter().collect(), more: None, next: Some(*due) };
            }
            let bucket = self.queue[id].bucket();
            found.extend(self.tenant(bucket).map(|tenant| (bucket, tenant)));
            read += 1;
            if read == limit {
                return Wakes { buckets: found.into_iter().collect(), more: Some((*due, *id)), next: None };
            }
        }
        Wakes { buckets: found.into_iter().collect(), more: None, next: None }
    }

    fn tenant(&self, bucket: Bucket) -> Option<Tenant> {
        self.flows.get(&bucket.flow).map(|key| key.tenant.clone())
    }

    pub(super) fn expiring(&self, until: Timestamp, limit: usize) -> Expiring {
        let told: Vec<NotificationId> =
            self.expiry.range(..=(until, NotificationId::LAST)).take(limit).map(|(_, id)| *id).collect();
        let next = self.expiry.iter().nth(told.len()).map(|(at, _)| *at);
        Expiring { rows: told.into_iter().map(|id| (id, self.queue[&id].seen())).collect(), next }
    }

    pub(super) fn buckets(&self, after: Option<Bucket>, limit: usize) -> Vec<Waiting> {
        let mut found = vec![];
        let mut last = after;
        while found.len() < limit {
            let from =
                last.map_or(Unbounded, |bucket| Excluded((bucket, Timestamp::MAX, NotificationId::LAST)));
            let Some((bucket, due, _)) = self.waiting.range((from, Unbounded)).next() else { break };
            let tenant = self.tenant(*bucket);
            found.extend(tenant.map(|tenant| Waiting { bucket: *bucket, tenant, due: *due }));
            last = Some(*bucket);
        }
        found
    }

    pub(super) fn overdue(
        &self,
        due_before: Timestamp,
        first_due_before: Timestamp,
        after: Option<(Timestamp, NotificationId)>,
        limit: usize,
    ) -> Vec<Overdue> {
        let end = (due_before, NotificationId::FIRST);
        if after.is_some_and(|after| after >= end) {
            return vec![];
        }
        let rows = self.due.range((after.map_or(Unbounded, Excluded), Excluded(end)));
        let rows = rows.map(|(_, id)| &self.queue[id]).filter(|row| row.first_due < first_due_before);
        let shown = rows.take(limit).map(|row| Overdue {
            notification: row.notification.clone(),
            seen: row.seen(),
            due: row.due,
            first_due: row.first_due,
        });
        shown.collect()
    }
}
