//! The stores behind the `Store` seam: SQLite and PostgreSQL.
//!
//! Invariant: a store decides nothing and never reads a clock. Every decision and every time is an argument.

mod kept;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod schema;
pub mod sqlite;
mod stats_limits;
mod walk;
