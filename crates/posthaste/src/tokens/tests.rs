//! Attacks on tokens.
