//! Why a notification ended undelivered.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The codes are part of the API and are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// All attempts of the generation failed.
    MaxAttemptsExceeded,
    /// The policy does not retry this type of failure.
    PermanentFailure,
    /// Older than its policy allows.
    MaxAgeExceeded,
    /// Its lease was reclaimed too often.
    Interrupted,
    /// Discarded by a user.
    Discarded,
    /// Replaced by an edited copy.
    Replaced,
    /// Its subscription was disabled.
    SubscriptionDisabled,
    /// A hard bounce came after the delivery.
    HardBounce,
    /// The address is on the suppression list.
    Suppressed,
}

impl Reason {
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

    /// The error text of an end that has no error of its own.
    pub const fn words(self) -> &'static str {
        match self {
            Self::MaxAttemptsExceeded => "every attempt failed",
            Self::PermanentFailure => "it failed for a reason that does not pass",
            Self::MaxAgeExceeded => "it waited longer than its policy allows",
            Self::Interrupted => "its delivery was interrupted too many times in a row",
            Self::Discarded => "discarded",
            Self::Replaced => "replaced by an edited notification",
            Self::SubscriptionDisabled => "its subscription is disabled",
            Self::HardBounce => "it bounced after it had been delivered",
            Self::Suppressed => "its address is suppressed",
        }
    }

    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let code = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let bad = || serde::de::Error::custom(format!("`{code}` is not a reason code"));
        Self::from_code(&code).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lead_back_to_their_reason() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
            let json = serde_json::to_string(&reason).unwrap();
            assert_eq!(json, format!("\"{}\"", reason.code()));
            assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), reason);
        }
        assert_eq!(Reason::from_code("discarded"), None);
        assert!(serde_json::from_str::<Reason>("\"BORED\"").unwrap_err().to_string().contains("`BORED`"));
    }
}
