//! Why a notification ended without being delivered: stable codes for programs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason of an end. The codes are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    /// Every attempt of the generation failed.
    MaxAttemptsExceeded,
    /// It failed for a reason that does not pass.
    PermanentFailure,
    /// It was parked for too long.
    MaxAgeExceeded,
    /// Its lease was taken back too many times in a row.
    Interrupted,
    /// A person gave it up.
    Discarded,
    /// It was edited into a new notification.
    Replaced,
    /// Its subscription was disabled.
    SubscriptionDisabled,
    /// A hard bounce came after the delivery.
    HardBounce,
    /// Its address is suppressed.
    Suppressed,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::MaxAttemptsExceeded,
        Self::PermanentFailure,
        Self::MaxAgeExceeded,
        Self::Interrupted,
        Self::Discarded,
        Self::Replaced,
        Self::SubscriptionDisabled,
        Self::HardBounce,
        Self::Suppressed,
    ];

    /// The code in the API and in the store.
    pub const fn code(self) -> &'static str {
        match self {
            Self::MaxAttemptsExceeded => "MAX_ATTEMPTS_EXCEEDED",
            Self::PermanentFailure => "PERMANENT_FAILURE",
            Self::MaxAgeExceeded => "MAX_AGE_EXCEEDED",
            Self::Interrupted => "INTERRUPTED",
            Self::Discarded => "DISCARDED",
            Self::Replaced => "REPLACED",
            Self::SubscriptionDisabled => "SUBSCRIPTION_DISABLED",
            Self::HardBounce => "HARD_BOUNCE",
            Self::Suppressed => "SUPPRESSED",
        }
    }

    /// The reason with that code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.code())
    }
}
