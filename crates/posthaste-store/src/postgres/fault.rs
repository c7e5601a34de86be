//! Errors inside the store, before they become a `StoreError`.

use std::fmt;

use deadpool_postgres::{PoolError, TimeoutType};
use posthaste_engine::store::StoreError;
use tokio_postgres::error::SqlState;

use super::durability;
pub(super) use crate::kept::damage::unless_damaged;
use crate::kept::damage::{Damaged, MaybeDamage};

#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// An error of PostgreSQL, or a lost connection.
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The server does not respond, although the connection is open.
    #[error("PostgreSQL does not answer")]
    Unresponsive,
    #[error("too many reads at the same time")]
    TooManyReads,
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

    /// The error code of PostgreSQL, if it sent one.
    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Postgres(error) => error.code(),
            Self::Pool(PoolError::Backend(error)) => error.code(),
            Self::Pool(_) | Self::Unresponsive | Self::TooManyReads | Self::Damaged(_) => None,
        }
    }

    /// Whether the server aborted this transaction in favour of another one. It has certainly not happened,
    /// and can be repeated immediately.
    pub(super) fn can_be_repeated(&self) -> bool {
        self.code().is_some_and(|code| {
            *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE
        })
    }

    /// Whether the connection can be used again after a rollback. Not if it is lost, is being closed, has
    /// invalid prepared statements, or leads to a server that is read-only after a failover.
    pub(super) fn leaves_connection_usable(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Postgres(error) => error.code().is_some_and(|code| {
                // 0A: a statement that was prepared before the schema changed. 26: a statement that the
                // connection no longer has.
                let gone = matches!(&code.code()[..2], "08" | "0A" | "26" | "57");
                (!gone || *code == SqlState::QUERY_CANCELED) && *code != SqlState::READ_ONLY_SQL_TRANSACTION
            }),
            Self::Pool(_) | Self::Unresponsive | Self::TooManyReads => false,
        }
    }
}

impl MaybeDamage for Fault {
    fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged(_))
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        // A constraint violation or an invalid value is permanent: a retry cannot help.
        let for_good = fault.code().is_some_and(|code| matches!(&code.code()[..2], "22" | "23"));
        let unavailable =
            |what: &str, source| Self::Unavailable { what: what.to_owned(), source: Some(source) };
        match fault {
            Fault::Damaged(Damaged(what)) => Self::Corrupt { what },
            Fault::Postgres(error) | Fault::Pool(PoolError::Backend(error))
                if durability::refusal(&error).is_some() =>
            {
                let what = "PostgreSQL would lose in a crash what it acknowledges: set fsync and full_page_writes to on";
                unavailable(what, Box::new(error))
            }
            Fault::Postgres(error) if for_good => Self::Corrupt { what: message(&error) },
            Fault::Unresponsive | Fault::TooManyReads => {
                Self::Unavailable { what: fault.to_string(), source: None }
            }
            Fault::Postgres(error) if is_pooled(&error) => unavailable(
                "a pooler that keeps no sessions stands before PostgreSQL: set store.prepared = false",
                Box::new(error),
            ),
            Fault::Postgres(error) if error.code().is_some() => {
                unavailable("PostgreSQL refused", Box::new(error))
            }
            Fault::Postgres(error) => unavailable("the connection to PostgreSQL was lost", Box::new(error)),
            Fault::Pool(PoolError::Timeout(TimeoutType::Wait)) => Self::Unavailable {
                what: "every connection to PostgreSQL is in use: allow more, or give the server less to do"
                    .to_owned(),
                source: None,
            },
            Fault::Pool(error) => unavailable("PostgreSQL cannot be reached", Box::new(error)),
        }
    }
}

/// Whether prepared statements are missing or exist already: a pooler has switched the connection.
fn is_pooled(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::INVALID_SQL_STATEMENT_NAME || *code == SqlState::DUPLICATE_PSTATEMENT
    })
}

/// The message of PostgreSQL without the values that its detail may quote: they may be content of
/// notifications.
fn message(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |refused| refused.message().to_owned())
}
