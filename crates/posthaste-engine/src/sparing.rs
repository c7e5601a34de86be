//! Telling sparingly: what can happen thousands of times a second is one line a second, with how often.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// The least time between two lines.
const APART: Duration = Duration::from_secs(1);

/// One thing that may go wrong again and again.
#[derive(Debug)]
pub struct Sparing {
    inner: Mutex<Told>,
}

#[derive(Debug)]
struct Told {
    last: Option<Instant>,
    untold: u64,
}

impl Default for Sparing {
    fn default() -> Self {
        Self::new()
    }
}

impl Sparing {
    /// Nothing has gone wrong yet.
    pub const fn new() -> Self {
        Self { inner: Mutex::new(Told { last: None, untold: 0 }) }
    }

    /// It went wrong. Answers how often it did since the last line, if it is time for one.
    pub fn count(&self, now: Instant) -> Option<u64> {
        let mut told = self.inner.lock().expect("no code panics while it counts");
        told.untold += 1;
        if told.last.is_some_and(|last| now.duration_since(last) < APART) {
            return None;
        }
        told.last = Some(now);
        Some(std::mem::take(&mut told.untold))
    }

    /// It goes well. Answers whether it did not before.
    pub fn mended(&mut self) -> bool {
        let told = self.inner.get_mut().expect("no code panics while it counts");
        told.untold = 0;
        told.last.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_once_a_second_with_their_number() {
        let (mut sparing, begin) = (Sparing::new(), Instant::now());
        assert_eq!(sparing.count(begin), Some(1));
        for millis in 0..1_000 {
            assert_eq!(sparing.count(begin + Duration::from_millis(millis)), None);
        }
        assert_eq!(sparing.count(begin + APART), Some(1_001));
        assert_eq!(sparing.count(begin + APART), None);
        assert!(sparing.mended() && !sparing.mended());
        assert_eq!(sparing.count(begin + APART), Some(1), "what goes wrong anew is told at once");
    }
}
