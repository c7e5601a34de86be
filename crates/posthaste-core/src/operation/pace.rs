//! How fast an operation forwards: at the pace of each destination, and within the rate that was asked for.

use crate::time::Timestamp;

/// How many rows of one flow may wait due while an operation adds to them. It grows while they are sent faster than they are
/// looked at, and shrinks where they pile up, so that new notifications wait behind as few as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(u32);

impl Window {
    /// Never more than these wait due in one flow.
    pub const MOST: u32 = 1_000;
    const LEAST: u32 = 50;

    /// The window after so many rows were found waiting.
    #[must_use]
    pub fn after(self, waiting: u32) -> Self {
        if waiting <= self.0 / 4 {
            Self((self.0 * 2).min(Self::MOST))
        } else if waiting > self.0 / 2 {
            Self((self.0 / 2).max(Self::LEAST))
        } else {
            self
        }
    }

    /// How many more may be added to those that wait.
    pub const fn room(self, waiting: u32) -> u32 {
        self.0.saturating_sub(waiting)
    }
}

impl Default for Window {
    fn default() -> Self {
        Self(Self::LEAST * 2)
    }
}

/// A rate per second, with bursts of at most a tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    per_second: u32,
    available: f64,
    at: Timestamp,
}

impl RateLimit {
    pub fn new(per_second: u32, now: Timestamp) -> Self {
        Self { per_second: per_second.max(1), available: 1.0, at: now }
    }

    /// How many may go now.
    pub fn room(&mut self, now: Timestamp) -> u32 {
        let rate = f64::from(self.per_second);
        let earned = now.since(self.at).as_secs_f64() * rate;
        self.at = self.at.max(now);
        self.available = (self.available + earned).min((rate / 10.0).max(1.0));
        self.available.max(0.0) as u32
    }

    /// So many went.
    pub fn spend(&mut self, count: u32) {
        self.available -= f64::from(count);
    }
}
