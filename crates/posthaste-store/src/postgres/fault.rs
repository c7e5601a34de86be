//! What can go wrong inside the store, before it is told to the caller.

use std::fmt;

use deadpool_postgres::{PoolError, TimeoutType};
use posthaste_engine::store::StoreError;
use tokio_postgres::error::SqlState;

use super::durability;
pub(super) use crate::kept::damage::unless_damaged;
use crate::kept::damage::{Damaged, MaybeDamage};

/// A failure inside the store.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// PostgreSQL says no, or is not there any more.
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
    /// No connection could be had.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The server does not answer, though its connection stands.
    #[error("PostgreSQL does not answer")]
    Silent,
    /// Too many look at the same time.
    #[error("too many look at what is kept at the same time")]
    Crowded,
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

    /// What PostgreSQL called it, if it was PostgreSQL that refused.
    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Postgres(error) => error.code(),
            Self::Pool(PoolError::Backend(error)) => error.code(),
            Self::Pool(_) | Self::Silent | Self::Crowded | Self::Damaged(_) => None,
        }
    }

    /// Whether the server chose this transaction to give way to another one. It has certainly not happened, and can be
    /// tried again at once.
    pub(super) fn gave_way(&self) -> bool {
        self.code().is_some_and(|code| {
            *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE
        })
    }

    /// Whether the connection can go on after a rollback. Not so if it is gone, is being closed, holds statements that do
    /// not work any more, or leads to a server that only reads, as after a failover.
    pub(super) fn spares_connection(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Postgres(error) => error.code().is_some_and(|code| {
                // 0A: a statement that was prepared before the schema changed. 26: one that the connection forgot.
                let gone = matches!(&code.code()[..2], "08" | "0A" | "26" | "57");
                (!gone || *code == SqlState::QUERY_CANCELED) && *code != SqlState::READ_ONLY_SQL_TRANSACTION
            }),
            Self::Pool(_) | Self::Silent | Self::Crowded => false,
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
        // What breaks a constraint or is no value of its column is refused for good: asking again cannot help.
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
            Fault::Postgres(error) if for_good => Self::Corrupt { what: told(&error) },
            Fault::Silent | Fault::Crowded => Self::Unavailable { what: fault.to_string(), source: None },
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

/// Whether statements that were prepared are not there, or there already: the connection is not the one that it was.
fn is_pooled(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::INVALID_SQL_STATEMENT_NAME || *code == SqlState::DUPLICATE_PSTATEMENT
    })
}

/// What PostgreSQL says, without the values that it may quote: they may be what was to be sent.
fn told(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |refused| refused.message().to_owned())
}
