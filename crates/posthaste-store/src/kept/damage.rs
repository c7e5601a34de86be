//! Damage: what was read cannot be what was written.

/// What is wrong with it. It never quotes what was to be sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Damaged(pub(crate) String);

pub(crate) type Result<T> = std::result::Result<T, Damaged>;
