//! The seam to time.

use posthaste_core::time::Timestamp;

/// Tells the time. Between two heartbeats the engine goes by the monotonic clock alone, so a jump of this one
/// changes nothing.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock of this machine.
    fn now(&self) -> Timestamp;
}
