//! The tests of the engine as one binary.
