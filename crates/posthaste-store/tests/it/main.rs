//! The promises of the SQLite store: those of every store, and those that only a file can break.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bench;
mod conformance;
mod crash;
mod damage;
mod durability;
mod engine;
mod file;
mod kept;
mod lists;
mod scene;
