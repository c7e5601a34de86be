//! Rates: how many may go in a second, smoothly, over all nodes; and how much of its traffic a destination in trouble gets as retries.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::Timestamp;

/// A rate in thousandths per second. In JSON: a number per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a number per second from 0.001 to 1000000")]
pub struct BadRate;

impl Rate {
    pub fn per_second(number: f64) -> Result<Self, BadRate> {
        let thousandths = (number * 1_000.0).round();
        if !(1.0..=1e9).contains(&thousandths) {
            return Err(BadRate);
        }
        Ok(Self(thousandths as u64))
    }

    pub fn as_per_second(self) -> f64 {
        self.0 as f64 / 1_000.0
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_f64(self.as_per_second())
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::per_second(f64::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// The place of a node among those that live, by which it knows its share of what is allowed to all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// How many nodes live; at least 1.
    nodes: u32,
    /// How many of them have a lower number.
    before: u32,
}

impl Share {
    pub const WHOLE: Self = Self { nodes: 1, before: 0 };

    /// The share of the node that has so many before it, of so many.
    pub fn new(before: u32, nodes: u32) -> Self {
        let nodes = nodes.max(1);
        Self { nodes, before: before.min(nodes - 1) }
    }

    /// The shares of all nodes add up to the whole. What is less than the number of nodes goes to the first ones.
    pub const fn of(self, whole: u32) -> u32 {
        whole / self.nodes + if self.before < whole % self.nodes { 1 } else { 0 }
    }

    pub fn of_rate(self, per_second: f64) -> f64 {
        per_second / f64::from(self.nodes)
    }

    /// How many nodes come before it.
    pub const fn place(self) -> u32 {
        self.before
    }

    /// Whether the node is the first, which does what one of them has to do.
    pub const fn is_first(self) -> bool {
        self.before == 0
    }
}

/// What a rate allows at one moment, with bursts of at most a tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    per_second: f64,
    available: f64,
    at: Timestamp,
}

impl RateLimit {
    /// The first may go at once. Less than one in 1,000 seconds counts as that.
    pub fn new(per_second: f64, now: Timestamp) -> Self {
        Self { per_second: per_second.max(0.001), available: 1.0, at: now }
    }

    /// The same limit with another rate; what is available is kept.
    #[must_use]
    pub fn with_rate(mut self, per_second: f64, now: Timestamp) -> Self {
        self.room(now);
        self.per_second = per_second.max(0.001);
        self.available = self.available.min(self.burst());
        self
    }

    pub const fn rate(&self) -> f64 {
        self.per_second
    }

    /// How many may go now.
    pub fn room(&mut self, now: Timestamp) -> u32 {
        self.available = self.available_at(now);
        self.at = self.at.max(now);
        whole(self.available)
    }

    /// The same without a change.
    pub fn room_at(&self, now: Timestamp) -> u32 {
        whole(self.available_at(now))
    }

    /// So many went.
    pub fn spend(&mut self, count: u32) {
        self.available -= f64::from(count);
    }

    /// So many did not go after all.
    pub fn give_back(&mut self, count: u32) {
        self.available = (self.available + f64::from(count)).min(self.burst());
    }

    /// When the next one may go.
    pub fn next_at(&self, now: Timestamp) -> Timestamp {
        let missing = 1.0 - self.available_at(now);
        if missing <= 0.0 {
            return now;
        }
        // A microsecond more, so that rounding never leaves it a little short.
        let wait = Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(Duration::MAX);
        now.max(self.at).later(wait.saturating_add(Duration::from_micros(1)))
    }

    fn available_at(&self, now: Timestamp) -> f64 {
        (self.available + now.since(self.at).as_secs_f64() * self.per_second).min(self.burst())
    }

    fn burst(&self) -> f64 {
        (self.per_second / 10.0).max(1.0)
    }
}

fn whole(available: f64) -> u32 {
    // A hair less than a whole one is one: sums of fractions are a little off.
    (available + 1e-9).max(0.0) as u32
}

/// How long attempts count for the retry budget.
pub const TRAFFIC_WINDOW: Duration = Duration::from_secs(600);
const STEP: Duration = Duration::from_secs(60);
/// So long after the last one, one more is allowed whatever the traffic.
const AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// Retries stay within one part in so many of the attempts.
const PART: u64 = 10;

/// The attempts that a destination got in the last 10 minutes, by the minute, and how many of them were retries and probes since
/// its breaker opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The oldest minute first.
    minutes: VecDeque<Minute>,
    last_retry: Option<Timestamp>,
    /// The one before, should the last not have gone after all.
    retry_before: Option<Timestamp>,
    /// Another node has the one in 10 s.
    is_without_least: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Minute {
    begins: Timestamp,
    attempts: u32,
    budgeted: u32,
}

impl Traffic {
    /// Attempts that no budget applies to.
    pub fn count(&mut self, attempts: u32, now: Timestamp) {
        let minute = self.minute(now);
        minute.attempts = minute.attempts.saturating_add(attempts);
    }

