//! What a list walks for its rows, chosen by the fields of its filter that are set.
//!
//! A walk goes through ranges of indexes in the order of the list and passes over what the filter does not want. It looks at a
//! bounded number of rows; where it stops, the next walk of the plan goes on. Each walk of a plan meets every row that
//! the filter wants, so a walk that comes to its end has completed the list.

use std::collections::BTreeSet;

use posthaste_core::filter::{AuditFilter, Filter};
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{AuditRow, Page};

/// The most rows that one walk looks at.
pub(crate) const MAX_LOOKED_AT: usize = 5_000;

/// The most bytes of content that one page reads; the row that goes beyond is its last.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The most flows that are merged at once.
const FEW_FLOWS: usize = 500;

/// The most flows that are merged at all.
pub(crate) const MAX_FLOWS: usize = 10_000;

/// What is walked for a list of notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Walk {
    /// Every notification.
    All,
    /// The notifications of the flows that the filter names, as `by_flows` says.
    Flows,
    /// What ended in these states, of the filter's tenant if it names one. None of them is a delivery.
    Ends(Vec<State>),
    /// What is in the queue.
    Queue,
    /// What is in the retry lane.
    Retries,
    /// What nodes hold.
    Held,
}

/// What is walked for a list that names flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByFlows {
    /// The list's own order, over the rows of all flows.
    Everything,
    /// A merge over the flows.
    Merge,
}

/// The walks for a list of notifications.
pub(crate) fn of_notifications(filter: &Filter) -> Vec<Walk> {
    let ends = |states: &[State]| distinct(states.iter().copied().filter(|state| is_failure(*state)));
    let only =
        |some: &[State]| !filter.states.is_empty() && filter.states.iter().all(|state| some.contains(state));
    let narrow = if !filter.reasons.is_empty() {
        // Only what ended without being delivered has a reason.
        let wanted: &[State] = if filter.states.is_empty() { &State::ALL } else { &filter.states };
        Some(Walk::Ends(ends(wanted)))
    } else if !filter.states.is_empty() && filter.states.iter().all(|state| is_failure(*state)) {
        Some(Walk::Ends(ends(&filter.states)))
    } else if only(&[State::Processing, State::Retrying]) {
        Some(Walk::Held)
    } else if only(&[State::RetryScheduled, State::Retrying]) {
        Some(Walk::Retries)
    } else if only(&[State::Pending, State::Processing, State::RetryScheduled, State::Retrying]) {
        Some(Walk::Queue)
    } else {
        None
    };
    let has_index = matches!(narrow, Some(Walk::Ends(_))) && filter.destinations.is_empty();
    let flows = (names_flows(filter) && !has_index).then_some(Walk::Flows);
    match (narrow, flows) {
        (None, None) => vec![Walk::All],
        (narrow, flows) => narrow.into_iter().chain(flows).collect(),
    }
}

/// Each value once: a row is shown once, however often its state is named.
pub(crate) fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Whether the filter names flows, by tenant or destination.
pub(crate) fn names_flows(filter: &Filter) -> bool {
    filter.tenant.is_some() || !filter.destinations.is_empty()
}

/// The walks for a list that names so many flows. Many flows are merged only if the rows that come first are those of others,
/// because the merge begins with a look into each of them.
pub(crate) fn by_flows(count: usize) -> &'static [ByFlows] {
    if count <= FEW_FLOWS {
        &[ByFlows::Merge]
    } else if count <= MAX_FLOWS {
        &[ByFlows::Everything, ByFlows::Merge]
    } else {
        &[ByFlows::Everything]
    }
}

const fn is_failure(state: State) -> bool {
    match state {
        State::Failed | State::DeadLetter | State::Cancelled | State::Expired => true,
        State::Pending | State::Processing | State::Succeeded | State::RetryScheduled | State::Retrying => {
            false
        }
    }
}

/// The page of an audit that its rows are given to, newest first.
#[derive(Debug)]
pub(crate) struct AuditWalk<'a> {
    filter: &'a AuditFilter,
    limit: usize,
    looked_at: usize,
    last: Option<i64>,
    last_shown: Option<i64>,
    pub(crate) page: Page<AuditRow, i64>,
}

impl<'a> AuditWalk<'a> {
    pub(crate) const fn new(filter: &'a AuditFilter, limit: usize) -> Self {
        let page = Page { rows: vec![], next: None };
        Self { filter, limit, looked_at: 0, last: None, last_shown: None, page }
    }

    /// Takes the next row; none for one that is damaged. Returns whether the page is complete.
    pub(crate) fn take(&mut self, number: i64, row: Option<AuditRow>) -> bool {
        if self.looked_at == MAX_LOOKED_AT {
            self.page.next = self.last;
            return true;
        }
        self.looked_at += 1;
        self.last = Some(number);
        let Some(row) = row else { return false };
        if self.filter.is_over(row.audit.at) {
            return true;
        }
        if !self.filter.matches(&row.audit.audited()) {
            return false;
        }
        if self.page.rows.len() >= self.limit {
            self.page.next = self.last_shown;
            return true;
        }
        self.page.rows.push(row);
        self.last_shown = Some(number);
        false
    }
}

/// Rows that a walk through the audit may pass over before it comes to those that are old enough. Each halving of this
/// number costs one more look.
const PASSED_OVER: i64 = 64;

