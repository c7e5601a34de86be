//! What becomes due, what expires and what has waited for long, among the rows that nobody holds.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use async_trait::async_trait;
use posthaste_core::flow::Bucket;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::tables::{Row, Tables};
use crate::store::{DueCursor, Expiring, ExpiringRow, Overdue, Result, Waiting, Wakes, Waking, Woken};

#[async_trait]
impl Waking for ModelStore {
    async fn wakes(&self, after: DueCursor, until: Timestamp, limit: usize) -> Result<Wakes> {
        Ok(self.lock().wakes(after, until, limit))
    }

    async fn expiring(&self, until: Timestamp, limit: usize) -> Result<Expiring> {
        Ok(self.lock().expiring(until, limit))
    }

    async fn buckets(&self, after: Option<Bucket>, limit: usize) -> Result<Vec<Waiting>> {
        Ok(self.lock().buckets(after, limit))
    }

    async fn overdue(
        &self,
        due_before: Timestamp,
        first_due_before: Timestamp,
        after: Option<DueCursor>,
        limit: usize,
    ) -> Result<Vec<Overdue>> {
        Ok(self.lock().overdue(due_before, after, limit, |row| row.first_due < first_due_before))
    }

    async fn overdue_by_own_age(
        &self,
        due_before: Timestamp,
        after: Option<DueCursor>,
        limit: usize,
    ) -> Result<Vec<Overdue>> {
        Ok(self.lock().overdue(due_before, after, limit, |row| row.notification.has_own_age()))
    }
}

impl Tables {
    fn wakes(&self, after: DueCursor, until: Timestamp, limit: usize) -> Wakes {
        let limit = limit.max(1);
        let mut found = BTreeMap::new();
        let (mut read, mut more, mut next) = (0, None, None);
        for place in self.due.range((Excluded(after), Unbounded)) {
            if place.due > until {
                next = Some(place.due);
                break;
            }
            let bucket = self.queue[&place.id].bucket();
            found.extend(self.tenant(bucket).map(|tenant| (bucket, tenant)));
            read += 1;
            if read == limit {
                more = Some(*place);
                break;
            }
        }
        let buckets = found.into_iter().map(|(bucket, tenant)| Woken { bucket, tenant }).collect();
        Wakes { buckets, more, next }
    }

    fn tenant(&self, bucket: Bucket) -> Option<Tenant> {
        self.flows.get(&bucket.flow).map(|key| key.tenant.clone())
    }

    fn expiring(&self, until: Timestamp, limit: usize) -> Expiring {
        let told: Vec<NotificationId> =
            self.expiry.range(..=(until, NotificationId::LAST)).take(limit).map(|(_, id)| *id).collect();
        let next = self.expiry.iter().nth(told.len()).map(|(at, _)| *at);
        let row = |id| ExpiringRow { id, seen: self.queue[&id].seen() };
        Expiring { rows: told.into_iter().map(row).collect(), next }
    }

    fn buckets(&self, after: Option<Bucket>, limit: usize) -> Vec<Waiting> {
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

    fn overdue(
        &self,
        due_before: Timestamp,
        after: Option<DueCursor>,
        limit: usize,
        may_be_old: impl Fn(&Row) -> bool,
    ) -> Vec<Overdue> {
        let end = DueCursor { due: due_before, id: NotificationId::FIRST };
        if after.is_some_and(|after| after >= end) {
            return vec![];
        }
        let rows = self.due.range((after.map_or(Unbounded, Excluded), Excluded(end)));
        let rows = rows.map(|place| &self.queue[&place.id]).filter(|row| may_be_old(row));
        let shown = rows.take(limit).map(|row| Overdue {
            id: row.notification.id,
            tenant: row.notification.tenant.clone(),
            channel: row.notification.channel,
            notification: row.notification.has_own_policy().then(|| row.notification.clone()),
            expires_at: row.notification.expires_at,
            seen: row.seen(),
            due: row.due,
            first_due: row.first_due,
        });
        shown.collect()
    }
}
