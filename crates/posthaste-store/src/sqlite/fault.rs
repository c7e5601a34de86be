//! What can go wrong inside the store, before it is told to the caller.

use std::fmt;

use posthaste_engine::store::StoreError;
use rusqlite::{Error, ErrorCode};

pub(super) use crate::kept::damage::unless_damaged;
use crate::kept::damage::{Damaged, MaybeDamage};

/// A failure inside the store.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// SQLite says no.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// What was read cannot be what was written.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

/// What the insides of the store answer.
pub(super) type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// What was read makes no sense.
    pub(super) fn nonsense(what: impl Into<String>) -> Self {
        Self::Damaged(Damaged(what.into()))
    }

    /// The same fault; damage is told with the name of the row.
    pub(super) fn of(self, id: impl fmt::Display) -> Self {
        if self.is_damage() { Self::nonsense(format!("{id} cannot be read: {self}")) } else { self }
    }
}

impl MaybeDamage for Fault {
    fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Sqlite(error) => matches!(
                error,
                Error::FromSqlConversionFailure(..)
                    | Error::IntegralValueOutOfRange(..)
                    | Error::InvalidColumnType(..)
                    | Error::Utf8Error(..)
            ),
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            fault if fault.is_damage() => Self::Corrupt { what: fault.to_string() },
            // What breaks a constraint is refused for good: asking again cannot help.
            Fault::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                Self::Corrupt { what: error.to_string() }
            }
            Fault::Sqlite(error) => {
                Self::Unavailable { what: "SQLite refused".to_owned(), source: Some(Box::new(error)) }
            }
            Fault::Damaged(Damaged(what)) => Self::Corrupt { what },
        }
    }
}

/// The answer where the thread that should give it is gone.
pub(super) fn gone() -> StoreError {
    StoreError::Unavailable { what: "the store is shutting down".to_owned(), source: None }
}
