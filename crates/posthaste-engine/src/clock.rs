//! The seam to time.

use std::time::Duration;

use posthaste_core::time::Timestamp;

/// Tells the time. Between two heartbeats the engine goes by the monotonic clock alone, so a jump of this one
/// changes nothing.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock of this machine.
    fn now(&self) -> Timestamp;

    /// The time that the machine has slept since it was started, in which its monotonic clock stood still. It never
    /// becomes less.
    fn slept(&self) -> Duration {
        Duration::ZERO
    }
}
