//! Durations in logarithmic buckets, and the percentiles that can be read from them.

use std::collections::BTreeMap;
use std::time::Duration;

/// Times below this are kept exactly, in milliseconds.
const EXACT: u64 = 1 << (BITS + 1);
/// The first bits of a longer time that are kept, after the highest one.
const BITS: u32 = 4;
/// Longer times count as this one, which is more than 30 years.
const LONGEST: u64 = (1 << 40) - 1;

/// How many durations there were in each bucket. A value that is read from it is wrong by at most one part in 32.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Times(BTreeMap<u16, u64>);

/// In milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentiles {
    pub p50: u64,
    pub p95: u64,
    pub p99: u64,
}

impl Times {
    /// The greatest relative error of a value that is read, as a fraction of one.
    pub const ERROR: f64 = 1.0 / 32.0;

    pub fn add(&mut self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(LONGEST);
        self.add_to(bucket(millis), 1);
    }

    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in other.counts() {
            self.add_to(bucket, count);
        }
    }

    /// The buckets that are not empty, by the times in them.
    pub fn counts(&self) -> impl Iterator<Item = (u16, u64)> {
        self.0.iter().map(|(bucket, count)| (*bucket, *count))
    }

    /// Adds so many to a bucket. A bucket that no time is in counts as the last one.
    pub(super) fn add_to(&mut self, at: u16, count: u64) {
        let own = self.0.entry(at.min(bucket(LONGEST))).or_default();
        *own = own.saturating_add(count);
    }

    /// `None` without durations.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let of = |percent| self.percentile(percent);
        Some(Percentiles { p50: of(50)?, p95: of(95)?, p99: of(99)? })
    }

    /// The time, in milliseconds, that so many in a hundred do not exceed.
    fn percentile(&self, percent: u64) -> Option<u64> {
        let all = self.0.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        // Rounded up: of 10, the 95th percentile is the tenth.
        let rank = u128::from(all) * u128::from(percent);
        let rank = u64::try_from(rank.div_ceil(100)).unwrap_or(u64::MAX);
        let mut seen: u64 = 0;
        let mut reached = |count: &u64| {
            seen = seen.saturating_add(*count);
            seen >= rank
        };
        self.0.iter().find(|(_, count)| reached(count)).map(|(bucket, _)| middle(*bucket))
    }
}

/// The bucket of a time in milliseconds.
fn bucket(millis: u64) -> u16 {
    let millis = millis.min(LONGEST);
    if millis < EXACT {
        return u16::try_from(millis).unwrap_or(u16::MAX);
    }
    let power = millis.ilog2();
    let first = millis >> (power - BITS) & ((1 << BITS) - 1);
    let number = EXACT + (u64::from(power - BITS - 1) << BITS) + first;
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// The middle of a bucket, in milliseconds.
fn middle(bucket: u16) -> u64 {
    let number = u64::from(bucket);
    let Some(beyond) = number.checked_sub(EXACT) else { return number };
    let (power, first) = (beyond >> BITS, beyond & ((1 << BITS) - 1));
    // The lowest time of the bucket has its first bits, and zeroes after them.
    let shift = power + 1;
    ((1 << BITS | first) << shift) + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(millis: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::default();
        millis.into_iter().for_each(|millis| times.add(Duration::from_millis(millis)));
        times
    }

    #[test]
    fn a_value_is_read_back_within_the_error() {
        let powers = (0..40).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]);
        for millis in (0..10_000).chain(powers).chain((0..1_000).map(|n| n * 7_919 + 31)) {
            let read = times([millis]).percentiles().unwrap().p50;
            let error = read.abs_diff(millis) as f64;
            assert!(error <= millis as f64 * Times::ERROR, "{millis} was read as {read}");
        }
    }

    #[test]
    fn buckets_are_in_the_order_of_times_and_few() {
        let mut last = 0;
        for millis in 0..100_000 {
            let now = bucket(millis);
            assert!(now == last || now == last + 1, "{millis}");
            last = now;
        }
        assert_eq!(bucket(u64::MAX), bucket(LONGEST));
        assert!(bucket(LONGEST) < 600, "{}", bucket(LONGEST));
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_list_within_the_error() {
        assert_eq!(Times::default().percentiles(), None);
        let same = |times: Times, p50, p95, p99| {
            assert_eq!(times.percentiles(), Some(Percentiles { p50, p95, p99 }));
        };
        same(times([7]), 7, 7, 7);
        same(times(1..=20), 10, 19, 20);
        same(times([1; 99].into_iter().chain([30])), 1, 1, 1);
        same(times([1; 98].into_iter().chain([30, 30])), 1, 1, 30);
        let long: Vec<u64> = (1..=1_000).map(|n| n * n).collect();
        let read = times(long.iter().copied()).percentiles().unwrap();
        for (read, rank) in [(read.p50, 500), (read.p95, 950), (read.p99, 990)] {
            let exact: u64 = long[rank - 1];
            assert!(read.abs_diff(exact) as f64 <= exact as f64 * Times::ERROR, "{read} for {exact}");
        }
    }

    #[test]
    fn merging_is_adding_all() {
        let (mut one, two) = (times([1, 50, 5_000]), times([50, 60_000]));
        one.merge(&two);
        assert_eq!(one, times([1, 50, 5_000, 50, 60_000]));
        one.add(Duration::MAX);
        assert_eq!(one.counts().map(|(_, count)| count).sum::<u64>(), 6);
    }
}
