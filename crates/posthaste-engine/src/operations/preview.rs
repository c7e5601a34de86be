//! Dry runs: what an operation would act on, counted before it starts.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use posthaste_core::filter::{Filter, List};
use posthaste_core::group::{GroupBy, GroupId, Grouped, fingerprint, pattern, title};
use posthaste_core::id::NotificationId;
use posthaste_core::operation::{Action, Decision, Operation, Selection, Skip, selected};
use posthaste_core::time::Timestamp;
use tokio::time::Instant;

use super::staging::{Found, look};
use super::{OperationResult, ids};
use crate::reads::Reads;
use crate::store::{DeadLetterView, View};

/// How long a dry run counts.
const COUNTING: Duration = Duration::from_secs(1);
/// How many rows a dry run reads at once, and how many of them it shows.
const PAGE: usize = 500;
const SAMPLE: usize = 5;
/// How many groups it shows.
const GROUPS: usize = 10;

/// What an operation would act on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Preview {
    /// How many were counted.
    pub total: u64,
    /// Whether all were counted.
    pub exact: bool,
    /// How many of them have expired, so that they would be left out.
    pub expired: u64,
    /// The first ones.
    pub sample: Vec<Sampled>,
    /// The largest failure groups by fingerprint among them, the largest first.
    pub groups: Vec<GroupCount>,
}

/// How many of a failure group are selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupCount {
    /// Which one.
    pub id: GroupId,
    /// What a person understands.
    pub title: String,
    /// How many.
    pub count: u64,
}

/// One of those that an operation would act on.
#[derive(Debug, Clone, PartialEq)]
pub enum Sampled {
    /// It acts on dead letters.
    Letter(Box<DeadLetterView>),
    /// It acts on what waits.
    Notification(Box<View>),
}

impl Reads {
    /// Counts what an operation would act on, for at most a second.
    pub async fn preview_operation(&self, operation: &Operation) -> OperationResult<Preview> {
        let (until, now) = (Instant::now() + COUNTING, self.shared().node.now());
        let mut count = Count::of(operation.action, now);
        let filter =
            selected(operation.action, &operation.selection, operation.tenant.as_ref(), operation.cut_off)?;
        let mut cursor: Option<String> = None;
        loop {
            cursor = match (&operation.selection, &filter) {
                (Selection::Ids(ids), _) => self.count_ids(&mut count, ids, cursor.as_deref()).await?,
                (_, Some(filter)) => self.count_page(&mut count, filter, cursor.as_deref()).await?,
                (_, None) => None,
            };
            if cursor.is_none() || Instant::now() >= until {
                return Ok(count.preview(cursor.is_none()));
            }
        }
    }

    async fn count_page(
        &self,
        count: &mut Count,
        filter: &Filter,
        cursor: Option<&str>,
    ) -> OperationResult<Option<String>> {
        let store = &self.shared().store;
        Ok(match count.action.list() {
            List::DeadLetters => {
                let before = cursor.and_then(|text| text.parse().ok());
                let page = store.dead_letters(filter.clone(), before, PAGE).await?;
                page.rows.into_iter().for_each(|row| count.letter(row));
                page.next.map(|next| next.to_string())
            }
            List::Notifications | List::Failed | List::RetryQueue => {
                let before = cursor.and_then(|text| text.parse().ok());
                let page = store.page(filter.clone(), before, PAGE).await?;
                page.rows.into_iter().for_each(|row| count.notification(row));
                page.next.map(|next| next.to_string())
            }
        })
    }

    /// Of ids, only what the act would change is counted. What they name was found when the operation was made.
    async fn count_ids(
        &self,
        count: &mut Count,
        all: &[String],
        cursor: Option<&str>,
    ) -> OperationResult<Option<String>> {
        let shared = self.shared();
        let from = cursor.and_then(|text| text.parse().ok()).unwrap_or(0usize).min(all.len());
        let end = all.len().min(from + ids::PAGE);
        let items: Vec<_> = shared.named_by(&all[from..end]).await?.into_iter().flatten().collect();
        let found = look(shared, count.action, &items).await?;
        for item in items {
            let decision =
                found.get(&item.notification).map(|found| found.decide(count.action, item, count.now));
            let Some(Decision::Stage { .. } | Decision::Skip(Skip::Expired)) = decision else { continue };
            let letter = item.dead_letter.or_else(|| found.get(&item.notification)?.letter());
            match letter.filter(|_| count.action.is_about_dead_letters()) {
                Some(letter) => {
                    shared.store.dead_letter(letter).await?.into_iter().for_each(|row| count.letter(row));
                }
                None => {
                    let row = shared.store.get(item.notification).await?;
                    row.into_iter().for_each(|row| count.notification(row));
                }
            }
        }
        Ok((end < all.len()).then(|| end.to_string()))
    }
}

impl Found {
    fn letter(&self) -> Option<posthaste_core::id::DeadLetterId> {
        self.facts.as_ref().ok()?.standing.letter().map(|(letter, _)| letter)
    }
}

/// A count that is under way.
struct Count {
    action: Action,
    now: Timestamp,
    preview: Preview,
    groups: HashMap<GroupId, (String, u64)>,
    /// Of several dead letters of a notification one is restored.
    restored: HashSet<NotificationId>,
}

impl Count {
    fn of(action: Action, now: Timestamp) -> Self {
        Self { action, now, preview: Preview::default(), groups: HashMap::new(), restored: HashSet::new() }
    }

    fn letter(&mut self, row: DeadLetterView) {
        if self.action == Action::Restore && !self.restored.insert(row.notification.id) {
            return;
        }
        self.preview.total += 1;
        let is_over = row.notification.expires_at.is_some_and(|at| at <= self.now);
        self.preview.expired += u64::from(is_over && self.action == Action::Requeue);
        let DeadLetterView { reason, failure_type: failure, status_code: status, .. } = row;
        let print =
            row.fingerprint.unwrap_or_else(|| fingerprint(reason, failure, status, &pattern(&row.text)));
        if let Some(id) = Grouped::of(&row.notification, print).group(GroupBy::Fingerprint) {
            let titled = || (title(reason, failure, status, &row.text), 0);
            self.groups.entry(id).or_insert_with(titled).1 += 1;
        }
        if self.preview.sample.len() < SAMPLE {
            self.preview.sample.push(Sampled::Letter(Box::new(row)));
        }
    }

    fn notification(&mut self, row: View) {
        self.preview.total += 1;
        if self.preview.sample.len() < SAMPLE {
            self.preview.sample.push(Sampled::Notification(Box::new(row)));
        }
    }

    fn preview(self, exact: bool) -> Preview {
        let groups = self.groups.into_iter().map(|(id, (title, count))| GroupCount { id, title, count });
        let mut groups: Vec<GroupCount> = groups.collect();
        groups.sort_by_key(|group| (std::cmp::Reverse(group.count), group.id));
        groups.truncate(GROUPS);
        Preview { exact, groups, ..self.preview }
    }
}
