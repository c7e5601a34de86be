//! The promises of the SQLite store: those of every store, and those that only a file can break.

mod crash;
mod durability;
mod file;
mod kept;
mod scene;
