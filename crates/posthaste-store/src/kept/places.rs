//! The current row of a notification: in the queue, or in `ended`.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::act::{Ending, Letter, Standing};
use posthaste_core::failure::FailureType;
use posthaste_core::flow::Bucket;
use posthaste_core::id::DeadLetterId;
use posthaste_core::lease::Lease;
use posthaste_core::notification::Notification;
use posthaste_core::reason::Reason;
use posthaste_core::state::{Lane, Leased, State};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Claimed, End, LastError, Progress, Seen, View};

pub(crate) enum Place {
    Live(Queued),
    Over(Ended),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Queued {
    pub(crate) bucket: Bucket,
    pub(crate) due: Timestamp,
    pub(crate) first_due: Timestamp,
    pub(crate) delay: Duration,
    pub(crate) lease: Option<Lease>,
    pub(crate) progress: Progress,
    pub(crate) interruptions: u32,
    pub(crate) cancel: bool,
}

/// A row of `ended`.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) state: State,
    pub(crate) at: Timestamp,
    pub(crate) progress: Progress,
    pub(crate) reason: Option<Reason>,
    pub(crate) text: Option<String>,
    pub(crate) dead_letter: Option<DeadLetterId>,
    /// Of the last attempt.
    pub(crate) failure_type: Option<FailureType>,
    pub(crate) status_code: Option<u16>,
}

impl Place {
    pub(crate) fn seen(&self) -> Seen {
        match self {
            Self::Live(row) => row.seen(),
            Self::Over(ended) => ended.seen(),
        }
    }

    pub(crate) const fn dead_letter(&self) -> Option<DeadLetterId> {
        match self {
            Self::Live(_) => None,
            Self::Over(ended) => ended.dead_letter,
        }
    }

    /// `None` while it is in the queue, and for a delivered notification.
    pub(crate) const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Live(_) => None,
            Self::Over(ended) => ended.reason,
        }
    }

    /// The lane of a queue row. An ended notification is reopened in the main lane.
    pub(crate) const fn lane(&self) -> Lane {
        match self {
            Self::Live(row) => row.bucket.lane,
            Self::Over(_) => Lane::Main,
        }
    }

    pub(crate) fn standing(&self, expires_at: Option<Timestamp>, dead_letter: Option<Letter>) -> Standing {
        let (progress, due, cancel_requested) = match self {
            Self::Live(row) => (row.progress, Some(row.due), row.cancel),
            Self::Over(ended) => (ended.progress, None, false),
        };
        let (state, reason) = (self.seen().state, self.reason());
        Standing { state, progress, due, expires_at, cancel_requested, reason, dead_letter }
    }

    pub(crate) fn view(self, notification: Arc<Notification>, last_error: Option<LastError>) -> View {
        let state = self.seen().state;
        match self {
            Self::Live(row) => View {
                notification,
                state,
                progress: row.progress,
                due: Some(row.due),
                cancel_requested: row.cancel,
                last_error,
                end: None,
            },
            Self::Over(ended) => View {
                notification,
                state,
                progress: ended.progress,
                due: None,
                cancel_requested: false,
                last_error,
                end: Some(ended.shown()),
            },
        }
    }
}

impl Queued {
    pub(crate) fn seen(&self) -> Seen {
        let leased = if self.lease.is_some() { Leased::Yes } else { Leased::No };
        let Progress { generation, attempt, .. } = self.progress;
        Seen { state: State::live(self.bucket.lane, leased), generation, attempt }
    }

    pub(crate) fn claimed(self, notification: Arc<Notification>, lease: Lease) -> Claimed {
        Claimed {
            notification,
            flow: self.bucket.flow,
            lane: self.bucket.lane,
            due: self.due,
            progress: self.progress,
            first_due: self.first_due,
            delay: self.delay,
            interruptions: self.interruptions,
            cancel_requested: self.cancel,
            lease,
        }
    }
}

impl Ended {
    /// The fields of the last attempt are left empty.
    pub(crate) fn of(ending: &Ending, progress: Progress, at: Timestamp) -> Self {
        let (reason, text, dead_letter) = ending.parts();
        Self {
            state: ending.state(),
            at,
            progress,
            reason,
            text: text.map(str::to_owned),
            dead_letter,
            failure_type: None,
            status_code: None,
        }
    }

    pub(crate) const fn seen(&self) -> Seen {
        let Progress { generation, attempt, .. } = self.progress;
        Seen { state: self.state, generation, attempt }
    }

    fn shown(self) -> End {
        End {
            at: self.at,
            reason: self.reason,
            text: self.text,
            dead_letter: self.dead_letter,
            failure_type: self.failure_type,
            status_code: self.status_code,
        }
    }
}
