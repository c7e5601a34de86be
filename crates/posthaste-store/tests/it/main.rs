//! The promises of the stores: those of every store, and those that only a file or a server can break.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bench;
mod blocks;
mod conformance;
mod crash;
mod damage;
mod durability;
mod engine;
mod file;
mod groups;
mod kept;
mod keys;
mod lists;
mod older;
mod operations;
#[cfg(feature = "postgres")]
mod postgres;
mod readers;
mod removed;
mod scene;
mod shown;
