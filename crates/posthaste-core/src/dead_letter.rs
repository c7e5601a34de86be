//! What happens to a dead letter.

use serde::Serialize;

/// Where a dead letter stands. Names and numbers are part of the contract (S0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum DeadLetterStatus {
    /// Nobody has acted on it yet.
    Pending = 0,
    /// Its notification was sent on its way again.
    Requeued = 1,
    /// It was discarded or replaced.
    Cancelled = 2,
}

impl DeadLetterStatus {
    /// The number in the API and in the store.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The status with that number.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Pending),
            1 => Some(Self::Requeued),
            2 => Some(Self::Cancelled),
            _ => None,
        }
    }
}
