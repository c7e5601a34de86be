//! What streams of changes are made of: a ring of numbered entries, and how many of them a stream is sent a second.

use std::collections::VecDeque;
use std::time::Duration;

/// The last entries, each with a number that is one more than that of the entry before. The oldest are dropped.
#[derive(Debug)]
pub struct Ring<T> {
    /// The number of the oldest entry.
    first: u64,
    entries: VecDeque<(usize, T)>,
    bytes: usize,
}

/// The most that a ring holds. The last entry is kept even if it is larger.
#[derive(Debug, Clone, Copy)]
pub struct RingLimits {
    pub entries: usize,
    pub bytes: usize,
}

/// A number whose entry is not in the ring, nor the next one to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotInRing {
    /// The oldest entry that is.
    pub first: u64,
}

impl<T> Ring<T> {
    /// An empty ring whose first entry gets this number.
    pub const fn new(first: u64) -> Self {
        Self { first, entries: VecDeque::new(), bytes: 0 }
    }

    /// The number of the next entry.
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    pub fn push(&mut self, entry: T, bytes: usize, limits: RingLimits) {
        self.entries.push_back((bytes, entry));
        self.bytes += bytes;
        while self.entries.len() > 1 && (self.entries.len() > limits.entries || self.bytes > limits.bytes) {
            let dropped = self.entries.pop_front().map_or(0, |(bytes, _)| bytes);
            self.bytes -= dropped;
            self.first += 1;
        }
    }

    /// The entries from this number on, at most so many.
    pub fn from(&self, number: u64, most: usize) -> Result<impl Iterator<Item = &T>, NotInRing> {
        if number < self.first || number > self.next() {
            return Err(NotInRing { first: self.first });
        }
        let passed = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        Ok(self.entries.iter().skip(passed).take(most).map(|(_, entry)| entry))
    }
}

/// How many entries a stream is sent in each second of its own. Time is the time since the stream began.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    most: u32,
    left: u32,
    /// When the present second began.
    since: Duration,
}

impl Allowance {
    const SECOND: Duration = Duration::from_secs(1);

    pub const fn new(most: u32) -> Self {
        Self { most, left: most, since: Duration::ZERO }
    }

    /// Takes one, if one is left.
    pub fn take(&mut self, now: Duration) -> bool {
        if now >= self.renewal() {
            *self = Self { left: self.most, since: now, ..*self };
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }

    /// Whether one is left.
    pub fn is_left(&self, now: Duration) -> bool {
        self.left > 0 || now >= self.renewal()
    }

    /// When the next second begins.
    pub const fn renewal(&self) -> Duration {
        self.since.saturating_add(Self::SECOND)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: RingLimits = RingLimits { entries: 4, bytes: 100 };

    #[test]
    fn a_ring_has_the_last_entries_under_their_numbers() {
        let mut ring = Ring::new(7);
        let read = |ring: &Ring<u64>, from, most| Ok(ring.from(from, most)?.copied().collect::<Vec<_>>());
        assert_eq!(read(&ring, 7, 9), Ok(vec![]));
        for entry in 7..12 {
            ring.push(entry, 1, LIMITS);
        }
        assert_eq!(ring.next(), 12);
        assert_eq!(read(&ring, 8, 9), Ok(vec![8, 9, 10, 11]));
        assert_eq!(read(&ring, 10, 1), Ok(vec![10]));
        assert_eq!(read(&ring, 12, 9), Ok(vec![]));
        for unknown in [7, 13, 0, u64::MAX] {
            assert_eq!(read(&ring, unknown, 9), Err(NotInRing { first: 8 }), "{unknown}");
        }
    }

    #[test]
    fn a_large_entry_displaces_smaller_ones_and_is_kept_itself() {
        let mut ring = Ring::new(0);
        for (bytes, kept) in [(40, 1), (60, 2), (1, 2), (500, 1), (90, 1), (10, 2)] {
            ring.push((), bytes, LIMITS);
            assert_eq!(ring.entries.len(), kept, "{bytes}");
            assert_eq!(ring.bytes, ring.entries.iter().map(|(bytes, ())| bytes).sum::<usize>());
        }
        assert_eq!(ring.next(), 6);
    }

    proptest! {
        #[test]
        fn no_second_has_more_than_the_allowance(
            most in 1u32..5,
            pauses in prop::collection::vec(0u64..700, 1..200),
        ) {
            let mut allowance = Allowance::new(most);
            let (mut now, mut taken) = (Duration::ZERO, vec![]);
            for pause in pauses {
                now += Duration::from_millis(pause);
                let was_left = allowance.is_left(now);
                prop_assert_eq!(allowance.take(now), was_left);
                if was_left {
                    taken.push((allowance.since, now));
                }
            }
            for (since, _) in &taken {
                let same = taken.iter().filter(|(other, _)| other == since).count();
                prop_assert!(same <= most as usize);
            }
            prop_assert!(taken.iter().all(|(since, now)| *now < *since + Allowance::SECOND));
        }
    }
}
