//! What people touch: HTTP API, command line, configuration and wiring.
//!
//! Invariant: no rule of delivery lives here. API, page and command for one act call the same function of the
//! engine.

pub mod bench;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod dashboard;
mod destination_name;
pub mod http;
pub mod keys;
pub mod listen;
pub mod master_key;
mod open_files;
pub mod shutdown;
pub mod telemetry;
pub mod tokens;
pub mod wiring;
