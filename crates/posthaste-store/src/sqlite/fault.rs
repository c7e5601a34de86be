//! What can go wrong inside the store, before it is told to the caller.

use posthaste_engine::store::StoreError;

/// A failure inside the store.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// SQLite says no.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// What was read cannot be what was written.
    #[error("{0}")]
    Nonsense(String),
}

/// What the insides of the store answer.
pub(super) type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// What was read makes no sense.
    pub(super) fn nonsense(what: impl Into<String>) -> Self {
        Self::Nonsense(what.into())
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Sqlite(error) => {
                Self::Unavailable { what: "SQLite refused".to_owned(), source: Some(Box::new(error)) }
            }
            Fault::Nonsense(what) => Self::Corrupt { what },
        }
    }
}

/// The answer where the thread that should give it is gone.
pub(super) fn gone() -> StoreError {
    StoreError::Unavailable { what: "the store is shutting down".to_owned(), source: None }
}
