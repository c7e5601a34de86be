//! What a channel saw when it tried to deliver: facts, not judgements.

use std::time::Duration;

use crate::time::Timestamp;

/// The outcome of one try as the channel saw it. A refusal is a reply, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// An HTTP answer.
    Http {
        /// The status code.
        status: u16,
        /// The `Retry-After` header, if one could be read.
        retry_after: Option<RetryAfter>,
        /// The start of the body, for people.
        text: String,
    },
    /// An SMTP answer.
    Smtp {
        /// The three-digit reply code.
        code: u16,
        /// The enhanced status code (class, subject, detail), if one was given.
        enhanced: Option<(u8, u16, u16)>,
        /// The answer's text.
        text: String,
    },
    /// No answer came.
    Fault {
        /// What went wrong.
        fault: Fault,
        /// The error in words.
        text: String,
    },
}

impl Reply {
    /// The status code, where there was an answer.
    pub const fn status_code(&self) -> Option<u16> {
        match self {
            Self::Http { status, .. } => Some(*status),
            Self::Smtp { code, .. } => Some(*code),
            Self::Fault { .. } => None,
        }
    }

    /// The reply in words, for people.
    pub fn words(&self) -> String {
        match self {
            Self::Http { status, text, .. } if text.is_empty() => format!("answered {status}"),
            Self::Http { status, text, .. } => format!("answered {status}: {text}"),
            Self::Smtp { code, text, .. } => format!("answered {code}: {text}"),
            Self::Fault { text, .. } => text.clone(),
        }
    }
}

/// Why there was no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The connection was refused.
    Refused,
    /// There is no route to the address.
    NoRoute,
    /// The name could not be resolved.
    Dns,
    /// The TLS handshake failed.
    Tls,
    /// The connection broke while the exchange was under way.
    Reset,
    /// Our own deadline passed.
    Timeout,
    /// The address is one that we never send to.
    Forbidden,
    /// The channel cannot send this notification as it is.
    Unsendable,
    /// The channel itself broke down, which is a bug of ours.
    Broken,
}

/// A `Retry-After` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAfter {
    /// A number of seconds.
    In(Duration),
    /// A date.
    At(Timestamp),
}
