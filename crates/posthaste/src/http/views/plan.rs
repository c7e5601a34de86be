//! What follows for a notification if every attempt fails.

use posthaste_core::policy::preview_after;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{History, View};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::Api;

/// The most attempts of a plan.
const MOST: usize = 50;

/// What follows if every attempt fails.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Plan)]
pub(crate) struct PlanView {
    /// The attempts after `attempt`: the 50 that come first.
    pub(crate) attempts: Vec<PlannedView>,
    pub(crate) then: Then,
}

/// A planned attempt, by the policy of now.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlannedAttempt)]
pub(crate) struct PlannedView {
    /// Counted as `attempt` is.
    pub(crate) number: u32,
    pub(crate) earliest: Timestamp,
    pub(crate) latest: Timestamp,
}

/// How it ends after the last attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Then {
    DeadLetter,
    /// The policy keeps no dead letters.
    Failed,
    /// `expiresAt` comes before a further attempt could.
    Expired,
}

impl PlanView {
    /// The plan of what lives.
    pub(super) fn of(api: &Api, view: &View, history: &History) -> Option<Self> {
        if view.end.is_some() {
            return None;
        }
        let one = &view.notification;
        let policy = api.engine.policies().of(one);
        let now = api.engine.now();
        let (number, base) = (view.progress.attempt_in_generation(), view.progress.base);
        let at = view.due.map_or(now, |due| due.max(now));
        let mut own =
            history.attempts.iter().filter(|attempt| attempt.generation == view.progress.generation);
        let first_due = own.next().map_or(at, |first| first.started_at);
        let expires = one.expires_at.unwrap_or(Timestamp::MAX);
        let all: Vec<_> = preview_after(&policy, number, at, first_due).collect();
        let expired = at >= expires || all.last().is_some_and(|last| last.earliest >= expires);
        let planned = all.into_iter().filter(|one| one.earliest < expires).take(MOST);
        let attempts = planned.map(|one| PlannedView {
            number: base.saturating_add(one.number),
            earliest: one.earliest,
            latest: one.latest.min(expires),
        });
        let then = match (expired, policy.dead_letter) {
            (true, _) => Then::Expired,
            (false, true) => Then::DeadLetter,
            (false, false) => Then::Failed,
        };
        Some(Self { attempts: attempts.collect(), then })
    }
}
