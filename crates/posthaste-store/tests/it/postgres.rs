//! The promises of the PostgreSQL store, on a real server that the tests start by themselves.

mod conformance;
mod connect;
mod damage;
mod durability;
mod engine;
mod figures;
mod groups;
mod many;
mod notices;
mod older;
mod operations;
mod own;
mod parked;
mod plans;
mod removed;
pub(crate) mod server;
mod shown;
mod steps;
mod tls;
mod trouble;
