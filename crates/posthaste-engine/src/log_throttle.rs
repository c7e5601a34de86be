//! A log throttle: what can happen thousands of times a second is one line a second, with the number of times.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Minimum pause between two lines.
const APART: Duration = Duration::from_secs(1);

/// The throttle of one message.
#[derive(Debug)]
pub struct LogThrottle {
    inner: Mutex<State>,
}

#[derive(Debug)]
struct State {
    last: Option<Instant>,
    unlogged: u64,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self::new()
    }
}

impl LogThrottle {
    pub const fn new() -> Self {
        Self { inner: Mutex::new(State { last: None, unlogged: 0 }) }
    }

    /// Counts one. Returns the number since the last line, if it is time for one.
    pub fn count(&self, now: Instant) -> Option<u64> {
        let mut state = self.inner.lock().expect("no code panics while it counts");
        state.unlogged += 1;
        if state.last.is_some_and(|last| now.duration_since(last) < APART) {
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.unlogged))
    }

    /// The trouble is over. Returns whether there was any.
    pub fn recovered(&mut self) -> bool {
        let state = self.inner.get_mut().expect("no code panics while it counts");
        state.unlogged = 0;
        state.last.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_once_a_second_with_their_number() {
        let (mut throttle, begin) = (LogThrottle::new(), Instant::now());
        assert_eq!(throttle.count(begin), Some(1));
        for millis in 0..1_000 {
            assert_eq!(throttle.count(begin + Duration::from_millis(millis)), None);
        }
        assert_eq!(throttle.count(begin + APART), Some(1_001));
        assert_eq!(throttle.count(begin + APART), None);
        assert!(throttle.recovered() && !throttle.recovered());
        assert_eq!(throttle.count(begin + APART), Some(1), "a new trouble is told at once");
    }
}
