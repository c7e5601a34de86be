//! The seam to what is kept. Every decision comes in as a value, every answer is a fact.
//!
//! Each method is one transaction. `Ok`: what it says is durable. `Err`: it may have happened, **or may still happen
//! later**: a commit that was given up may complete at any time after the answer. So the caller must be able to ask again,
//! and must not take one look at the store, or one release, for the last word on what it holds. A store never reads a clock
//! and never weighs a reply.

use async_trait::async_trait;

pub use posthaste_core::act::{Act, Ending, Seen};
pub use posthaste_core::attempt::Progress;

pub use self::acts::{Acts, Audit, AuditRow, Change, Facts, LetterFacts, Replacement};
pub use self::destinations::{Destinations, FlowsTo};
pub use self::durability::{Durability, DurabilityLevel};
pub use self::groups::{FailureGroup, GroupCursor, Groups};
pub use self::inbound::Inbound;
pub use self::jobs::{Begun, JobPlan, JobRun, JobStart, JobView, Jobs, RunEnd, UnfinishedRun, Why};
pub use self::key_uses::{KeyUse, KeyUses};
pub use self::nodes::{
    Alone, DESTINATIONS_LEVEL, Joined, LEVEL, LIMITED_ANSWERS_LEVEL, Listener, NodeView, Nodes, Notice,
    PROVIDERS_LEVEL, Pulse, SEALED_LEVEL,
};
pub use self::operations::{Forwarded, Operations, Rest, UnfinishedOperation, Walk};
pub use self::queue::{
    Acceptance, Accepted, Arrival, ClaimResult, Claimed, FirstAnswer, Held, Idempotency, KnownFlow, Next,
    Queue, Request, Settled, Settlement,
};
pub use self::reads::{
    ChannelStats, DeadLetterView, End, History, HistoryEvent, LastError, Page, Reads, Stats, View,
};
pub use self::records::Records;
pub use self::retention::{Prune, Pruned, Retention};
pub use self::series::{DestinationHour, RetryLoad, Series, SeriesRow};
pub use self::settings::{Settings, StoredSettings};
pub use self::waking::{DueCursor, Expiring, ExpiringRow, Overdue, Waiting, Wakes, Waking, Woken};

pub mod acts;
pub mod destinations;
mod durability;
pub mod groups;
pub mod inbound;
pub mod jobs;
pub mod key_uses;
pub mod nodes;
pub mod operations;
pub mod queue;
pub mod reads;
pub mod records;
pub mod retention;
pub mod series;
pub mod settings;
pub mod slice;
pub mod waking;

/// Why the store could not do as it was told.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot serve now (full disk, lost connection, shutting down). The call may have happened, or may still happen;
    /// ask again.
    #[error("the store cannot serve now: {what}")]
    Unavailable {
        /// What went wrong, for people.
        what: String,
        /// The error beneath.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// What is kept cannot be understood: a bug, or a file that something else wrote to.
    #[error("the store holds something that makes no sense: {what}")]
    Corrupt {
        /// What was found, for people.
        what: String,
    },
}

impl StoreError {
    /// The error with everything beneath it, in one line. Only the first line of each: what follows may quote what is kept.
    pub fn causes(&self) -> String {
        let mut text = self.to_string();
        let mut beneath = std::error::Error::source(self);
        while let Some(error) = beneath {
            let more = error.to_string();
            let more = more.lines().next().unwrap_or_default();
            if !text.contains(more) {
                text = format!("{text}: {more}");
            }
            beneath = error.source();
        }
        text
    }
}

/// What a store answers.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The place where notifications, attempts and dead letters are kept: the sum of the slices by subject.
#[async_trait]
pub trait Store:
    Queue
    + Waking
    + Nodes
    + Acts
    + StoredSettings
    + KeyUses
    + Records
    + Jobs
    + Operations
    + Retention
    + Series
    + Groups
    + Destinations
    + Inbound
    + Reads
    + 'static
{
    /// Whether other nodes may use it at the same time. Such a store is a server, and a transaction there costs by itself as
    /// much as some thirty rows in it, so that it pays to gather for a moment; a file gathers by itself.
    fn is_shared(&self) -> bool {
        false
    }

    /// Waits until the store has lost a part without which it can never serve again in this process, such as the thread that
    /// writes. While asking again may help, this does not return.
    async fn broken(&self) {
        std::future::pending().await
    }

    /// What other nodes tell, and settings that are put.
    fn listen(&self) -> Box<dyn Listener> {
        Box::new(Alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once_and_without_what_it_quotes() {
        let beneath = std::io::Error::other("relation is missing\nDETAIL: Key (a)=(secret)");
        let error = StoreError::Unavailable { what: "refused".to_owned(), source: Some(Box::new(beneath)) };
        assert_eq!(error.causes(), "the store cannot serve now: refused: relation is missing");
    }
}
