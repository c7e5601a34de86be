//! What leaves: channels and their providers, and the receiver that tests them.
//!
//! Invariant: this crate reports facts. It never classifies, retries or remembers.

pub mod guard;
pub mod http;
pub mod listener;
pub mod log_provider;
mod printable;
pub mod provider_pool;
pub mod sink;
pub mod webhook;
