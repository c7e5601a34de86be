//! Why an attempt failed: the nine types that policies distinguish.

use serde::{Deserialize, Serialize};

/// The codes are stored, the names are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum FailureType {
    /// The reply fits no rule.
    Unknown = 0,
    /// May work later.
    Temporary = 1,
    /// Will not work later either.
    Permanent = 2,
    /// The receiver was too slow.
    Timeout = 3,
    /// The receiver asked for fewer requests.
    RateLimit = 4,
    /// No connection, or the connection broke.
    NetworkFailure = 5,
    /// Our credentials were refused.
    AuthenticationFailure = 6,
    /// The address does not exist or is not wanted.
    InvalidRecipient = 7,
    /// A quota is used up, or a mailbox is full.
    QuotaExceeded = 8,
}

impl FailureType {
    /// In the order of their codes.
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

    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Temporary => "temporary",
            Self::Permanent => "permanent",
            Self::Timeout => "timeout",
            Self::RateLimit => "rateLimit",
            Self::NetworkFailure => "networkFailure",
            Self::AuthenticationFailure => "authenticationFailure",
            Self::InvalidRecipient => "invalidRecipient",
            Self::QuotaExceeded => "quotaExceeded",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure_type| failure_type.name() == name)
    }

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Whether this type is retried unless a policy changes it.
    pub const fn is_retried_by_default(self) -> bool {
        match self {
            Self::Unknown
            | Self::Temporary
            | Self::Timeout
            | Self::RateLimit
            | Self::NetworkFailure
            | Self::QuotaExceeded => true,
            Self::Permanent | Self::AuthenticationFailure | Self::InvalidRecipient => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back_to_their_type() {
        for (number, failure_type) in FailureType::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(failure_type.code()), number);
            assert_eq!(FailureType::from_code(failure_type.code()), Some(failure_type));
            assert_eq!(FailureType::from_name(failure_type.name()), Some(failure_type));
            assert_eq!(serde_json::to_value(failure_type).unwrap(), failure_type.name());
        }
        assert_eq!(FailureType::from_code(9), None);
        assert_eq!(FailureType::from_name("Permanent"), None);
    }
}
