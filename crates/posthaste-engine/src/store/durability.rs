//! Whether what a store acknowledges survives a crash, as the store last reported it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DurabilityLevel {
    /// What is acknowledged survives.
    Full = 0,
    /// It may be lost, and the settings allow that.
    Unsafe = 1,
    /// The server that was reached last could lose it, so that server is not used.
    Refused = 2,
}

/// The level of a store, which may change: after a failover another server answers.
#[derive(Debug, Clone)]
pub struct Durability(Arc<AtomicU8>);

impl Durability {
    /// Of a store at this level.
    pub fn new(level: DurabilityLevel) -> Self {
        Self(Arc::new(AtomicU8::new(level as u8)))
    }

    /// The level now.
    pub fn level(&self) -> DurabilityLevel {
        match self.0.load(Ordering::Relaxed) {
            0 => DurabilityLevel::Full,
            1 => DurabilityLevel::Unsafe,
            _ => DurabilityLevel::Refused,
        }
    }

    /// Notes what was found.
    pub fn note(&self, level: DurabilityLevel) {
        self.0.store(level as u8, Ordering::Relaxed);
    }
}
