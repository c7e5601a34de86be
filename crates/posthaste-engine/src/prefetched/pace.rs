//! How fast each flow, or each tenant, sends: the number of its sends in the last moments.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The stretch of time in which sends are counted.
pub(super) const WINDOW: Duration = Duration::from_millis(250);
/// The most flows or tenants whose sends are counted; beyond it all are forgotten and counted anew.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(super) struct Pace<K> {
    began: Instant,
    sends: HashMap<K, Sends>,
}

/// The sends in one window, and in the one before.
#[derive(Debug, Clone, Copy, Default)]
struct Sends {
    window: u128,
    now: u32,
    before: u32,
    /// The size of the last one: the next ones are expected to be as large.
    bytes: usize,
}

impl<K: Eq + Hash + Clone> Pace<K> {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, sends: HashMap::new() }
    }

    /// A send ended.
    pub(super) fn sent(&mut self, key: &K, bytes: usize, now: Instant) {
        let window = self.window(now);
        if !self.sends.contains_key(key) {
            if self.sends.len() >= MOST {
                self.sends.clear();
            }
            self.sends.insert(key.clone(), Sends::default());
        }
        let Some(sends) = self.sends.get_mut(key) else { return };
        *sends = sends.at(window);
        sends.now = sends.now.saturating_add(1);
        sends.bytes = bytes;
    }

    /// How many sends ended in a short while, and how large the next ones are expected to be.
    pub(super) fn recent(&self, key: &K, now: Instant) -> (u32, usize) {
        let Some(sends) = self.sends.get(key) else { return (0, 0) };
        let sends = sends.at(self.window(now));
        (sends.now.max(sends.before), sends.bytes)
    }

    /// The next ones are expected to be at least that large.
    pub(super) fn expect_bytes(&mut self, key: &K, bytes: usize) {
        if let Some(sends) = self.sends.get_mut(key) {
            sends.bytes = sends.bytes.max(bytes);
        }
    }

    fn window(&self, now: Instant) -> u128 {
        now.saturating_duration_since(self.began).as_millis() / WINDOW.as_millis()
    }
}

impl Sends {
    /// The same, seen in a later window.
    fn at(self, window: u128) -> Self {
        match window.saturating_sub(self.window) {
            0 => self,
            1 => Self { window, now: 0, before: self.now, ..self },
            _ => Self { window, now: 0, before: 0, ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_pace_is_that_of_the_busier_of_the_last_two_windows(
            sends in prop::collection::vec((0i64..3, 0u64..120), 1..60)
        ) {
            let begin = Instant::now();
            let mut pace = Pace::new(begin);
            let (mut now, mut made) = (begin, vec![]);
            for (flow, millis) in sends {
                now += Duration::from_millis(millis);
                pace.sent(&flow, 10, now);
                made.push((flow, now));
                let window = |at: Instant| (at - begin).as_millis() / WINDOW.as_millis();
                for flow in 0..3 {
                    let of = |index: u128| {
                        made.iter().filter(|(of, at)| *of == flow && window(*at) == index).count()
                    };
                    let last = window(now);
                    let expected = of(last).max(if last == 0 { 0 } else { of(last - 1) });
                    prop_assert_eq!(pace.recent(&flow, now).0 as usize, expected);
                }
            }
            prop_assert_eq!(pace.recent(&0, now + WINDOW * 2).0, 0, "one that stands still has none");
        }
    }
}
