//! What is done: the loops that accept, claim, send and settle, and the seams they need.
//!
//! Invariant: no SQL, no sockets and no HTTP here. The engine owns the seams; stores and channels implement them.

pub mod channel;
pub mod clock;
#[cfg(feature = "testing")]
pub mod model_store;
pub mod store;
