//! The words of operations: actions, states and reasons to leave an item out. All of them are part of the API.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::act::Act;
use crate::filter::List;
use crate::state::State;

/// What an operation does to each item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    Requeue,
    Discard,
    Restore,
    RetryNow,
    Cancel,
}

impl Action {
    pub const ALL: [Self; 5] = [Self::Requeue, Self::Discard, Self::Restore, Self::RetryNow, Self::Cancel];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Requeue => "requeue",
            Self::Discard => "discard",
            Self::Restore => "restore",
            Self::RetryNow => "retryNow",
            Self::Cancel => "cancel",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    /// Which list its filter is one of.
    pub const fn list(self) -> List {
        match self {
            Self::Requeue | Self::Discard | Self::Restore => List::DeadLetters,
            Self::RetryNow | Self::Cancel => List::Notifications,
        }
    }

    /// Whether it acts on dead letters.
    pub const fn is_about_dead_letters(self) -> bool {
        match self {
            Self::Requeue | Self::Discard | Self::Restore => true,
            Self::RetryNow | Self::Cancel => false,
        }
    }

    /// Whether its items become due, so that they are forwarded at the pace of their destinations.
    pub const fn sends(self) -> bool {
        match self {
            Self::Requeue | Self::RetryNow => true,
            Self::Discard | Self::Restore | Self::Cancel => false,
        }
    }

    /// The act on a notification in that state.
    pub const fn act(self, state: State) -> Act {
        match (self, state) {
            (Self::Requeue, _) => Act::Requeue,
            (Self::Discard, _) => Act::Discard,
            (Self::Restore, _) => Act::Restore,
            (Self::RetryNow, _) => Act::RetryNow,
            (Self::Cancel, State::Processing | State::Retrying) => Act::RequestCancel,
            (Self::Cancel, _) => Act::Cancel,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Where an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperationState {
    /// No node works on it yet.
    #[default]
    Waiting,
    /// Its items are being marked.
    Preparing,
    /// Its batches are being staged and forwarded.
    Forwarding,
    Paused,
    Completed,
    Cancelled,
    Failed,
}

impl OperationState {
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Preparing,
        Self::Forwarding,
        Self::Paused,
        Self::Completed,
        Self::Cancelled,
        Self::Failed,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Preparing => "preparing",
            Self::Forwarding => "forwarding",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// Why an item was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Skip {
    /// It changed between the decision and the act, or is gone.
    ChangedMeanwhile,
    /// Another operation held it.
    InAnotherOperation,
    /// It was acted on before, or its state does not allow the act.
    AlreadyResolved,
    /// It had expired.
    Expired,
    /// It could not be read.
    Ejected,
    /// The operation was stopped.
    Cancelled,
}

impl Skip {
    pub const ALL: [Self; 6] = [
        Self::ChangedMeanwhile,
        Self::InAnotherOperation,
        Self::AlreadyResolved,
        Self::Expired,
        Self::Ejected,
        Self::Cancelled,
    ];

    pub const fn code(self) -> &'static str {
        match self {
            Self::ChangedMeanwhile => "CHANGED_MEANWHILE",
            Self::InAnotherOperation => "IN_ANOTHER_OPERATION",
            Self::AlreadyResolved => "ALREADY_RESOLVED",
            Self::Expired => "EXPIRED",
            Self::Ejected => "EJECTED",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// The stages of a batch, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Marking,
    Staging,
    Forwarding,
    Done,
}

impl Stage {
    pub const ALL: [Self; 4] = [Self::Marking, Self::Staging, Self::Forwarding, Self::Done];

    /// The number in the store.
    pub const fn code(self) -> u8 {
        match self {
            Self::Marking => 0,
            Self::Staging => 1,
            Self::Forwarding => 2,
            Self::Done => 3,
        }
    }
}

/// A staging of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Staging {
    pub batch: u32,
    /// The last staging that was seen. Where there is a later one, this one was decided about items that are not as they were.
    pub after: Option<u64>,
    pub id: u64,
}