    /// Retries or probes that the budget applies to: they are attempts too.
    pub fn spend(&mut self, retries: u32, now: Timestamp) {
        let minute = self.minute(now);
        minute.attempts = minute.attempts.saturating_add(retries);
        minute.budgeted = minute.budgeted.saturating_add(retries);
        self.retry_before = self.last_retry;
        self.last_retry = Some(now);
    }

    /// So many attempts did not go after all.
    pub fn uncount(&mut self, attempts: u32) {
        if let Some(minute) = self.minutes.iter_mut().rev().find(|minute| minute.attempts > minute.budgeted) {
            minute.attempts = minute.attempts.saturating_sub(attempts).max(minute.budgeted);
        }
    }

    /// So many retries or probes did not go after all.
    pub fn unspend(&mut self, retries: u32) {
        if let Some(minute) = self.minutes.iter_mut().rev().find(|minute| minute.budgeted > 0) {
            let unspent = retries.min(minute.budgeted);
            minute.budgeted -= unspent;
            minute.attempts -= unspent;
        }
        self.last_retry = self.retry_before;
    }

    /// Another node sent a retry or a probe.
    pub fn heard_of_retry(&mut self, at: Timestamp) {
        self.last_retry = Some(self.last_retry.map_or(at, |last| last.max(at)));
        self.retry_before = self.last_retry;
    }

    /// Whether this node has the one in 10 s, which is one for all nodes.
    #[must_use]
    pub fn with_least(mut self, has_least: bool) -> Self {
        self.is_without_least = !has_least;
        self
    }

    /// The same, with what another knows: who has the one in 10 s, and when the last one went.
    #[must_use]
    pub fn joined(mut self, other: &Self) -> Self {
        self.is_without_least = other.is_without_least;
        if let Some(at) = other.last_retry {
            self.heard_of_retry(at);
        }
        self
    }

    /// How many retries and probes may go now: a tenth of the attempts in the window, those that went counted in, and one in 10 s.
    pub fn room(&self, now: Timestamp) -> u32 {
        let (mut attempts, mut budgeted) = (0u64, 0u64);
        for minute in &self.minutes {
            // Of a minute that is only partly in the window the retries count and the attempts do not.
            let age = now.since(minute.begins);
            attempts += if age < TRAFFIC_WINDOW { u64::from(minute.attempts) } else { 0 };
            budgeted += if age < TRAFFIC_WINDOW + STEP { u64::from(minute.budgeted) } else { 0 };
        }
        // Each further one is an attempt itself: (budgeted + n) * 10 <= attempts + n.
        let by_traffic = attempts.saturating_sub(budgeted * PART) / (PART - 1);
        let rested =
            !self.is_without_least && self.last_retry.is_none_or(|last| now.since(last) >= AT_LEAST_EVERY);
        u32::try_from(by_traffic.max(u64::from(rested))).unwrap_or(u32::MAX)
    }

    /// When the next one is allowed at the latest; when to ask again, if that is for another node.
    pub fn next_at(&self, now: Timestamp) -> Timestamp {
        if self.is_without_least {
            return now.later(AT_LEAST_EVERY);
        }
        self.last_retry.map_or(now, |last| last.later(AT_LEAST_EVERY).max(now))
    }

    /// Whether nothing in it counts any more.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.minutes.back().is_none_or(|minute| now.since(minute.begins) >= TRAFFIC_WINDOW + STEP)
    }

