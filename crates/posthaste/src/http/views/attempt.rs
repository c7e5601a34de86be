//! How an attempt is shown.

use posthaste_core::attempt::{Attempt, Outcome, QuickTry, Response};
use posthaste_core::failure::FailureType;
use posthaste_core::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// One delivery attempt.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Attempt)]
pub(crate) struct AttemptView {
    #[schema(minimum = 1)]
    pub(crate) number: u32,
    #[schema(minimum = 1)]
    pub(crate) generation: u32,
    /// When its first try began.
    pub(crate) started_at: Timestamp,
    /// When its last try began; null for attempts with quick tries that an older version made.
    pub(crate) last_try_at: Option<Timestamp>,
    /// When its last try ended.
    pub(crate) ended_at: Timestamp,
    /// Quick tries and the waits between them included.
    pub(crate) duration_ms: u64,
    pub(crate) outcome: OutcomeView,
    pub(crate) failure_type: Option<FailureType>,
    pub(crate) status_code: Option<u16>,
    pub(crate) error: Option<String>,
    /// The provider that took it, where the channel has providers.
    pub(crate) provider: Option<String>,
    /// The provider's own id of the message.
    pub(crate) message_id: Option<String>,
    /// The start of the answer, if the attempt failed.
    pub(crate) response: Option<Response>,
    /// The tries before the last one, each with its time. The last one began at `lastTryAt` and ended at `endedAt`.
    pub(crate) quick_tries: Vec<QuickTry>,
}

/// How an attempt came out.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Outcome)]
pub(crate) enum OutcomeView {
    Delivered,
    Failed,
}

impl AttemptView {
    /// With the start of the answer, as one notification shows it.
    pub(crate) fn whole(one: &Attempt) -> Self {
        let (outcome, failure_type) = match one.outcome {
            Outcome::Delivered => (OutcomeView::Delivered, None),
            Outcome::Failed(failure) => (OutcomeView::Failed, Some(failure)),
        };
        Self {
            number: one.number,
            generation: one.generation,
            started_at: one.started_at,
            last_try_at: one.last_try_began_at(),
            ended_at: one.ended_at(),
            duration_ms: u64::try_from(one.duration.as_millis()).unwrap_or(u64::MAX),
            outcome,
            failure_type,
            status_code: one.status_code,
            error: one.error.clone(),
            provider: one.provider.clone(),
            message_id: one.message_id.clone(),
            response: one.response.clone(),
            quick_tries: one.quick_tries.clone(),
        }
    }

    /// Without the start of the answer, which may be large.
    pub(super) fn short(one: &Attempt) -> Self {
        Self { response: None, ..Self::whole(one) }
    }
}
