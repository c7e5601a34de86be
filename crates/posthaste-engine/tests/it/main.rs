//! The engine, its model store and the simulation, in one test binary.

mod engine;
mod rig;
