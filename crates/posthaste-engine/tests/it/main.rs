//! The engine, its model store and the simulation, in one test binary.

mod conformance;
mod engine;
mod rig;
