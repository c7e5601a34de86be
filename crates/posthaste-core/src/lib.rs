//! The rules of delivery: states, delays, verdicts and decisions, as pure functions.
//!
//! Invariant: no async, IO, clock, random numbers or logs. Time is an argument `now`, randomness an argument
//! `draw` in `0.0..1.0`.

pub mod act;
mod as_text;
pub mod attempt;
pub mod breaker;
pub mod channel;
pub mod classify;
pub mod dead_letter;
pub mod destination;
pub mod duration;
pub mod failure;
pub mod fields;
pub mod filter;
pub mod flow;
pub mod group;
pub mod id;
pub mod import;
pub mod inbound;
pub mod jitter;
pub mod job;
pub mod lease;
pub mod live;
pub mod master_key;
mod micros;
pub mod notification;
pub mod operation;
pub mod policy;
pub mod provider;
pub mod rate;
pub mod reason;
pub mod recent;
pub mod recipient;
pub mod record;
pub mod reply;
pub mod retention;
pub mod retry_after;
pub mod role;
#[cfg(feature = "schema")]
pub mod schema;
pub mod sealed;
pub mod sensitive;
pub mod series;
pub mod signature;
pub mod simulate;
pub mod slots;
pub mod state;
pub mod strategy;
pub mod time;
pub mod view;
pub mod wrong_keys;
