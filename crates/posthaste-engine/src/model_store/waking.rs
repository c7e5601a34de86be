//! What becomes due, what expires and what has waited for long, among the rows that nobody holds.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};

use posthaste_core::flow::Bucket;
use posthaste_core::id::NotificationId;
use posthaste_core::time::Timestamp;

use super::nodes::{FIRST, LAST};
use super::tables::Tables;
use crate::store::{Expiring, Overdue, Wakes};

impl Tables {
    pub(super) fn wakes(&self, after: Timestamp, until: Timestamp) -> Wakes {
        let until = until.max(after);
        let in_stretch = self.due.range((Excluded((after, LAST)), Included((until, LAST))));
        let buckets: BTreeSet<Bucket> = in_stretch.map(|(_, id)| self.queue[id].bucket()).collect();
        let next = self.due.range((Excluded((until, LAST)), Unbounded)).next();
        Wakes { buckets: buckets.into_iter().collect(), next: next.map(|(due, _)| *due) }
    }

    pub(super) fn expiring(&self, until: Timestamp, limit: usize) -> Expiring {
        let told: Vec<NotificationId> =
            self.expiry.range(..=(until, LAST)).take(limit).map(|(_, id)| *id).collect();
        let next = self.expiry.iter().nth(told.len()).map(|(at, _)| *at);
        Expiring { rows: told.into_iter().map(|id| (id, self.queue[&id].seen())).collect(), next }
    }

    pub(super) fn buckets(&self, after: Option<Bucket>, limit: usize) -> Vec<(Bucket, Timestamp)> {
        let mut found = vec![];
        let mut last = after;
        while found.len() < limit {
            let from = last.map_or(Unbounded, |bucket| Excluded((bucket, Timestamp::MAX, LAST)));
            let Some((bucket, due, _)) = self.waiting.range((from, Unbounded)).next() else { break };
            found.push((*bucket, *due));
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
        let end = (due_before, FIRST);
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
