//! What is true: states, delays, verdicts and decisions, as functions of their arguments.
//!
//! Invariant: nothing here waits, reads a clock, draws a random number, logs or touches a file. Time comes in as
//! `now`, chance as `draw` in `0.0..1.0`.

pub mod channel;
pub mod classify;
pub mod duration;
pub mod failure;
pub mod fields;
pub mod import;
pub mod jitter;
pub mod policy;
pub mod reason;
pub mod reply;
pub mod retry_after;
pub mod strategy;
pub mod time;
