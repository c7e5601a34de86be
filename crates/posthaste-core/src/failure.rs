//! Why a delivery failed, in nine words (S0).

use serde::{Deserialize, Serialize};

/// The kind of a failure. Names and numbers are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum FailureType {
    /// Nothing is known about it.
    Unknown = 0,
    /// It passes by itself.
    Temporary = 1,
    /// It will not pass.
    Permanent = 2,
    /// It took too long.
    Timeout = 3,
    /// There were too many.
    RateLimit = 4,
    /// The other side could not be reached.
    NetworkFailure = 5,
    /// Our credentials were refused.
    AuthenticationFailure = 6,
    /// The recipient does not exist.
    InvalidRecipient = 7,
    /// An allowance is used up.
    QuotaExceeded = 8,
}

impl FailureType {
    /// Every type, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Unknown,
        Self::Temporary,
        Self::Permanent,
        Self::Timeout,
        Self::RateLimit,
        Self::NetworkFailure,
        Self::AuthenticationFailure,
        Self::InvalidRecipient,
        Self::QuotaExceeded,
    ];

    /// The number in the API and in the store.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type with that number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}
