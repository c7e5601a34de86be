//! When notifications arrive.

use std::time::Duration;

use super::draws::Draws;
use crate::time::Timestamp;

/// Evenly, each somewhere in its own stretch of time.
#[derive(Debug)]
pub(super) struct Arrivals {
    every: f64,
    count: u64,
    pub(super) next: Timestamp,
    total: u64,
}

impl Arrivals {
    pub(super) fn new(per_second: f64, duration: Duration, draws: &mut Draws) -> Self {
        let total = (per_second * duration.as_secs_f64() + 1e-6).floor() as u64;
        let mut arrivals = Self { every: 1e6 / per_second, count: 0, next: Timestamp::MAX, total };
        arrivals.plan(draws);
        arrivals
    }

    pub(super) fn plan(&mut self, draws: &mut Draws) {
        let at = (self.count as f64 + draws.next()) * self.every;
        self.next = if self.count < self.total { Timestamp::from_micros(at as i64) } else { Timestamp::MAX };
        self.count += 1;
    }
}
