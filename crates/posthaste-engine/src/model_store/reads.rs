//! What people and programs look at.

use std::collections::BTreeSet;
use std::ops::Bound::{self, Excluded, Unbounded};

use async_trait::async_trait;
use posthaste_core::filter::{AuditFilter, Filter, LetterStatus, last_failure};
use posthaste_core::group::GroupId;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;

use super::ModelStore;
use super::tables::Tables;
use crate::store::{
    AuditRow, DeadLetterView, DueCursor, End, History, LastError, Page, Reads, Result, Stats, View,
};

/// How many rows a page looks at before it gives up and hands out a cursor.
const LONGEST_SCAN: usize = 5_000;

#[async_trait]
impl Reads for ModelStore {
    async fn get(&self, id: NotificationId) -> Result<Option<View>> {
        Ok(self.lock().view(id))
    }

    async fn get_many(&self, ids: Vec<NotificationId>) -> Result<Vec<View>> {
        let tables = self.lock();
        let ids: BTreeSet<NotificationId> = ids.into_iter().collect();
        Ok(ids.into_iter().filter_map(|id| tables.view(id)).collect())
    }

    async fn history(&self, id: NotificationId) -> Result<History> {
        Ok(self.lock().history(id))
    }

    async fn page(
        &self,
        filter: Filter,
        before: Option<NotificationId>,
        limit: usize,
    ) -> Result<Page<View, NotificationId>> {
        Ok(self.lock().page(&filter, before, limit))
    }

    async fn retry_queue(
        &self,
        filter: Filter,
        after: Option<DueCursor>,
        limit: usize,
    ) -> Result<Page<View, DueCursor>> {
        Ok(self.lock().retry_queue(&filter, after, limit))
    }

    async fn dead_letter(&self, id: DeadLetterId) -> Result<Option<DeadLetterView>> {
        Ok(self.lock().dead_letters.get(&id).cloned())
    }

