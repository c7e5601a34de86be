//! Errors inside the store, before they become a `StoreError`.

use std::fmt;

use posthaste_engine::store::StoreError;
use rusqlite::{Error, ErrorCode};

pub(super) use crate::kept::damage::unless_damaged;
use crate::kept::damage::{Damaged, MaybeDamage};

#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A stored value that the store cannot have written.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

pub(super) type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// A damaged or contradictory row.
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(Damaged(what.into()))
    }

    /// Adds the id of the row to the text of a damage.
    pub(super) fn of(self, id: impl fmt::Display) -> Self {
        if self.is_damage() { Self::damaged(format!("{id} cannot be read: {self}")) } else { self }
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
            // A constraint violation is permanent: a retry cannot help.
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

/// The error if the thread that should answer has ended.
pub(super) fn gone() -> StoreError {
    StoreError::Unavailable { what: "the store is shutting down".to_owned(), source: None }
}
