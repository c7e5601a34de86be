//! Conversions between stored columns and values of the core.

use std::time::Duration;

use posthaste_core::attempt::Outcome;
use posthaste_core::channel::Channel;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::lease::{Fence, Lease, NodeId};
use posthaste_core::notification::{Content, Priority, Tenant};
use posthaste_core::reason::Reason;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;

use super::damage::{Damaged, Result};

pub(crate) fn lane(code: u8) -> Result<Lane> {
    Lane::from_code(code).ok_or_else(|| Damaged(format!("lane {code}")))
}

pub(crate) fn priority(code: u8) -> Result<Priority> {
    Priority::from_code(code).ok_or_else(|| Damaged(format!("priority {code}")))
}

pub(crate) fn state(code: u8) -> Result<State> {
    State::from_code(code).map_err(|error| Damaged(error.to_string()))
}

pub(crate) fn channel(code: u8) -> Result<Channel> {
    Channel::from_code(code).map_err(|error| Damaged(error.to_string()))
}

pub(crate) fn reason(code: &str) -> Result<Reason> {
    Reason::from_code(code).ok_or_else(|| Damaged(format!("reason {code}")))
}

pub(crate) fn status(code: u8) -> Result<DeadLetterStatus> {
    DeadLetterStatus::from_code(code).ok_or_else(|| Damaged(format!("dead letter status {code}")))
}

pub(crate) fn failure(code: u8) -> Result<FailureType> {
    FailureType::from_code(code).ok_or_else(|| Damaged(format!("failure type {code}")))
}

/// An attempt without a failure type was delivered.
pub(crate) fn outcome(code: Option<u8>) -> Result<Outcome> {
    code.map_or(Ok(Outcome::Delivered), |code| Ok(Outcome::Failed(failure(code)?)))
}

pub(crate) fn tenant(name: &str) -> Result<Tenant> {
    name.parse().map_err(|error| Damaged(format!("{error}")))
}

pub(crate) fn lease(node: Option<i64>, fence: Option<i64>) -> Option<Lease> {
    node.zip(fence).map(|(node, fence)| Lease { node: NodeId(node), fence: Fence(fence) })
}

pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

pub(crate) fn maybe_micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_micros)
}

pub(crate) fn content(text: &str) -> Result<Content> {
    serde_json::from_str(text).map_err(|error| {
        // The text of the error may quote the message, which must not appear in a log.
        let (kind, column) = (error.classify(), error.column());
        Damaged(format!("the content is no content ({kind:?} error at column {column})"))
    })
}

pub(crate) fn content_text(content: &Content) -> Result<String> {
    serde_json::to_string(content).map_err(|error| Damaged(format!("a content cannot be written: {error}")))
}
