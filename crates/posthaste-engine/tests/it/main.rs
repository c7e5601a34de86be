//! The engine, its model store and the simulation, in one test binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod conformance;
mod engine;
mod rig;
mod sim;