    async fn dead_letters(
        &self,
        filter: Filter,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Page<DeadLetterView, DeadLetterId>> {
        Ok(self.lock().dead_letters(&filter, before, limit))
    }

    async fn audit(
        &self,
        filter: AuditFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<AuditRow, i64>> {
        Ok(self.lock().audit_page(&filter, before, limit))
    }

    async fn stats(&self, tenant: Option<Tenant>, now: Timestamp) -> Result<Stats> {
        Ok(self.lock().stats(tenant.as_ref(), now))
    }

    async fn tenants(&self, from: Option<Tenant>, limit: usize) -> Result<Vec<Tenant>> {
        let tables = self.lock();
        let all: BTreeSet<&Tenant> = tables.flow_numbers.keys().map(|key| &key.tenant).collect();
        let listed = all.into_iter().filter(|tenant| from.as_ref().is_none_or(|from| *tenant >= from));
        Ok(listed.take(limit).cloned().collect())
    }
}

impl Tables {
    fn view(&self, id: NotificationId) -> Option<View> {
        let notification = self.notifications.get(&id)?.notification.clone();
        let last = self.attempts.get(&id).and_then(|made| made.values().next_back());
        let last_error = LastError::of(last);
        if let Some(row) = self.queue.get(&id) {
            return Some(View {
                notification,
                state: row.state(),
                progress: row.progress,
                due: Some(row.due),
                cancel_requested: row.cancel,
                last_error,
                end: None,
            });
        }
        let ended = self.ended.get(&id)?;
        Some(View {
            notification,
            state: ended.state,
            progress: ended.progress,
            due: None,
            cancel_requested: false,
            last_error,
            end: Some(End {
                at: ended.at,
                reason: ended.reason,
                text: ended.text.clone(),
                dead_letter: ended.dead_letter,
                failure_type: ended.failure_type,
                status_code: ended.status_code,
            }),
        })
    }

    fn history(&self, id: NotificationId) -> History {
        let attempts = self.attempts.get(&id).into_iter().flat_map(|made| made.values());
        History {
            attempts: attempts.cloned().collect(),
            events: self.events.get(&id).cloned().unwrap_or_default(),
        }
    }

    fn page(
        &self,
        filter: &Filter,
        before: Option<NotificationId>,
        limit: usize,
    ) -> Page<View, NotificationId> {
        let (from, until) =
            (filter.since.map(NotificationId::least_at), filter.until.map(NotificationId::least_at));
        let older = self.notifications.range((Unbounded, earlier(before, until)));
        let older = older.map(|(id, _)| *id).rev().take_while(|id| from.is_none_or(|from| from <= *id));
        scan(older, limit, |id| self.shown(filter, *id))
    }

    fn retry_queue(&self, filter: &Filter, after: Option<DueCursor>, limit: usize) -> Page<View, DueCursor> {
        let later = self.retries.range((after.map_or(Unbounded, Excluded), Unbounded)).copied();
        scan(later, limit, |place| self.shown(filter, place.id))
    }

    fn dead_letters(
        &self,
        filter: &Filter,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Page<DeadLetterView, DeadLetterId> {
        let (from, until) =
            (filter.since.map(DeadLetterId::least_at), filter.until.map(DeadLetterId::least_at));
        let older = self.dead_letters.range((Unbounded, earlier(before, until)));
        let older = older.map(|(id, _)| *id).rev().take_while(|id| from.is_none_or(|from| from <= *id));
        let is_known = |group: GroupId| self.groups.knows(group, filter.tenant.as_ref());
        if filter.group.is_some_and(|group| !is_known(group)) {
            return Page { rows: vec![], next: None };
        }
        scan(older, limit, |id| self.dead_letters.get(id).filter(|dead| wants_letter(filter, dead)).cloned())
    }

    /// A notification, if the filter wants it.
    fn shown(&self, filter: &Filter, id: NotificationId) -> Option<View> {
        let last = self.attempts.get(&id).and_then(|made| made.values().next_back());
        let wanted = |view: &View| {
            let reason = view.end.as_ref().and_then(|end| end.reason);
            let last = match &view.end {
                Some(end) => end.failure_type.map(|failure| (failure, end.status_code)),
                None => last_failure(last),
            };
            filter.matches(&view.notification, view.state, reason, last)
        };
        self.view(id).filter(wanted)
    }

    fn audit_page(&self, filter: &AuditFilter, before: Option<i64>, limit: usize) -> Page<AuditRow, i64> {
        let older = self.audit.iter().rev().filter(|row| before.is_none_or(|before| row.number < before));
        // What is another tenant's is not looked at.
        let older = older.filter(|row| matches(filter.tenant.as_ref(), row.audit.tenant.as_ref()));
        let older = older.skip_while(|row| filter.is_too_new(row.audit.at));
        let older = older.take_while(|row| !filter.is_over(row.audit.at));
        scan(older.map(|row| row.number), limit, |number| {
            let index = self.audit.binary_search_by_key(number, |row| row.number).ok()?;
            let row = self.audit.get(index)?;
            filter.matches(&row.audit.audited()).then(|| row.clone())
        })
    }

    fn stats(&self, tenant: Option<&Tenant>, now: Timestamp) -> Stats {
        let mut due = self.due.range(..=DueCursor::after_all_at(now));
        let oldest = due.find(|place| matches(tenant, Some(&self.queue[&place.id].notification.tenant)));
        Stats { channels: self.counters.stats(tenant, now), oldest_due: oldest.map(|place| place.due) }
    }
}

/// Rows before the earlier of two places, where any is named.
fn earlier<C: Ord>(one: Option<C>, other: Option<C>) -> Bound<C> {
    [one, other].into_iter().flatten().min().map_or(Unbounded, Excluded)
}

/// A page of what `pick` takes from the rows. There is a next one if a row is left for it, or if the scan ended at its bound.
fn scan<T, C: Copy>(
    rows: impl Iterator<Item = C>,
    limit: usize,
    pick: impl Fn(&C) -> Option<T>,
) -> Page<T, C> {
    let mut page = Page { rows: vec![], next: None };
    let (mut looked_at, mut last_shown) = (None, None);
    for (index, cursor) in rows.enumerate() {
        if index == LONGEST_SCAN {
            page.next = looked_at;
            break;
        }
        looked_at = Some(cursor);
        let Some(row) = pick(&cursor) else { continue };
        if page.rows.len() >= limit {
            page.next = last_shown;
            break;
        }
        page.rows.push(row);
        last_shown = Some(cursor);
    }
    page
}

fn wants_letter(filter: &Filter, dead: &DeadLetterView) -> bool {
    let status = LetterStatus::of(dead.status, dead.deleted_at.is_some());
    let last = last_failure(dead.attempts.last());
    filter.matches_letter(&dead.notification, dead.created_at, status, dead.reason, last, dead.fingerprint)
}

/// Nothing wanted matches everything.
fn matches<T: PartialEq + ?Sized>(wanted: Option<&T>, found: Option<&T>) -> bool {
    wanted.is_none() || wanted == found
}
