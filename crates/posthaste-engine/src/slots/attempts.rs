//! The attempts that destinations got in the last minutes: of these, retries are a part once a breaker has opened.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use posthaste_core::rate::{TRAFFIC_WINDOW, Traffic};
use posthaste_core::slots::Gated;
use posthaste_core::time::Timestamp;
use tokio::time::Instant;

const STEP: Duration = Duration::from_secs(60);
/// The most destinations whose attempts are counted in one minute; those of further ones do not count.
const MOST: usize = 20_000;

/// The minutes, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Attempts(VecDeque<(Instant, HashMap<Gated, u32>)>);

impl Attempts {
    pub(super) fn count(&mut self, gated: Gated, now: Instant) {
        while self.0.front().is_some_and(|(begins, _)| now.duration_since(*begins) >= TRAFFIC_WINDOW + STEP) {
            self.0.pop_front();
        }
        if self.0.back().is_none_or(|(begins, _)| now.duration_since(*begins) >= STEP) {
            self.0.push_back((now, HashMap::new()));
        }
        let Some((_, minute)) = self.0.back_mut() else { return };
        if let Some(count) = minute.get_mut(&gated) {
            *count = count.saturating_add(1);
        } else if minute.len() < MOST {
            minute.insert(gated, 1);
        }
    }

    /// The attempts of one destination, as the retry budget begins with them.
    pub(super) fn traffic(&self, gated: Gated, instant: Instant, now: Timestamp) -> Traffic {
        let mut traffic = Traffic::default();
        for (begins, minute) in &self.0 {
            if let Some(count) = minute.get(&gated) {
                traffic.count(*count, now.earlier(instant.duration_since(*begins)));
            }
        }
        traffic
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::flow::FlowId;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn attempts_of_the_last_ten_minutes_count() {
        let (one, two) = (Gated::Flow(FlowId(1)), Gated::Flow(FlowId(2)));
        let mut attempts = Attempts::default();
        let begun = Instant::now();
        let at = |secs: u64| begun + Duration::from_secs(secs);
        for second in 0..100 {
            attempts.count(one, at(second));
        }
        attempts.count(two, at(500));
        let room = |gated, secs| {
            let now = Timestamp::EPOCH.later(Duration::from_secs(secs));
            attempts.traffic(gated, at(secs), now).room(now)
        };
        assert_eq!((room(one, 100), room(two, 500)), (100 / 9, 1));
        assert_eq!(room(one, 630), 40 / 9, "the first minute is over");
    }
}
