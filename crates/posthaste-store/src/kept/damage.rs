//! Damaged rows: a stored value that the store cannot have written.

use std::fmt;

/// Describes the damage. The text never quotes the content of a notification.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Damaged(pub(crate) String);

pub(crate) type Result<T> = std::result::Result<T, Damaged>;

pub(crate) trait MaybeDamage: fmt::Display {
    /// Whether the error concerns a single row, so that all other rows can still be read.
    fn is_damage(&self) -> bool;
}

/// Returns `None` for a damaged row and logs an error, so that one damaged row does not block the others.
pub(crate) fn unless_damaged<T, F: MaybeDamage>(
    row: &impl fmt::Debug,
    read: std::result::Result<T, F>,
) -> std::result::Result<Option<T>, F> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(fault) if fault.is_damage() => {
            tracing::error!(?row, %fault, "a row cannot be read and is left out");
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}
