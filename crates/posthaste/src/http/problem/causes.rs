//! Errors of the engine and the store as problems.

use posthaste_core::fields::BadField;
use posthaste_engine::accept::AcceptError;
use posthaste_engine::acts::{ActError, Current};
use posthaste_engine::log_throttle::LogThrottle;
use posthaste_engine::reads::ReadError;
use posthaste_engine::store::StoreError;
use posthaste_engine::vault::VaultError;
use tokio::time::Instant;

use super::{Kind, Problem, pointer};

impl From<BadField> for Problem {
    fn from(bad: BadField) -> Self {
        Self::at(pointer(&bad.field), format!("{}: {}", bad.field, bad.reason))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::of_store(&error)
    }
}

impl Problem {
    fn stopping() -> Self {
        Self::new(Kind::Stopping, "this node is stopping and takes nothing new; ask again")
    }

    /// A read changes nothing, so it cannot have happened by half.
    fn of_read(error: &StoreError) -> Self {
        Self::of_store_saying(error, "the store cannot serve now; ask again")
    }

    fn of_store(error: &StoreError) -> Self {
        let detail = "the store cannot serve now; what was asked may or may not have happened: ask again, with the same \
                      Idempotency-Key if it was a send";
        Self::of_store_saying(error, detail)
    }

    fn of_store_saying(error: &StoreError, detail: &str) -> Self {
        /// A store that fails refuses every request; what makes no sense must not drown in that.
        static UNAVAILABLE: LogThrottle = LogThrottle::new();
        static CORRUPT: LogThrottle = LogThrottle::new();
        let throttle = match error {
            StoreError::Unavailable { .. } => &UNAVAILABLE,
            StoreError::Corrupt { .. } => &CORRUPT,
        };
        if let Some(requests) = throttle.count(Instant::now()) {
            tracing::error!(error = %error.causes(), requests, "the store could not serve requests");
        }
        match error {
            StoreError::Unavailable { .. } => Self::new(Kind::StoreUnavailable, detail),
            StoreError::Corrupt { .. } => Self::new(
                Kind::Internal,
                "the store holds something that makes no sense; the log of the server says more",
            ),
        }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::OtherTenant => Self::new(Kind::Forbidden, error.to_string()),
            ReadError::Store(error) => Self::of_read(&error),
        }
    }
}

impl From<AcceptError> for Problem {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Stopping => Self::stopping(),
            AcceptError::Unclear => Self::new(
                Kind::StoreUnavailable,
                "this node stopped before the store answered; the notification may or may not have been stored: ask \
                 again, with the same Idempotency-Key",
            ),
            AcceptError::QueueFull => Self::new(
                Kind::QueueFull,
                "the queue has as many notifications as it may have, and nothing of the request was accepted; ask again, \
                 a large batch in parts",
            ),
            AcceptError::Policy(bad) => bad.under("policy").into(),
            AcceptError::Store(error) => Self::of_store(&error),
            AcceptError::Vault(error) => error.into(),
        }
    }
}

impl From<VaultError> for Problem {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Store(error) => Self::of_store(&error),
            never => {
                tracing::error!(error = %never, "a secret could not be sealed or opened");
                Self::new(Kind::Internal, format!("the secrets of the tenant cannot be used: {never}"))
            }
        }
    }
}

impl From<ActError> for Problem {
    fn from(error: ActError) -> Self {
        let detail = error.to_string();
        match error {
            ActError::NotFound { .. } => Self::not_found(detail),
            ActError::Refused { state, .. } => {
                Self { state: Some(state), ..Self::new(Kind::StateConflict, detail) }
            }
            ActError::Resolved { current, .. } => {
                let state = match current {
                    Current::State(_, state) => Some(state),
                    Current::Itself | Current::Letter(_) | Current::Copy(_) => None,
                };
                Self { state, ..Self::new(Kind::DeadLetterResolved, detail) }
            }
            ActError::Expired { .. } => Self::new(Kind::Expired, detail),
            ActError::Busy { .. } => Self::new(Kind::StateConflict, detail),
            ActError::Stopping => Self::stopping(),
            ActError::Policy(bad) => bad.into(),
            ActError::Store(error) => Self::of_store(&error),
            ActError::Vault(error) => error.into(),
        }
    }
}