    fn minute(&mut self, now: Timestamp) -> &mut Minute {
        while self.minutes.front().is_some_and(|minute| now.since(minute.begins) >= TRAFFIC_WINDOW + STEP) {
            self.minutes.pop_front();
        }
        let is_current = self.minutes.back().is_some_and(|minute| now.since(minute.begins) < STEP);
        if !is_current {
            self.minutes.push_back(Minute { begins: now, attempts: 0, budgeted: 0 });
        }
        self.minutes.back_mut().expect("there is a current minute")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_rate_is_read_as_it_is_written_and_nonsense_is_refused() {
        for number in [0.001, 0.5, 50.0, 1_000_000.0] {
            let rate = Rate::per_second(number).unwrap();
            assert_eq!(serde_json::from_str::<Rate>(&serde_json::to_string(&rate).unwrap()).unwrap(), rate);
            assert_eq!(rate.as_per_second(), number);
        }
        for number in [0.0, -1.0, 0.0001, 1e7, f64::NAN, f64::INFINITY] {
            assert_eq!(Rate::per_second(number), Err(BadRate), "{number}");
        }
    }

    #[test]
    fn a_concurrency_below_the_number_of_nodes_goes_to_the_first() {
        let shares = |whole| [0, 1, 2].map(|before| Share::new(before, 3).of(whole));
        assert_eq!(shares(2), [1, 1, 0]);
        assert_eq!(shares(3), [1, 1, 1]);
        assert_eq!(shares(20), [7, 7, 6]);
        assert_eq!(Share::WHOLE.of(5), 5);
        assert!(Share::new(0, 3).is_first() && !Share::new(1, 3).is_first());
    }

    #[test]
    fn a_budget_is_a_tenth_of_the_traffic_and_one_in_ten_seconds() {
        let mut traffic = Traffic::default();
        assert_eq!(traffic.room(at(0)), 1);
        traffic.spend(1, at(0));
        assert_eq!((traffic.room(at(9_999)), traffic.room(at(10_000))), (0, 1));
        assert_eq!(traffic.next_at(at(4_000)), at(10_000));
        traffic.count(1_000, at(5_000));
        assert_eq!(traffic.room(at(6_000)), (1_001 - 10) / 9);
        traffic.spend(110, at(6_000));
        assert_eq!(traffic.room(at(6_001)), 0);
        // Ten minutes later none of it counts.
        assert_eq!(traffic.room(at(606_000)), 1);
        assert!(!traffic.is_over(at(606_000)) && traffic.is_over(at(660_000)));
    }

    #[test]
    fn what_did_not_go_is_not_spent_and_one_node_has_the_least() {
        let mut traffic = Traffic::default();
        traffic.count(100, at(0));
        traffic.spend(11, at(1));
        assert_eq!(traffic.room(at(2)), 0);
        traffic.unspend(11);
        traffic.uncount(10);
        assert_eq!(traffic.room(at(2)), 10);
        let second = Traffic::default().with_least(false);
        assert_eq!((second.room(at(0)), second.next_at(at(0))), (0, at(10_000)));
        // The node before it is gone.
        let first = second.joined(&Traffic::default().with_least(true));
        assert_eq!(first.room(at(0)), 1);
        let mut heard = Traffic::default();
        heard.heard_of_retry(at(5_000));
        assert_eq!((heard.room(at(6_000)), heard.room(at(15_000))), (0, 1));
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_whole(whole in any::<u32>(), nodes in 1u32..50) {
            let sum: u64 = (0..nodes).map(|before| u64::from(Share::new(before, nodes).of(whole))).sum();
            prop_assert_eq!(sum, u64::from(whole));
        }

        #[test]
        fn no_second_gets_more_than_the_rate_and_a_tenth(
            per_second in 0.1f64..5_000.0, pauses in prop::collection::vec(0i64..300, 1..300)
        ) {
            let (mut limit, mut now) = (RateLimit::new(per_second, at(0)), 0);
            let mut went: Vec<(i64, u32)> = vec![];
            for pause in pauses {
                now += pause;
                let room = limit.room(at(now));
                limit.spend(room);
                went.push((now, room));
                let in_second: u32 = went.iter().filter(|(when, _)| now - when < 1_000).map(|(_, count)| count).sum();
                prop_assert!(f64::from(in_second) <= per_second + (per_second / 10.0).max(1.0) + 1e-6);
            }
        }

        #[test]
        fn the_next_one_may_go_at_the_time_that_is_named_and_not_before(
            per_second in 0.01f64..5_000.0, begun in 0i64..100_000
        ) {
            let mut limit = RateLimit::new(per_second, at(0));
            let room = limit.room(at(begun));
            limit.spend(room);
            let next = limit.next_at(at(begun));
            prop_assert!(limit.room_at(next) >= 1);
            prop_assert_eq!(limit.room_at(next.earlier(Duration::from_micros(3))), 0);
        }

        #[test]
        fn more_than_one_in_ten_seconds_stay_within_a_tenth_of_the_attempts(
            steps in prop::collection::vec((0i64..20_000, 0u32..500), 1..200)
        ) {
            let (mut traffic, mut now) = (Traffic::default(), 0);
            let mut all: Vec<(i64, u32, u32)> = vec![];
            for (pause, attempts) in steps {
                now += pause;
                traffic.count(attempts, at(now));
                let room = traffic.room(at(now));
                traffic.spend(room, at(now));
                all.push((now, attempts + room, room));
                let recent = all.iter().filter(|(when, _, _)| now - when < 600_000);
                let (sum, retries) = recent.fold((0u64, 0u64), |(sum, retries), (_, one, of)| {
                    (sum + u64::from(*one), retries + u64::from(*of))
                });
                prop_assert!(room <= 1 || retries * 10 <= sum, "{retries} of {sum}");
            }
        }
    }
}