/// Where a walk through the audit starts, if the newest rows are too new for its filter. It is searched by bisection: the
/// times of the rows follow their numbers.
pub(crate) struct AuditStart<'a> {
    filter: &'a AuditFilter,
    /// Rows below this number may match.
    low: i64,
    /// No row from this number on can match.
    high: i64,
    /// Whether the newest row was looked at.
    begun: bool,
}

impl<'a> AuditStart<'a> {
    /// `before` is the end of the page before.
    pub(crate) fn new(filter: &'a AuditFilter, before: Option<i64>) -> Self {
        Self { filter, low: 0, high: before.unwrap_or(i64::MAX), begun: filter.until.is_none() }
    }

    /// The walk looks at the rows below this number.
    pub(crate) const fn below(&self) -> i64 {
        self.high
    }

    /// The number below which the newest row is to be looked at, while the search is not over.
    pub(crate) const fn look_below(&self) -> Option<i64> {
        match self.begun {
            false => Some(self.high),
            true if self.filter.until.is_some() && self.high - self.low > PASSED_OVER => {
                Some(self.low + (self.high - self.low) / 2)
            }
            true => None,
        }
    }

    /// The row that was found there, if any.
    pub(crate) fn found(&mut self, looked_below: i64, row: Option<(i64, Timestamp)>) {
        match row.filter(|(_, at)| self.filter.is_too_new(*at)) {
            Some((number, _)) => self.high = number,
            None => self.low = looked_below,
        }
        self.begun = true;
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::reason::Reason;

    use super::*;

    #[test]
    fn the_walk_follows_from_the_fields_that_are_set() {
        use State::{DeadLetter, Failed, Pending, Processing, RetryScheduled, Retrying, Succeeded};
        let any = Filter::default;
        let of = |states: &[State]| Filter { states: states.to_vec(), ..any() };
        let tenant = |filter| Filter { tenant: Some("acme".parse().unwrap()), ..filter };
        let destination = |filter| Filter { destinations: vec!["https://a:443".to_owned()], ..filter };
        let failed = || of(&[Failed, DeadLetter]);
        let ends = || Walk::Ends(vec![Failed, DeadLetter]);
        let table = [
            (any(), vec![Walk::All]),
            (Filter { text: Some("x".to_owned()), ..any() }, vec![Walk::All]),
            (tenant(any()), vec![Walk::Flows]),
            (destination(any()), vec![Walk::Flows]),
            (of(&[Succeeded]), vec![Walk::All]),
            (of(&[Succeeded, Failed]), vec![Walk::All]),
            (tenant(of(&[Succeeded])), vec![Walk::Flows]),
            (failed(), vec![ends()]),
            (tenant(failed()), vec![ends()]),
            (destination(failed()), vec![ends(), Walk::Flows]),
            (of(&[Pending]), vec![Walk::Queue]),
            (of(&[Pending, Retrying]), vec![Walk::Queue]),
            (tenant(of(&[Pending])), vec![Walk::Queue, Walk::Flows]),
            (of(&[RetryScheduled]), vec![Walk::Retries]),
            (of(&[RetryScheduled, Retrying]), vec![Walk::Retries]),
            (tenant(of(&[RetryScheduled])), vec![Walk::Retries, Walk::Flows]),
            (of(&[Retrying]), vec![Walk::Held]),
            (of(&[Processing]), vec![Walk::Held]),
            (
                Filter { reasons: vec![Reason::Discarded], ..of(&[Pending, Failed]) },
                vec![Walk::Ends(vec![Failed])],
            ),
            (Filter { reasons: vec![Reason::Discarded], ..of(&[Pending]) }, vec![Walk::Ends(vec![])]),
        ];
        for (filter, walks) in table {
            assert_eq!(of_notifications(&filter), walks, "{filter:?}");
        }
    }

    #[test]
    fn few_flows_are_merged_at_once_and_very_many_never() {
        use ByFlows::{Everything, Merge};
        for (count, walks) in [
            (0, &[Merge][..]),
            (500, &[Merge]),
            (501, &[Everything, Merge]),
            (10_000, &[Everything, Merge]),
            (10_001, &[Everything]),
        ] {
            assert_eq!(by_flows(count), walks, "{count}");
        }
    }

    #[test]
    fn the_start_of_an_audit_is_near_the_rows_that_are_old_enough() {
        let hour = |hour: u64| Timestamp::EPOCH.later(std::time::Duration::from_secs(hour * 3_600));
        // Every third number has a row, and each row is an hour after the one before.
        let newest = |below: i64| Some(((below - 1) / 3).min(1_000_000) * 3).filter(|row| *row > 0);
        for (until, before) in
            [(500, None), (1, None), (999_999, None), (2_000_000, None), (500, Some(9_000))]
        {
            let filter = AuditFilter { until: Some(hour(until)), ..AuditFilter::default() };
            let (mut start, mut looks) = (AuditStart::new(&filter, before), 0);
            while let Some(below) = start.look_below() {
                looks += 1;
                start.found(below, newest(below).map(|row| (row, hour(row.unsigned_abs() / 3))));
            }
            // The last row that can match is an hour younger than `until`, because rows may be out of order so far.
            let last = (i64::try_from(until).unwrap() + 1).min(1_000_000) * 3;
            let last = before.map_or(last, |before| last.min(before - 3));
            assert!(start.below() > last, "{until}: {}", start.below());
            assert!(
                before == Some(start.below())
                    || start.below() == i64::MAX
                    || start.below() <= last + PASSED_OVER + 3
            );
            assert!(looks < 24, "{until}: {looks}");
        }
    }
}
