//! How a retry operation is shown.

use std::collections::BTreeMap;

use posthaste_core::id::OperationId;
use posthaste_core::notification::Tenant;
use posthaste_core::operation::{Action, Operation, OperationEvent, OperationState, Selection};
use posthaste_core::time::Timestamp;
use posthaste_engine::operations::{GroupCount as GroupSelected, Preview, Sampled};
use serde::Serialize;
use utoipa::ToSchema;

use super::{DeadLetterView, NotificationView};

/// A retry operation as lists show it: without the ids that it was given, and without its events.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RetryOperation)]
pub(crate) struct OperationView {
    pub(crate) id: OperationId,
    /// Whose items only; null for all tenants.
    pub(crate) tenant: Option<Tenant>,
    pub(crate) state: OperationState,
    pub(crate) action: Action,
    /// The parameters of the list that it acts on. Durations have become times.
    pub(crate) filter: Option<BTreeMap<String, String>>,
    pub(crate) group: Option<String>,
    pub(crate) all: Option<bool>,
    /// What failed, or was accepted, at this time or later is not part of it.
    pub(crate) cut_off: Timestamp,
    /// The most items a second.
    pub(crate) rate: Option<u32>,
    pub(crate) canary: Option<CanaryView>,
    /// How many items were selected: final once the state is no longer `waiting` or `preparing`.
    pub(crate) total: u64,
    pub(crate) batches: u32,
    pub(crate) batches_remaining: u32,
    pub(crate) marked: u64,
    pub(crate) staged: u64,
    pub(crate) forwarded: u64,
    pub(crate) skipped: u64,
    pub(crate) remaining: u64,
    /// How many were skipped for which reason.
    pub(crate) skipped_reasons: BTreeMap<&'static str, u64>,
    pub(crate) paused_by: Option<String>,
    pub(crate) stopped_by: Option<String>,
    pub(crate) started_at: Timestamp,
    /// When it last went a step or was changed by somebody; null before its first step.
    pub(crate) changed_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) started_by: String,
}

/// The first items, whose first attempts decide whether the rest is sent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CanaryView {
    pub(crate) size: u32,
    pub(crate) max_failure_percent: u32,
    /// How many of their first attempts failed so far.
    pub(crate) failed: u32,
    #[schema(value_type = CanaryWord)]
    pub(crate) state: &'static str,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it only describes the words")]
enum CanaryWord {
    Running,
    Passed,
    Failed,
    NotNeeded,
}

impl OperationView {
    pub(in crate::http) fn of(operation: &Operation) -> Self {
        let standing = &operation.standing;
        let (filter, group, all) = match &operation.selection {
            Selection::Filter(filter) => (Some(filter.clone()), None, None),
            Selection::Group(group) => (None, Some(group.clone()), None),
            Selection::All => (None, None, Some(true)),
            Selection::Ids(_) => (None, None, None),
        };
        Self {
            id: operation.id,
            tenant: operation.tenant.clone(),
            state: standing.state,
            action: operation.action,
            filter,
            group,
            all,
            cut_off: operation.cut_off,
            rate: operation.rate,
            canary: operation.canary.map(|canary| CanaryView {
                size: canary.size,
                max_failure_percent: canary.max_failure_percent,
                failed: standing.canary_failed,
                state: standing.canary_state.name(),
            }),
            total: standing.total,
            batches: standing.batches,
            batches_remaining: standing.batches.saturating_sub(standing.batches_done),
            marked: standing.total,
            staged: standing.staged,
            forwarded: standing.forwarded,
            skipped: standing.all_skipped(),
            remaining: standing.remaining(),
            skipped_reasons: standing.skipped.iter().map(|(why, count)| (why.code(), *count)).collect(),
            paused_by: standing.paused_by.clone(),
            stopped_by: standing.stopped_by.clone(),
            started_at: operation.started_at,
            changed_at: standing.changed_at,
            finished_at: standing.finished_at,
            started_by: operation.started_by.clone(),
        }
    }
}

/// A retry operation with what happened to it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetryOperationDetail)]
pub(crate) struct OperationDetail {
    #[serde(flatten)]
    pub(crate) operation: OperationView,
    /// What it was given.
    pub(crate) ids: Option<Vec<String>>,
    pub(crate) events: Vec<EventView>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetryOperationEvent)]
pub(crate) struct EventView {
    pub(crate) at: Timestamp,
    /// Such as `paused`, `canaryPassed`, `adopted` (another node took it over) or `completed`.
    pub(crate) event: String,
    /// Who, where somebody asked for it.
    pub(crate) by: Option<String>,
}

impl OperationDetail {
    pub(in crate::http) fn of(operation: &Operation) -> Self {
        let ids = match &operation.selection {
            Selection::Ids(ids) => Some(ids.to_vec()),
            Selection::Filter(_) | Selection::Group(_) | Selection::All => None,
        };
        let show = |OperationEvent { at, event, by }: &OperationEvent| EventView {
            at: *at,
            event: event.clone(),
            by: by.clone(),
        };
        let events = operation.standing.events.iter().map(show).collect();
        Self { operation: OperationView::of(operation), ids, events }
    }
}

/// What a retry operation would act on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetryOperationPreview)]
pub(crate) struct PreviewView {
    pub(crate) total: u64,
    /// False if counting took longer than a second: then there are more than `total`.
    pub(crate) exact: bool,
    /// Up to five of them, as their list shows them.
    #[schema(max_items = 5)]
    pub(crate) sample: Vec<SampleView>,
    /// The ten largest failure groups by fingerprint among them, the largest first. Empty for `retryNow` and `cancel`.
    #[schema(max_items = 10)]
    pub(crate) groups: Vec<GroupCount>,
    /// How many of them have expired, so that `requeue` would skip them.
    pub(crate) expired: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum SampleView {
    Letter(Box<DeadLetterView>),
    Notification(Box<NotificationView>),
}

/// How many of a failure group it would act on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GroupCount {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) count: u64,
}

impl PreviewView {
    pub(in crate::http) fn of(preview: &Preview, show: impl Fn(&Sampled) -> SampleShown) -> Self {
        let sample = preview.sample.iter().map(|one| show(one).0).collect();
        let Preview { total, exact, expired, .. } = *preview;
        let group = |group: &GroupSelected| GroupCount {
            id: group.id.to_string(),
            title: group.title.clone(),
            count: group.count,
        };
        let groups = preview.groups.iter().map(group).collect();
        Self { total, exact, sample, groups, expired }
    }
}

/// One of a sample as its list shows it.
pub(in crate::http) struct SampleShown(SampleView);

impl SampleShown {
    pub(in crate::http) fn letter(view: DeadLetterView) -> Self {
        Self(SampleView::Letter(Box::new(view)))
    }

    pub(in crate::http) fn notification(view: NotificationView) -> Self {
        Self(SampleView::Notification(Box::new(view)))
    }
}
