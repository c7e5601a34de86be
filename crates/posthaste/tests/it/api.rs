//! The HTTP API, asked over the network as a program would, with a real store and a real receiver behind it.
//!
//! Every answer that these tests see is held against openapi.json (`running` asks, `schema` checks).

mod acts;
mod docs;
mod figures;
mod fuzz;
mod lists;
mod openapi;
mod policies;
mod probes;
mod running;
mod s3;
mod schema;
mod sends;
mod tenants;
mod timeouts;
mod wrong_addresses;
mod wrong_input;
mod wrong_policies;
mod wrong_requests;
