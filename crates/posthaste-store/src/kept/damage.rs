//! Damage: what was read cannot be what was written.

use std::fmt;

/// What is wrong with it. It never quotes what was to be sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Damaged(pub(crate) String);

pub(crate) type Result<T> = std::result::Result<T, Damaged>;

/// The fault of a store.
pub(crate) trait MaybeDamage: fmt::Display {
    /// Whether it lies in what one row holds, so that every other row can still be read.
    fn is_damage(&self) -> bool;
}

/// What was read of a row; none, and an error in the log, if the row is damaged. So it stops no other row.
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
