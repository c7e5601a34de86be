//! What is remembered of one delivery attempt.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::FailureType;
use crate::time::Timestamp;

/// Where a notification stands in its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The generation, from 1.
    pub generation: u32,
    /// The running or next attempt; at the end the last one made, 0 if there was none.
    pub attempt: u32,
    /// The attempt number that the generation's budget is counted from: 0, or what a manual retry went on from.
    pub base: u32,
}

impl Progress {
    /// How a notification starts.
    pub const START: Self = Self { generation: 1, attempt: 1, base: 0 };

    /// Which attempt of its generation this is, from 1.
    pub const fn attempt_in_generation(&self) -> u32 {
        self.attempt.saturating_sub(self.base)
    }
}

/// One delivery attempt of the persistent level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The generation that it belongs to, from 1.
    pub generation: u32,
    /// Its number, from 1; a manual retry goes on counting, a requeue starts again.
    pub number: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took, quick tries included.
    pub duration: Duration,
    /// How it came out.
    pub outcome: Outcome,
    /// The last status code, if there was an answer.
    pub status_code: Option<u16>,
    /// The last error in words, cut to `Attempt::LONGEST_ERROR`.
    pub error: Option<String>,
    /// The tries before the last one.
    pub quick_tries: Vec<QuickTry>,
    /// When the last try began, if there were others before it. Attempts of older versions do not have it.
    pub last_try_at: Option<Timestamp>,
    /// The provider that took it, where the channel has providers.
    pub provider: Option<String>,
    /// The provider's own id of the message.
    pub message_id: Option<String>,
    /// The start of the answer, if the attempt failed.
    pub response: Option<Response>,
}

impl Attempt {
    /// The most bytes of an error that are kept.
    pub const LONGEST_ERROR: usize = 500;

    /// As a dead letter keeps it: without the start of the answer, which may be large and stays with the attempt.
    #[must_use]
    pub fn without_response(self) -> Self {
        Self { response: None, ..self }
    }

    /// When its last try began; `None` if that is not known.
    pub fn last_try_began_at(&self) -> Option<Timestamp> {
        if self.quick_tries.is_empty() { Some(self.started_at) } else { self.last_try_at }
    }

    /// When its last try ended.
    pub fn ended_at(&self) -> Timestamp {
        self.started_at.later(self.duration)
    }

    /// The most bytes of a provider's id of the message that are kept.
    pub const LONGEST_MESSAGE_ID: usize = 255;

    /// The id cut to `LONGEST_MESSAGE_ID` bytes, between two characters.
    pub fn message_id(text: &str) -> String {
        cut(text, Self::LONGEST_MESSAGE_ID)
    }

    /// The text cut to `LONGEST_ERROR` bytes, between two characters.
    pub fn excerpt(text: &str) -> String {
        cut(text, Self::LONGEST_ERROR)
    }
}

/// The start of an answer, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ResponseExcerpt))]
#[serde(rename_all = "camelCase")]
pub struct Response {
    /// The media type, if the answer named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The start of the body, cut to 2 KiB.
    pub excerpt: String,
}

impl Response {
    /// The most bytes of a body that are kept.
    pub const LONGEST: usize = 2 * 1024;

    /// The most bytes of a media type that are kept.
    const LONGEST_TYPE: usize = 255;

    /// The answer with its body cut to `LONGEST` bytes, between two characters.
    pub fn new(content_type: Option<&str>, body: &str) -> Self {
        let content_type = content_type.map(|named| cut(named, Self::LONGEST_TYPE));
        Self { content_type, excerpt: cut(body, Self::LONGEST) }
    }
}

fn cut(text: &str, longest: usize) -> String {
    text[..text.floor_char_boundary(longest)].to_owned()
}

/// How an attempt came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The other side took it.
    Delivered,
    /// It did not arrive, for this kind of reason.
    Failed(FailureType),
}

impl Outcome {
    /// How it failed; none for a delivery.
    pub const fn failure_type(self) -> Option<FailureType> {
        match self {
            Self::Delivered => None,
            Self::Failed(failure) => Some(failure),
        }
    }

    /// The number in the store: none for a delivery.
    pub fn code(self) -> Option<u8> {
        self.failure_type().map(FailureType::code)
    }
}

/// One try inside an attempt that was repeated at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QuickTry {
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// How it failed.
    pub failure_type: FailureType,
    /// The status code, if there was an answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status_code: Option<u16>,
    /// The error in words.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_cut_between_two_characters() {
        let long = "ü".repeat(400);
        let kept = Attempt::excerpt(&long);
        assert_eq!(kept.len(), 500);
        assert!(long.starts_with(&kept));
        assert_eq!(Attempt::excerpt("short"), "short");
        assert_eq!(Response::new(None, &"ü".repeat(1_025)).excerpt, "ü".repeat(1_024));
        let long_type = Response::new(Some(&"x".repeat(300)), "").content_type;
        assert_eq!(long_type.map(|kept| kept.len()), Some(255));
        assert_eq!(Attempt::message_id(&"x".repeat(300)).len(), 255);
    }
}
