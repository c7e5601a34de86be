//! The integration tests: one binary, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod api;
mod backup;
mod bench;
mod broken;
mod cli;
mod clients;
mod config;
mod connections;
mod crash;
mod drain;
mod frozen;
mod full_disk;
mod kept;
mod load;
mod nodes;
mod operations;
mod outage;
mod packages;
mod packaging;
mod postgres;
mod power_cut;
mod program;
mod receivers;
mod request_id;
mod secrets;
mod story;
mod tidy;
mod upgrade;
mod walk;
