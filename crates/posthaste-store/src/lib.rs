//! What is kept: the stores behind the `Store` seam.
//!
//! Invariant: a store decides nothing and never reads a clock. Every decision and every time comes in as a value.

mod figures;
mod kept;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod schema;
pub mod sqlite;
mod walk;
