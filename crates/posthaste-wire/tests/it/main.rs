//! The integration tests of what leaves: real sockets on loopback, one binary, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod client_certificates;
mod exchange;
mod faults;
mod guard;
mod http2;
mod names;
mod providers;
mod proxy;
mod reuse;
mod rig;
mod sink;
mod tls;
mod verdict;
