//! The integration tests: one binary, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bench;
mod cli;
mod config;
mod tidy;
mod walk;
